# SPDX-License-Identifier: Apache-2.0
"""Channels go on when the daemon is killed: nothing is lost or doubled, and each end is told of its peers' deaths once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Client, Refused, eventually, first_to_answer
from test_keeper import AT_ONCE, Keeper, state_of

BYTES = 4096
STREAM_MS = 2500
BY_CALLS = {"FAULT_CLIENT_BY_CALLS": "1"}


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    running = Keeper(tmp_path, environment=AT_ONCE)
    yield running
    running.close()


def end_of(keeper: Keeper, role: str, mode: str = "queue", capacity: int = 16, by_calls: bool = False) -> Client:
    client = Client(keeper.directory, environment=BY_CALLS if by_calls else {})
    client.ask(f"open_end frames {role} {mode} {capacity}")
    return client


def kill_for(keeper: Keeper, seconds: float, seed: int) -> int:
    """Kills the daemon at random moments; returns how often."""
    moments = random.Random(seed)
    kills = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(moments.uniform(0.0, 0.1))
        keeper.kill_daemon()
        kills += 1
    return kills


def answers(*clients: Client) -> list[list[int]]:
    """The numbers that each one answers; the first refusal ends the wait for the others."""
    came: dict[Client, list[int]] = {}
    while len(came) < len(clients):
        client = first_to_answer(client for client in clients if client not in came)
        came[client] = numbers(client.answer())
    return [came[client] for client in clients]


def numbers(answer: str) -> list[int]:
    return [int(word) for word in answer.split()]


@pytest.mark.parametrize("by_calls", [True, False], ids=["calls", "direct"])
def test_a_stream_goes_on_while_the_daemon_is_killed(keeper: Keeper, by_calls: bool) -> None:
    receiver = end_of(keeper, "receiver", by_calls=by_calls)
    sender = end_of(keeper, "sender", by_calls=by_calls)
    receiver.tell("receive_some 0 100")
    sender.tell(f"stream {STREAM_MS} {BYTES} 100")
    kill_for(keeper, STREAM_MS / 1000, 1)
    (sent,), received = answers(sender, receiver)
    assert sent > 0
    assert received == [sent, 1, sent]
    receiver.leave()
    sender.leave()


def test_direct_channels_begin_and_end_while_the_daemon_is_killed(keeper: Keeper) -> None:
    receiver = end_of(keeper, "receiver")
    sender = end_of(keeper, "sender")
    visitor = Client(keeper.directory)
    visitor.ask("stats")
    receiver.tell("receive_some 0 100")
    sender.tell(f"stream {STREAM_MS} {BYTES} 100")
    visitor.tell(f"visit frames {STREAM_MS - 500}")  # each visit ends the direct channel
    kill_for(keeper, STREAM_MS / 1000, 2)
    (sent,), received, _ = answers(sender, receiver, visitor)
    assert received == [sent, 1, sent]
    for client in (receiver, sender, visitor):
        client.leave()


def test_each_receiver_of_a_broadcast_gets_everything(keeper: Keeper) -> None:
    receivers = [end_of(keeper, "receiver", "broadcast") for _ in range(3)]
    sender = end_of(keeper, "sender", "broadcast")
    for receiver in receivers:
        receiver.tell("receive_some 0 7")
    sender.tell(f"stream {STREAM_MS} {BYTES} 7")
    kill_for(keeper, STREAM_MS / 1000, 3)
    (sent,), *received = answers(sender, *receivers)
    assert received == [[sent, 1, sent]] * 3
    for receiver in receivers:
        receiver.leave()
    sender.leave()


def test_the_newest_array_arrives(keeper: Keeper) -> None:
    receiver = end_of(keeper, "receiver", "latest", 0)
    sender = end_of(keeper, "sender", "latest", 0)
    receiver.tell("receive_some 0 7 gaps")
    sender.tell(f"stream {STREAM_MS} {BYTES} 7")
    kill_for(keeper, STREAM_MS / 1000, 4)
    (sent,), (got, _, last) = answers(sender, receiver)
    assert 0 < got <= sent
    assert last == sent
    receiver.leave()
    sender.leave()


def begin_outage(keeper: Keeper) -> None:
    """Kills the daemon; no other is started until the keeper continues."""
    last = keeper.daemon
    os.kill(keeper.pid, signal.SIGSTOP)
    os.kill(last, signal.SIGKILL)
    eventually("the daemon has ended", lambda: state_of(last) == "Z")


def end_outage(keeper: Keeper) -> None:
    os.kill(keeper.pid, signal.SIGCONT)
    visitor = Client(keeper.directory)
    visitor.ask("stats")  # the next daemon serves
    visitor.leave()


@pytest.mark.parametrize("by_calls", [True, False], ids=["calls", "direct"])
def test_a_receiver_that_dies_in_the_outage_is_told_and_the_next_one_goes_on(keeper: Keeper, by_calls: bool) -> None:
    receiver = end_of(keeper, "receiver", by_calls=by_calls)
    sender = end_of(keeper, "sender", by_calls=by_calls)
    receiver.tell("receive_some 200 100")
    sender.ask(f"send_some 208 {BYTES} 100")
    assert numbers(receiver.answer()) == [200, 1, 200]
    begin_outage(keeper)
    receiver.kill()
    end_outage(keeper)
    with pytest.raises(Refused) as told:
        sender.ask(f"send_some 1 {BYTES} 308")
    assert told.value.reason == "RECEIVER_DIED"
    sender.ask(f"send_some 2 {BYTES} 308")
    follower = end_of(keeper, "receiver", by_calls=by_calls)
    assert numbers(follower.ask("receive_some 10 100")) == [10, 201, 210]
    sender.ask("close_end")
    assert numbers(follower.ask("receive_some 0 100")) == [0, 0, 0]
    follower.leave()
    sender.leave()


@pytest.mark.parametrize("by_calls", [True, False], ids=["calls", "direct"])
def test_a_sender_that_dies_in_the_outage_is_told_after_its_arrays(keeper: Keeper, by_calls: bool) -> None:
    receiver = end_of(keeper, "receiver", by_calls=by_calls)
    sender = end_of(keeper, "sender", by_calls=by_calls)
    receiver.tell("receive_some 200 100")
    sender.ask(f"send_some 208 {BYTES} 100")
    assert numbers(receiver.answer()) == [200, 1, 200]
    begin_outage(keeper)
    sender.kill()
    end_outage(keeper)
    assert numbers(receiver.ask("receive_some 8 100")) == [8, 201, 208]
    with pytest.raises(Refused) as told:
        receiver.ask("receive_some 1 100")
    assert told.value.reason == "SENDER_DIED"
    receiver.leave()


def test_two_ends_exchange_without_a_daemon(keeper: Keeper) -> None:
    receiver = end_of(keeper, "receiver")
    sender = end_of(keeper, "sender")
    receiver.tell("receive_some 500 100")
    sender.ask(f"send_some 500 {BYTES} 100")  # they have a direct channel now
    assert numbers(receiver.answer()) == [500, 1, 500]
    begin_outage(keeper)
    receiver.tell("receive_some 10 100")
    sender.ask(f"send_some 10 {BYTES} 600")
    assert numbers(receiver.answer()) == [10, 501, 510]
    end_outage(keeper)
    other = end_of(keeper, "sender")  # ends the direct channel
    sender.ask(f"send_some 3 {BYTES} 610")
    assert numbers(receiver.ask("receive_some 3 100")) == [3, 511, 513]
    for client in (sender, receiver, other):
        client.leave()
