# SPDX-License-Identifier: Apache-2.0
"""What goes through channels comes back from a file: bit for bit, in order, in any framework, with the ends of its streams."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from recordings import PATIENCE_S, Taken, arrays_of, events_of, eventually, mcap_reader, messages_of, sender

from arraybridge import Broker, InvalidRequest, PeerGone
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.broker.due import NEVER
from arraybridge.broker.message import Message
from arraybridge.planner import CODES
from arraybridge.recording import Recorder, replay, tee

torch = pytest.importorskip("torch", reason="torch is not installed")


class Pose(NamedTuple):
    place: Any
    name: str


def test_frames_come_back_in_order_with_their_metadata_in_another_framework(broker: Broker, tmp_path: Path) -> None:
    frames = [np.random.default_rng(number).integers(0, 255, (48, 64, 3), "u1") for number in range(30)]
    out = sender(broker, "frames")
    with Recorder(tmp_path / "run.mcap", ["frames"], broker=broker) as recorder:
        for number, frame in enumerate(frames):
            out.send(frame, metadata=b"frame %d" % number)
        out.close()
        assert recorder.wait(PATIENCE_S)
    counts = recorder.close()["frames"]
    assert (counts.messages, counts.missed, counts.ended) == (30, 0, True)
    taken = Taken(broker, "test", "torch")
    done = replay(tmp_path / "run.mcap", broker=broker, speed=float("inf"), rename={"frames": "test"}, timeout=PATIENCE_S)
    received = taken.all()
    assert done.messages == {"test": 30} and done.whole
    assert [each.metadata for each in received] == [b"frame %d" % number for number in range(30)]
    assert all(type(each.array) is torch.Tensor for each in received)
    assert all(np.array_equal(each.array.numpy(), frame) for each, frame in zip(received, frames, strict=True))


def raw(channel: Any) -> list[tuple[str, tuple[int, int, int], tuple[int, ...], bytes]]:
    """The arrays of the next message: dtype, code, shape and bytes."""
    _, views = channel._on("receiver", lambda end: end.receive(False, PATIENCE_S, False))
    return [(view.dtype_name, view.dtype_code, view.shape, bytes(memoryview(view.as_bytes()))) for view in views]


@pytest.mark.parametrize("dtype", sorted(CODES))
def test_every_dtype_is_bit_exact(broker: Broker, tmp_path: Path, dtype: str) -> None:
    view = numpy_adapter.empty_view(dtype, CODES[dtype], (3, 5))
    bits = np.asarray(memoryview(view.as_bytes()))
    bits[...] = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 256, bits.shape, "u1")
    out = sender(broker, "numbers")
    with Recorder(tmp_path / "run.mcap", ["numbers"], broker=broker) as recorder:
        out.send(view)
        out.close()
        assert recorder.wait(PATIENCE_S)
    into = broker.channel("test").open("receiver")
    replay(tmp_path / "run.mcap", broker=broker, rename={"numbers": "test"}, timeout=PATIENCE_S)
    assert raw(into) == [(dtype, CODES[dtype], (3, 5), bits.tobytes())]
    into.close()


TREES = {
    "nested": {"left": [np.arange(6).reshape(2, 3), "text", None], "right": (np.float32(2) * np.ones(3, "f4"), {"deep": np.zeros(0)})},
    "record": Pose(np.arange(3.0), "home"),
    "dates": {"at": np.array(["2026-11-30", "NaT"], "M8[s]"), "rows": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])},
    "scalar": np.array(3.5),
    "empty": np.empty((0, 4), "u2"),
    "complex": [np.array([1 + 2j]), np.arange(4, dtype="f2"), np.array([True, False])],
}


@pytest.mark.parametrize("name", TREES)
def test_trees_come_back_as_they_were(broker: Broker, tmp_path: Path, name: str) -> None:
    out = sender(broker, "trees")
    with Recorder(tmp_path / "run.mcap", ["trees"], broker=broker, compression="zstd") as recorder:
        out.send(TREES[name])
        out.close()
        assert recorder.wait(PATIENCE_S)
    taken = Taken(broker, "test")
    replay(tmp_path / "run.mcap", broker=broker, rename={"trees": "test"}, timeout=PATIENCE_S)
    (received,) = taken.all()
    assert_same(received.array, TREES[name])


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert all(assert_same(found[key], expected[key]) is None for key in expected)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        assert all(assert_same(one, other) is None for one, other in zip(found, expected, strict=True))
    else:
        assert found == expected


def test_a_table_comes_back(broker: Broker, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pyarrow.table({"x": [1.0, None, 3.0], "name": ["a", "bc", None], "at": [[1, 2], [], [3]]})
    out = sender(broker, "tables")
    with Recorder(tmp_path / "run.mcap", ["tables"], broker=broker) as recorder:
        out.send(table)
        out.close()
        assert recorder.wait(PATIENCE_S)
    taken = Taken(broker, "test", "pyarrow")
    replay(tmp_path / "run.mcap", broker=broker, rename={"tables": "test"}, timeout=PATIENCE_S)
    (received,) = taken.all()
    assert received.array.equals(table)


def test_a_tree_that_is_too_large_for_a_description_comes_back(broker: Broker, tmp_path: Path) -> None:
    large = {f"array {number}": np.full(2, number) for number in range(3000)}
    out = sender(broker, "trees")
    with Recorder(tmp_path / "run.mcap", ["trees"], broker=broker) as recorder:
        out.send(large)
        out.close()
        assert recorder.wait(PATIENCE_S)
    taken = Taken(broker, "test")
    replay(tmp_path / "run.mcap", broker=broker, rename={"trees": "test"}, timeout=PATIENCE_S)
    (received,) = taken.all()
    assert_same(received.array, large)


def test_other_programs_read_the_file(broker: Broker, tmp_path: Path) -> None:
    """mcap's own reader finds channels, times, sequences and checksums; safetensors the arrays."""
    outs = {name: sender(broker, name) for name in ("left", "right")}
    before = time.time_ns()
    with Recorder(tmp_path / "run.mcap", list(outs), broker=broker, compression="zstd") as recorder:
        for number in range(5):
            outs["left"].send(np.full(4, number))
            outs["right"].send({"a": np.full(2, number), "b": np.ones(3, "f4")}, metadata=bytes([number]))
        for out in outs.values():
            out.close()
        assert recorder.wait(PATIENCE_S)
    with open(tmp_path / "run.mcap", "rb") as file:
        reader = mcap_reader.make_reader(file, validate_crcs=True)
        summary, header = reader.get_summary(), reader.get_header()
        notes = {each.name: each.metadata for each in reader.iter_metadata()}
    assert header.profile == "arraybridge" and summary.statistics.message_count == 12
    topics = {each.topic: each for each in summary.channels.values()}
    assert topics["left"].message_encoding == "safetensors" and topics["left"].metadata["namespace"] == broker.namespace
    assert notes == {"arraybridge.recording": {"left: messages": "5", "left: missed": "0", "right: messages": "5", "right: missed": "0"}}
    left, right = messages_of(tmp_path / "run.mcap", "left"), messages_of(tmp_path / "run.mcap", "right")
    assert [each.sequence for each in left] == [1, 2, 3, 4, 5]
    assert all(before <= each.publish_time <= each.log_time <= time.time_ns() for each in [*left, *right])
    for number, (one, two) in enumerate(zip(left, right, strict=True)):
        assert np.array_equal(arrays_of(one)["array"], np.full(4, number))
        assert {name: each.tolist() for name, each in arrays_of(two).items()} == {"0": [number] * 2, "1": [1.0] * 3}
    header_length = int.from_bytes(right[0].data[:8], "little")
    facts = json.loads(right[0].data[8 : 8 + header_length])["__metadata__"]
    assert json.loads(facts["structure"]) == {"d": [["a", 0], ["b", 1]]} and facts["sequence"] == "1"
    assert {(each["channel"], each["event"]) for each in events_of(tmp_path / "run.mcap")} == {("left", "ended"), ("right", "ended")}


