# SPDX-License-Identifier: Apache-2.0
"""Channels: arrays from process to process, in order, once each; what slow, absent and dying peers do."""

import asyncio
import gc
import pickle
import tempfile
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from channel_client import item, number_of
from processes import ROOT, children, start_daemon, stop_daemon

import arraybridge
from arraybridge import BrokerTimeout, ChannelClosed, InvalidRequest, PeerGone

README = ROOT / "README.md"
SCRIPT = Path(__file__).with_name("channel_client.py")


@pytest.fixture
def start(broker, address):
    """Starts a client process of this test's namespace."""
    with children() as begin:
        yield lambda *arguments: begin("-X", "faulthandler", SCRIPT, address, broker.namespace, *arguments)


def output(process):
    text, _ = process.communicate()
    assert process.returncode == 0
    return text


@pytest.fixture(scope="module")
def address():
    """The directory of a daemon of this module's own: its tests count what is left in the whole broker."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn")
        yield directory
        assert stop_daemon(daemon) == 0


def until(condition, broker):
    """Asks the broker until it is so; the test's time limit is the runner's."""
    while not condition(stats := broker.stats()):
        time.sleep(0.01)
    return stats


def expect_nothing_left(broker, sessions):
    """Everybody else has gone: then no share, lease or channel of theirs is left."""
    gc.collect()
    broker.flush()
    until(lambda now: now["sessions"] <= sessions and not (now["leases"] or now["channels"] or now["queued_shares"]), broker)
    until(lambda now: now["withdrawn_shares"] == 0, broker)


def test_a_receive_that_raises_does_not_keep_its_channel(broker):
    receives = broker.channel("frames").open("receiver")
    broker.channel("frames").open("sender").close()
    kept = weakref.ref(receives)
    gc.disable()  # a cycle through the traceback would live until the next collection
    try:
        for error in (ChannelClosed, BrokerTimeout):
            try:
                receives.receive(timeout=0)
            except error:
                pass
            else:
                pytest.fail("nothing was raised")
        del receives
        assert kept() is None
    finally:
        gc.enable()


def test_in_one_process(broker):
    with broker.channel("frames") as sends:
        for number in range(3):
            sends.send(item(number))
        sends.send({"a": item(3), "b": [item(4)]})
        receives = broker.channel("frames")
        assert [number_of(receives.receive()) for _ in range(3)] == [0, 1, 2]
        tree = receives.receive("torch")
        assert number_of(tree["a"]) == 3 and number_of(tree["b"][0]) == 4
    with pytest.raises(ChannelClosed) as ended:
        receives.receive()
    assert ended.value.reason == "CHANNEL_ENDED" and isinstance(ended.value, EOFError)
    with pytest.raises(BrokerTimeout):
        receives.receive(timeout=0)  # the end was told; this waits for the next stream
    receives.close()
    assert broker.stats()["channels"] == 0


def test_a_pipeline_of_three_frameworks(broker, start):
    doubles = start("double", "raw", "doubled", "torch")
    receives = start("receive", "doubled", "jax")
    assert output(start("send", "raw", 0, 50)) == "sent\n"
    assert output(doubles) == ""
    assert [int(line) for line in output(receives).split()] == [2 * number for number in range(50)]
    expect_nothing_left(broker, 1)


def test_nothing_is_lost_or_doubled(broker, start):
    receivers = [start("receive", "many") for _ in range(2)]
    until(lambda now: now["waiting"] >= 2, broker)
    senders = [start("send", "many", first, 5000, 8) for first in (0, 5000)]
    for sender in senders:
        assert output(sender) == "sent\n"
    received = [[int(line) for line in output(each).split()] for each in receivers]
    assert sorted(received[0] + received[1]) == list(range(10000))
    for numbers in received:
        for first in (0, 5000):
            of_one_sender = [number for number in numbers if first <= number < first + 5000]
            assert of_one_sender == sorted(of_one_sender)
    expect_nothing_left(broker, 1)


def test_a_slow_receiver_holds_the_sender_back(broker, start):
    before = broker.stats()["charged_bytes"]  # of whatever else this daemon serves
    receives = broker.channel("slow").open("receiver")
    sender = start("send", "slow", 0, 100, 4)
    until(lambda now: now["waiting"] == 1, broker)
    for number in range(100):
        stats = broker.stats()
        assert stats["queued_shares"] <= 4
        assert stats["charged_bytes"] <= before + (4 << 20)  # however many were sent
        assert number_of(receives.receive()) == number
    assert output(sender) == "sent\n"
    with pytest.raises(ChannelClosed):
        receives.receive()
    receives.close()
    expect_nothing_left(broker, 1)


def test_a_killed_sender_is_told_once_after_what_it_sent(broker, start):
    receives = broker.channel("frames").open("receiver")
    sender = start("send_and_hang", "frames", 3)
    assert sender.stdout.readline() == "hangs\n"
    sender.kill()
    assert [number_of(receives.receive()) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(PeerGone) as gone:
        receives.receive()
    assert gone.value.reason == "SENDER_DIED" and isinstance(gone.value, ConnectionError)
    assert (gone.value.process_id, gone.value.shares, gone.value.missing) == (sender.pid, 3, False)
    assert str(sender.pid) in str(gone.value) and "'frames'" in str(gone.value)
    again = pickle.loads(pickle.dumps(gone.value))
    assert (again.reason, again.process_id, again.shares) == ("SENDER_DIED", sender.pid, 3)
    with pytest.raises(BrokerTimeout):
        receives.receive(timeout=0.02)
    receives.close()
    expect_nothing_left(broker, 1)


def test_a_sender_that_comes_back_goes_on(broker, start):
    receives = broker.channel("frames", on_peer_death="wait").open("receiver")
    first = start("send_and_hang", "frames", 3)
    assert first.stdout.readline() == "hangs\n"
    first.kill()
    first.wait()
    second = start("send", "frames", 3, 4)
    assert [number_of(array) for array in receives] == [0, 1, 2, 3, 4, 5, 6]
    assert output(second) == "sent\n"
    receives.close()
    expect_nothing_left(broker, 1)


def test_a_loop_that_goes_on_after_each_death_does_not_spin(broker, start):
    receives = broker.channel("frames").open("receiver")
    numbers, deaths, calls = [], 0, 0
    for stream in range(3):
        sender = start("send_and_hang", "frames", 2)
        assert sender.stdout.readline() == "hangs\n"
        sender.kill()
        while deaths == stream:
            calls += 1
            try:
                numbers.append(number_of(receives.receive(timeout=30)))
            except PeerGone:
                deaths += 1
    assert (numbers, deaths, calls) == ([0, 1] * 3, 3, 9)
    receives.close()
    expect_nothing_left(broker, 1)


def test_threads_that_loop_have_a_channel_each(broker):
    got: list[int] = []

    def loop(channel):
        got.extend(int(item[0]) for item in channel)

    ends = [broker.channel("frames") for _ in range(3)]
    for end in ends:
        end.open("receiver")
    threads = [threading.Thread(target=loop, args=[end]) for end in ends]
    for thread in threads:
        thread.start()
    with broker.channel("frames") as sends:
        for number in range(300):
            sends.send(np.array([number]))
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(got) == list(range(300))


def test_all_threads_that_wait_in_one_end_are_told(broker):
    sends = broker.channel("frames").open("sender")
    receives = broker.channel("frames").open("receiver")
    ended = []

    def wait():
        with pytest.raises(ChannelClosed):
            receives.receive(timeout=30)
        ended.append(True)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda now: now["waiting"] >= 3, broker)
    sends.close()
    for thread in threads:
        thread.join()
    assert ended == [True] * 3


def test_a_killed_receiver_leaves_the_queue_to_the_next_one(broker, start):
    sends = broker.channel("frames", 2).open("sender")
    receiver = start("receive_and_hang", "frames")
    for number in range(3):
        sends.send(item(number))
    assert receiver.stdout.readline() == "0\n"
    threading.Timer(0.1, receiver.kill).start()
    with pytest.raises(PeerGone) as gone:
        sends.send(item(3))  # waits for room
    assert (gone.value.reason, gone.value.process_id, gone.value.shares) == ("RECEIVER_DIED", receiver.pid, 1)
    with pytest.raises(BrokerTimeout):
        sends.send(item(3), timeout=0)  # it is told once; the queue is full
    receives = broker.channel("frames")
    assert [number_of(receives.receive()) for _ in range(2)] == [1, 2]
    sends.send(item(3))
    assert number_of(receives.receive()) == 3
    receives.close()
    with pytest.raises(ChannelClosed) as closed:
        sends.send(item(4))
    assert closed.value.reason == "NO_RECEIVER"
    sends.close()
    expect_nothing_left(broker, 1)


def test_a_sender_that_waits_goes_on_with_the_next_receiver(broker, start):
    sends = broker.channel("frames", 1, on_peer_death="wait").open("sender")
    receiver = start("receive_and_hang", "frames")
    sends.send(item(0))
    assert receiver.stdout.readline() == "0\n"
    sends.send(item(1))
    receiver.kill()
    receiver.wait()
    receives = broker.channel("frames")
    sending = threading.Thread(target=lambda: sends.send(item(2)))
    sending.start()
    assert [number_of(receives.receive()) for _ in range(2)] == [1, 2]
    sending.join()
    sends.close()
    with pytest.raises(ChannelClosed):
        receives.receive()
    receives.close()
    expect_nothing_left(broker, 1)


def test_a_child_opens_its_own_end(broker, start):
    receives = broker.channel("frames").open("receiver")
    forks = start("fork", "frames")
    assert [number_of(array) for array in receives] == [1, 2]
    assert output(forks) == ""


def test_deadlines(broker):
    channel = broker.channel("frames", 1)
    for wait in (0, 0.02):
        with pytest.raises(BrokerTimeout) as late:
            channel.receive(timeout=wait)
        assert late.value.reason == "CHANNEL_EMPTY" and isinstance(late.value, TimeoutError)
    array = broker.empty(3, "int64")
    array[:] = 7
    channel.send(array)
    again = broker.empty(3, "int64")
    again[:] = 8
    for wait in (0, 0.02):
        with pytest.raises(BrokerTimeout) as late:
            channel.send(again, timeout=wait)
        assert late.value.reason == "CHANNEL_FULL"
    assert again.flags.writeable and not array.flags.writeable
    assert channel.receive().tolist() == [7, 7, 7]
    channel.send(again)
    assert channel.receive(timeout=0).tolist() == [8, 8, 8]


@pytest.mark.parametrize("filled", [False, True])
def test_a_send_waits_for_memory_until_its_timeout(tmp_path, filled):
    """The Broker's timeout is that of calls which have none of their own."""
    daemon = start_daemon(str(tmp_path / "b"), "--host-capacity", str(16 << 20))
    with arraybridge.Broker(tmp_path / "b", start="never", timeout_s=120) as own:
        kept = own.put(np.ones(12 << 20, "u1"))
        whole = np.ones(8 << 20, "u1")
        channel = own.channel("frames").open("sender")
        for seconds in (0, 0.3):
            begun = time.monotonic()
            with pytest.raises(arraybridge.OutOfMemory):
                channel.send(whole.view(">u4") if filled else whole, timeout=seconds)
            assert seconds <= time.monotonic() - begun < 60
        kept.withdraw()
        channel.send(whole, timeout=10)
        assert own.channel("frames").receive(timeout=10).sum() == 8 << 20
    assert stop_daemon(daemon) == 0


