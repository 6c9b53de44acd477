# SPDX-License-Identifier: Apache-2.0
"""A module whose tensors lie in a window: a range of addresses that shows one generation of a bundle after the other."""

from __future__ import annotations

import itertools
import time
from typing import Any, NamedTuple

from arraybridge import _core
from arraybridge.broker.bundle import Bundle
from arraybridge.errors import InvalidRequest, from_status
from arraybridge.integrations.follow import refusals, weights


class Ready(NamedTuple):
    """A generation that is prepared for a swap.

    Attributes:
        window, tensors: of a generation of another layout; None: it is prepared in the module's window.
        copied: its bytes were copied.
        took_ms: milliseconds.
    """

    bundle: Bundle
    window: _core.SwapWindow | None
    tensors: dict[str, Any] | None
    copied: bool
    took_ms: float


class Windowed:
    """A module over one window. Not thread-safe, but `exchange` may run while another thread is in `clean`."""

    def __init__(self, module: Any, prefix: str, bundle: Bundle) -> None:
        """Raises:
        InvalidRequest: as `attach`. BrokerError: no room for a mapping, or the kernel is older than Linux 5.13.
        """
        self._module, self._prefix = module, prefix
        self._window, tensors = self._made(bundle)
        weights.assign(module, tensors, read_only=True)
        self._names = frozenset(tensors)

    def prepared(self, live: Bundle, bundle: Bundle) -> Ready:
        """The next generation, mapped beside the one that is live, or copied.

        Raises:
            InvalidRequest: the module cannot take it, or has changed since it was attached.
        """
        begun = time.perf_counter()
        refusals.check_module(self._module)
        self._check_tensors()
        window, tensors, copied = None, None, False
        try:
            self._window.check_layout(live._core, bundle._core)
            copied = not self._window.prepare(bundle._core)
        except _core.StatusError as status:
            if status.reason != "OTHER_LAYOUT":
                raise from_status(status) from None
            window, tensors = self._made(bundle)
        return Ready(bundle, window, tensors, copied, (time.perf_counter() - begun) * 1e3)

    def exchange(self, ready: Ready) -> None:
        """Shows a prepared generation. REQUIRES: no thread reads the weights.

        Raises:
            BrokerError: the kernel refused, and the module has the weights that it had.
        """
        if ready.window is None or ready.tensors is None:
            try:
                return self._window.swap()
            except _core.StatusError as status:
                raise from_status(status) from None
        self._window = ready.window
        weights.assign(self._module, ready.tensors, read_only=True)
        self._names = frozenset(ready.tensors)

    def clean(self) -> None:
        """Ends the use of the generation that was swapped out, and of one that is prepared.

        Raises:
            BrokerError: the kernel refused, and they are kept.
        """
        try:
            self._window.clean()
        except _core.StatusError as status:
            raise from_status(status) from None

    def _made(self, bundle: Bundle) -> tuple[_core.SwapWindow, dict[str, Any]]:
        """A window of its own for this bundle, and the module's tensors over it."""
        try:
            window = _core.SwapWindow(bundle._core)
            moved = Bundle(bundle._broker, bundle._delivery, bundle.share, bundle._kind, window.over(bundle._core))
        except _core.StatusError as status:
            if status.reason == "NOT_HOST_MEMORY":
                raise InvalidRequest(f"no module can follow {bundle.share.name!r}: {status.message}; {refusals.ONCE}") from None
            raise from_status(status) from None
        return window, weights.checked(self._module, moved.state_dict(self._prefix, "shared"))

    def _check_tensors(self) -> None:
        """Raises:
        InvalidRequest: a tensor of the module was replaced, so that a swap would not reach it.
        """
        for name, tensor in itertools.chain(self._module.named_parameters(), self._module.named_buffers()):
            if name in self._names and tensor.numel() and not self._window.contains(tensor.data_ptr()):
                why = "was replaced, as module.to() and module.half() do, and a swap does not reach it"
                raise InvalidRequest(f"{name!r} {why}: attach the module again afterwards, with follow=True")
