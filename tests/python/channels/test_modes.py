# SPDX-License-Identifier: Apache-2.0
"""Modes of channels, what is known of a received array, draining, and names whose next generation is awaited."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import environment

import arraybridge
from arraybridge import BrokerTimeout, InvalidRequest, Received, ShareNotFound

CTL = Path(os.environ["ARRAYBRIDGE_DAEMON"]).parents[1] / "client/ctl/arraybridgectl"


@pytest.fixture
def broker(broker, monkeypatch):
    """The broker of other tests; closes and empties the channels of this one."""
    made = []
    channel = arraybridge.Broker.channel

    def noted(*arguments, **wishes):
        made.append(channel(*arguments, **wishes))
        return made[-1]

    monkeypatch.setattr(arraybridge.Broker, "channel", noted)
    yield broker
    for each in made:
        each.close()
    for name in {each.name for each in made}:
        with contextlib.suppress(arraybridge.BrokerError):
            channel(broker, name).drain()


RECEIVE_ALL = """
import sys, arraybridge
address, namespace, channel = sys.argv[1:]
with arraybridge.Broker(address, namespace=namespace, start="never") as broker:
    frames = broker.channel(channel).open("receiver")
    print("open", flush=True)
    print([int(each[0]) for each in frames.receiver(timeout=60)], flush=True)
