# SPDX-License-Identifier: Apache-2.0
"""Waiting for any of several channels and watches: select, descriptors, deadlines."""

import asyncio
import gc
import os
import pickle
import select as system
import selectors
import socket
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from processes import environment

import arraybridge
from arraybridge import BrokerTimeout, ChannelClosed, InvalidRequest, Late, PeerGone, WatchClosed

# Of a wait that ends early when all is well.
LONG = 60.0


@pytest.fixture(params=[True, False], ids=["direct", "by calls"])
def pair(request, address, broker):
    """Senders and receivers of channels whose ends pass arrays directly, or by calls."""
    with arraybridge.Broker(address, namespace=broker.namespace, start="never", direct_channels=request.param) as other:
        yield lambda name: (other.channel(name).open("sender"), broker.channel(name).open("receiver"))


def is_readable(source):
    """Whether it is soon: a call is made ahead on another thread."""
    return bool(system.select([source], [], [], LONG)[0])


def test_the_ready_one_of_several(pair):
    ends = [pair(f"c{number}") for number in range(8)]
    receivers = [receiver for _, receiver in ends]
    for number in [*range(8), 3, 3, 3, 5, 5, 0] * 4:
        ends[number][0].send(np.full(3, number))
        assert arraybridge.select(receivers, timeout=LONG) == [receivers[number]]
        assert receivers[number].receive(timeout=LONG).tolist() == [number] * 3


def test_several_are_ready_in_the_order_of_the_sources(pair):
    ends = [pair(f"c{number}") for number in range(4)]
    receivers = [receiver for _, receiver in ends]
    for number in (3, 1):
        ends[number][0].send(np.full(3, number))
        assert is_readable(receivers[number])
    assert arraybridge.select(receivers, timeout=LONG) == [receivers[1], receivers[3]]
    assert arraybridge.select(iter([receivers[3], receivers[1]]), timeout=LONG) == [receivers[3], receivers[1]]


def test_nothing_is_lost_and_the_order_stays(pair):
    """Calls that wait, that do not, and select take turns on one end."""
    sender, receiver = pair("frames")
    seen = []

    def send():
        for number in range(300):
            sender.send(np.full(3, number))
        sender.close()

    sending = threading.Thread(target=send)
    sending.start()
    with pytest.raises(ChannelClosed):
        while True:
            arraybridge.select([receiver], timeout=LONG)
            seen.append(int(receiver.receive(timeout=LONG)[0]))
            one = receiver.try_receive()
            if one is not None:
                seen.append(int(one[0]))
            seen.append(int(receiver.receive()[0]))
    sending.join()
    assert seen == list(range(300))


def test_an_array_for_torch_is_its_own(pair):
    """What was received ahead can be written as ever: torch's mapping is copy-on-write."""
    torch = pytest.importorskip("torch")
    sender, receiver = pair("frames")
    for _ in range(6):
        sender.send(np.ones(1024))
        arraybridge.select([receiver], timeout=LONG)
        tensor = receiver.receive("torch", timeout=LONG)
        tensor += 1
        assert torch.equal(tensor, torch.full((1024,), 2.0, dtype=torch.float64))


def test_numpy_arrays_are_read_only(pair):
    sender, receiver = pair("frames")
    sender.send(np.ones(1024))
    arraybridge.select([receiver], timeout=LONG)
    with pytest.raises(ValueError, match="read-only"):
        receiver.receive(timeout=LONG)[0] = 2


def test_with_a_timeout_nothing_is_ready(pair):
    _, receiver = pair("frames")
    assert arraybridge.select([receiver], timeout=0) == []
    assert arraybridge.select([receiver], timeout=0.05) == []
    assert receiver.try_receive() is None
    with pytest.raises(BrokerTimeout):
        receiver.receive(timeout=0)


def test_the_end_of_the_stream_and_a_lost_sender_are_ready(address, broker, pair):
    sender, receiver = pair("frames")
    sender.close()
    assert arraybridge.select([receiver], timeout=LONG) == [receiver]
    with pytest.raises(ChannelClosed, match="has ended"):
        receiver.receive(timeout=LONG)
    assert arraybridge.select([receiver], timeout=0.05) == []
    with arraybridge.Broker(address, namespace=broker.namespace, start="never") as lost:
        lost.channel("frames").open("sender")
    assert arraybridge.select([receiver], timeout=LONG) == [receiver]
    with pytest.raises(PeerGone):
        receiver.try_receive()


