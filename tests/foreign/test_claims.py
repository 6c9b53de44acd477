# SPDX-License-Identifier: Apache-2.0
"""Claims at both doors: one session makes a share, the others wait for it or go on in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from foreign_client import Daemon, Lifeline, Session, eventually, refused

CLAIM = 21
M = {"namespace": "default", "name": "m"}


def wait_begins(session: Session) -> Any:
    waits = session.begin("Claim", timeout_ms=60_000, **M)
    eventually("the call waits", lambda: session.call("GetStats").waiting >= 1)
    return waits


def test_one_session_makes_the_share_and_the_others_learn_of_it(
    daemon: Daemon, session: Session, open_session: Callable[..., Session]
) -> None:
    assert session.call("Claim", **M).claim
    other = open_session(daemon)
    with refused(grpc.StatusCode.NOT_FOUND):
        other.call("Claim", **M)
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
        other.call("Claim", timeout_ms=20, **M)
    waits = wait_begins(other)
    published, mapping = session.publish("m", b"made once")
    mapping.close()
    assert waits.result().claim == 0
    assert other.call("Claim", newer_than=published.generation, **M).claim, "the publish has ended the claim"


def test_a_released_claim_goes_to_the_session_that_waits(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    claim = session.call("Claim", **M).claim
    waits = wait_begins(open_session(daemon))
    assert session.call("Claim", claim=claim, release=True).claim == 0
    assert waits.result().claim > claim


@pytest.mark.parametrize("door", ["grpc", "lifeline"])
def test_the_claim_of_a_session_that_ends_goes_to_the_session_that_waits(
    daemon: Daemon, session: Session, open_session: Callable[..., Session], generated: tuple[Any, Any], door: str
) -> None:
    messages = generated[0]
    if door == "grpc":
        holder = open_session(daemon)
        holder.call("Claim", **M)
        end = holder.close
    else:
        line = Lifeline(daemon, messages)
        line.ask(CLAIM, messages.ClaimRequest(**M), messages.ClaimResponse())
        end = line.socket.close
    waits = wait_begins(session)
    end()
    assert waits.result().claim


def test_a_call_that_is_cancelled_holds_no_claim(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    holder = open_session(daemon)
    claim = holder.call("Claim", **M).claim
    waits = wait_begins(session)
    waits.cancel()
    eventually("the call has gone", lambda: session.call("GetStats").waiting == 0)
    holder.call("Claim", claim=claim, release=True)
    assert session.call("Claim", **M).claim