@pytest.fixture
def small(tmp_path):
    """Two Brokers of a daemon with 16 MiB of host memory. A sender of the first that waits for memory looks at its channel every
    second.
    """
    daemon = start_daemon(str(tmp_path / "b"), "--host-capacity", str(16 << 20))
    with arraybridge.Broker(tmp_path / "b", start="never", timeout_s=1) as sends:
        with arraybridge.Broker(tmp_path / "b", start="never") as receives:
            yield sends, receives
    assert stop_daemon(daemon) == 0


def full_ends(sends, receives, **options):
    """A sender and a receiver of a channel with 12 MiB in its queue."""
    receiver = receives.channel("frames").open("receiver")
    sender = sends.channel("frames", **options).open("sender")
    sender.send(np.ones(12 << 20, "u1"))
    return sender, receiver


def large(form):
    """A message that has no room beside them."""
    whole = np.ones(8 << 20, "u1")
    return {"array": whole, "copied by the framework": whole.view(">u4"), "tree": {"a": whole, "b": np.ones(3)}}[form]


@pytest.mark.parametrize("form", ["array", "copied by the framework", "tree"])
def test_who_waits_for_memory_to_send_hears_of_its_receiver(small, form):
    """The receiver takes nothing, and holds the memory by what is queued."""
    sender, receiver = full_ends(*small)
    message = large(form)
    gives_up = threading.Timer(0.5, receiver.abandon)
    gives_up.start()
    with pytest.raises(PeerGone, match="frames") as gone:
        sender.send(message)
    assert gone.value.reason == "RECEIVER_ABANDONED"
    gives_up.join()
    with pytest.raises(arraybridge.OutOfMemory):
        sender.send(message, timeout=0.1)  # told once


