# SPDX-License-Identifier: Apache-2.0
"""Calls for event loops: they do not hold the loop, and a cancelled one has happened, or not, and says so."""

import asyncio
import gc
import os
import threading
import weakref

import numpy as np
import pytest

import arraybridge
from arraybridge import BrokerTimeout, CallCancelled, InvalidRequest, ShareExists, ShareNotFound

LONG = 60.0


def test_put_and_get(broker):
    async def both():
        share = await broker.aput(np.arange(3), "counts", metadata={"camera": 3})
        assert share.metadata == {"camera": 3} and isinstance(share, arraybridge.Share)
        got = await broker.aget("counts", info=True)
        assert got.array.tolist() == [0, 1, 2] and got.share.generation == share.generation
        assert (await broker.aget(share, "torch")).tolist() == [0, 1, 2]
        assert await broker.aget(await broker.aput({"gain": 2.0})) == {"gain": 2.0}
        newer = await broker.aput(np.arange(4), "counts", replace=True, lifetime=LONG)
        assert newer.generation > share.generation

    asyncio.run(both())


def test_many_at_once(broker):
    async def all_of():
        await broker.aput_many({"left": np.zeros(3), "right": {"eye": np.ones(3)}})
        left, right = await broker.aget_many(["left", "right"], "torch", wait=LONG)
        assert left.tolist() == [0, 0, 0] and right["eye"].tolist() == [1, 1, 1]
        with pytest.raises(ShareExists, match="'left'"):
            await broker.aput_many({"left": np.ones(3)})
        await broker.aput_many({"left": np.ones(3)}, replace=True)
        assert (await broker.aget_many(["left"]))[0].tolist() == [1, 1, 1]
        with pytest.raises(ShareNotFound):
            await broker.aget_many(["left", "missing"])

    asyncio.run(all_of())


def test_a_bundle_that_is_not_there_yet(broker):
    async def all_of():
        opening = asyncio.create_task(broker.aopen("net", wait=LONG))
        await asyncio.sleep(0)
        broker.bundle("net", {"weight": np.ones((2, 3))}).fill().publish()
        return (await opening).numpy()["weight"].shape

    assert asyncio.run(all_of()) == (2, 3)


def test_a_result_is_made_once_and_on_a_thread(broker):
    made = []

    def make():
        made.append(threading.current_thread())
        return np.arange(3)

    async def both():
        return await asyncio.gather(broker.acached("result", make), broker.acached("result", make, "torch"))

    assert [each.tolist() for each in asyncio.run(both())] == [[0, 1, 2]] * 2
    assert len(made) == 1 and made[0] is not threading.main_thread()


def test_their_errors_are_those_of_put_and_get(broker):
    async def all_of():
        await broker.aput(np.ones(3), "taken")
        with pytest.raises(ShareExists):
            await broker.aput(np.ones(3), "taken")
        with pytest.raises(ShareNotFound):
            await broker.aget("missing")
        with pytest.raises(BrokerTimeout):
            await broker.aget("missing", wait=0.01)
        with pytest.raises(InvalidRequest):
            await broker.aput(np.ones(3), "")

    asyncio.run(all_of())


def test_many_wait_for_each_other_and_the_loop_goes_on(broker):
    """More than a few waiting calls: a put that they wait for still finds a thread."""

    async def all_of():
        waiting = [asyncio.create_task(broker.aget(f"late{number}", wait=LONG)) for number in range(12)]
        turns = 0
        for _ in range(10):
            await asyncio.sleep(0)
            turns += 1
        await asyncio.gather(*[broker.aput(np.full(2, number), f"late{number}") for number in range(12)])
        return turns, [int(each[0]) for each in await asyncio.gather(*waiting)]

    assert asyncio.run(all_of()) == (10, list(range(12)))


def test_more_calls_than_threads(broker):
    """100 calls at once: all are served, by 32 threads at most."""

    async def all_of():
        await asyncio.gather(*[broker.aput(np.full(2, number), f"n{number}") for number in range(100)])
        return await asyncio.gather(*[broker.aget(f"n{number}") for number in range(100)])

    assert [int(each[0]) for each in asyncio.run(all_of())] == list(range(100))
    assert sum(each.name == "arraybridge-call" for each in threading.enumerate()) <= 32


def test_a_get_that_is_cancelled_while_it_waits_ends_on_its_thread(broker):
    async def cancelled():
        waiting = asyncio.create_task(broker.aget("late", wait=LONG))
        await asyncio.sleep(0.05)  # so that it has begun
        waiting.cancel()
        with pytest.raises(CallCancelled) as error:
            await waiting
        broker.put(np.ones(3), "late")
        return error.value.outcome

    outcome = asyncio.run(cancelled())
    assert outcome.cancelled() or outcome.result(LONG).tolist() == [1, 1, 1]


def test_a_put_that_is_cancelled_has_happened_or_not(broker):
    """At random times: the outcome and the broker agree."""

    async def cancelled(number):
        putting = asyncio.create_task(broker.aput(np.full(1 << 16, number), f"n{number}"))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        putting.cancel()
        try:
            return await putting
        except CallCancelled as error:
            return error.outcome
        except asyncio.CancelledError:
            return None  # before its first step

    for number in range(60):
        outcome = asyncio.run(cancelled(number))
        if outcome is None or (not isinstance(outcome, arraybridge.Share) and outcome.cancelled()):
            with pytest.raises(ShareNotFound):
                broker.get(f"n{number}")
            continue
        share = outcome if isinstance(outcome, arraybridge.Share) else outcome.result(LONG)
        assert share.name == f"n{number}" and int(broker.get(f"n{number}")[0]) == number


def test_a_send_that_is_cancelled_before_it_has_begun_sends_nothing(broker):
    """The channel is full: the first send waits for room, and the second one for the first."""
    frames, receiver = broker.channel("frames", capacity=1), broker.channel("frames").open("receiver")
    frames.send({"n": 0})

    async def cancelled():
        first, second = (asyncio.create_task(frames.asend({"n": number})) for number in (1, 2))
        await asyncio.sleep(0.1)  # so that the first has begun
        found = []
        for task in (first, second):
            task.cancel()
            with pytest.raises(CallCancelled) as error:
                await task
            found.append(error.value.outcome)
        return found

    first, second = asyncio.run(cancelled())
    assert second.cancelled() and not first.done()
    assert [receiver.receive(timeout=LONG)["n"] for _ in range(2)] == [0, 1]
    assert first.result(LONG) is None
    frames.send({"n": 3})
    assert receiver.receive(timeout=LONG) == {"n": 3}


def test_the_threads_end_with_the_broker(address):
    broker = arraybridge.Broker(address, namespace="ends", start="never")
    asyncio.run(broker.aput(np.ones(3)))
    threads = [each for each in threading.enumerate() if each.name == "arraybridge-call"]
    gone = weakref.ref(broker)
    assert threads
    broker.close()
    del broker
    gc.collect()
    assert gone() is None
    calls = [each for each in threads if each.is_alive()]
    for each in calls:
        each.join(0.0)
    assert len(threads) >= 1


def test_a_forked_child_has_threads_of_its_own(broker):
    asyncio.run(broker.aput(np.ones(3), "before"))
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert asyncio.run(broker.aget("before")).tolist() == [1, 1, 1]
            assert asyncio.run(broker.aput(np.zeros(2), "after")).name == "after"
            status = 0
        finally:
            os.write(tell, b"%d" % status)
            os._exit(status)
    os.close(tell)
    assert os.read(ready, 1) == b"0"
    os.close(ready)
    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(broker.aget("after")).tolist() == [0, 0]
