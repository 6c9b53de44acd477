# SPDX-License-Identifier: Apache-2.0
"""What timed out: `Broker.outcome` says what became of it, a retry works, and a wait has one deadline."""

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from processes import start_daemon, stop_daemon

import arraybridge
from arraybridge import BrokerTimeout, BrokerUnavailable, InvalidRequest, ShareNotFound

HEADER = struct.Struct("<HHIQ")  # proto/boundary/frame.h: verb, flags, status or deadline, request
ACQUIRE, DEADLINE = 6, 8


class Stopped:
    """A daemon of the test's own that can be stopped."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.process = start_daemon(directory, "--log-level", "warn")

    def __enter__(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        while f"{self.process.pid} (arraybridged) T" not in Path(f"/proc/{self.process.pid}/stat").read_text():
            pass

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)  # nothing where it has been waited for


class Relay:
    """Passes every frame, and its descriptor, between a client and a daemon; says what frames the client sent."""

    def __init__(self, folder: Path, daemon: str) -> None:
        folder.mkdir()
        self.address = folder / "lifeline.sock"
        self._daemon = f"{daemon}/lifeline.sock"
        self.holds_answers = False
        self.frames: list[tuple[int, int, int]] = []  # verb, flags, deadline
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.address))
        self._listener.listen()
        self._ends = False
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Relay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        daemon.connect(self._daemon)
        with client, daemon:
            while not self._ends:
                wanted = [client] if self.holds_answers else [client, daemon]
                ready, _, _ = select.select(wanted, [], [], 0.01)
                for side in ready:
                    data, descriptors, _, _ = socket.recv_fds(side, 65536, 1)
                    if not data:
                        return
                    if side is client:
                        self.frames.append(HEADER.unpack_from(data)[:3])
                    socket.send_fds(daemon if side is client else client, [data], descriptors)
                    for descriptor in descriptors:
                        os.close(descriptor)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Stopped]:
    made = Stopped(str(tmp_path))
    yield made
    assert made.process.poll() is not None or stop_daemon(made.process) == 0


def done(broker, call, *args, **wishes):
    """Its result. Calls again if a stalled machine used up the Broker's timeout, unless the call was done after all."""
    for _ in range(100):
        try:
            return call(*args, **wishes)
        except BrokerTimeout as error:
            with contextlib.suppress(BrokerUnavailable):  # no outcome is kept for this call
                if outcome := broker.outcome(error, timeout_s=60):
                    return outcome.share
    raise AssertionError(f"{call} times out")


@pytest.fixture
def broker(daemon: Stopped) -> Iterator[arraybridge.Broker]:
    """Its calls may take 1 s; it has memory, and a session queue."""
    with arraybridge.Broker(daemon.directory, start="never", timeout_s=1) as made:
        done(made, made.put, np.zeros(3), "first")
        for _ in range(30):
            done(made, made.list)
        yield made


def timed_out_put(broker: arraybridge.Broker, daemon: Stopped) -> BrokerTimeout:
    with daemon, pytest.raises(BrokerTimeout, match="timeout_s=") as error:
        broker.put(np.full(3, 7), "frame")
    return error.value


def test_a_put_that_timed_out_was_not_done_and_can_be_done_again(broker, daemon):
    error = timed_out_put(broker, daemon)
    assert error.request
    outcome = broker.outcome(error, timeout_s=60)
    assert not outcome
    assert outcome.share is None
    assert outcome.error is not None
    assert outcome.error.reason == "NOT_SERVED"
    with pytest.raises(ShareNotFound):
        done(broker, broker.get, "frame")
    done(broker, broker.put, np.full(3, 8), "frame")
    assert list(done(broker, broker.get, "frame")) == [8, 8, 8]


def test_a_retry_comes_after_what_timed_out(broker, daemon):
    """Without a question: the daemon refuses the first before it serves the second."""
    timed_out_put(broker, daemon)
    share = done(broker, broker.put, np.full(3, 8), "frame")
    assert list(done(broker, broker.get, share)) == [8, 8, 8]


def test_an_outcome_that_is_not_known_yet_is_asked_for_again(broker, daemon):
    with daemon:
        with pytest.raises(BrokerTimeout) as error:
            broker.put(np.full(3, 7), "frame")
        with pytest.raises(BrokerTimeout) as again:
            broker.outcome(error.value, timeout_s=0.01)
        assert again.value.request == error.value.request
    assert not broker.outcome(again.value, timeout_s=60)