@pytest.mark.parametrize("form", ["array", "tree"])
def test_who_waits_for_memory_may_wait_for_the_next_receiver(small, form):
    _, receives = small
    sender, receiver = full_ends(*small, on_peer_death="wait")

    def come_back():
        receiver.abandon()
        time.sleep(1.5)  # the sender looks at the channel meanwhile
        for _ in range(2):
            receives.channel("frames").receive(timeout=60)

    returns = threading.Thread(target=come_back)
    returns.start()
    sender.send(large(form))
    returns.join()


@pytest.mark.parametrize("form", ["array", "tree"])
def test_all_threads_that_wait_for_memory_are_told(small, form):
    _, receives = small
    sender, receiver = full_ends(*small)
    told = []

    def send():
        with pytest.raises(PeerGone) as gone:
            sender.send(large(form))
        told.append(gone.value.reason)

    waits = [threading.Thread(target=send) for _ in range(2)]
    for number, wait in enumerate(waits, 1):
        wait.start()
        until(lambda now, number=number: now["waiting"] >= number, receives)
    receiver.abandon()
    for wait in waits:
        wait.join()
    assert told == ["RECEIVER_ABANDONED"] * 2


@pytest.mark.parametrize("form", ["array", "tree"])
def test_who_waits_for_the_next_receiver_hears_that_the_last_one_closed(small, form):
    """Both notices come in one look at the channel."""
    _, receives = small
    sender, receiver = full_ends(*small, on_peer_death="wait")
    receiver.abandon()
    last = receives.channel("frames").open("receiver")
    held = last.receive(timeout=60)
    closes = threading.Timer(0.3, last.close)
    closes.start()
    with pytest.raises(ChannelClosed) as closed:
        sender.send(large(form))
    assert closed.value.reason == "NO_RECEIVER"
    closes.join()
    del held


