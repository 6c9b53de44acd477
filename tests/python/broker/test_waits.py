# SPDX-License-Identifier: Apache-2.0
"""Waiting for a name, Ctrl-C while waiting, and many threads on one Broker."""

import os
import platform
import signal
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import arraybridge
from arraybridge import BrokerTimeout, BrokerUnavailable, InvalidRequest, ShareNotFound
from arraybridge.broker import delivery

FUTEX = "98 " if platform.machine() == "aarch64" else "202 "  # as /proc names the system call


def test_a_missing_name_and_a_wait_that_ends(broker):
    with pytest.raises(ShareNotFound):
        broker.get("nobody")
    with pytest.raises(BrokerTimeout):
        broker.get("nobody", wait=0.05)


def test_a_wait_ends_when_the_name_comes(broker, address):
    waiting = threading.Event()
    got = []

    def wait():
        with arraybridge.Broker(address, namespace=broker.namespace, start="never") as other:
            other.list()
            waiting.set()
            got.append(other.get("late", wait=60)[0])

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    broker.put(np.full(1, 5), "late")
    thread.join()
    assert got == [5]


@pytest.fixture
def other(broker, address):
    """A second Broker of this process in the same namespace."""
    with arraybridge.Broker(address, namespace=broker.namespace, start="never") as made:
        yield made


def when_somebody_waits(other, act):
    def work():
        while not other.stats()["waiting"]:
            pass
        act()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_ctrl_c_ends_a_wait_at_once_and_loses_nothing(broker, other, monkeypatch):
    handled, in_time = threading.Event(), []

    def handler(*_):
        handled.set()
        raise KeyboardInterrupt

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        # Not within 30 s means: only when the wait has ended by itself.
        in_time.append(handled.wait(30))
        if not in_time[0]:
            other.put(np.zeros(1), "late")

    broker.put(np.arange(3), "there")
    before = signal.signal(signal.SIGINT, handler)
    try:
        thread = when_somebody_waits(other, interrupt)
        with pytest.raises(KeyboardInterrupt):
            broker.get("late", wait=3600)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert in_time == [True]
    broker.flush()
    assert broker.stats()["client_live_leases"] == 0
    other.put(np.full(1, 5), "late")
    assert (broker.get("late", wait=3600)[0], broker.get("there").tolist()) == (5, [0, 1, 2])


def test_ctrl_c_ends_the_wait_for_another_threads_connect(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as deaf:
        deaf.bind(str(tmp_path / "lifeline.sock"))
        deaf.listen()
        broker = arraybridge.Broker(tmp_path, start="never", timeout_s=3600)
        connecting = threading.Thread(target=lambda: pytest.raises(BrokerUnavailable, broker.stats))
        connecting.start()
        silent, _ = deaf.accept()  # that thread waits for a hello now, and keeps all others waiting

        def interrupt():
            state = f"/proc/self/task/{threading.main_thread().native_id}/syscall"
            asleep = 0
            while asleep < 100:  # not only for the GIL
                asleep = asleep + 1 if Path(state).read_text().startswith(FUTEX) else 0
            os.kill(os.getpid(), signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                broker.stats()
            thread.join()
        finally:
            signal.signal(signal.SIGINT, before)
        assert connecting.is_alive()
        deaf.close()  # else that thread says hello to the next broker that listens
        silent.close()
        connecting.join()


def test_a_wait_goes_on_after_a_signal_that_raises_nothing(broker, other):
    heard = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    try:

        def signalled():
            os.kill(os.getpid(), signal.SIGUSR1)
            heard.wait()
            other.put(np.full(1, 7), "late")

        thread = when_somebody_waits(other, signalled)
        assert broker.get("late", wait=3600)[0] == 7
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_share_that_has_gone_is_waited_for_by_nobody(broker):
    share = broker.put(np.zeros(1), "a")
    share.withdraw()
    with pytest.raises(ShareNotFound):
        broker.get(share, wait=3600)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", "", b"", [], 10**400], ids=lambda seconds: repr(seconds)[:9])
def test_seconds_are_numbers(broker, seconds):
    for ask in (broker.get, broker.get_many):
        with pytest.raises(InvalidRequest, match="wait must be 0 or more seconds, not") as caught:
            ask(["a"] if ask == broker.get_many else "a", wait=seconds)
        assert repr(seconds)[:9] in str(caught.value) and len(str(caught.value)) < 120
    with pytest.raises(InvalidRequest, match="timeout_s must be 0 or more seconds"):
        arraybridge.Broker(timeout_s=seconds)


def test_the_longest_wait_is_no_other_than_a_long_one(broker):
    broker.put(np.ones(2), "there")
    for seconds in (1e300, float("inf"), 2**1000):
        assert broker.get("there", wait=seconds).tolist() == [1, 1]


def test_a_wait_ends_when_the_daemon_does():
    with arraybridge.Broker(start="private") as mine, arraybridge.Broker(mine.address, start="never") as other:
        thread = when_somebody_waits(other, mine.close)
        with pytest.raises(BrokerUnavailable):
            arraybridge.Broker(mine.address, start="never").get("late", wait=3600)
        thread.join()


def test_many_threads_share_one_broker(broker):
    broker.put(np.arange(1000), "a")
    wrong = []

    def work():
        for _ in range(200):
            if broker.get("a")[999] != 999:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broker.flush()
    assert not wrong and broker.stats()["client_live_leases"] == 0


def test_get_connects_before_it_imports_the_framework(address, monkeypatch):
    """An import may take longer than an idle broker waits."""
    connected = []

    def of(*_arguments, **_wishes):
        connected.append(own.latest_address is not None)
        raise KeyError

    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setattr(delivery.Wanted, "of", of)
    with arraybridge.Broker(address, start="never") as own, pytest.raises(KeyError):
        own.get("frame", "jax", wait=1)
    assert connected == [True]
