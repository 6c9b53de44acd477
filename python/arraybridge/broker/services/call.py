# SPDX-License-Identifier: Apache-2.0
"""A Call is one request on its caller's side, from its ticket to its one outcome."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from arraybridge.broker.delivery import Acquired, Wanted
from arraybridge.broker.due import Due
from arraybridge.broker.message import Message
from arraybridge.broker.services import letters
from arraybridge.broker.services.errors import ServerGone
from arraybridge.broker.services.letters import Letter
from arraybridge.broker.worker import Worker
from arraybridge.errors import BrokerTimeout

TRIES_MAX: Final = 3  # so many servers may end with one request in their hands


class Call:
    """Its caller guards it by a lock. Exactly one of `answered`, `failed` and `cancel` of the outcome has an effect.

    Attributes:
        number: of the request in its caller.
        content: the arrays of the request.
        wanted: the form of the answer.
        outcome: what the server answered, as it was received.
        server: which server has the request; "": none.
        retry: this server states that the request may be executed again.
        withdrawn: no caller waits for the outcome.
    """

    def __init__(self, number: int, service: str, content: Message, wanted: Wanted, due: Due) -> None:
        self.number = number
        self.content = content
        self.wanted = wanted
        self.due = due
        self.outcome: Future[Acquired] = Future()
        self.server = ""
        self.retry = False
        self.withdrawn = False
        self._tries = 0
        self._service = service
        self._process_id, self._client = 0, ""

    def letter(self, kind: str, caller: str) -> Letter:
        """To a server."""
        return Letter(kind, caller, self.number, self.due.at or 0.0)

    def given_to(self, letter: Letter, process_id: int, client: str) -> None:
        """The server that asked for it has it from now on."""
        self.server, self.retry = letter.peer, letter.retry
        self._tries += 1
        self._process_id, self._client = process_id, client

    @property
    def may_retry(self) -> bool:
        """The server that has it has ended: another one may execute it again."""
        return self.retry and self._tries < TRIES_MAX

    def item(self, message: Acquired) -> None:
        """A part of a sequence, which this caller has not asked for."""

    def answered(self, answer: Acquired, kind: str = letters.ANSWER) -> None:
        if self.outcome.set_running_or_notify_cancel():
            self.outcome.set_result(answer)

    def failed(self, error: BaseException) -> None:
        if self.outcome.set_running_or_notify_cancel():
            self.outcome.set_exception(error)

    def gone(self) -> ServerGone:
        """The error if the server has ended."""
        what = f"the server of service {self._service!r}, {self._server()}, ended with the request in its hands"
        remedy = "it may have executed it, or a part: call again if that does no harm, or state Broker.service(retry=True) in the servers"
        if self.retry:
            remedy = f"so did {TRIES_MAX - 1} others before: look in the servers' logs whether this request ends them"
        return ServerGone(f"{what}; {remedy}", self._process_id, self._client)

    def timed_out(self) -> BrokerTimeout:
        """The error if the time is over."""
        seconds = f"within {self.due.seconds or 0:g} s"
        if self.server:
            what = f"service {self._service!r} has not answered {seconds}: {self._server()} has the request, and sees it as cancelled"
            return BrokerTimeout(f"{what}; pass a larger timeout=", 4, "NOT_ANSWERED")
        what = f"no server of service {self._service!r} has taken the request {seconds}, and none will"
        remedy = "start one with Broker.service in the same namespace, start more of them, or pass a larger timeout="
        return BrokerTimeout(f"{what}: {remedy}", 4, "NOT_TAKEN")

    def _server(self) -> str:
        return f"{self._client!r} (process {self._process_id})"


def delivered(call: Call, result_of: Any, worker: Worker) -> Future[Any]:
    """The future of the answer as arrays of the wanted framework, which the worker makes, and gives to the future's callbacks."""
    future: Future[Any] = Future()
    deliver = functools.partial(_deliver, future, call.wanted, result_of)
    worker.start()
    call.outcome.add_done_callback(functools.partial(_deliver_on, worker, deliver))
    return future


def _deliver_on(worker: Worker, deliver: Callable[[Future[Acquired]], None], outcome: Future[Acquired]) -> None:
    if outcome.cancelled():
        deliver(outcome)
    else:
        worker.submit(functools.partial(deliver, outcome))


def _deliver(future: Future[Any], wanted: Wanted, result_of: Any, outcome: Future[Acquired]) -> None:
    if outcome.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(result_of(outcome.result(), wanted, False))
    except BaseException as error:
        future.set_exception(error)