def test_a_channel_that_is_closed_is_ready_for_good(pair):
    _, receiver = pair("frames")
    waiting = threading.Thread(target=arraybridge.select, args=([receiver], LONG))
    assert arraybridge.select([receiver], timeout=0) == []
    waiting.start()
    receiver.close()
    waiting.join()
    for _ in range(3):
        assert arraybridge.select([receiver], timeout=LONG) == [receiver]
        with pytest.raises(ChannelClosed):
            receiver.receive()


def test_a_watch_beside_a_channel_and_a_socket(broker, pair):
    sender, receiver = pair("frames")
    left, right = socket.socketpair()
    with broker.watch("publish", "lamp") as watch, left, right:
        sources = [receiver, watch, left]
        assert arraybridge.select(sources, timeout=0) == []
        right.send(b"x")
        assert arraybridge.select(sources, timeout=LONG) == [left]
        left.recv(1)
        for _ in range(3):
            share = broker.put(np.ones(3), "lamp", replace=True)
            assert arraybridge.select(sources, timeout=LONG) == [watch]
            assert watch.next(timeout=LONG).generation == share.generation
        sender.send(np.ones(3))
        assert arraybridge.select(sources, timeout=LONG) == [receiver]
        assert receiver.receive(timeout=LONG).shape == (3,)
    assert arraybridge.select([watch], timeout=LONG) == [watch]
    with pytest.raises(WatchClosed):
        watch.next()


def test_selectors_and_asyncio(pair):
    sender, receiver = pair("frames")
    with selectors.DefaultSelector() as selector:
        selector.register(receiver, selectors.EVENT_READ)
        sender.send(np.full(2, 1))
        [(key, _)] = selector.select(LONG)
        assert key.fileobj is receiver and receiver.receive(timeout=LONG).tolist() == [1, 1]

    async def received():
        loop, found = asyncio.get_running_loop(), asyncio.Event()
        seen = []

        def ready():
            one = receiver.try_receive()
            if one is not None:
                seen.append(int(one[0]))
            if len(seen) == 20:
                found.set()

        loop.add_reader(receiver, ready)
        for number in range(20):
            await sender.asend(np.full(2, number))
        await asyncio.wait_for(found.wait(), LONG)
        loop.remove_reader(receiver)
        return seen

    assert asyncio.run(received()) == list(range(20))


def test_several_threads_select_the_same_channels(pair):
    """Each array is received once; a thread that came too late gets None."""
    sender, receiver = pair("frames")
    seen, stop = [], threading.Event()

    def take():
        while not stop.is_set():
            if arraybridge.select([receiver], timeout=0.02):
                one = receiver.try_receive()
                if one is not None:
                    seen.append(int(one[0]))
            if len(seen) == 100:
                stop.set()

    threads = [threading.Thread(target=take) for _ in range(3)]
    for each in threads:
        each.start()
    for number in range(100):
        sender.send(np.full(2, number), timeout=LONG)
    assert stop.wait(LONG)
    for each in threads:
        each.join()
    assert sorted(seen) == list(range(100))


def test_a_forked_child_has_descriptors_of_its_own(pair, broker):
    """The parent's array stays the parent's, and the child receives with an end of its own."""
    sender, receiver = pair("frames")
    sender.send(np.full(2, 7))
    assert arraybridge.select([receiver], timeout=LONG) == [receiver]
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with arraybridge.Broker(broker.address, namespace=broker.namespace, start="never") as own:
                own.channel("for the child").open("sender").send(np.full(2, 8))
                inherited = receiver._broker.channel("for the child")
                assert arraybridge.select([inherited], timeout=LONG) == [inherited]
                assert inherited.receive(timeout=LONG).tolist() == [8, 8]
                assert arraybridge.select([receiver], timeout=0) == []
                status = 0
        finally:
            os.write(tell, b"%d" % status)
            os._exit(status)
    os.close(tell)
    assert os.read(ready, 1) == b"0"
    os.close(ready)
    assert os.waitpid(child, 0)[1] == 0
    assert receiver.receive(timeout=LONG).tolist() == [7, 7]


