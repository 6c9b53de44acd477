# SPDX-License-Identifier: Apache-2.0
"""What lies in a share is put and sent on without a copy: one range, several shares, freed with the last of them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import environment

import arraybridge

CTL = Path(os.environ["ARRAYBRIDGE_DAEMON"]).parents[1] / "client/ctl/arraybridgectl"
ROWS = np.arange(4 * 1024, dtype="f4").reshape(4, 1024)  # a row has 4096 bytes


@pytest.fixture
def reader(broker: arraybridge.Broker) -> Iterator[arraybridge.Broker]:
    """Another session in the namespace of `broker`."""
    with arraybridge.Broker(broker.address, namespace=broker.namespace, start="never") as made:
        yield made


def told(broker: arraybridge.Broker, *arguments: str) -> Any:
    command = [CTL, "-H", broker.address, "-n", broker.namespace, "-o", "json", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@dataclasses.dataclass(frozen=True)
class Place:
    arena: int
    offset: int
    size: int


def shares_of(broker: arraybridge.Broker) -> dict[str, Any]:
    return {row["share"]["name"]: row for row in told(broker, "ls")["shares"]}


def place_of(broker: arraybridge.Broker, name: str) -> Place:
    handle = shares_of(broker)[name]["share"]["handle"]
    return Place(int(handle["arena"]), int(handle.get("offset", 0)), int(handle["size"]))


def note_of(broker: arraybridge.Broker, name: str) -> str:
    return str(told(broker, "trace", name)["maker"]["note"])


def sums_of(broker: arraybridge.Broker, *names: str) -> tuple[int, ...]:
    """These numbers of the namespace. One that has nothing is not listed."""
    rows = told(broker, "ls", "namespaces").get("namespaces", [])
    row: dict[str, str] = next((row for row in rows if row["namespace"] == broker.namespace), {})
    return tuple(int(row.get(name, 0)) for name in names)


def bytes_of(broker: arraybridge.Broker) -> tuple[int, ...]:
    """Charged to the namespace, and in its shares."""
    return sums_of(broker, "charged_bytes", "share_bytes")


def until(condition: Any) -> None:
    """The time limit of the whole run is the only one."""
    while not condition():
        time.sleep(0.01)


def comes_again(broker: arraybridge.Broker, address: int) -> bool:
    """Whether an array of ROWS' size that is made now gets these bytes."""
    made = [broker.empty(ROWS.shape, "f4")]
    while made[-1].ctypes.data != address and len(made) < 4096:
        made.append(broker.empty(ROWS.shape, "f4"))
    return made[-1].ctypes.data == address


def held_without_calls(broker: arraybridge.Broker, reader: arraybridge.Broker, name: str) -> Any:
    """The array, once the reader acquires it without a call."""
    while True:
        before = reader.stats()["client_catalogue_acquires"]
        array = reader.get(name)
        if reader.stats()["client_catalogue_acquires"] > before:
            return array
        del array


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax"])
def test_what_was_got_is_put_under_another_name(broker: arraybridge.Broker, reader: arraybridge.Broker, framework: str) -> None:
    pytest.importorskip(framework)
    broker.put(ROWS, "source")
    before = bytes_of(broker)
    array = reader.get("source", framework)
    forward = reader.put(array, "forward")
    assert place_of(broker, "forward") == place_of(broker, "source")
    assert bytes_of(broker) == before, "the bytes are charged and counted once"
    assert note_of(broker, "forward") == f"{framework} identity: bytes of a share"
    assert shares_of(broker)["forward"]["forward_of"] == shares_of(broker)["source"]["share"]["id"]
    assert np.array_equal(broker.get("forward"), ROWS) and forward.nbytes == ROWS.nbytes
    assert broker.stats()["forwards_total"] >= 1


