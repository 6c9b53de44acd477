# SPDX-License-Identifier: Apache-2.0
"""cache: a decorator that computes each result of a function once for all processes of the host."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.broker.broker import Broker
from arraybridge.broker.publication import lifetime_of
from arraybridge.errors import InvalidRequest, OutOfMemory, ShareNotFound
from arraybridge.keep import digests
from arraybridge.recency.eviction import evict
from arraybridge.recency.uses import Uses

_NAME_MAX: Final = 160  # characters of a function's name in the name of a share, which has at most 255 bytes


class Keeping(NamedTuple):
    """How results are kept; as `cache` documents it."""

    key: Callable[..., Any] | None = None
    framework: str = "numpy"
    version: str = ""
    budget: int | None = None
    lifetime: float | None = None


def cache(
    function: Callable[..., Any] | None = None,
    *,
    broker: Broker | None = None,
    key: Callable[..., Any] | None = None,
    framework: str = "numpy",
    version: str = "",
    budget: int | None = None,
    lifetime: float | None = None,
) -> Any:
    """A decorator: each result of the function is computed once, and all processes of the host get it from the broker.

    A result is found by the name and code of the function, the values that it closes over, and its arguments: plain
    values, arrays of any framework (by all their bytes), paths (by their text, not by the file), tables, and containers and
    dataclasses of these. Code that the function calls, global variables and files do not count: change `version` with
    them. Of several processes that ask for one result, one computes it, as `Broker.cached` says. Exceptions are not kept.

    The decorated function also has `name(...)`, the name of the share of a call; `forget(...)`, which withdraws it; and
    `clear()`, which withdraws all results of this function, also those of earlier code.

    Args:
        broker: None: `Broker()`, when the function is first called.
        key: is called with the arguments of a call, and returns what tells its result from others (plain values, arrays,
            containers of them), for arguments that cannot be told apart otherwise, such as `self`.
        framework: of the results, as in `get`; what the function returned is converted to it without a copy where possible.
        version: text that is part of the name of each result.
        budget: bytes in memory of all results of this function. When a new one exceeds it, those that no process holds leave
            it, the least recently used ones first: to files, if the broker has a directory for them, else they are withdrawn.
            None: no limit but that of the namespace; when that is reached, results leave as well, the oldest ones first.
        lifetime: seconds after which a result is withdrawn; None: as in `put`.

    Raises:
        InvalidRequest: the function is async or a generator, or an option is invalid. In a call: an argument, or a value of
            the function around it, cannot be told from others; pass `key`.
        Warns (RuntimeWarning) if the broker has no room for a result: the call returns it as the function did.

    Example:
        >>> @arraybridge.cache(broker=broker, framework="torch")
        ... def spectrum(signal, window=4):
        ...     return np.abs(np.fft.rfft(signal, window))
        >>> spectrum(np.ones(8)).tolist()    # in any process of this host it is now found
        [4.0, 0.0, 0.0]
    """
    if not isinstance(version, str):
        raise InvalidRequest(f"version must be a str, not {version!r}")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget <= 0):
        raise InvalidRequest(f"budget must be a number of bytes, not {budget!r}")
    if key is not None and not callable(key):
        raise InvalidRequest(f"key must be a function of the arguments, not {key!r}")
    lifetime_of(lifetime)
    keeping = Keeping(key, framework, version, budget, lifetime)
    if function is None:
        return lambda decorated: CachedFunction(decorated, broker, keeping)
    return CachedFunction(function, broker, keeping)


class CachedFunction:
    """A function whose results are shares, as `cache` makes it. Threads and forked children may call it.

    Raises:
        InvalidRequest: it is no function, or a coroutine or generator.

    Example:
        >>> squares = arraybridge.cache(lambda size: np.arange(size) ** 2, broker=broker)
        >>> squares(3).tolist(), squares.forget(3), squares.clear()
        ([0, 1, 4], True, 0)
    """

    def __init__(self, function: Callable[..., Any], broker: Broker | None, keeping: Keeping) -> None:
        if not callable(function) or isinstance(function, type):
            raise InvalidRequest(f"cache decorates a function, not {function!r}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidRequest(f"cache cannot decorate {function.__qualname__}: a coroutine or generator is no result to keep")
        functools.update_wrapper(self, function)
        self._function, self._broker, self._keeping = function, broker, keeping
        self._signature = inspect.signature(function)
        # The values that a function closes over may change from call to call.
        changes = keeping.key is None and any(getattr(each, "__closure__", None) for each in digests.layers(function))
        self._code = None if changes else digests.of_function(function, closure=False)
        self._whole_name = f"{function.__module__}.{function.__qualname__}"
        # A name of its own also for a function whose name is cut.
        digest = hashlib.blake2b(self._whole_name.encode(), digest_size=4).hexdigest()
        readable = self._whole_name.encode("ascii", "replace").decode()
        self._prefix = f"cache/{readable[:_NAME_MAX]}-{digest}/"
        self._uses = Uses(self._prefix)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name, keeping, broker = self.name(*args, **kwargs), self._keeping, self._used_broker()
        results: list[Any] = []

        def make() -> Any:
            results.append(self._function(*args, **kwargs))
            return results[0]

        try:
            found = broker.cached(name, make, keeping.framework, lifetime=keeping.lifetime)
        except OutOfMemory as error:
            if not results:
                raise  # of the function itself
            return self._kept_after_all(name, results[0], error)
        if keeping.budget is not None:
            self._uses.note(broker, name)
            if results:
                self._evict(keeping.budget, name)
        return found

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self._function.__qualname__

    def __repr__(self) -> str:
        return f"<cached function {self._whole_name}>"

    def name(self, *args: Any, **kwargs: Any) -> str:
        """The name of the share that a call with these arguments gets or makes."""
        whose, key = f"a call of {self._whole_name}", self._keeping.key
        if key is not None:
            told = {"key": key(*args, **kwargs)}
        else:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            told = dict(bound.arguments)
        code = self._code or digests.of_function(self._function, closure=True)
        return self._prefix + digests.joined(self._keeping.version.encode("utf-8", "surrogatepass"), code, digests.of_values(told, whose))

    def forget(self, *args: Any, **kwargs: Any) -> bool:
        """Withdraws the result of a call with these arguments; False: there is none."""
        try:
            self._used_broker().withdraw(self.name(*args, **kwargs))
        except ShareNotFound:
            return False
        return True

    def clear(self) -> int:
        """Withdraws all results of this function, and what its processes published of their uses; the number of results."""
        self._uses = Uses(self._prefix)
        self._withdrawn(self._uses.shared)
        return self._withdrawn(self._prefix)

    def _used_broker(self) -> Broker:
        if self._broker is None:
            self._broker = Broker()  # of two threads that come here at once each may use its own
        return self._broker

    def _evict(self, budget: int, kept: str) -> None:
        broker = self._used_broker()
        evict(broker, self._prefix, budget, kept, self._uses.last(broker))

    def _withdrawn(self, prefix: str) -> int:
        number = 0
        for listed in self._used_broker().list(prefix):
            with contextlib.suppress(ShareNotFound):  # by another process
                listed.share.withdraw()
                number += 1
        return number

    def _kept_after_all(self, name: str, result: Any, refused: OutOfMemory) -> Any:
        self._evict(0, name)
        try:
            return self._used_broker().cached(name, lambda: result, self._keeping.framework, lifetime=self._keeping.lifetime)
        except OutOfMemory:
            text = f"the result of {self._whole_name} is not kept, and computed again at the next call: {refused.message}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
            return result


autograph.mark_module(__name__)