def test_a_channel_that_is_dropped_closes_its_descriptor(broker):
    """Also while its thread waits for an array."""
    before = set(threading.enumerate())
    channel = broker.channel("frames").open("receiver")
    number, gone = channel.fileno(), weakref.ref(channel)
    [thread] = set(threading.enumerate()) - before
    del channel
    gc.collect()
    assert gone() is None
    thread.join(LONG)
    assert not thread.is_alive()
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_what_cannot_be_awaited_is_refused(broker):
    with pytest.raises(InvalidRequest, match="needs at least one"):
        arraybridge.select([])
    with pytest.raises(InvalidRequest, match="not for str"):
        arraybridge.select(["frames"])
    with pytest.raises(InvalidRequest, match="timeout"):
        arraybridge.select([broker.channel("frames")], timeout=-1)


def test_late_is_raised_once_for_each_gap(pair):
    sender, receiver = pair("frames")
    frames = receiver.receiver(deadline=0.05)
    with pytest.raises(Late, match=r"channel 'frames' within its deadline of 0\.05 s") as first:
        next(frames)
    assert (first.value.deadline, first.value.count, frames.late) == (0.05, 1, 1)
    sender.send(np.full(2, 1))
    assert next(frames).tolist() == [1, 1]
    with pytest.raises(Late) as second:
        next(frames)
    assert second.value.count == 2
    sender.send(np.full(2, 2))
    sender.close()
    assert [frame.tolist() for frame in frames] == [[2, 2]]  # once: this wait is not late again
    assert frames.late == 2
    again = pickle.loads(pickle.dumps(second.value))
    assert (again.deadline, again.count, str(again)) == (0.05, 2, str(second.value))


def test_the_timeout_holds_beside_the_deadline(pair):
    _, receiver = pair("frames")
    frames = receiver.receiver(deadline=0.05, timeout=0.2)
    with pytest.raises(Late):
        next(frames)
    with pytest.raises(BrokerTimeout) as over:
        next(frames)
    assert not isinstance(over.value, Late)
    sooner = receiver.receiver(deadline=LONG, timeout=0.05)
    with pytest.raises(BrokerTimeout) as over:
        next(sooner)
    assert not isinstance(over.value, Late) and sooner.late == 0


def test_an_array_that_waits_is_not_late(pair):
    """A loop that works longer than the deadline finds the next array there."""
    sender, receiver = pair("frames")
    frames = receiver.receiver(deadline=0.01)
    for number in range(5):
        sender.send(np.full(2, number))
        threading.Event().wait(0.02)  # the work on a frame, longer than the deadline
        assert int(next(frames)[0]) == number
    assert frames.late == 0


def test_late_in_an_event_loop(pair):
    sender, receiver = pair("frames")

    async def received():
        frames = receiver.receiver(deadline=0.05)
        with pytest.raises(Late):
            await anext(frames)
        await sender.asend(np.full(2, 1))
        assert (await anext(frames)).tolist() == [1, 1]
        return frames.late

    assert asyncio.run(received()) == 1


@pytest.mark.parametrize("deadline", [0, -1, "x"])
def test_a_deadline_that_is_none_is_refused(broker, deadline):
    with pytest.raises(InvalidRequest, match="deadline"):
        broker.channel("frames").receiver(deadline=deadline)


MANY = """
import subprocess, sys, numpy as np
from arraybridge import Broker, select
address, namespace = sys.argv[1:]
SEND = '''
import sys, numpy as np
from arraybridge import Broker
broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
senders = [broker.channel(f"c{number}").open("sender") for number in range(64)]
print("open", flush=True)
for line in sys.stdin:
    senders[int(line)].send(np.full(4, int(line)))
'''
broker = Broker(address, namespace=namespace, start="never")
channels = [broker.channel(f"c{number}").open("receiver") for number in range(64)]
sender = subprocess.Popen([sys.executable, "-c", SEND, address, namespace], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert sender.stdout.readline() == "open\\n"
assert select(channels, timeout=0) == []
for number in range(100):
    place = number * 17 % 64
    sender.stdin.write(f"{place}\\n")
    sender.stdin.flush()
    assert select(channels, timeout=60) == [channels[place]]
    assert channels[place].receive(timeout=0).tolist() == [place] * 4
sender.kill()
sender.wait()
"""


def test_one_of_64_channels(address, broker):
    """Each has a sender in another process, and a direct channel to it, whose descriptors arrive together."""
    command = [sys.executable, "-c", MANY, address, broker.namespace]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert broker.stats()["sessions_cut_total"] == 0
