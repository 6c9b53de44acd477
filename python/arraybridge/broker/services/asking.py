# SPDX-License-Identifier: Apache-2.0
"""Asking is the part of a Broker that serves and calls services."""

from __future__ import annotations

import asyncio
import functools
import os
import reprlib
import threading
import unicodedata
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from arraybridge import autograph
from arraybridge.arguments import check_text
from arraybridge.broker.delivery import Wanted
from arraybridge.broker.due import Due
from arraybridge.broker.fork_lock import lock_of
from arraybridge.broker.keep.caching import Caching
from arraybridge.broker.message import Message
from arraybridge.broker.patterns.calls import CallCancelled
from arraybridge.broker.patterns.receiver import ReceiverWishes
from arraybridge.broker.sequences.answers import Answers
from arraybridge.broker.sequences.call import SequenceCall
from arraybridge.broker.services.call import Call, delivered
from arraybridge.broker.services.caller import RETIRED, Caller
from arraybridge.broker.services.service import Service
from arraybridge.broker.services.terms import Terms
from arraybridge.broker.worker import waitable
from arraybridge.errors import BrokerUnavailable, InvalidRequest

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

_NAME_BYTES_MAX: Final = 128
_CALLERS_MAX: Final = 16  # services whose callers stay open though no call waits
C = TypeVar("C", bound=Call)
_lock = lock_of(globals(), threading.Lock)


class CallWishes(ReceiverWishes, total=False):
    """Arguments of `call` that are those of `Channel.receive`, and `stream`."""

    stream: bool