def two_streams(broker: Broker, path: Path) -> None:
    """The first stream ends in order, the second is given up."""
    recorder = Recorder(path, ["frames"], broker=broker, follow=True)
    first = sender(broker, "frames")
    first.send(np.zeros(2))
    first.close()
    eventually("the end of the stream was recorded", lambda: recorder.stats()["frames"].messages == 1)
    second = sender(broker, "frames")
    second.send(np.ones(2))
    second.abandon()
    eventually("the second stream was recorded", lambda: recorder.stats()["frames"].messages == 2)
    third = sender(broker, "frames")
    third.send(np.full(2, 2.0))
    eventually("the third stream was recorded", lambda: recorder.stats()["frames"].messages == 3)
    recorder.close()
    third.close()


def test_the_ends_of_streams_are_replayed(broker: Broker, tmp_path: Path) -> None:
    two_streams(broker, tmp_path / "run.mcap")
    assert [each["event"] for each in events_of(tmp_path / "run.mcap")] == ["ended", "lost", "stopped"]
    test = broker.channel("test").open("receiver")
    replay(tmp_path / "run.mcap", broker=broker, rename={"frames": "test"}, timeout=PATIENCE_S)
    assert [float(each[0]) for each in test.receiver(timeout=PATIENCE_S)] == [0.0]
    assert test.receive(timeout=PATIENCE_S)[0] == 1
    with pytest.raises(PeerGone) as lost:
        test.receive(timeout=PATIENCE_S)
    assert lost.value.reason == "SENDER_ABANDONED"
    assert [float(each[0]) for each in test.receiver(timeout=PATIENCE_S)] == [2.0]
    test.close()