"""


def receiver_process(broker, address, channel):
    process = subprocess.Popen(
        [sys.executable, "-c", RECEIVE_ALL, address, broker.namespace, channel],
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout.readline() == "open\n"
    return process


def test_every_receiver_of_a_broadcast_sees_every_array_and_the_bytes_exist_once(broker, address):
    with broker.channel("frames", mode="broadcast") as frames:
        frames.open("sender")
        processes = [receiver_process(broker, address, "frames") for _ in range(3)]
        for number in range(20):
            frames.send(np.full(1 << 18, number, "u1"), timeout=60)
    for process in processes:
        text, _ = process.communicate(timeout=60)
        assert (process.returncode, text) == (0, f"{list(range(20))}\n")
    assert broker.stats()["channel_received_total"] >= 60


def test_arrays_of_two_receivers_lie_at_one_place(broker):
    sends = broker.channel("frames", mode="broadcast").open("sender")
    first, second = (broker.channel("frames").open("receiver") for _ in range(2))
    sends.send(np.arange(1000))
    one, other = first.receive(timeout=10), second.receive(timeout=10)
    assert one.ctypes.data == other.ctypes.data and np.array_equal(one, np.arange(1000))


def test_receivers_that_waited_before_the_mode_was_stated_do_not_hold_each_other_up(broker):
    ends = [broker.channel("frames").open("receiver") for _ in range(2)]
    got = []
    threads = [threading.Thread(target=lambda end=end: got.append(end.receive(timeout=30)[0])) for end in (ends[0], ends[0], ends[1])]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    sends = broker.channel("frames", 1, mode="broadcast").open("sender")
    for number in (1, 2):
        sends.send(np.full(1, number), timeout=5)
    for thread in threads:
        thread.join(10)
    assert sorted(got) == [1, 1, 2]


def test_a_slow_receiver_holds_the_sender_up_or_misses_the_oldest(broker):
    sends = broker.channel("kept", 2, mode="broadcast").open("sender")
    slow = broker.channel("kept").open("receiver")
    for number in range(2):
        sends.send(np.full(1, number))
    with pytest.raises(BrokerTimeout, match="full"):
        sends.send(np.full(1, 2), timeout=0)
    assert slow.receive()[0] == 0
    sends.send(np.full(1, 2), timeout=0)

    before = broker.stats()["channel_dropped_total"]
    sends = broker.channel("dropped", 2, mode="broadcast", on_slow="drop_oldest").open("sender")
    slow = broker.channel("dropped").open("receiver")
    for number in range(5):
        sends.send(np.full(1, number), timeout=0)
    assert [slow.receive(timeout=0)[0] for _ in range(2)] == [3, 4]
    assert broker.stats()["channel_dropped_total"] == before + 3


def test_latest_brings_the_newest_and_never_blocks(broker):
    camera = broker.channel("camera", mode="latest")
    for number in range(50):
        camera.send(np.full(1, number), timeout=0)
    late = broker.channel("camera").open("receiver")
    assert late.receive(timeout=0)[0] == 49
    with pytest.raises(BrokerTimeout, match="no array arrived"):
        late.receive(timeout=0)
    threading.Timer(0.1, camera.send, [np.full(1, 50)]).start()
    assert late.receive(timeout=10)[0] == 50


def test_replay_is_for_those_that_come_late(broker):
    sends = broker.channel("frames", mode="broadcast", replay=2)
    for number in range(4):
        sends.send(np.full(1, number))
    late = broker.channel("frames").open("receiver")
    sends.send(np.full(1, 4))
    sends.close()
    assert [int(each[0]) for each in late.receiver(timeout=10)] == [2, 3, 4]


def test_modes_that_contradict_each_other_are_told(broker):
    for wishes, words in [
        ({"mode": "every"}, r"mode must be one of \['queue', 'broadcast', 'latest'\], not 'every'"),
        ({"mode": "broadcast", "on_slow": "wait"}, "on_slow must be"),
        ({"replay": 1}, "on_slow and replay are for mode='broadcast'"),
        ({"mode": "broadcast", "replay": -1}, "replay must be a number of arrays, at least 0, not -1"),
        ({"mode": "latest", "capacity": 3}, "mode='latest' keeps one array"),
        ({"mode": "broadcast", "capacity": 3, "replay": 4}, "replay=4 exceeds capacity=3"),
    ]:
        with pytest.raises(InvalidRequest, match=words):
            broker.channel("frames", **wishes)
    with broker.channel("frames", mode="latest").open("sender"):
        with pytest.raises(InvalidRequest, match="has mode latest, not broadcast: the sender '.*' .process [0-9]+. stated it"):
            broker.channel("frames", mode="broadcast").open("receiver")
        assert "latest" in repr(broker.channel("frames", mode="latest"))
    with broker.channel("plain") as plain:
        plain.send(np.zeros(1))
        with pytest.raises(InvalidRequest, match="a queue from its first array on"):
            broker.channel("plain", mode="latest").open("receiver")


@pytest.mark.parametrize("sender_first", [True, False])
def test_either_side_of_a_broadcast_may_start_first(broker, sender_first):
    channels = [
        broker.channel("frames", mode="broadcast", on_slow="drop_oldest", replay=3),
        broker.channel("frames", mode="broadcast"),
    ]
    roles = ["sender", "receiver"] if sender_first else ["receiver", "sender"]
    first, second = (channel.open(role) for channel, role in zip(channels, roles, strict=True))
    sends, receives = (first, second) if sender_first else (second, first)
    for number in range(20):
        sends.send(np.full(1, number), timeout=0)  # it does not wait
    assert [int(receives.receive(timeout=0)[0]) for _ in range(16)] == list(range(4, 20))
    with pytest.raises(InvalidRequest, match=f"has on_slow drop_oldest, not block: the {roles[0]} '.*' .process {os.getpid()}."):
        broker.channel("frames", mode="broadcast", on_slow="block").open("receiver")


def test_a_second_run_is_told_that_the_first_ones_stream_has_ended(broker, address):
    sends = broker.channel("frames").open("sender")
    first = receiver_process(broker, address, "frames")
    before = broker.stats()["channel_received_total"]
    sends.send(np.full(1, 7))
    while broker.stats()["channel_received_total"] == before:
        time.sleep(0.01)
    first.kill()
    first.wait()
    first.stdout.close()
    broker.channel("frames").open("receiver").abandon()
    sends.close()
    show = [CTL, "--address", address, "--namespace", broker.namespace, "channel", "show", "frames"]
    shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert f"process {os.getpid()}, sent 1, ended" in shown and "will be told that stream 1 has ended" in shown, shown

    with pytest.warns(RuntimeWarning, match=r"without an array: stream 1 .* ended before this receiver opened.*after 1 shares"):
        assert [int(each[0]) for each in broker.channel("frames").receiver(timeout=10)] == []

    async def loop(channel):
        return [int(each[0]) async for each in channel.receiver(timeout=10)]

    broker.channel("frames").open("sender").close()  # nobody receives
    with pytest.warns(RuntimeWarning, match="call Channel.drain"):
        assert asyncio.run(loop(broker.channel("frames"))) == []
    broker.channel("frames").open("sender").close()
    assert broker.channel("frames").drain() == 0  # the remedy
    with pytest.raises(BrokerTimeout):
        broker.channel("frames").receive(timeout=0)


@pytest.mark.parametrize("direct", [True, False])
def test_a_received_array_says_how_it_came(broker, address, direct):
    with arraybridge.Broker(address, namespace=broker.namespace, start="never", direct_channels=direct) as other:
        sends = broker.channel("frames", 64).open("sender")
        receives = other.channel("frames").open("receiver")
        for number in range(1, 700):
            before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            sends.send(np.full(4, number), metadata=b"odd" if number % 2 else None)
            got = receives.receive(timeout=10, info=True)
            assert type(got) is Received and got.array[0] == number
            assert (got.sequence, got.stream) == (number, 1)
            assert got.metadata == (b"odd" if number % 2 else b"")
            assert before <= got.sent_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            assert got.sender.process_id == os.getpid()
        if direct:
            assert other.stats()["client_direct_shares"] > 0
        # A third end revokes the direct channel; the numbers go on.
        broker.channel("frames").open("sender")
        sends.send(np.zeros(1))
        assert receives.receive(timeout=10, info=True).sequence == 700
        row = next(each for each in rows_of(address, broker.namespace) if each["name"] == "frames")
        assert (int(row["sent"]), int(row["received"])) == (700, 700)
        sends.send(np.zeros(1))
        assert next(receives.receiver(timeout=10, info=True)).sequence == 701
        sends.send(np.zeros(1))
        assert asyncio.run(receives.areceive(timeout=10, info=True)).sequence == 702


def rows_of(address, namespace):
    command = [CTL, "-H", address, "-n", namespace, "-o", "json", "ls", "channels"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["channels"]


def test_a_channel_is_drained(broker):
    channel = broker.channel("frames", 20)
    for number in range(12):
        channel.send(np.full(1, number))
    assert channel.drain() == 12
    with pytest.raises(BrokerTimeout):
        channel.receive(timeout=0)
    channel.send(np.full(1, 99))
    assert channel.receive(timeout=10)[0] == 99
    full = broker.channel("full", 1)
    full.send(np.zeros(1))
    waiting = threading.Thread(target=full.send, args=(np.ones(1),), kwargs={"timeout": 30})
    waiting.start()
    time.sleep(0.05)
    assert full.drain() == 1
    waiting.join(10)
    assert not waiting.is_alive() and full.receive(timeout=0)[0] == 1
    with pytest.raises(arraybridge.BrokerError, match="has no channel 'never'"):
        broker.channel("never").drain()


def test_a_loop_over_a_name_needs_no_watch(broker):
    first = broker.put(np.zeros(2), "weights")
    array, share = broker.get("weights", newer_than=0, info=True)
    assert array.tolist() == [0, 0] and share.generation == first.generation
    with pytest.raises(ShareNotFound, match=f"newer than generation {first.generation}"):
        broker.get("weights", newer_than=first)
    with pytest.raises(BrokerTimeout):
        broker.get("weights", newer_than=first.generation, wait=0.05)
    seen = []

    def follow():
        generation = first.generation
        while len(seen) < 3:
            got = broker.get("weights", newer_than=generation, wait=30, info=True)
            generation = got.share.generation
            seen.append(int(got.array[0]))

    follower = threading.Thread(target=follow)
    follower.start()
    for number in range(1, 4):
        time.sleep(0.02)
        broker.put(np.full(2, number), "weights", replace=True)
        while not seen or seen[-1] < number:
            time.sleep(0.001)
    follower.join(30)
    assert seen == [1, 2, 3]
    assert broker.get("weights", "torch", newer_than=first).tolist() == [3, 3]
    for wrong in ("5", -1, 2**64, True):
        with pytest.raises(InvalidRequest, match="newer_than must be a generation"):
            broker.get("weights", newer_than=wrong)
    with pytest.raises(InvalidRequest, match="newer_than goes with a name"):
        broker.get(first, newer_than=first)
