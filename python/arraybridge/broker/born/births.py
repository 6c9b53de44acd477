# SPDX-License-Identifier: Apache-2.0
"""Births: the part of Broker that lets frameworks allocate their arrays in broker memory."""

from __future__ import annotations

import os
import weakref
from typing import Any, Final, Literal

from arraybridge import _core, autograph
from arraybridge.adapters import born as adapters
from arraybridge.broker.born.block import Born
from arraybridge.broker.born.frameworks import Frameworks
from arraybridge.broker.session import Session
from arraybridge.errors import InvalidRequest

_FRAMEWORKS: Final = ("numpy", *adapters.NAMES)
_PAGE: Final = 4096
_NUMPY_MIN: Final = 64 << 10
_LIBRARIES_MIN: Final = 1 << 20
_RESERVE_MIN: Final = 1 << 20
_SIZES_MAX: Final = 1 << 46  # of an address space


class Births(Session):
    """A Session whose arrays can be born in broker memory."""

    _heap: tuple[weakref.ref[_core.Core], int, int, Any] | None = None

    def born(
        self,
        *frameworks: Literal["numpy", "torch", "jax", "pyarrow", "tensorflow"],
        min_bytes: int | None = None,
        everywhere: bool = False,
        reserve_bytes: int = 64 << 20,
    ) -> Born:
        """A `with` block in which frameworks allocate their arrays in broker memory: `put` then publishes them without a copy.

        NumPy: every function that lets NumPy allocate its result: `np.empty`, ufuncs, `concatenate`, `load`, `astype`, `fft`,
        SciPy, all of OpenCV, `np.array(image)` of Pillow. Not `pickle.loads`, nor views of memory of other libraries
        (`np.asarray(tensor)`). torch, JAX and pyarrow: everything that they make on the CPU, on all threads; pyarrow uses its
        pool of the C library meanwhile. TensorFlow keeps the memory of ended tensors, so its tensors are copied. An array that does
        not find memory at once is the framework's own, as ever, and a put copies it: the block never makes an allocation fail or
        wait. `Born.missed` counts these arrays and says why; `Born.skipped` has the frameworks whose arrays are all their own.

        An array that was put does not change: a NumPy array becomes read-only; an operation that would write a torch tensor, or
        a JAX array that is donated, copies it first. But *views that were made before, by NumPy or of its memory (`tensor.numpy()`),
        stay writable, and what is written through them reaches the readers*. One array is published without a copy; a
        tree of several is copied, and so is a part of an array, except of NumPy. In a forked child the arrays stay as they were at
        the fork, whatever the parent writes later, and the other way round; a put of them copies then.

        Args:
            frameworks: "numpy", "torch", "jax", "pyarrow", "tensorflow"; "numpy", if none is named. One that is not installed
                is no error.
            min_bytes: smaller arrays are the framework's own. None: 64 KiB for NumPy, 1 MiB for others. A born array takes
                whole pages, of 4,096 bytes.
            everywhere: of NumPy; the others' arrays are born on all threads. False: for the code of the block, and what it
                awaits, in asyncio tasks and in `asyncio.to_thread`; not in other threads. True: for all threads of the process
                until the block's end.
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
        names = tuple(dict.fromkeys(frameworks or ("numpy",)))
        if wrong := sorted(repr(each) for each in names if each not in _FRAMEWORKS):
            known = ", ".join(f'"{each}"' for each in _FRAMEWORKS)
            raise InvalidRequest(f"born takes {known}, not {', '.join(wrong)}: a put of arrays of other frameworks copies them")
        if not isinstance(everywhere, bool):
            raise InvalidRequest(f"everywhere must be True or False, not {everywhere!r}")
        if min_bytes is not None:
            check_size(min_bytes, "min_bytes", _PAGE)
        check_size(reserve_bytes, "reserve_bytes", _RESERVE_MIN)

        def entered(core: _core.Core) -> Frameworks:
            heap = self._heap_of(core, reserve_bytes)
            return Frameworks(
                names,
                lambda: _core.born_numpy(heap, _NUMPY_MIN if min_bytes is None else min_bytes, everywhere),
                lambda libraries: _core.born_imports(heap, libraries, _LIBRARIES_MIN if min_bytes is None else min_bytes),
            )

        return Born(lambda: self._connection.ask(entered))

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