class Asking(Caching):
    """A Session that asks other processes."""

    _callers: dict[tuple[int, str, bool], Caller] | None = None  # of the process, the service, and the mapping of answers

    def service(self, name: str, *, retry: bool = False, queue: int = 64, batch: int | None = None, within: float = 0.0) -> Service:
        """A server of a service, for `call` of other processes. Several processes may serve one name: each request goes to one.

        Args:
            retry: a request may be executed again, on another server, if the one that had it has ended. False, or if three have
                ended with it: its caller gets ServerGone.
            queue: how many requests may wait for a server, the same in all servers of a name. Further callers wait for room.
            batch: `requests` yields Batches of at most so many requests. None: it yields each Request.
            within: seconds for which a batch waits for further requests after its first one.

        Raises:
            InvalidRequest: not a name, or not one of these values.

        Example:
            >>> with broker.service("double", batch=8, within=0.005) as service:
            ...     for batch in service.requests("torch", timeout=0.01):
            ...         batch.reply(batch.stack() * 2)
            Traceback (most recent call last):
            arraybridge.errors.BrokerTimeout: ...
        """
        terms = Terms(retry, queue, batch, within)
        terms.check()
        return Service(cast("Broker", self), _checked(name), terms)

    def call(self, name: str, value: Any, framework: str = "numpy", *, timeout: float | None = None, **wishes: Unpack[CallWishes]) -> Any:
        """Asks a service, and waits for its answer, an array or a tree as `framework`'s.

        The request is executed at most once, unless the servers state `retry=True`. Arrays of both directions travel as in a
        channel: an array that lies in broker memory is not copied, others are copied once.

        Args:
            value: an array, or a tree as in `Channel.send`.
            framework, wishes: as in `Channel.receive`, for the answer; and `stream`.
            timeout: seconds to wait for a server and its answer; None: no limit. After it no server gets the request, and one
                that has it sees `Request.cancelled`. So does Ctrl-C.
            stream: True returns at once an iterator of the items that the server sends by `Request.stream`; `value` must not be
                written before the first one is there. A loop that ends early cancels the request. `timeout` is that of the
                whole sequence.

        Raises:
            ServerGone: the server has ended with the request in its hands. RequestFailed: the server has no result.
            BrokerTimeout: no answer in time. BrokerUnavailable: the broker has ended, or the connection.
            Errors of `Channel.send` about the value, and of `Channel.receive` about the answer.

        Example:
            >>> import threading
            >>> def serve():    # usually another process
            ...     with broker.service("double") as service:
            ...         for request in service.requests():
            ...             request.reply(request.value * 2)
            ...             break
            >>> server = threading.Thread(target=serve)
            >>> server.start()
            >>> broker.call("double", np.arange(3), "torch", timeout=10)
            tensor([0, 2, 4])
            >>> server.join()
        """
        if wishes.pop("stream", False):
            asked = self._submitted(SequenceCall, name, value, (framework, wishes), timeout)
            return Answers(*asked, cast("Broker", self)._delivery.granted)
        due, wanted = Due.after(timeout), Wanted.of_share(framework, **wishes)
        checked, content = _checked(name), Message.of(value, None)
        caller, call = self._begun(checked, wanted, lambda caller: caller.begin(content, wanted, due, True, Call))
        try:
            if not wait([call.outcome], due.left()).done:
                caller.take_back(call)
        except BaseException:  # Ctrl-C
            caller.take_back(call)
            raise
        return cast("Broker", self)._delivery.granted(call.outcome.result(), wanted, False)

    def submit(
        self, name: str, value: Any, framework: str = "numpy", *, timeout: float | None = None, **wishes: Unpack[ReceiverWishes]
    ) -> Future[Any]:
        """`call` without waiting: a concurrent.futures.Future of the answer. Arrays of `value` must not be written before it is done.

        `Future.cancel` takes the request back; a server that has it sees `Request.cancelled`. Callbacks of the futures of one
        service run one after the other, on one thread: none of them may wait for another of these futures.

        Raises:
            BrokerUnavailable. Errors of `Channel.send` about the value. All others are of `Future.result`.

        Example:
            >>> import threading
            >>> def serve():    # usually another process
            ...     with broker.service("double") as service:
            ...         for number, request in enumerate(service.requests(), 1):
            ...             request.reply(request.value * 2)
            ...             if number == 2:
            ...                 break
            >>> server = threading.Thread(target=serve)
            >>> server.start()
            >>> futures = [broker.submit("double", np.full(2, number), timeout=10) for number in (1, 2)]
            >>> [future.result().tolist() for future in futures]
            [[2, 2], [4, 4]]
            >>> server.join()
        """
        caller, call = self._submitted(Call, name, value, (framework, wishes), timeout)
        future = delivered(call, cast("Broker", self)._delivery.granted, caller.delivering)
        # Weakly, without a cycle: answers are freed at once.
        future.add_done_callback(functools.partial(_cancelled, weakref.ref(caller), weakref.ref(call)))
        return future

    async def acall(
        self, name: str, value: Any, framework: str = "numpy", *, timeout: float | None = None, **wishes: Unpack[CallWishes]
    ) -> Any:
        """`call` for an event loop, which it does not hold. `stream`: the iterator is for `async for`.

        Raises:
            CallCancelled: the task was cancelled, also by asyncio.timeout (of Python before 3.13, which then raises this and no
                TimeoutError: pass `timeout`). If no server had the request, none gets it, and `outcome` is cancelled;
                otherwise `outcome` has what the server answers, which sees `Request.cancelled`. Errors of `call`.

        Example:
            >>> import asyncio, threading
            >>> def serve():    # usually another process
            ...     with broker.service("double") as service:
            ...         for request in service.requests():
            ...             request.reply(request.value * 2)
            ...             break
            >>> server = threading.Thread(target=serve)
            >>> server.start()
            >>> asyncio.run(broker.acall("double", np.arange(3), timeout=10)).tolist()
            [0, 2, 4]
            >>> server.join()
        """
        if wishes.get("stream"):
            return self.call(name, value, framework, timeout=timeout, **wishes)
        caller, call = self._submitted(Call, name, value, (framework, wishes), timeout)
        future = delivered(call, cast("Broker", self)._delivery.granted, caller.delivering)
        try:
            await asyncio.wait({waitable(future)})
        except asyncio.CancelledError:
            caller.cancel(call)
            raise CallCancelled(future) from None
        return future.result()

    def close(self) -> None:
        """Ends the connection, the calls that wait, and a private broker. Arrays stay valid; the next call connects again.

        Raises:
            BrokerError: a put with `wait=False` has failed. The connection is closed all the same.
        """
        callers, self._callers = self._callers or {}, None
        for (process, *_), caller in callers.items():
            if process == os.getpid():
                caller.close()
        super().close()

    def _submitted(self, kind: type[C], name: str, value: Any, form: tuple[str, Any], timeout: float | None) -> tuple[Caller, C]:
        due, wanted = Due.after(timeout), Wanted.of_share(form[0], **form[1])
        checked, content = _checked(name), Message.of(value, None).exported()
        return self._begun(checked, wanted, lambda caller: caller.begin(content, wanted, due, False, kind))

    def _begun(self, name: str, wanted: Wanted, begin: Callable[[Caller], C]) -> tuple[Caller, C]:
        """A call, and its caller, which another thread may have ended as one that was not used for long."""
        while True:
            caller = self._caller(name, wanted)
            try:
                return caller, begin(caller)
            except BrokerUnavailable as ended:
                if ended.reason != RETIRED:
                    raise

    def _caller(self, name: str, wanted: Wanted) -> Caller:
        """The Caller of this process; a new one after the broker has ended."""
        key = os.getpid(), name, wanted.private
        with _lock:
            if self._callers is None:
                self._callers = {}
            known = self._callers.get(key)
            if known is None or known.ended:
                _retire_one(self._callers)
                known = self._callers[key] = Caller(cast("Broker", self), name, wanted.private)
            return known


def _retire_one(callers: dict[tuple[int, str, bool], Caller]) -> None:
    """Ends the caller that was idle for longest, if there are too many: each has channels and threads."""
    mine = {key: caller for key, caller in callers.items() if key[0] == os.getpid()}
    idle = {key: since for key, caller in mine.items() if (since := caller.idle_since) is not None}
    if len(mine) >= _CALLERS_MAX and idle:
        oldest = min(idle, key=idle.__getitem__)
        if callers[oldest].retire():
            del callers[oldest]


def _checked(name: str) -> str:
    """The name of a service.

    Raises:
        InvalidRequest: it is none.
    """
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"a service's name must be a non-empty str, not {reprlib.repr(name)}")
    check_text(name, "a service's name")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise InvalidRequest(f"a service's name must be without control characters, not {name!r}")
    if len(name.encode()) > _NAME_BYTES_MAX:
        raise InvalidRequest(f"a service's name has {len(name.encode())} bytes, the most is {_NAME_BYTES_MAX}: pass a shorter one")
    return name


def _cancelled(caller_of: weakref.ref[Caller], call_of: weakref.ref[Call], future: Future[Any]) -> None:
    caller, call = caller_of(), call_of()
    if future.cancelled() and caller is not None and call is not None:
        caller.cancel(call)


autograph.mark_module(__name__)