@pytest.mark.parametrize("form", ["array", "tree"])
def test_closing_ends_the_wait_for_memory(small, form):
    sends, _ = small
    kept = sends.put(np.ones(12 << 20, "u1"), "kept")
    sender = sends.channel("frames").open("sender")
    closes = threading.Timer(0.5, sender.close)
    closes.start()
    with pytest.raises(ChannelClosed):
        sender.send(large(form))
    closes.join()
    kept.withdraw()


def test_an_exception_in_the_block_abandons(broker):
    receives = broker.channel("frames").open("receiver")
    with pytest.raises(RuntimeError), broker.channel("frames") as sends:
        sends.send(item(1))
        raise RuntimeError
    assert number_of(receives.receive()) == 1
    with pytest.raises(PeerGone) as gone:
        next(iter(receives))
    assert (gone.value.reason, gone.value.shares) == ("SENDER_ABANDONED", 1)


def test_one_that_is_forgotten_was_not_closed(broker):
    receives = broker.channel("frames").open("receiver")
    broker.channel("frames").open("sender")
    gc.collect()
    with pytest.raises(PeerGone):
        receives.receive()


def test_closing_ends_the_wait_of_another_thread(broker):
    channel = broker.channel("frames").open("receiver")
    ended = []
    waits = threading.Thread(target=lambda: ended.append(list(channel)))
    waits.start()
    until(lambda now: now["waiting"] >= 1, broker)
    channel.close()
    waits.join()
    assert ended == [[]]
    with pytest.raises(ChannelClosed):
        channel.send(item(1))


