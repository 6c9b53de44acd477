# SPDX-License-Identifier: Apache-2.0
"""Workers that keep the order: their results are in the order of the frames, and lost frames are told."""

import asyncio
import itertools
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from processes import environment

import arraybridge
from arraybridge import Gap, InvalidRequest, PeerGone, reorder

WORKER = Path(__file__).with_name("worker.py")


class Result(NamedTuple):
    metadata: object
    value: int


def results(*sequences):
    return iter([Result(sequence, 10 * sequence) for sequence in sequences])


def everything(ordered):
    """The values, and the missing sequences where they were told."""
    found = []
    while True:
        try:
            found.append(next(ordered).value // 10)
        except Gap as gap:
            found.append(list(gap.missing))
        except StopIteration:
            return found


def test_every_order_of_five():
    for order in itertools.permutations(range(1, 6)):
        assert everything(reorder(results(*order), window=5)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("given", "window", "found"),
    [
        ((1, 2, 4, 5, 6, 7), 3, [1, 2, [3], 4, 5, 6, 7]),
        ((2, 1, 5, 6), 16, [1, 2, [3, 4], 5, 6]),
        ((4, 9), 16, [[1, 2, 3], 4, [5, 6, 7, 8], 9]),
        ((1, 4, 7, 10), 2, [1, [2, 3], 4, [5, 6], 7, [8, 9], 10]),
        ((), 2, []),
        ((2, 2, 1, 1), 2, [1, 2]),
    ],
)
def test_gaps(given, window, found):
    assert everything(reorder(results(*given), window)) == found


def test_a_result_after_its_gap_is_dropped_and_counted():
    ordered = reorder(results(1, 3, 4, 2, 5), window=2)
    assert everything(ordered) == [1, [2], 3, 4, 5]
    assert ordered.dropped == 1 and ordered.expected == 6


def test_random_orders_hold_no_more_than_the_window():
    chance = random.Random(47)
    for _ in range(200):
        window = chance.randrange(1, 9)
        order = sorted(
            range(1, 41), key=lambda number, window=window: number + chance.random() * window
        )  # none is more than `window` ahead
        ordered, held = reorder(results(*order), window), 0
        for number, result in enumerate(ordered, 1):
            assert result.value == 10 * number
            held = max(held, len(ordered._held))
        assert held <= window


def test_it_goes_on_with_the_next_stream(broker):
    ordered = reorder(broker.channel("done").open("receiver").receiver(info=True))
    for first in (1, 4):
        with broker.channel("done") as done:
            for sequence in (first + 1, first, first + 2):
                done.send(np.full(2, sequence), metadata={"sequence": sequence})
        assert [int(each.array[0]) for each in ordered] == [first, first + 1, first + 2]


def test_key_and_first():
    named = [{"n": 12}, {"n": 11}, {"n": 10}]
    assert list(reorder(iter(named), first=10, key=lambda each: each["n"])) == named[::-1]


def test_errors_of_the_results_pass_through():
    def broken():
        yield Result(2, 20)
        raise PeerGone("a worker ended", 10, "SENDER_DIED", 7, "w1", 3)

    ordered = reorder(broken(), window=8)
    with pytest.raises(PeerGone):
        next(ordered)
    with pytest.raises(Gap, match=r"frame 1 is missing, and their stream has ended: lost with w1 \(process 7\)") as gap:
        next(ordered)
    assert [each.process_id for each in gap.value.lost] == [7] and gap.value.missing == range(1, 2)
    assert next(ordered).value == 20
    again = pickle.loads(pickle.dumps(gap.value))
    assert again.missing == range(1, 2) and str(again) == str(gap.value) and again.lost[0].client == "w1"


def test_in_an_event_loop(broker):
    done = broker.channel("done").open("sender")

    async def all_of():
        for sequence in (3, 1, 2, 6):
            await done.asend({"n": sequence}, metadata=sequence)
        done.close()
        ordered, found = reorder(broker.channel("done").receiver(info=True)), []
        while True:
            try:
                found.append((await anext(ordered)).array["n"])
            except Gap as gap:
                found.append(list(gap.missing))
            except StopAsyncIteration:
                return found

    assert asyncio.run(all_of()) == [1, 2, 3, [4, 5], 6]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: reorder([1]), "takes an iterator, not list"),
        (lambda: reorder(iter([]), 0), "window must be an integer of at least 1, not 0"),
        (lambda: reorder(iter([]), first=True), "first must be an integer"),
        (lambda: next(reorder(iter([Result(b"", 0)]))), r"no sequence, but b'': send metadata=received.sequence"),
    ],
)
def test_what_it_cannot_order_is_refused(call, words):
    with pytest.raises(InvalidRequest, match=words):
        call()


@pytest.mark.parametrize("on_peer_death", ["raise", "wait"])
def test_three_workers_of_which_one_is_killed(broker, address, on_peer_death):
    """Its frame is told as missing, and no other one; the rest is in order."""
    done = broker.channel("done", 40, on_peer_death=on_peer_death).open("receiver")
    last = broker.channel("done").open("sender")  # the killed worker may die after the others, and then ends no stream
    workers = {
        name: subprocess.Popen(
            [sys.executable, str(WORKER), address, broker.namespace, name], stdout=subprocess.PIPE, text=True, env=environment()
        )
        for name in ("w1", "w2", "w3")
    }
    killed = []
    for worker in workers.values():  # each has its ends before the stream begins
        assert worker.stdout.readline() == "open\n"

    def kill(name, worker):
        for line in worker.stdout:
            if line == "holds frame 5\n":
                worker.kill()
                killed.append(name)

    watching = [threading.Thread(target=kill, args=each) for each in workers.items()]
    try:
        for each in watching:
            each.start()
        with broker.channel("work", capacity=40).open("sender") as work:
            for number in range(1, 41):
                work.send(np.full(2, number), timeout=120)
        for name, worker in workers.items():
            assert worker.wait(120) == 0 or name in killed
        last.close()
        found, gaps, lost = [], [], []
        ordered = reorder(done.receiver(info=True, timeout=120), window=40)
        while True:
            try:
                found.append(int(next(ordered).array[0]) // 10)
            except Gap as gap:
                gaps.append(gap)
            except PeerGone as gone:
                lost.append(gone)
            except StopIteration:
                break
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
        for each in watching:
            each.join()
        for worker in workers.values():
            worker.stdout.close()
    assert found == [number for number in range(1, 41) if number != 5]
    assert [list(gap.missing) for gap in gaps] == [[5]] and len(killed) == 1
    assert [gone.client for gone in lost] == (killed if on_peer_death == "raise" else [])


def test_the_worker_that_died_is_in_the_gap_or_was_told_before(broker):
    """PeerGone comes in the order of the results: here before the gap is known."""
    done, other = broker.channel("done"), broker.channel("done")
    receiver = broker.channel("done").open("receiver").receiver(info=True, timeout=60)
    other.open("sender")
    for sequence in (1, 3):
        done.send({"n": sequence}, metadata=sequence)
    other.abandon()
    done.send({"n": 4}, metadata=4)
    ordered = reorder(receiver, window=2)
    assert next(ordered).array == {"n": 1}
    with pytest.raises(PeerGone):
        next(ordered)
    with pytest.raises(Gap, match="lost with") as gap:
        next(ordered)
    assert gap.value.missing == range(2, 3) and len(gap.value.lost) == 1
    assert [next(ordered).array["n"] for _ in range(2)] == [3, 4]


def test_a_gap_is_an_error_of_the_broker():
    assert issubclass(Gap, arraybridge.BrokerError) and issubclass(Gap, LookupError)
