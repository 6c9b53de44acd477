# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: states that outlive trainers, brokers and damaged files."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from processes import Client, environment, start_daemon, stop_daemon

import arraybridge
from arraybridge import Broker, Checkpoints, InvalidRequest

torch = pytest.importorskip("torch")


def state(value: float = 1.0) -> dict:
    return {
        "model": {"layer.weight": torch.full((3, 4), value), "layer.bias": torch.full((4,), value, dtype=torch.bfloat16)},
        "optimizer": {"state": {0: {"step": np.int64(value)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}]},
        "seed": None,
    }


def same(found: dict, value: float = 1.0) -> None:
    assert torch.equal(found["model"]["layer.weight"], torch.full((3, 4), value))
    assert torch.equal(found["model"]["layer.bias"], torch.full((4,), value, dtype=torch.bfloat16))
    assert int(found["optimizer"]["state"][0]["step"]) == value and found["seed"] is None
    assert found["optimizer"]["param_groups"] == [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}]
    assert list(found) == ["model", "optimizer", "seed"]


@pytest.fixture
def made(broker: Broker, tmp_path: Path):
    opened: list[Checkpoints] = []

    def make(name: str = "run", **options) -> Checkpoints:
        opened.append(Checkpoints(name, tmp_path / "ckpt", broker=broker, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def forget(broker: Broker) -> None:
    """As if the broker had lost its memory."""
    for listed in broker.list("checkpoints/"):
        listed.share.withdraw()


def test_a_state_comes_back_from_memory_and_from_the_disk(broker: Broker, made) -> None:
    saved = made()
    assert saved.latest() is None and saved.steps() == []
    saved.save(5, state(5))
    step, found = saved.latest("torch")
    assert step == 5
    same(found, 5)
    saved.flush()
    assert saved.steps() == [5]
    forget(broker)
    step, found = saved.latest("torch")
    assert step == 5
    same(found, 5)
    assert saved.latest("numpy").state["model"]["layer.weight"].tolist() == [[5.0] * 4] * 3
    saved.close()
    same(made().latest("torch").state, 5)


def test_only_the_latest_state_takes_memory_and_so_many_files_stay(broker: Broker, made, tmp_path: Path) -> None:
    saved = made(keep=2)
    for step in range(6):
        saved.save(step, state(step))
    saved.flush()
    assert saved.steps() == [4, 5] and [listed.share.name.rpartition("/")[2] for listed in broker.list("checkpoints/")] == ["5"]
    everything = made("other", keep=None)
    for step in (1, 7, 30):
        everything.save(step, {"x": np.ones(3)})
    everything.close()
    assert everything.steps() == [1, 7, 30] and saved.steps() == [4, 5]


def test_other_programs_read_the_files_by_the_names_of_the_arrays(made, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    saved = made()
    saved.save(12, state(2) | {"more": [np.arange(3), (np.ones(2), {"a": np.zeros(1), "a.b": np.ones(1)}), {"a": {"b": np.zeros(1)}}]})
    saved.close()
    [file] = (tmp_path / "ckpt").glob("*.safetensors")
    found = safetensors.load_file(file)
    assert file.name == "run-000000000012.safetensors"
    assert torch.equal(found["model.layer.weight"], torch.full((3, 4), 2.0)) and found["more.0"].tolist() == [0, 1, 2]
    assert set(found) == {
        "model.layer.weight", "model.layer.bias", "optimizer.state.0.step", "more.0", "more.1.0", "more.1.1.a", "more.1.1.a.b", "more.2.a.b",
    }  # fmt: skip


def test_paths_that_are_alike_have_names_of_their_own(broker: Broker, made) -> None:
    saved = made()
    tree = {
        "a.b": np.full(2, 1.0),
        "a": {"b": np.full(2, 2.0), "b~2": np.full(2, 3.0)},
        "x" * 300: [np.full(1, float(i)) for i in range(12)],
    }
    saved.save(1, tree)
    saved.flush()
    forget(broker)
    found = saved.latest().state
    assert [found["a.b"][0], found["a"]["b"][0], found["a"]["b~2"][0]] == [1, 2, 3]
    assert [each[0] for each in found["x" * 300]] == list(range(12))


def test_sparse_arrays_records_and_many_arrays_are_saved(broker: Broker, made) -> None:
    scipy = pytest.importorskip("scipy.sparse")
    saved = made()
    many = {f"w{i}": np.full(2, i) for i in range(3000)}  # more than a share's description has
    saved.save(1, {"matrix": scipy.csr_array(np.eye(3)), "many": many})
    saved.flush()
    forget(broker)
    found = saved.latest().state
    assert found["matrix"].toarray().tolist() == np.eye(3).tolist() and all((found["many"][f"w{i}"] == i).all() for i in range(3000))


def test_a_state_without_arrays_is_saved(broker: Broker, made) -> None:
    saved = made()
    saved.save(1, {"epoch": 3, "seen": ["a", "b"]})
    saved.flush()
    forget(broker)
    assert saved.latest().state == {"epoch": 3, "seen": ["a", "b"]}


TRAINER = """
import os, sys, threading
import numpy as np
import arraybridge
from arraybridge import Broker, Checkpoints
from arraybridge.keep import checkpoint_files
broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
saved = Checkpoints("run", sys.argv[3], broker=broker)
if len(sys.argv) > 4:
    def stopped(self, step, *_):
        if step >= int(sys.argv[4]):
            os.write(1, b"writes\\n")
            threading.Event().wait()
        return write(self, step, *_)
    write = checkpoint_files.CheckpointFiles.write
    checkpoint_files.CheckpointFiles.write = stopped
for step in (1, 2):
    saved.save(step, {"x": np.full(1000, float(step))})
    if len(sys.argv) <= 4:
        saved.flush()
os.write(1, b"saved\\n")
sys.stdin.read()
"""


def trainer(broker: Broker, folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAINER, broker.address, broker.namespace, str(folder), *words]
    return subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_killed_trainer_leaves_its_latest_state_in_memory(broker: Broker, tmp_path: Path) -> None:
    with trainer(broker, tmp_path, "2") as running:
        assert running.stdout is not None
        assert {running.stdout.readline(), running.stdout.readline()} == {"saved\n", "writes\n"}
        running.kill()
    with Checkpoints("run", tmp_path, broker=broker) as saved:
        assert saved.steps() == [1]
        step, found = saved.latest()
        assert step == 2 and found["x"].sum() == 2000
        with pytest.raises(InvalidRequest, match="step 2 is not later than 2"):
            saved.save(2, {"x": np.ones(1)})
        saved.flush()
        assert saved.steps() == [1, 2], "the next process writes what the killed one could not"
        saved.save(3, {"x": np.ones(1)})
    assert saved.steps() == [1, 2, 3]


def test_a_file_that_a_killed_trainer_did_not_finish_is_removed(broker: Broker, tmp_path: Path) -> None:
    with Checkpoints("run", tmp_path, broker=broker) as saved:
        saved.save(1, {"x": np.ones(3)})
    (tmp_path / ".run-000000000002.safetensors.0123456789abcdef").write_bytes(b"half")
    with Checkpoints("run", tmp_path, broker=broker) as saved:
        assert saved.latest().step == 1
        saved.save(2, {"x": np.ones(3)})
    assert sorted(os.listdir(tmp_path)) == [".run.id", "run-000000000001.safetensors", "run-000000000002.safetensors"]


def test_states_outlive_the_broker_and_all_processes_read_once(tmp_path: Path, client: Client) -> None:
    for life in range(2):
        daemon = start_daemon(str(tmp_path / "b"), "--log-level", "error")
        with Broker(tmp_path / "b", start="never") as broker, Checkpoints("run", tmp_path / "ckpt", broker=broker) as saved:
            if life == 0:
                saved.save(3, state(3))
            else:
                reader = (
                    "import sys; from arraybridge import Broker, Checkpoints\n"
                    "saved = Checkpoints('run', sys.argv[3], broker=Broker(sys.argv[2], start='never'))\n"
                    "print(saved.latest('torch').state['model']['layer.weight'].sum().item())"
                )
                results: list[str] = []
                threads = [
                    threading.Thread(target=lambda: results.append(client(reader, str(tmp_path / "b"), str(tmp_path / "ckpt"))))
                    for _ in range(3)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert results == ["36\n"] * 3
                [listed] = broker.list("checkpoints/")
                assert listed.share.name.endswith("/3")
        assert stop_daemon(daemon) == 0


DAMAGE = {
    "a bit of an array": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "cut off": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a bit of the structure": lambda data: data.replace(b'optimizer\\"', b'optimized\\"', 1),
    "no checkpoint": lambda data: data.replace(b"arraybridge.tree", b"arraybridge.free", 1),
    "no JSON": lambda data: data.replace(b"{", b"[", 1),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_set_aside_and_the_state_before_is_used(broker: Broker, made, tmp_path: Path, damage) -> None:
    saved = made()
    for step in (1, 2):
        saved.save(step, state(step))
    saved.close()
    forget(broker)
    file = tmp_path / "ckpt" / "run-000000000002.safetensors"
    data = file.read_bytes()
    file.write_bytes(damage(data))
    assert file.read_bytes() != data
    with pytest.warns(RuntimeWarning, match=r"run-000000000002.safetensors.*; it is run-000000000002.safetensors.damaged now"):
        step, found = saved.latest("torch")
    assert step == 1 and saved.steps() == [1]
    same(found, 1)
    assert made().latest("torch").step == 1


def test_wrong_options_of_latest_damage_nothing(broker: Broker, made) -> None:
    saved = made()
    saved.save(1, state())
    saved.flush()
    forget(broker)
    with pytest.raises(InvalidRequest):
        saved.latest("torch", copy=True, require="zero-copy")
    with pytest.raises(arraybridge.InvalidMemoryType):
        saved.latest("pytorc")
    assert saved.steps() == [1]
    same(saved.latest("torch").state)


def test_another_folder_of_the_same_path_has_other_states(broker: Broker, tmp_path: Path) -> None:
    for value in (1, 2):
        with Checkpoints("run", tmp_path / "ckpt", broker=broker) as saved:
            assert saved.latest() is None
            saved.save(10, {"x": np.full(3, value)})
            assert saved.latest().state["x"].tolist() == [value] * 3
        for each in (tmp_path / "ckpt").iterdir():
            each.unlink()
        (tmp_path / "ckpt").rmdir()


def test_two_processes_cannot_save_one_series(broker: Broker, tmp_path: Path) -> None:
    with trainer(broker, tmp_path) as running:
        assert running.stdout is not None and running.stdout.readline() == "saved\n"
        with Checkpoints("run", tmp_path, broker=broker) as saved:
            assert saved.latest().step == 2
            with pytest.raises(InvalidRequest, match=r"another process saves checkpoints 'run' in .*: let one process save"):
                saved.save(3, {"x": np.ones(1)})
            with Checkpoints("other", tmp_path, broker=broker) as other:
                other.save(3, {"x": np.ones(1)})
            running.communicate("")
            saved.save(3, {"x": np.ones(1)})


FULL = """
import resource, sys
import numpy as np
from arraybridge import Broker, Checkpoints
broker = Broker(sys.argv[2], namespace=sys.argv[3], start="never")
saved = Checkpoints("run", sys.argv[4], broker=broker)
saved.save(1, {"x": np.ones(10)})
saved.flush()
saved.latest()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
saved.save(2, {"x": np.ones(100_000)})
for again in (saved.flush, saved.close):
    try:
        again()
    except OSError as error:
        print(error.errno)
print(saved.steps(), saved.latest().step)
"""


def test_a_full_disk_is_told_and_the_state_stays_in_memory(broker: Broker, client: Client, tmp_path: Path) -> None:
    output = client(FULL, broker.address, broker.namespace, str(tmp_path))
    assert output == "27\n[1] 2\n"
    assert sorted(os.listdir(tmp_path)) == [".run.id", "run-000000000001.safetensors"]


def test_saves_wait_for_a_slow_disk(made, monkeypatch: pytest.MonkeyPatch) -> None:
    from arraybridge.keep.checkpoint_files import CheckpointFiles

    go, begun = threading.Event(), threading.Event()
    write = CheckpointFiles.write

    def slow(self, *arguments) -> None:
        begun.set()
        go.wait()
        write(self, *arguments)

    monkeypatch.setattr(CheckpointFiles, "write", slow)
    saved = made()
    for step in (1, 2):
        saved.save(step, {"x": np.ones(3)})
    third = threading.Thread(target=saved.save, args=(3, {"x": np.ones(3)}))
    third.start()
    begun.wait()
    third.join(0.3)
    assert third.is_alive() and saved.latest().step == 2
    go.set()
    third.join()
    saved.flush()
    assert saved.steps() == [1, 2, 3]


WRONG = [
    ((-1, {"x": np.ones(1)}), "step must be a whole number"), ((True, {"x": np.ones(1)}), "step must be"),
    ((1.0, {"x": np.ones(1)}), "step must be"), ((1, np.ones(3)), "must be a tree"),
    ((1, {"x": np.ones(3, "c16")}), "cannot have an array of complex128"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_states_and_steps_are_refused_and_leave_nothing(broker: Broker, made, arguments, text) -> None:
    saved = made()
    with pytest.raises(InvalidRequest, match=text):
        saved.save(*arguments)
    assert broker.list() == [] and saved.steps() == []
    saved.save(1, {"x": np.ones(1)})


def test_a_table_is_refused(broker: Broker, made) -> None:
    pandas = pytest.importorskip("pandas")
    saved = made()
    with pytest.raises(InvalidRequest, match="cannot have a table, at 'frame': save its columns"):
        saved.save(1, {"frame": pandas.DataFrame({"a": [1]}), "x": np.ones(1)})
    assert broker.list() == []


@pytest.mark.parametrize("name", ["", "a/b", "..", ".x", "a b", "x" * 65, 5])
def test_a_name_that_no_file_can_have_is_refused(broker: Broker, tmp_path: Path, name) -> None:
    with pytest.raises(InvalidRequest, match="name of checkpoints"):
        Checkpoints(name, tmp_path, broker=broker)
    with pytest.raises(InvalidRequest, match="keep must be"):
        Checkpoints("run", tmp_path, broker=broker, keep=0)


def test_a_forked_child_is_told(made) -> None:
    saved = made()
    saved.save(1, {"x": np.ones(1)})
    saved.flush()
    child = os.fork()
    if child == 0:
        try:
            saved.save(2, {"x": np.ones(1)})
        except InvalidRequest as error:
            os._exit(0 if "before a fork" in str(error) else 3)
        os._exit(4)
    assert os.waitpid(child, 0)[1] == 0
    saved.save(2, {"x": np.ones(1)})


def test_a_child_that_outlives_the_trainer_does_not_keep_it_from_saving(broker: Broker, made, tmp_path: Path) -> None:
    code = (
        "import arraybridge, numpy as np, os, sys, time\n"
        "broker = arraybridge.Broker(sys.argv[1], start='never')\n"
        "saved = arraybridge.Checkpoints('run', sys.argv[2], broker=broker)\n"
        "saved.save(1, {'w': np.ones(3)}); saved.flush()\n"
        "child = os.fork()\n"
        "if child == 0:\n    time.sleep(60); os._exit(0)\n"
        "print(child, flush=True); time.sleep(60)\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(broker.address), str(tmp_path / "ckpt")],
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert trainer.stdout is not None
    child = int(trainer.stdout.readline())
    try:
        trainer.kill()
        trainer.wait()
        saved = made()
        assert saved.latest().step == 1
        saved.save(2, {"w": np.ones(3)})
    finally:
        os.kill(child, signal.SIGKILL)


def test_several_processes_may_find_one_damaged_file(broker: Broker, made, monkeypatch) -> None:
    saved = made()
    for step in (1, 2):
        saved.save(step, {"w": np.full(3, step)})
    saved.flush()
    forget(broker)
    path = next(Path(saved._files._folder).glob("*2.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    aside = type(saved._files).set_aside

    def both(files, step):
        aside(files, step)  # another process is faster
        return aside(files, step)

    monkeypatch.setattr(type(saved._files), "set_aside", both)
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert saved.latest().step == 1