def test_the_example_of_the_readme_runs(address, client):
    section = README.read_text().split("## Channels\n")[1].split("\n## ")[0]
    example = section.split("```python\n")[1].split("```")[0]
    assert client(example, ARRAYBRIDGE_ADDRESS=address) == ""


def test_arguments(broker):
    for name in ("", None, 3):
        with pytest.raises(InvalidRequest):
            broker.channel(name)
    for capacity in (0, -1, True, 1.5):
        with pytest.raises(InvalidRequest):
            broker.channel("frames", capacity)
    with pytest.raises(InvalidRequest):
        broker.channel("frames", 10**9).open("sender")
    with pytest.raises(InvalidRequest):
        broker.channel("frames").open("both")
    with pytest.raises(InvalidRequest, match="on_peer_death"):
        broker.channel("frames", on_peer_death="ignore")
    with pytest.raises(InvalidRequest):
        broker.channel("frames").receive(timeout=-1)
    two = broker.channel("frames", 2).open("sender")
    assert two.capacity == broker.channel("frames").open("receiver").capacity == 2
    with pytest.raises(InvalidRequest):
        broker.channel("frames", 3).open("sender")


def test_it_pickles_as_what_it_was_asked_for(broker):
    channel = broker.channel("frames", 3).open("sender")
    other = pickle.loads(pickle.dumps(channel))
    assert other.name == "frames" and "not open" in repr(other) and "sender" in repr(channel)


def test_a_loop_goes_on_while_tasks_wait(broker):
    async def both():
        turns = 0

        async def send():
            async with broker.channel("frames", 2) as sends:
                for number in range(50):
                    await sends.asend(item(number))

        async def turn():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        sending = asyncio.create_task(send())
        receives = broker.channel("frames")
        numbers = [number_of(array) async for array in receives.receiver("torch")]
        await sending
        turning.cancel()
        return numbers, turns

    numbers, turns = asyncio.run(both())
    assert numbers == list(range(50))
    assert turns > 50


def test_what_comes_for_a_cancelled_task_is_the_next_ones(broker):
    async def run():
        receives = broker.channel("frames")
        with pytest.raises(BrokerTimeout):
            await receives.areceive(timeout=0.02)
        task = asyncio.create_task(receives.areceive())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        sends = broker.channel("frames")
        for number in range(3):
            await sends.asend(item(number))
        return [number_of(await receives.areceive()), number_of(receives.receive()), number_of(receives.receive())]

    assert asyncio.run(run()) == [0, 1, 2]


def test_the_broker_goes_and_the_channel_with_it():
    with arraybridge.Broker(start="private") as own:
        channel = own.channel("frames").open("receiver")
        own.close()
        with pytest.raises(arraybridge.BrokerUnavailable) as lost:
            channel.receive()
        assert lost.value.reason == "CHANNEL_LOST"
        # The next call opens it anew, at the next broker.
        own.channel("frames").send(np.arange(3))
        assert channel.receive(timeout=10).tolist() == [0, 1, 2]
