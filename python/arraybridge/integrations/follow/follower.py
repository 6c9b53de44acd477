# SPDX-License-Identifier: Apache-2.0
"""A Follower exchanges the memory under the tensors of a module for that of each newer generation of a bundle."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from arraybridge import autograph
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle
from arraybridge.broker.share import Share
from arraybridge.errors import BrokerError, BrokerTimeout, ShareNotFound
from arraybridge.integrations.follow import hooks, refusals
from arraybridge.integrations.follow.gate import Gate
from arraybridge.integrations.follow.windowed import Ready, Windowed

_Callback = TypeVar("_Callback", bound=Callable[[Bundle], object])
_PATIENCE_S = 0.05  # after which calls that begin wait for a swap
_LIMIT_S: Final = 1.0  # of such a wait
_WAIT_S: Final = 5.0  # of one call of the broker, which a dropped Follower does not end
_LOOK_S: Final = 0.1  # between two looks for a generation that is newer than the prepared one
_RETRY_S: Final = 0.5  # after an error of the broker


class FollowerStats(NamedTuple):
    """Counts of a Follower since it was made, and its last times.

    Attributes:
        generation: the generation that the module has.
        swaps: generations that it got after the first one.
        skipped: generations that were prepared, and then replaced by a newer one before a swap.
        copied: generations whose bytes were copied, because they began at another place of a page.
        replaced: generations of another layout, for which the module got new tensors.
        refused: generations that the module could not take.
        error: the last error, of these or of the broker; "" if there was none.
        ready: True if a generation is prepared and waits for a swap.
        pause_us: microseconds of the last swap, without `on_swap`.
        pause_us_max: those of the longest.
        prepare_ms: milliseconds in which the last generation was prepared, beside the calls.

    Example:
        >>> import torch
        >>> share = broker.bundle("net", torch.nn.Linear(3, 2).state_dict()).fill().publish()
        >>> follower = attach(torch.nn.Linear(3, 2), broker.open("net"), follow=True)
        >>> follower.stats().swaps
        0
        >>> follower.close()
    """

    generation: int
    swaps: int = 0
    skipped: int = 0
    copied: int = 0
    replaced: int = 0
    refused: int = 0
    error: str = ""
    ready: bool = False
    pause_us: float = 0.0
    pause_us_max: float = 0.0
    prepare_ms: float = 0.0


class Follower:
    """A module that has the newest generation of a bundle: `attach(module, bundle, follow=True)`.

    Its parameters and buffers stay the same tensors at the same addresses; a swap exchanges the memory under them. They are
    read-only, and require no grad. A thread prepares each newer generation. The swap is made at a swap point: when a call
    of the module begins while no other one is inside, when `reading` is entered, or by `swap`. So each call, on any thread,
    sees one whole generation. A generation that is followed by a newer one before a swap point is skipped.

    A Follower lives as long as its module. A forked child keeps the generation that it has; attach there again to follow.
    Thread-safe.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(3, 2)
        >>> share = broker.bundle("net", model.state_dict()).fill().publish()
        >>> follower = attach(model, broker.open("net"), follow=True)
        >>> model(torch.ones(3)).shape, follower.generation == share.generation
        (torch.Size([2]), True)
        >>> follower.close()
    """

    def __init__(self, module: Any, bundle: Bundle, prefix: str, at_calls: bool) -> None:
        refusals.check_module(module)
        refusals.check_bundle(bundle)
        self._bundle = bundle
        self._windowed = Windowed(getattr(module, "_orig_mod", module), prefix, bundle)  # torch.compile has wrapped it
        self._source: tuple[Broker, Share] = bundle._broker, bundle.share  # of the newest generation that was seen
        self._ready: Ready | None = None
        self._retired: list[Bundle] = []  # in use until the window is clean
        self._is_clean = True
        self._callbacks: list[Callable[[Bundle], object]] = []
        self._stats = FollowerStats(bundle.share.generation)
        self._counting = threading.Lock()
        self._process = os.getpid()
        self._gate = Gate(self._exchange, _PATIENCE_S, _LIMIT_S)
        self._hooks = hooks.added(module, self._gate) if at_calls else []
        self._closed = threading.Event()
        threading.Thread(target=_follow, args=(weakref.ref(self), self._closed), name="arraybridge-follow", daemon=True).start()

    @property
    def bundle(self) -> Bundle:
        """The generation that the module has, with its share, fingerprint and metadata. Inside `reading` it stays the same."""
        return self._bundle

    @property
    def generation(self) -> int:
        """The number of the generation that the module has."""
        return self._bundle.share.generation

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "swap ready" if self._ready else "follows"
        return f"<Follower of {self._bundle.share.name!r}, generation {self.generation}: {state}>"

    def stats(self) -> FollowerStats:
        """Counts so far."""
        return self._stats._replace(ready=self._ready is not None)

    def on_swap(self, callback: _Callback) -> _Callback:
        """Adds a callback, for tensors that are computed from the weights. Returns it, and so is a decorator, too.

        It is called after each swap with the new generation, in the thread that made the swap, before any call of the
        module goes on. It may call the module itself. It must not wait for another thread that calls the module. The call
        that made the swap raises its error.

        Example:
            >>> import torch
            >>> model = torch.nn.Linear(3, 2)
            >>> share = broker.bundle("net", model.state_dict()).fill().publish()
            >>> follower = attach(model, broker.open("net"), follow=True)
            >>> @follower.on_swap
            ... def transpose(bundle):
            ...     model.transposed = model.weight.t().contiguous()
            >>> follower.close()
        """
        self._callbacks.append(callback)
        return callback

    def swap(self, timeout: float = 1.0) -> bool:
        """Swaps to a prepared generation now: a swap point of the caller's own.

        Args:
            timeout: seconds to wait until no call of another thread is inside the module. Calls that begin wait so long.

        Returns:
            True after a swap. False: no newer generation is prepared, calls were inside for too long, or this thread is
            inside one.
        """
        return not self._is_inherited() and self._gate.make(timeout)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Bundle]:
        """No swap is made while the block runs; to enter it is a swap point. Gives the generation that the module has.

        It is for programs that read weights without a call of the module itself: by its submodules, by traced or exported
        forms of it, by `state_dict()`. It is also for several calls that are to see the same weights.

        Example:
            >>> import torch
            >>> model = torch.nn.Linear(3, 2)
            >>> share = broker.bundle("net", model.state_dict()).fill().publish()
            >>> follower = attach(model, broker.open("net"), follow=True)
            >>> with follower.reading() as bundle:
            ...     answers = [model(torch.ones(3)) for _ in range(2)]
            >>> follower.close()
        """
        if self._is_inherited():
            yield self._bundle
            return
        number = self._gate.enter()
        try:
            yield self._bundle
        finally:
            self._gate.leave(number)

    def close(self) -> None:
        """Ends following. The module keeps the weights that it has. Idempotent."""
        for hook in self._hooks:
            hook.remove()
        if self._is_inherited():
            return
        self._closed.set()
        self._gate.withdraw()
        self._ready, self._is_clean = None, False
        self._tidy()

    def _is_inherited(self) -> bool:
        """True in a forked child, where other threads of the parent may have held the locks."""
        return os.getpid() != self._process

    def _exchange(self) -> None:
        """The swap. The gate calls it while no call is inside."""
        ready, self._ready = self._ready, None
        if ready is None:
            return
        self._is_clean = False
        begun = time.perf_counter_ns()
        try:
            self._windowed.exchange(ready)
        except BrokerError as error:
            return self._refuse(error)
        pause_us = (time.perf_counter_ns() - begun) / 1e3
        self._retired.append(self._bundle)
        self._bundle = ready.bundle
        with self._counting:
            old = self._stats
            self._stats = old._replace(
                generation=self.generation,
                swaps=old.swaps + 1,
                copied=old.copied + ready.copied,
                replaced=old.replaced + (ready.window is not None),
                pause_us=pause_us,
                pause_us_max=max(old.pause_us_max, pause_us),
            )
        for callback in list(self._callbacks):
            callback(ready.bundle)

    def _tidy(self) -> None:
        """Ends the use of the generation before."""
        if self._is_clean:
            return
        try:
            self._windowed.clean()
        except BrokerError as error:
            self._note(error)
            return
        self._is_clean = True
        self._retired.clear()

    def _take(self, bundle: Bundle) -> None:
        """Prepares a newer generation."""
        skipped = self._gate.withdraw()
        self._ready = None
        self._tidy()
        self._source = self._source[0], bundle.share
        try:
            ready = self._windowed.prepared(self._bundle, bundle)
        except BrokerError as error:
            return self._refuse(error)
        with self._counting:
            self._stats = self._stats._replace(skipped=self._stats.skipped + skipped, prepare_ms=ready.took_ms)
        if self.closed:
            self._is_clean = False
            return self._tidy()
        self._ready = ready
        self._gate.announce()

    def _refuse(self, error: BrokerError) -> None:
        """The module keeps the generation that it has."""
        with self._counting:
            self._stats = self._stats._replace(refused=self._stats.refused + 1)
        if self._note(error):
            name, generation = self._bundle.share.name, self.generation
            warnings.warn(f"the module keeps generation {generation} of {name!r}: {error}", RuntimeWarning, stacklevel=2)

    def _note(self, error: BrokerError) -> bool:
        """Whether it is another error than the last one."""
        with self._counting:
            before = self._stats.error
            self._stats = self._stats._replace(error=str(error))
        return before != str(error)


def _follow(weak: weakref.ref[Follower], closed: threading.Event) -> None:
    """The thread of a Follower: has each newer generation prepared, and the one before cleaned up."""
    pause_s = 0.0
    while not closed.wait(pause_s):
        follower = weak()
        if follower is None:
            return
        is_idle = follower._gate.wait_made(_LOOK_S)
        if is_idle:
            follower._tidy()
        broker, newest = follower._source
        del follower  # it may be dropped during the wait
        pause_s = 0.0
        try:
            bundle = broker.open(newest.name, wait=_WAIT_S if is_idle else 0.0, newer_than=newest)
        except (BrokerTimeout, ShareNotFound):
            continue
        except BrokerError as error:
            pause_s = _RETRY_S
            follower = weak()
            if follower is not None:
                follower._note(error)
            continue
        follower = weak()
        if follower is not None and not closed.is_set():
            follower._take(bundle)
        del follower, bundle


autograph.mark_module(__name__)
