# SPDX-License-Identifier: Apache-2.0
"""Births: the part of Broker that lets frameworks allocate their arrays in broker memory."""

from __future__ import annotations

import os
import weakref
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Literal, cast

from arraybridge import _core, autograph
from arraybridge.adapters import born as adapters
from arraybridge.allocators.scope import NO_HOOK, Allocator, Wish
from arraybridge.allocators.torch_hook import TorchPool
from arraybridge.arrays import devices
from arraybridge.broker.born.block import Born
from arraybridge.broker.born.frameworks import Frameworks, Scope
from arraybridge.broker.born_tally.told import Told
from arraybridge.broker.tiers.tiering import Tiering
from arraybridge.errors import FrameworkNotAvailable, InvalidRequest

_FRAMEWORKS: Final = ("numpy", *adapters.NAMES)
_PAGE: Final = 4096
_NUMPY_MIN: Final = 64 << 10
_LIBRARIES_MIN: Final = 1 << 20
_RESERVE_MIN: Final = 1 << 20
_SIZES_MAX: Final = 1 << 46  # of an address space


class Births(Tiering):
    """A Session whose arrays can be born in broker memory."""

    _heap: tuple[weakref.ref[_core.Core], int, int, Any] | None = None
    _torch_pools: dict[int, TorchPool] | None = None  # by the ordinal of their GPU

    def born(
        self,
        *frameworks: Literal["numpy", "torch", "jax", "pyarrow", "tensorflow", "cupy", "numba", "cuda.core"],
        device: str | int | None = None,
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
        stay writable, and what is written through them reaches the readers*. `put(keep_writing=True)`
        has neither effect. One array is published without a copy, and a tree of several, if they lie one behind the other; other
        trees are copied, and so is a part of an array, except of NumPy. In a forked child the arrays stay as they were at
        the fork, whatever the parent writes later, and the other way round; a put of them copies then.

        On a GPU (`device`) it is the allocator of CuPy, Numba, PyTorch or cuda.core that takes broker memory. An array is then
        published without a copy if it fills its block: all of an array of CuPy or Numba, a buffer of cuda.core, a tensor of
        PyTorch of at least 10 MiB. A part of one is copied. *Nothing makes an array on a GPU read-only: do not write it after
        its put.* If the broker has no memory, the framework raises its own error for that. "jax" and "tensorflow" take no
        other allocator there; they may be named, and `Born.skipped` then says so.

        Args:
            frameworks: "numpy", "torch", "jax", "pyarrow", "tensorflow"; "numpy", if none is named; with `device` "cupy", "numba",
                "torch", "cuda.core". One that is not installed is no error.
            device: the GPU, "cuda:0", its number or its UUID. None: the host; for CuPy, Numba and cuda.core the first GPU.
            min_bytes: smaller arrays are the framework's own. None: 64 KiB for NumPy and on GPUs, 1 MiB for others on the host. A
                born array takes whole pages, of 4,096 bytes.
            everywhere: of NumPy, CuPy and Numba; the others' arrays on the host are born on all threads, and those of "torch" and
                "cuda.core" on a GPU on the block's own. False: for the code of the block, and what it awaits, in asyncio tasks and in
                `asyncio.to_thread`; not in other threads. True: for all threads of the process until the block's end.
            reserve_bytes: the memory that is fetched when the block is entered, and each time it is used up. Larger arrays are
                born from the second of their size on. Of freed arrays the block keeps this much, or one larger array, and of
                empty memory twice as much. It gives all of it back five seconds after its end.

        Raises:
            InvalidRequest: another framework, or a size that is out of its range. At the block's entry also BrokerUnavailable: no
                daemon answers; a broker without memory is no error.
            DeviceUnavailable: this process sees no such GPU.
            FrameworkNotAvailable: at the block's entry: it is not installed.

        Example:
            >>> with broker.born("numpy"):
            ...     frame = np.arange(100_000) / 3
            >>> broker.put(frame, "frame").name    # 800,000 bytes, without a copy
            'frame'
        """
        names = tuple(dict.fromkeys(frameworks or ("numpy",)))
        if not isinstance(everywhere, bool):
            raise InvalidRequest(f"everywhere must be True or False, not {everywhere!r}")
        if min_bytes is not None:
            check_size(min_bytes, "min_bytes", _PAGE)
        check_size(reserve_bytes, "reserve_bytes", _RESERVE_MIN)
        ordinal = _gpu_of(frameworks, device)
        if ordinal is not None:
            wish = Wish(names, ordinal, min_bytes or _NUMPY_MIN, everywhere, reserve_bytes)
            wish.check()
            return Born(lambda: self._connection.ask(lambda core: Frameworks(names, lambda name, _: self._on_gpu(core, wish, name))))
        if wrong := sorted(repr(each) for each in names if each not in _FRAMEWORKS):
            known = ", ".join(f'"{each}"' for each in _FRAMEWORKS)
            raise InvalidRequest(f"born takes {known}, not {', '.join(wrong)}: a put of arrays of other frameworks copies them")

        def entered(core: _core.Core) -> Frameworks:
            return Frameworks(names, partial(_on_host, self._heap_of(core, reserve_bytes), min_bytes, everywhere))

        return Born(partial(self._connection.ask, entered))

    def _on_gpu(self, core: _core.Core, wish: Wish, name: str) -> Scope | str:
        if name in NO_HOOK:
            return f"{name} takes no other allocator on a GPU, so that a put copies its arrays"
        return Told(Allocator(name, self._connection.ask, core, wish, lambda: self._torch_pool(wish.ordinal)), core, name)

    def _torch_pool(self, ordinal: int) -> TorchPool:
        """That of the GPU, so that a later block finds the memory which PyTorch has kept of an earlier one."""
        pools = self._torch_pools = self._torch_pools or {}
        pools[ordinal] = pools.get(ordinal) or TorchPool()
        return pools[ordinal]

    def _heap_of(self, core: _core.Core, reserve_bytes: int) -> Any:
        """The heap of the latest block, if it is of this process, of this connection, and has this reserve."""
        known = self._heap
        if known is not None and known[0]() is core and known[1:3] == (os.getpid(), reserve_bytes):
            return known[3]
        heap = _core.born_heap(core, reserve_bytes)
        self._heap = weakref.ref(core), os.getpid(), reserve_bytes, heap  # a closed connection ends
        return heap


def _on_host(heap: Any, min_bytes: int | None, everywhere: bool, name: str, open: ExitStack) -> Scope | str:
    """The framework's use of the heap, or why it has none."""
    if name == "numpy":
        return cast(Scope, _core.born_numpy(heap, min_bytes or _NUMPY_MIN, everywhere))
    adapter = adapters.named(name)
    if adapter.REFUSAL:
        return adapter.REFUSAL
    try:
        open.enter_context(adapter.allocating())
    except FrameworkNotAvailable as error:
        return str(error)
    return cast(Scope, _core.born_imports(heap, name, adapter.LIBRARIES, min_bytes or _LIBRARIES_MIN))


def _gpu_of(frameworks: tuple[str, ...], device: str | int | None) -> int | None:
    """The number of the GPU on which the arrays are born; None: they are born on the host."""
    if device is None:
        if not frameworks or not {"cupy", "numba", "cuda.core"} >= set(frameworks):
            return None
        device = "cuda"
    wished = devices.wished(device, _core.gpus(), "array", "born")
    return None if wished is None or wished == devices.HOST else wished[1]


def check_size(number: int, name: str, least: int) -> None:
    """Raises:
    InvalidRequest: it is not a number of bytes of at least `least`.
    """
    if type(number) is not int or not least <= number <= _SIZES_MAX:
        raise InvalidRequest(f"{name} must be a number of bytes from {least} to {_SIZES_MAX}, not {number!r}")


autograph.mark_module(__name__)