def test_a_share_is_put_and_so_is_what_was_converted(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    pytest.importorskip("torch")
    share = broker.put(ROWS, "source")
    broker.put(share, "of a share")
    array = reader.get("source", "torch", access="shared")
    reader.put(reader.convert(array, "numpy"), "converted")
    for name in ("of a share", "converted"):
        assert place_of(broker, name) == place_of(broker, "source")


def test_of_a_hazard_slot(broker: arraybridge.Broker, reader: arraybridge.Broker, pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--calls"):
        pytest.skip("nothing is held without a call here")
    broker.put(ROWS, "source")
    place = place_of(broker, "source")
    array = held_without_calls(broker, reader, "source")
    broker.withdraw("source")
    reader.put(array, "forward")
    del array
    assert place_of(broker, "forward") == place
    assert np.array_equal(broker.get("forward"), ROWS)


def test_the_bytes_stay_until_the_last_share_is_gone(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    anchor = broker.empty(ROWS.shape, "f4")  # the arena stays where it is
    frame = broker.empty(ROWS.shape, "f4")
    frame[:] = ROWS
    address = frame.ctypes.data
    broker.put(frame, "source")
    del frame
    reader.put(reader.get("source"), "forward")
    broker.withdraw("source")
    assert not comes_again(broker, address), "its range is still used"
    assert np.array_equal(broker.get("forward"), ROWS)
    last = reader.get("forward")
    reader.withdraw("forward")
    assert np.array_equal(last, ROWS)
    del last
    reader.flush()
    until(lambda: broker.flush() or comes_again(broker, address))
    assert bytes_of(broker)[1] == 0 and anchor.ctypes.data != address


MAKER = """
import sys, numpy as np, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
broker.put(np.arange(4 * 1024, dtype="f4").reshape(4, 1024), "source")
print("made", flush=True)
sys.stdin.read()
"""
FORWARDER = """
import sys, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
broker.put(broker.get("source", sys.argv[3]), "forward")
print("made", flush=True)
sys.stdin.read()
"""


def started(broker: arraybridge.Broker, code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has said that it made its share."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, broker.address, broker.namespace, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "made\n"
    return process


def kill(broker: arraybridge.Broker, process: subprocess.Popen[str]) -> None:
    """Ends the process, and waits until the broker knows that."""
    process.kill()
    process.communicate()
    until(lambda: process.pid not in {int(row["process_id"]) for row in told(broker, "ls", "sessions")["sessions"]})


def test_it_outlives_the_maker_of_its_source_and_its_own(broker: arraybridge.Broker) -> None:
    maker = started(broker, MAKER)
    place = place_of(broker, "source")
    forwarder = started(broker, FORWARDER, "numpy")
    broker.withdraw("source")
    kill(broker, maker)
    assert place_of(broker, "forward") == place
    kill(broker, forwarder)
    assert np.array_equal(broker.get("forward"), ROWS)
    assert place_of(broker, "forward") == place and bytes_of(broker) != (0, 0)
    broker.withdraw("forward")
    until(lambda: broker.flush() or bytes_of(broker) == (0, 0))


def test_its_source_outlives_the_forwarder(broker: arraybridge.Broker) -> None:
    broker.put(ROWS, "source")
    kill(broker, started(broker, FORWARDER, "numpy"))
    broker.withdraw("forward")
    assert np.array_equal(broker.get("source"), ROWS)


def test_another_namespace_copies_and_says_so(broker: arraybridge.Broker) -> None:
    broker.put(ROWS, "source")
    with arraybridge.Broker(broker.address, namespace=broker.namespace + "x", start="never") as other:
        other.put(broker.get("source"), "copy")
        assert bytes_of(other)[1] == bytes_of(broker)[1] > 0
        assert note_of(other, "copy") == "numpy place: not in memory of this namespace"
        assert np.array_equal(other.get("copy"), ROWS)


def test_what_the_receiver_wrote_into_is_copied(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    pytest.importorskip("torch")
    broker.put(ROWS, "source")
    tensor = reader.get("source", "torch")
    tensor[1, 0] = -1
    reader.put(tensor, "written")
    assert place_of(broker, "written") != place_of(broker, "source")
    assert note_of(broker, "written") == "torch place: written since it was received"
    assert broker.get("written")[1, 0] == -1 and np.array_equal(broker.get("source"), ROWS)
    reader.put(tensor[2:], "untouched")
    assert note_of(broker, "untouched") == "torch identity: bytes of a share", "no other page was written"
    assert np.array_equal(broker.get("untouched"), ROWS[2:])
    with reader.channel("c").open("sender") as sender, broker.channel("c").open("receiver") as receiver:
        sender.send(tensor)
        assert receiver.receive()[1, 0] == -1


def test_what_is_written_after_a_forward_is_not_seen(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    pytest.importorskip("torch")
    broker.put(ROWS, "source")
    tensor = reader.get("source", "torch")
    reader.put(tensor, "forward")
    tensor[:] = 0
    assert np.array_equal(broker.get("forward"), ROWS)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_parts_are_forwarded_as_ranges(broker: arraybridge.Broker, reader: arraybridge.Broker, framework: str) -> None:
    pytest.importorskip(framework)
    broker.put(ROWS, "batch")
    whole = place_of(broker, "batch")
    batch = reader.get("batch", framework)
    for number in range(len(ROWS)):
        reader.put(batch[number], f"row {number}")
        assert place_of(broker, f"row {number}") == Place(whole.arena, whole.offset + 4096 * number, 4096)
    broker.withdraw("batch")
    for number, row in enumerate(ROWS):
        assert np.array_equal(broker.get(f"row {number}"), row)
    again = broker.get("row 2")
    broker.put(again[64:128], "part of a part")
    assert place_of(broker, "part of a part") == Place(whole.arena, whole.offset + 2 * 4096 + 256, 256)


def test_what_cannot_be_a_range_is_copied(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    broker.put(ROWS, "batch")
    broker.put(ROWS + 1, "other")
    batch, other = reader.get("batch"), reader.get("other")
    copies = {"column": batch[:, 3], "odd": batch.reshape(-1)[1:9], "both": [batch, other], "mixed": [batch, ROWS]}
    for name, array in copies.items():
        reader.put(array, name)
    reader.put(batch, "sealed", sealed=True)
    notes = {name: note_of(broker, name).split(": ", 1)[1] for name in [*copies, "sealed"]}
    assert notes == {
        "column": "layout: not contiguous, or not aligned",
        "odd": "layout: not contiguous, or not aligned",
        "both": "not in one share",
        "mixed": "not in one share",
        "sealed": "sealed",
    }
    assert np.array_equal(broker.get("column"), ROWS[:, 3]) and np.array_equal(broker.get("odd"), ROWS.reshape(-1)[1:9])
    assert [float(array[0, 0]) for array in broker.get("both")] == [0.0, 1.0]


def test_trees_of_one_share(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    broker.put({"x": ROWS, "y": [np.arange(5), np.ones(3)]}, "tree")
    tree = reader.get("tree")
    reader.put(tree, "whole")
    reader.put({"y": tree["y"], "n": 7}, "some of it")
    assert place_of(broker, "whole") == place_of(broker, "tree")
    assert place_of(broker, "some of it").arena == place_of(broker, "tree").arena
    some = broker.get("some of it")
    assert some["n"] == 7 and some["y"][0].tolist() == [0, 1, 2, 3, 4] and some["y"][1].tolist() == [1, 1, 1]
    assert np.array_equal(broker.get("whole")["x"], ROWS)


def test_replaces_its_own_source(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    broker.put(ROWS, "frame")
    place = place_of(broker, "frame")
    for _ in range(3):
        reader.put(reader.get("frame"), "frame", replace=True)
        assert place_of(broker, "frame") == place
    assert np.array_equal(broker.get("frame"), ROWS)


@pytest.mark.parametrize("wait", [True, False])
def test_a_name_that_is_taken_is_refused_as_ever(broker: arraybridge.Broker, reader: arraybridge.Broker, wait: bool) -> None:
    broker.put(ROWS, "frame")
    with pytest.raises(arraybridge.ShareExists):
        reader.put(reader.get("frame"), "frame", wait=wait)
        reader.flush()


STAGE = """
import sys, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
with broker.channel(sys.argv[4]) as out:
    out.open("sender")
    print("made", flush=True)
    for frame in broker.channel(sys.argv[3]).receiver(sys.argv[5]):
        out.send(frame)
    stats = broker.stats()
    print(stats["client_direct_shares"], stats["client_arena_bytes"])
"""


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_relay_of_three_hops_does_not_copy(broker: arraybridge.Broker, framework: str) -> None:
    """The stages send each frame on by a call, and never write its bytes."""
    pytest.importorskip(framework)
    stages = [started(broker, STAGE, f"c{hop}", f"c{hop + 1}", framework) for hop in range(2)]
    last = broker.channel("c2").open("receiver")
    before = broker.stats()["forwards_total"]
    kept = []
    with broker.channel("c0", capacity=4) as first:
        for number in range(300):
            frame = broker.empty(1024, "i4")
            frame[:] = number
            address = frame.ctypes.data
            first.send(frame)
            del frame
            got = last.receive()
            assert got.tolist() == [number] * 1024
            if number % 10 == 0:
                kept.append((number, got))
            reused = broker.empty(1024, "i4").ctypes.data
            assert reused != address, "the frame is still read"
            del got
    assert all(got.tolist() == [number] * 1024 for number, got in kept), "no range that is kept is written again"
    with pytest.raises(arraybridge.ChannelClosed):
        last.receive()
    assert broker.stats()["forwards_total"] - before == 2 * 300
    outputs = [[int(number) for number in stage.communicate()[0].split()] for stage in stages]
    assert [copied for _, copied in outputs] == [0, 0]
    assert outputs[0][0] > 200, "the first stage receives without calls, because its sender puts what it sends"
    assert [stage.returncode for stage in stages] == [0, 0]
    del kept
    until(lambda: broker.flush() or bytes_of(broker)[1] == 0)


def test_the_sender_of_a_frame_that_was_forwarded_uses_its_range_again(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    """The bytes of a direct channel's entry are the sender's: it learns that they are kept, and when they are not."""
    receiver, sender = reader.channel("c").open("receiver"), broker.channel("c", capacity=2).open("sender")
    while reader.stats()["client_direct_shares"] == 0:
        sender.send(np.zeros(1024, "i4"))
        receiver.receive()
    anchor = broker.empty(ROWS.shape, "f4")  # the arena stays where it is
    frame = broker.empty(ROWS.shape, "f4")
    frame[:] = 7
    address = frame.ctypes.data
    sender.send(frame)
    del frame
    reader.put(receiver.receive(), "forward")
    reader.flush()
    assert not comes_again(broker, address), "its receiver has returned it, and it is kept"
    assert np.all(broker.get("forward") == 7)
    reader.withdraw("forward")
    until(lambda: broker.flush() or comes_again(broker, address))
    assert anchor.ctypes.data != address


def test_a_frame_that_was_forwarded_outlives_its_receiver_and_its_sender(broker: arraybridge.Broker, address: str) -> None:
    sends = arraybridge.Broker(address, namespace=broker.namespace, start="never")
    reads = arraybridge.Broker(address, namespace=broker.namespace, start="never")
    receiver, sender = reads.channel("c").open("receiver"), sends.channel("c", capacity=2).open("sender")
    while reads.stats()["client_direct_shares"] == 0:
        sender.send(np.zeros(1024, "i4"))
        receiver.receive()
    sender.send(np.full(1024, 7, "i4"))
    reads.put(receiver.receive(), "forward")
    receiver.close()
    reads.close()
    for number in range(50):  # with its receiver gone the sender uses the other ranges again
        sends.put(np.full(1024, number, "i4"), "other", replace=True)
    assert broker.get("forward").tolist() == [7] * 1024
    sender.close()
    sends.close()
    del sender, receiver
    assert broker.get("forward").tolist() == [7] * 1024
    broker.withdraw("forward")
    broker.withdraw("other")
    until(lambda: broker.flush() or bytes_of(broker) == (0, 0))


def uses_of(broker: arraybridge.Broker) -> dict[str, int]:
    """The charged bytes of the namespace by use, as `arraybridgectl ls namespaces` adds them up."""
    charged, shares, named, queued = sums_of(broker, "charged_bytes", "share_bytes", "named_bytes", "queued_bytes")
    assert named + queued <= shares <= charged
    return {"named": named, "queued": queued, "held": shares - named - queued}


def test_bytes_of_forwards_count_once_and_where_they_are(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    """A name counts before a place in a channel, and this before readers; the first share's own name need not be left."""
    size = ROWS.nbytes
    ends = [
        arraybridge.Broker(broker.address, namespace=broker.namespace, start="never", direct_channels=False) for _ in range(2)
    ]  # fmt: skip
    broker.put(ROWS, "source")
    array = reader.get("source")
    reader.put(array, "forward")
    broker.withdraw("source")
    assert uses_of(broker) == {"named": size, "queued": 0, "held": 0}
    with ends[0].channel("c").open("sender") as sender, ends[1].channel("c").open("receiver") as receiver:
        passed = ends[0].get("forward")
        for _ in range(5):
            sender.send(passed)
        assert uses_of(broker) == {"named": size, "queued": 0, "held": 0}
        broker.withdraw("forward")
        assert uses_of(broker) == {"named": 0, "queued": size, "held": 0}
        received = [receiver.receive() for _ in range(5)]
        assert uses_of(broker) == {"named": 0, "queued": 0, "held": size}
        ends[1].put(received[2], "again")
        assert uses_of(broker) == {"named": size, "queued": 0, "held": 0}
        broker.withdraw("again")
        del array, passed, received
        until(lambda: [each.flush() for each in (reader, *ends)] and not any(uses_of(broker).values()))
    for each in ends:
        each.close()


def test_parts_of_an_entry_of_a_direct_channel_count_once(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    with broker.channel("c").open("sender") as sender, reader.channel("c").open("receiver") as receiver:
        for number in range(40):  # the direct channel is there after the first few
            sender.send(np.full(1 << 20, number, "u1"))
            frame = receiver.receive()
        for part in range(1, 20):
            reader.put(frame[: part * 25600], f"part {part}")
        uses = uses_of(broker)  # which checks that they are no more than is charged
        assert 0 < uses["named"] <= 1 << 20
        for part in range(1, 20):
            reader.withdraw(f"part {part}")
        assert uses_of(broker)["named"] == 0