def times(broker: Broker, path: Path) -> None:
    """Messages 0 to 4, a fifth of a second apart: the sleeps are the times that are recorded."""
    out = sender(broker, "frames")
    with Recorder(path, ["frames"], broker=broker) as recorder:
        for number in range(5):
            out.send(np.full(2, number))
            time.sleep(0.2)
        out.close()
        assert recorder.wait(PATIENCE_S)


def test_a_replay_keeps_the_times(broker: Broker, tmp_path: Path) -> None:
    times(broker, tmp_path / "run.mcap")
    sent = [each.publish_time for each in messages_of(tmp_path / "run.mcap", "frames")]
    for speed in (1.0, 4.0):
        taken = Taken(broker, f"speed {speed}")
        begun = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        replay(tmp_path / "run.mcap", broker=broker, speed=speed, rename={"frames": f"speed {speed}"}, timeout=PATIENCE_S)
        again = [each.sent_ns for each in taken.all()]
        # Never too early; how late is the machine's choice.
        assert all((now - begun) * speed >= then - sent[0] - 1e6 for now, then in zip(again, sent, strict=True))


def test_a_part_of_a_recording_is_replayed(broker: Broker, tmp_path: Path) -> None:
    times(broker, tmp_path / "run.mcap")
    recorded = [each.log_time for each in messages_of(tmp_path / "run.mcap", "frames")]
    seconds = [(each - recorded[0]) / 1e9 for each in recorded]
    taken = Taken(broker, "test")
    replay(
        tmp_path / "run.mcap", broker=broker, speed=float("inf"), begin=(seconds[0] + seconds[1]) / 2, end=(seconds[3] + seconds[4]) / 2,
        rename={"frames": "test"}, timeout=PATIENCE_S,
    )  # fmt: skip
    assert [int(each.array[0]) for each in taken.all()] == [1, 2, 3]


def test_chosen_channels_are_replayed(broker: Broker, tmp_path: Path) -> None:
    outs = {name: sender(broker, name) for name in ("left", "right")}
    with Recorder(tmp_path / "run.mcap", list(outs), broker=broker) as recorder:
        for out in outs.values():
            out.send(np.zeros(2))
            out.close()
        assert recorder.wait(PATIENCE_S)
    taken = Taken(broker, "test")
    done = replay(tmp_path / "run.mcap", ["right"], broker=broker, rename={"right": "test"}, timeout=PATIENCE_S)
    assert len(taken.all()) == 1 and done.messages == {"test": 1}
    with broker.channel("left").open("receiver") as live:
        for wishes in ({"channels": ["other"]}, {"channels": ["right", "other"]}, {"rename": {"lfet": "test"}}):
            with pytest.raises(InvalidRequest, match="it has no channel '?(other|lfet)'?; its channels are left, right"):
                replay(tmp_path / "run.mcap", broker=broker, speed=float("inf"), **wishes)
        assert live.try_receive() is None


def test_a_tee_of_a_queue_is_recorded_and_the_queue_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    queue = Taken(broker, "frames")
    with Recorder(tmp_path / "run.mcap", ["frames.tee"], broker=broker) as recorder:
        with tee(broker.channel("frames")) as out:
            born = broker.empty((4, 4), "float32")
            born.fill(7)
            for array in (np.zeros((2, 2)), born, {"a": np.ones(3), "b": torch.full((2,), 5)}):
                out.send(array, metadata=b"left", timeout=PATIENCE_S)
            assert out.failed == 0
        assert recorder.wait(PATIENCE_S)
    assert recorder.close()["frames.tee"].messages == 3
    received = queue.all()
    taken = Taken(broker, "test")
    replay(tmp_path / "run.mcap", broker=broker, rename={"frames.tee": "test"}, timeout=PATIENCE_S)
    for one, two in zip(received, taken.all(), strict=True):
        assert_same(two.array, one.array)
        assert one.metadata == two.metadata == b"left"


