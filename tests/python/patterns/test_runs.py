# SPDX-License-Identifier: Apache-2.0
"""Runs of a channel: no stage ends because of an earlier run; and what an end does not state is as others state it."""

import itertools
import os
import signal

import numpy as np
import pytest
from processes import children, daemons_of, start_daemon, stop_daemon

import arraybridge
from arraybridge import BrokerTimeout, ChannelClosed, InvalidRequest, PeerGone

# One stage of a pipeline of two: `SENDER|RECEIVER RUN FRESH`. Its arrays are numbers.
STAGE = """
import os, sys, numpy as np, arraybridge
address, namespace, role, run, fresh, first = sys.argv[1:]
broker = arraybridge.Broker(address, namespace=namespace, start="never")
frames = broker.channel("frames", run=run or None, fresh=fresh == "fresh")
if role == "sender":
    with frames:
        for number in range(int(first), int(first) + 3):
            frames.send(np.full(4, number))
        print("sent", flush=True)
else:
    frames.open("receiver")
    print("open", flush=True)
    for frame in frames:
        print(int(frame[0]), flush=True)
    print("ended", flush=True)
"""


@pytest.fixture
def stage(address, broker):
    """Starts a stage of this test's pipeline."""
    with children() as begin:
        yield lambda role, run="", fresh="", first=0: begin("-c", STAGE, address, broker.namespace, role, run, fresh, first)


def output(process):
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return text.split()


def end_left(broker, run=None):
    """A stream of three arrays that has ended in order, and that no receiver has seen."""
    with broker.channel("frames", run=run) as frames:
        for number in range(3):
            frames.send(np.full(4, number))


def test_a_second_run_does_not_end_with_the_first(broker, stage):
    """The failure that a run prevents: a stage of the second run gets the end of the first, and exits with 0."""
    end_left(broker, "one")
    broker.channel("frames").drain()
    end_left(broker, "one")
    late = broker.channel("frames", run="two", fresh=True).open("receiver")
    with pytest.raises(BrokerTimeout):
        late.receive(timeout=0)
    second = stage("sender", "two", "fresh", 10)
    assert [int(frame[0]) for frame in late] == [10, 11, 12]
    assert output(second) == ["sent"]


def test_stages_of_two_runs_in_processes(broker, stage):
    assert output(stage("sender", "one", "fresh")) == ["sent"]  # and no receiver: three arrays and the end are left
    receiver = stage("receiver", "two", "fresh")
    assert receiver.stdout.readline() == "open\n"
    assert output(stage("sender", "two", "fresh", 10)) == ["sent"]
    assert output(receiver) == ["10", "11", "12", "ended"]


