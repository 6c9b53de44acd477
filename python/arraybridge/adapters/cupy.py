# SPDX-License-Identifier: Apache-2.0
"""CuPy: arrays on a GPU only, any strides, no read-only flag. Arrays are ordered after CuPy's current stream.

Tested with CuPy on the simulated driver (tests/simulated_cuda/frameworks), and with a module of its interface.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core
from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.sparse_layout import Layout
from arraybridge.errors import UnsupportedArray
from arraybridge.planner import CODES, COMMON, Caps, Description, dtype_refused

if TYPE_CHECKING:
    from arraybridge._core import View

_MANAGED: Final = 13  # DLPack's type of managed memory
CAPS: Final = Caps(
    name="cupy",
    layout="strided",
    align_bytes=0,
    ndim_max=64,
    read_only="dropped",
    private=False,
    dtypes=COMMON | {"bfloat16"},
    devices=frozenset({devices.CUDA}),
)
_BEFORE_14: Final = replace(CAPS, dtypes=COMMON)


def caps() -> Caps:
    return _BEFORE_14 if str(module().__version__).startswith("13.") else CAPS


def describe(array: Any) -> Description:
    name = array.dtype.name
    if name not in CODES:
        raise dtype_refused("cupy", name, "convert it, for example with astype(float)")
    itemsize = array.dtype.itemsize
    strided = not array.flags.c_contiguous
    return Description(
        framework="cupy",
        dtype=name,
        code=CODES[name],
        shape=tuple(array.shape),
        strides=tuple(stride // itemsize for stride in array.strides),
        address=array.data.ptr,
        read_only=False,
        device=(devices.CUDA, array.device.id),
        notes=("relabelled: managed memory is shown as the GPU's",) if array.__dlpack_device__()[0] == _MANAGED else (),
        # Only CuPy itself can copy a strided array on a GPU.
        fill=_filler(array) if strided else None,
    )


def location(array: Any) -> devices.Device:
    return devices.CUDA, array.device.id


def export(array: Any) -> View:
    cupy = module()
    with cupy.cuda.Device(array.device.id):
        stream = cupy.cuda.get_current_stream()
        if stream.ptr and stream.is_capturing():
            # An order between streams would invalidate the capture. The verbs refuse a View of a captured stream.
            return _core.wrap_cuda_array_interface({**array.__cuda_array_interface__, "stream": stream.ptr}, array)
        # For the legacy stream, CuPy orders its current stream before it.
        return _core.wrap(array)


def view(view: View) -> Any:
    cupy = module()
    with cupy.cuda.Device(view.device[1]):
        return cupy.from_dlpack(view)


@functools.cache
def module() -> Any:
    # Imports once instead of reading sys.modules, where another thread's import may be incomplete.
    return ensure_module("cupy")


def _filler(array: Any) -> Any:
    def fill(target: View) -> None:
        cupy = module()
        with cupy.cuda.Device(array.device.id):
            cupy.copyto(view(target), array)
            # Later readers of the bytes do not check whether they are complete.
            cupy.cuda.get_current_stream().synchronize()

    return fill


def sparse_parts(array: Any) -> tuple[Layout, list[Any]] | None:
    shape = tuple(map(int, array.shape))
    if array.format in ("csr", "csc"):
        return Layout(array.format, shape, matrix=True), [array.indptr, array.indices, array.data]
    if array.format == "coo":
        return Layout("coo", shape, matrix=True), [array.row, array.col, array.data]
    reason = f"the sparse format {array.format} ({type(array).__name__}) is not supported; use csr, csc or coo: pass array.tocsr()"
    raise UnsupportedArray("cupy", "any", "hand_over", reason)


def sparse_canonical(array: Any) -> Any:
    made = array.copy()
    made.sum_duplicates()
    return made


def sparse_obstacle(layout: Layout, dtypes: frozenset[str]) -> str:
    return "" if dtypes == {"int32"} else "dtype: CuPy's indices are int32"


def sparse_made(layout: Layout, parts: Sequence[Any]) -> Any:
    if len(layout.shape) != 2 or max(*layout.shape, parts[-1].size) >= 2**31:
        reason = f"CuPy supports no sparse array of shape {layout.shape}: it needs two dimensions and int32 indices"
        raise UnsupportedArray("array", "cupy", "hand_over", reason)
    cupy, sparse = module(), ensure_module("cupyx.scipy.sparse")
    with cupy.cuda.Device(parts[-1].device.id):
        *indices, data = [each.astype("int32", copy=False) for each in parts[:-1]] + [parts[-1]]
        if layout.format != "coo":
            starts, inner = indices
            return getattr(sparse, f"{layout.format}_matrix")((data, inner, starts), shape=layout.shape)
        if layout.indices != "apart":
            whole = indices[0] if layout.indices == "by_axis" else indices[0].T
            indices = [whole[0], whole[1]]
        return sparse.coo_matrix((data, (indices[0], indices[1])), shape=layout.shape)


def gpus() -> Sequence[int]:
    try:
        return range(module().cuda.runtime.getDeviceCount())
    except RuntimeError:  # CuPy without a driver, or without a GPU
        return ()


def empty_like(like: View, number: int) -> Any:
    """An array on GPU `number` with undefined content: compact, with the shape and dtype of a View."""
    cupy = module()
    with cupy.cuda.Device(number):
        return cupy.empty(like.shape, numpy_adapter.dtype_of(like.dtype_name))


def uploaded(source: View, number: int) -> Any:
    cupy, made = module(), empty_like(source, number)
    with cupy.cuda.Device(source.device[1]):
        there, reader = plain(view(source)), cupy.cuda.get_current_stream()
        complete = reader.record()
    with cupy.cuda.Device(number):
        writer = cupy.cuda.get_current_stream()
        writer.wait_event(complete)
        # A copy between peers needs no access of one GPU to memory that is mapped for the other. CuPy's own copy does.
        cupy.cuda.runtime.memcpyPeerAsync(made.data.ptr, number, there.data.ptr, source.device[1], there.nbytes, writer.ptr)
        copied = writer.record()
    with cupy.cuda.Device(source.device[1]):
        reader.wait_event(copied)  # before its memory serves another array
    return made


def plain(array: Any) -> Any:
    cupy = module()
    with cupy.cuda.Device(array.device.id):
        return cupy.ascontiguousarray(array)


def stacked(arrays: Sequence[Any]) -> Any:
    cupy = module()
    with cupy.cuda.Device(arrays[0].device.id):
        return cupy.stack(tuple(arrays))


def clean(number: int | None) -> None:
    cupy = module()
    for each in gpus():
        if number in (None, each):
            with cupy.cuda.Device(each):
                cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


def out_of_memory(error: BaseException) -> bool:
    cupy = module()
    return isinstance(error, cupy.cuda.memory.OutOfMemoryError) or (
        isinstance(error, cupy.cuda.runtime.CUDARuntimeError) and "cudaErrorMemoryAllocation" in str(error)
    )