def test_an_answer_that_comes_too_late_is_the_outcome(daemon, tmp_path):
    """The daemon publishes just in time, and its answer comes when its caller has gone: nothing of it is lost."""
    with Relay(tmp_path / "relay", daemon.directory) as relay:
        with arraybridge.Broker(relay.address, start="never", timeout_s=1) as broker:
            done(broker, broker.put, np.zeros(3), "first")
            for _ in range(10):  # on a stalled machine even the request may come too late
                relay.holds_answers = True
                with pytest.raises(BrokerTimeout) as error:
                    broker.put(np.full(3, 7), "frame", metadata=b"mine")
                relay.holds_answers = False
                if outcome := broker.outcome(error.value, timeout_s=60):
                    break
            assert outcome
            assert outcome.error is None
            assert outcome.share is not None
            assert outcome.share.metadata == b"mine"
            assert list(done(broker, broker.get, outcome.share)) == [7, 7, 7]
            assert broker.outcome(error.value).share == outcome.share
            done(broker, broker.withdraw, outcome.share)
            done(broker, broker.flush)


def test_withdraw_has_an_outcome_and_get_needs_none(broker, daemon):
    with daemon:
        with pytest.raises(BrokerTimeout) as error:
            broker.withdraw("first")
        with pytest.raises(BrokerTimeout) as got:
            broker.get("not there")
    assert not broker.outcome(error.value, timeout_s=60)
    assert got.value.request == ""
    assert not broker.outcome(got.value, timeout_s=0)
    done(broker, broker.withdraw, "first")


def test_nobody_knows_what_a_daemon_that_died_has_done(broker, daemon):
    with daemon:
        with pytest.raises(BrokerTimeout) as error:
            broker.put(np.full(3, 7), "frame")
        daemon.process.kill()
        daemon.process.wait()
        with pytest.raises(BrokerUnavailable) as unknown:
            broker.outcome(error.value, timeout_s=60)
        assert unknown.value.reason == "OUTCOME_UNKNOWN"


def test_an_error_of_another_connection_is_refused(broker, daemon):
    error = timed_out_put(broker, daemon)
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.request, copied.reason, str(copied)) == (error.request, error.reason, str(error))
    assert not broker.outcome(copied, timeout_s=60)
    with arraybridge.Broker(daemon.directory, start="never") as other:
        with pytest.raises(BrokerUnavailable, match="OUTCOME_UNKNOWN|connection"):
            other.outcome(copied)
    for nonsense in (ShareNotFound("x"), None, "x"):
        with pytest.raises(InvalidRequest):
            broker.outcome(nonsense)
    with pytest.raises(InvalidRequest):
        broker.outcome(error, timeout_s=-1)
    for request in ("", "x", "1", "1/", "/1", "99999999999999999999999/1", "1/2/3"):
        made = BrokerTimeout("made up", 4, "UNANSWERED", request)
        try:
            assert not broker.outcome(made)
        except BrokerUnavailable as unknown:
            assert request and unknown.reason == "OUTCOME_UNKNOWN"


@pytest.mark.parametrize(("wait", "timeout_s", "most"), [(None, 2, 2), (1, 2, 2), (2, 2, 3), (3, 2, 4), (0.1, 5, 5)])
def test_a_get_has_one_deadline(wait, timeout_s, most, daemon, tmp_path):
    """What bounds the wait for the daemon is said in the frame: of the whole operation, and not of each of its steps."""
    with Relay(tmp_path / "relay", daemon.directory) as relay:
        with arraybridge.Broker(relay.address, start="never", timeout_s=timeout_s) as broker:
            done(broker, broker.list)
            before = time.monotonic()
            with pytest.raises((ShareNotFound, BrokerTimeout)):
                broker.get("nobody", wait=wait)
            after = time.monotonic()
            asked = [(flags & DEADLINE, deadline) for verb, flags, deadline in relay.frames if verb == ACQUIRE]
            assert len(set(asked)) == 1, "each request of it has the same deadline"
            states, deadline = asked[0]
            assert states
            # What passed between `before` and the call is the machine's; the daemon's own waiting is in `after`.
            left = ((deadline - int(before * 1000)) % 2**32) / 1000
            assert left <= most + (after - before) - (wait or 0) + 0.01
            assert left >= most - 0.01


def test_a_watch_and_a_channel_go_on_after_a_timeout(broker, daemon):
    """What timed out of these is answered to a later call: nothing that happened, or was sent, is lost."""
    watch = done(broker, broker.watch, kinds="publish")
    channel = done(broker, broker.channel, "queue")
    assert next_of(watch, "before", broker) == "before"
    with pytest.raises(BrokerTimeout):
        channel.receive(timeout=0)
    with daemon:
        with pytest.raises(BrokerTimeout):
            channel.receive(timeout=0)
        with pytest.raises(BrokerTimeout):
            watch.next(timeout=0)
    assert next_of(watch, "after", broker) == "after"
    with arraybridge.Broker(daemon.directory, start="never") as other:
        other.channel("queue").send(np.full(3, 5), timeout=60)
        assert list(channel.receive(timeout=60)) == [5, 5, 5]


def next_of(watch, name, broker):
    done(broker, broker.put, np.zeros(1), name)
    return watch.next(timeout=60).name