def test_the_arrays_of_a_tee_lie_at_one_place(broker: Broker) -> None:
    queue = broker.channel("frames").open("receiver")
    with tee(broker.channel("frames"), "viewers") as out:
        viewer = broker.channel("viewers").open("receiver")
        for array in (np.arange(1000), broker.empty(1000, "int64")):
            out.send(array, timeout=PATIENCE_S)
            one, two = (each.receive(timeout=PATIENCE_S, access="shared") for each in (queue, viewer))
            assert one.ctypes.data == two.ctypes.data
        viewer.close()
    queue.close()


def test_a_channel_of_mode_latest_is_recorded(broker: Broker, tmp_path: Path) -> None:
    out = broker.channel("newest", mode="latest").open("sender")
    with Recorder(tmp_path / "run.mcap", ["newest"], broker=broker) as recorder:
        out.send(np.arange(3))
        eventually("it was recorded", lambda: recorder.stats()["newest"].messages == 1)
        out.close()
        assert recorder.wait(PATIENCE_S)


def test_a_message_that_cannot_be_recorded_ends_no_recording(broker: Broker, tmp_path: Path) -> None:
    out = sender(broker, "frames")
    with Recorder(tmp_path / "run.mcap", ["frames"], broker=broker) as recorder:
        out.send(np.zeros(3))
        out._send(Message.of(np.zeros(3), None)._replace(structure=b'{"d":["\xff"]}'), NEVER)
        out.send(np.zeros(3))
        out.close()
        assert recorder.wait(PATIENCE_S)
    counts = recorder.close()["frames"]
    assert (counts.messages, counts.missed) == (2, 1)
    assert b'"refused"' in (tmp_path / "run.mcap").read_bytes()


def test_channels_that_a_recorder_would_disturb_are_refused(broker: Broker, tmp_path: Path) -> None:
    with broker.channel("queue", mode="queue").open("sender"), broker.channel("slow", mode="broadcast", on_slow="block").open("sender"):
        for name in ("queue", "slow"):
            with pytest.raises(InvalidRequest, match=f"channel '{name}' has .*; send with mode='broadcast', .* or record a tee"):
                Recorder(tmp_path / "run.mcap", [name], broker=broker)
            assert not (tmp_path / "run.mcap").exists()


def test_arguments_that_are_refused(broker: Broker, tmp_path: Path) -> None:
    for names in ([], "frames", ["a", "a"], ["a"] * 1001):
        with pytest.raises(InvalidRequest, match="channels must be a list of 1 to 1000 different names"):
            Recorder(tmp_path / "run.mcap", names, broker=broker)
    (tmp_path / "there.mcap").write_bytes(b"")
    with pytest.raises(FileExistsError, match="choose another name, or pass replace=True"):
        Recorder(tmp_path / "there.mcap", ["frames"], broker=broker)
    Recorder(tmp_path / "there.mcap", ["frames"], broker=broker, replace=True).close()
    for wishes, text in (
        ({"speed": 0}, "speed must be"), ({"speed": float("nan")}, "speed must be"), ({"begin": -1.0}, "begin"), ({"begin": 2.0, "end": 1.0}, "begin"),
        ({"begin": "10s"}, "begin must be 0 or more seconds"), ({"rename": "a=b"}, "rename must be a dict"), ({"channels": "frames"}, r"pass \['frames'\]"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest, match=text):
            replay(tmp_path / "there.mcap", broker=broker, **wishes)
    with pytest.raises(TypeError, match="replay takes no argument start: there are begin, end"):
        replay(tmp_path / "there.mcap", broker=broker, start=1.0)
    with pytest.raises(InvalidRequest, match="nothing was recorded .* its channels are frames"):
        replay(tmp_path / "there.mcap", broker=broker)


def test_without_mcap_the_error_says_what_to_install(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcap.writer", None)
    with pytest.raises(ImportError, match=r"needs the package mcap: .*pip install 'mcap>=1\.6'"):
        Recorder(tmp_path / "run.mcap", ["frames"], broker=broker)
    assert not (tmp_path / "run.mcap").exists()
