# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint in broker memory: saved by some ranks, loaded by others."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from processes import environment

from arraybridge import Broker, Checkpoints, InvalidRequest, ShareNotFound

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
from arraybridge.dcp import BrokerStorageReader, BrokerStorageWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
PROGRAM = Path(__file__).with_name("dcp_program.py")
Ranks = Callable[..., list[str]]


@pytest.fixture
def ranks(broker: Broker, tmp_path: Path) -> Ranks:
    """Runs so many ranks, each with these commands; their outputs. `well=False`: they may fail."""

    meetings = 0

    def run(number: int, *commands: str, well: bool = True) -> list[str]:
        nonlocal meetings
        meetings += 1
        variables = environment(ARRAYBRIDGE_ADDRESS=broker.address, ARRAYBRIDGE_NAMESPACE=broker.namespace)
        running = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(rank), str(number), str(tmp_path), f"m{meetings}", *commands],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables,
            )
            for rank in range(number)
        ]  # fmt: skip
        outputs = [each.communicate()[0] for each in running]
        assert not well or [each.returncode for each in running] == [0] * number, "\n".join(outputs)
        return outputs

    return run


def forget(broker: Broker) -> None:
    """As if the broker had lost its memory."""
    for listed in broker.list("checkpoints/"):
        listed.share.withdraw()


def test_two_ranks_save_and_other_numbers_of_ranks_load(broker: Broker, ranks: Ranks, tmp_path: Path) -> None:
    ranks(2, "save:1", "save:2", "async:3")
    assert all("loaded 3" in output and "loaded 2" in output for output in ranks(3, "load:", "load:2"))
    forget(broker)
    assert all("loaded 3" in output for output in ranks(1, "load:"))
    files = pytest.importorskip("safetensors.torch").load_file(tmp_path / "ckpt" / "run-rank1-000000000003.safetensors")
    assert torch.equal(files["weight@12,0"], torch.arange(72, 144, dtype=torch.float32).reshape(12, 6) + 3)


def test_a_step_that_a_rank_did_not_finish_is_none_and_is_saved_again(ranks: Ranks) -> None:
    ranks(2, "save:1", "save:2", "die:3", well=False)
    assert all("loaded 2" in output and "loaded 4" in output for output in ranks(2, "load:", "save:3", "save:4", "load:4"))


@pytest.fixture
def storage(broker: Broker, tmp_path: Path):
    with BrokerStorageWriter("run", tmp_path / "ckpt", broker=broker) as writer:
        yield writer, BrokerStorageReader("run", tmp_path / "ckpt", broker=broker)


def save(writer, step: object, value: float = 1.0) -> None:
    dcp.save({"x": torch.full((4,), value), "note": {"a": value}}, checkpoint_id=step, storage_writer=writer, no_dist=True)


def load(reader, step: object = None) -> list[float]:
    found = {"x": torch.zeros(4), "note": {"a": 0.0}}
    dcp.load(found, checkpoint_id=step, storage_reader=reader, no_dist=True)
    return [*found["x"].tolist(), found["note"]["a"]]


def test_a_process_without_a_group_saves_and_loads(storage) -> None:
    writer, reader = storage
    assert reader.latest() is None
    save(writer, 0, 3)
    assert reader.latest() == 0
    save(writer, 7, 7)
    assert reader.latest() == 7 and load(reader) == load(reader, "7") == [7.0] * 5


def test_wrong_ids_and_steps_are_errors_that_say_what_to_do(storage) -> None:
    writer, reader = storage
    with pytest.raises(InvalidRequest, match=r"must be the number of the step, such as 100, not '/tmp/x'"):
        save(writer, "/tmp/x")
    save(writer, 5)
    with pytest.raises(dcp.api.CheckpointException, match=r"step 5 is not later than 5, .* rewind\(4\)"):
        save(writer, 5)
    save(writer, 6, 6)
    writer.rewind(5)
    assert reader.latest() == 5
    save(writer, 6, 8)
    assert load(reader) == [8.0] * 5
    with pytest.raises(dcp.api.CheckpointException, match="there is no checkpoint 9"):
        load(reader, 9)
    with pytest.raises(InvalidRequest, match="use_collectives=True"):
        dcp.save({"x": torch.zeros(1)}, checkpoint_id="9", storage_writer=writer, use_collectives=False)


def test_a_step_whose_part_is_gone_or_damaged_is_not_the_latest(broker: Broker, storage, tmp_path: Path) -> None:
    writer, reader = storage
    for step in (1, 2, 3):
        save(writer, step, step)
    writer.flush()
    forget(broker)
    (tmp_path / "ckpt" / "run-rank0-000000000003.safetensors").unlink()
    assert reader.latest() == 2 and load(reader) == [2.0] * 5
    with pytest.raises(dcp.api.CheckpointException, match="step 3 of 'run' is not complete: what rank 0 saved is gone"):
        load(reader, 3)
    Checkpoints("run", tmp_path / "other", broker=broker).save(4, {"metadata": np.zeros(3, np.uint8)})
    with pytest.raises(dcp.api.CheckpointException, match="metadata of this checkpoint is damaged"):
        load(BrokerStorageReader("run", tmp_path / "other", broker=broker), 4)


def test_objects_of_the_metadata_are_never_unpickled(broker: Broker, storage, tmp_path: Path) -> None:
    writer, _ = storage
    save(writer, 1)
    writer.flush()
    safetensors = pytest.importorskip("safetensors.numpy")
    text = safetensors.load_file(tmp_path / "ckpt" / "run-000000000001.safetensors")["metadata"].tobytes()
    assert json.loads(text)["entries"]["x"]["size"] == [4]


def test_an_earlier_step_stays_in_memory_until_it_is_on_the_disk(broker: Broker, tmp_path: Path) -> None:
    with Checkpoints("slow", tmp_path, broker=broker) as saved:
        for step in (1, 2, 3):
            saved.save(step, {"x": np.full(1 << 20, step)})
            assert set(range(1, step + 1)) <= set(saved.steps(memory=True))
        assert int(saved.load(2)["x"][0]) == 2
        with pytest.raises(ShareNotFound, match=r"there is no checkpoint 9: .*steps: "):
            saved.load(9)
        saved.rewind(2)
        assert saved.steps(memory=True) == [1, 2] and saved.latest().step == 2
        saved.save(3, {"x": np.full(2, 30)})
        assert int(saved.latest().state["x"][0]) == 30
        for wrong in (-1, "x", True):
            with pytest.raises(InvalidRequest, match="a step must be a whole number"):
                saved.load(wrong)
