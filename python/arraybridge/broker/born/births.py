# SPDX-License-Identifier: Apache-2.0
"""Births: the part of Broker that lets frameworks allocate their arrays in broker memory."""

from __future__ import annotations

import os
import weakref
from typing import Any, Final, Literal

from arraybridge import _core, autograph
from arraybridge.broker.born.block import Born, Scope
from arraybridge.broker.session import Session
from arraybridge.errors import InvalidRequest

_PAGE: Final = 4096
_RESERVE_MIN: Final = 1 << 20
_SIZES_MAX: Final = 1 << 46  # of an address space


class Births(Session):
    """A Session whose arrays can be born in broker memory."""

    _heap: tuple[weakref.ref[_core.Core], int, int, Any] | None = None

    def born(
        self,
        *frameworks: Literal["numpy"],
        min_bytes: int = 64 << 10,
        everywhere: bool = False,
        reserve_bytes: int = 64 << 20,
    ) -> Born:
        """A `with` block in which NumPy allocates its arrays in broker memory: `put` then publishes them without a copy.

        It holds for every function that lets NumPy allocate its result: `np.empty`, ufuncs, `concatenate`, `load`, `astype`,
        `fft`, SciPy, all of OpenCV, `np.array(image)` of Pillow. Not for `pickle.loads`, nor for views of memory of other
        libraries (`np.asarray(tensor)`). An array that does not find memory at once is NumPy's own, as ever, and a put copies
        it: the block never makes an allocation fail or wait. `Born.missed` counts these arrays and says why.

        An array that was put must not be written any more: it turns read-only at the put, but *views of it that were
        made before stay writable, and what is written through them reaches the readers*. One array is published without a copy; a
        tree of several is copied. In a forked child the arrays stay as they were at the fork, whatever the parent writes
        later, and the other way round; a put of them copies then.

        Args:
            frameworks: "numpy", also if none is named.
            min_bytes: smaller arrays are NumPy's own. A born array takes whole pages, of 4,096 bytes.
            everywhere: False: for the code of the block, and what it awaits, in asyncio tasks and in `asyncio.to_thread`;
                not in other threads. True: for all threads of the process until the block's end.
            reserve_bytes: the memory that is fetched when the block is entered, and each time it is used up. Larger arrays are
                born from the second of their size on. Of freed arrays the block keeps this much, or one larger array, and of
                empty memory twice as much. It gives all of it back five seconds after its end.

        Raises:
            InvalidRequest: another framework, or a size that is out of its range. At the block's entry also BrokerUnavailable: no
                daemon answers; a broker without memory is no error.

        Example:
            >>> with broker.born("numpy"):
            ...     frame = np.arange(100_000) / 3
            >>> broker.put(frame, "frame").name    # 800,000 bytes, without a copy
            'frame'
        """
        if set(frameworks) - {"numpy"}:
            others = ", ".join(sorted(repr(each) for each in frameworks if each != "numpy"))
            raise InvalidRequest(f'born takes "numpy", not {others}: a put of arrays of other frameworks copies them')
        if not isinstance(everywhere, bool):
            raise InvalidRequest(f"everywhere must be True or False, not {everywhere!r}")
        check_size(min_bytes, "min_bytes", _PAGE)
        check_size(reserve_bytes, "reserve_bytes", _RESERVE_MIN)

        def enter() -> Scope:
            return self._connection.ask(lambda core: self._entered(core, min_bytes, everywhere, reserve_bytes))

        return Born(enter)

    def _entered(self, core: _core.Core, min_bytes: int, everywhere: bool, reserve_bytes: int) -> Scope:
        scope: Scope = _core.born_numpy(self._heap_of(core, reserve_bytes), min_bytes, everywhere)
        scope.enter()
        return scope

    def _heap_of(self, core: _core.Core, reserve_bytes: int) -> Any:
        """The heap of the latest block, if it is of this process, of this connection, and has this reserve."""
        known = self._heap
        if known is not None and known[0]() is core and known[1:3] == (os.getpid(), reserve_bytes):
            return known[3]
        heap = _core.born_heap(core, reserve_bytes)
        self._heap = weakref.ref(core), os.getpid(), reserve_bytes, heap  # a closed connection ends
        return heap


def check_size(number: int, name: str, least: int) -> None:
    """Raises:
    InvalidRequest: it is not a number of bytes of at least `least`.
    """
    if type(number) is not int or not least <= number <= _SIZES_MAX:
        raise InvalidRequest(f"{name} must be a number of bytes from {least} to {_SIZES_MAX}, not {number!r}")


autograph.mark_module(__name__)
