# SPDX-License-Identifier: Apache-2.0
"""Letters of another program, waits that are too long, and calls that end before a server knows of them."""

import math
import os

import numpy as np
import pytest

import arraybridge
from arraybridge import Broker, BrokerTimeout, _core
from arraybridge.broker.services import asking, letters
from arraybridge.broker.services.caller import Caller

PEER = "0" * 32


def letter(peer: str, due_ns: int = 0) -> bytes:
    return _core.letter((letters.TICKET, peer, 1, due_ns, b"", False, (), 0))


@pytest.mark.parametrize("peer", ["x" * 5000, "a\x00b", "a/b", "a b", "\u00e9"])
def test_a_peer_that_no_channel_can_have_is_no_letter(peer: str) -> None:
    assert letters.read(letter(PEER)) is not None
    assert letters.read(letter(peer)) is None


def test_a_deadline_in_centuries_is_none() -> None:
    found = letters.read(letter(PEER, 2**64 - 1))
    assert found is not None and found.due == 0.0


@pytest.mark.parametrize("timeout", [1e10, 1e18, math.inf])
def test_a_long_wait_ends_no_other_one(broker: Broker, timeout: float) -> None:
    never = broker.submit("nobody", np.zeros(3), timeout=timeout)
    with pytest.raises(BrokerTimeout):
        broker.submit("nobody", np.zeros(3), timeout=0.3).result(30)
    assert not never.done()
    never.cancel()
    with broker.channel("long").open("receiver") as receiver, broker.channel("long") as sender:
        sender.send(np.zeros(3))
        assert arraybridge.select([receiver], timeout=timeout) == [receiver]


def test_a_forked_child_takes_no_lock_of_its_parent() -> None:
    with asking._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if asking._lock.acquire(blocking=False) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_an_interrupted_call_is_executed_by_nobody(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Caller, *_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Caller, "_announce", interrupted)
        with pytest.raises(KeyboardInterrupt):
            broker.call("interrupted", np.zeros(3), timeout=30)
    (caller,) = (each for key, each in broker._callers.items() if "interrupted" in key)
    assert not caller._calls