def test_without_fresh_the_arrays_of_the_first_run_stay(broker):
    end_left(broker, "one")
    late = broker.channel("frames", run="two").open("receiver")
    assert [int(late.receive(timeout=60)[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(BrokerTimeout):  # but not its end
        late.receive(timeout=0)
    with broker.channel("frames", run="two") as frames:
        frames.send(np.full(4, 10))
    assert [int(frame[0]) for frame in late] == [10]


def test_an_end_that_is_told_across_runs_says_so(broker):
    end_left(broker, "one")
    late = broker.channel("frames").open("receiver")
    for _ in range(3):
        late.receive(timeout=60)
    with pytest.raises(ChannelClosed, match="of run 'one' of channel 'frames' has ended"):
        late.receive(timeout=60)


def test_the_end_of_an_earlier_run_says_so_to_a_loop(broker):
    with broker.channel("empty", run="one").open("sender"):
        pass
    with pytest.warns(RuntimeWarning, match="of run 'one' of channel 'empty' ended before this receiver opened"):
        assert list(broker.channel("empty")) == []


def test_an_end_of_the_same_run_is_told(broker):
    end_left(broker, "one")
    restarted = broker.channel("frames", run="one", fresh=True)
    assert [int(frame[0]) for frame in restarted] == [0, 1, 2]  # fresh drops what another run left alone


def test_ends_without_a_run_belong_to_that_of_the_channel(broker):
    receiver = broker.channel("frames", run="one").open("receiver")
    end_left(broker)
    assert [int(frame[0]) for frame in receiver] == [0, 1, 2]


def test_only_the_first_end_of_a_run_drops(broker):
    end_left(broker, "one")
    receiver = broker.channel("frames", run="two", fresh=True).open("receiver")
    sender = broker.channel("frames", run="two", fresh=True).open("sender")
    sender.send(np.full(4, 10))
    broker.channel("frames", run="two", fresh=True).open("sender").close()
    assert int(receiver.receive(timeout=60)[0]) == 10


def test_a_straggler_of_an_earlier_run_drops_nothing(broker):
    """A process of the first run that is started again while the second one runs."""
    end_left(broker, "one")
    sender = broker.channel("frames", run="two", fresh=True).open("sender")
    sender.send(np.full(4, 10))
    straggler = broker.channel("frames", run="one", fresh=True).open("sender")
    receiver = broker.channel("frames", run="two", fresh=True).open("receiver")
    assert int(receiver.receive(timeout=60)[0]) == 10
    straggler.abandon()
    with pytest.raises(BrokerTimeout):
        receiver.receive(timeout=0)
    sender.abandon()
    with pytest.raises(PeerGone):
        receiver.receive(timeout=60)


def test_a_death_of_another_run_is_not_told(broker, address):
    receiver = broker.channel("frames", run="two").open("receiver")
    with arraybridge.Broker(address, namespace=broker.namespace, start="never") as other:
        other.channel("frames", run="one").open("sender")
    with pytest.raises(BrokerTimeout):
        receiver.receive(timeout=0)
    with arraybridge.Broker(address, namespace=broker.namespace, start="never") as other:
        other.channel("frames", run="two").open("sender")
    with pytest.raises(PeerGone):
        receiver.receive(timeout=60)


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_runs_outlive_a_daemon_that_is_killed(mode, tmp_path):
    """With a keeper, the next daemon knows the runs of channels, of ends and of notices."""
    directory = tmp_path / "broker"
    keeper = start_daemon(str(directory), "--log-level", "off", "--keeper")
    try:
        with arraybridge.Broker(directory, start="never", timeout_s=60) as broker:
            terms = {} if mode == "queue" else {"mode": "broadcast", "replay": 3}
            with broker.channel("frames", run="one", **terms) as frames:
                for number in range(3):
                    frames.send(np.full(4, number))
                receiver = broker.channel("frames", run="two").open("receiver")
            for daemon in daemons_of(directory):
                os.kill(daemon, signal.SIGKILL)
            straggler = broker.channel("frames", run="one").open("sender")
            assert [int(receiver.receive(timeout=60)[0]) for _ in range(3)] == [0, 1, 2]
            straggler.close()
            with pytest.raises(BrokerTimeout):  # neither the end before the kill nor the one after it
                receiver.receive(timeout=0)
            with broker.channel("frames", run="two") as frames:
                frames.send(np.full(4, 10))
            assert [int(frame[0]) for frame in receiver] == [10]
    finally:
        assert stop_daemon(keeper) == 0


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"run": ""}, "run must be a non-empty str"),
        ({"run": 3}, "run must be a non-empty str"),
        ({"run": "x" * 65}, "run has 65 bytes, the most is 64: pass a shorter text"),
        ({"run": "\ud800"}, "surrogate"),
        ({"fresh": True}, "state run="),
        ({"run": "one", "fresh": 1}, "fresh must be True or False"),
    ],
)
def test_a_run_that_is_none_is_refused(broker, wishes, words):
    with pytest.raises(InvalidRequest, match=words):
        broker.channel("frames", **wishes)


def test_a_run_is_shown(broker):
    assert "run 'monday'" in repr(broker.channel("frames", run="monday"))


STATED = [
    {"mode": "broadcast"},
    {"mode": "broadcast", "on_slow": "drop_oldest"},
    {"mode": "broadcast", "replay": 2},
    {},
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_an_end_states_only_what_it_states(broker, order):
    """In any order: the channel has what one of the ends has stated, and no end is refused for what it left out."""
    ends = [broker.channel("frames", **STATED[each]) for each in order]
    for end in ends:
        end.open("receiver")
    sender = broker.channel("frames").open("sender")
    for number in range(3):
        sender.send(np.full(4, number))
    late = broker.channel("frames").open("receiver")
    assert [int(late.receive(timeout=60)[0]) for _ in range(2)] == [1, 2]  # replay=2
    for number in range(3, 40):
        sender.send(np.full(4, number), timeout=60)  # on_slow="drop_oldest": the receivers that do not ask miss some
    assert int(ends[0].receive(timeout=60)[0]) == 24
