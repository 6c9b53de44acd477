# SPDX-License-Identifier: Apache-2.0
"""PyTorch: ignores read-only, so it gets host shares as copy-on-write mappings. A negative stride aborts the process.

On a GPU its tensors are read after its current stream, and made for that stream.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from arraybridge import _core
from arraybridge.adapters import ensure_module
from arraybridge.arrays import devices
from arraybridge.arrays.sparse_layout import Layout
from arraybridge.errors import UnsupportedArray
from arraybridge.planner import CODES, COMMON, DETACHED, FLOAT8, Caps, Description, dtype_refused

if TYPE_CHECKING:
    from arraybridge._core import View

CAPS: Final = Caps(
    name="torch",
    layout="nonnegative",
    align_bytes=0,
    ndim_max=64,
    read_only="dropped",
    private=True,
    dtypes=COMMON | FLOAT8 | {"bfloat16", "complex32"},
    devices=frozenset({devices.CPU, devices.CUDA}),
    settled=True,
)
_WAYS_OUT: Final = {
    "DTensor": "tensor.to_local(), its part here",
    "AsyncCollectiveTensor": "tensor.wait(), its values",
    "FakeTensor": "a tensor that was made outside of FakeTensorMode",
}
_SPARSE: Final = {"torch.sparse_coo": "coo", "torch.sparse_csr": "csr", "torch.sparse_csc": "csc"}


def caps() -> Caps:
    if sys.modules.get("torch") is None:
        ensure_module("torch")
    return CAPS


def describe(tensor: Any) -> Description:
    _refuse_formless(tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in CODES:
        raise dtype_refused("torch", f"torch.{name}", "share its bytes, tensor.view(torch.uint8)")
    obstacles: tuple[str, ...] = ()
    if tensor.is_conj() or tensor.is_neg():
        obstacles = ("layout: a pending conjugate or negative bit",)
    # Only torch itself can copy a strided tensor on a GPU.
    itself = bool(obstacles) or (tensor.is_cuda and not tensor.is_contiguous())
    return Description(
        framework="torch",
        dtype=name,
        code=CODES[name],
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        address=tensor.data_ptr(),
        read_only=False,
        obstacles=obstacles,
        notes=(DETACHED,) if tensor.requires_grad else (),
        fill=_filler(tensor) if itself else None,
        device=(devices.CUDA, tensor.device.index) if tensor.is_cuda else devices.HOST,
    )


def duplicate(tensor: Any, where: devices.Device) -> Any:
    """A private copy there that keeps the gradient's path to the tensor; None: the tensor has none."""
    if not tensor.requires_grad:
        return None
    torch = _torch()
    with executing():
        return tensor.to("cpu" if where == devices.HOST else f"cuda:{where[1]}", copy=True, memory_format=torch.contiguous_format)


def location(tensor: Any) -> devices.Device | None:
    where = tensor.device
    return devices.HOST if where.type == "cpu" else (devices.CUDA, where.index) if where.type == "cuda" else None


def export(tensor: Any) -> View:
    if not _is_traced():
        return _core.wrap(tensor.detach())
    with executing():
        return _core.wrap(tensor.detach())


def keep(tensor: Any) -> None:
    """From now on torch refuses to resize the tensor's memory on the host, as after `Tensor.numpy()`: another array shows
    it, and torch would free it.
    """
    if tensor.is_cuda or not tensor.untyped_storage().resizable():
        return
    with executing():
        try:
            (tensor.detach() if tensor.requires_grad else tensor).numpy()
        except (TypeError, RuntimeError):  # a dtype that NumPy lacks, or a pending conjugate
            _torch().empty(0, dtype=_torch().uint8).set_(tensor.untyped_storage()).numpy()


def view(view: View) -> Any:
    return importer()(view)


def packed(tensor: Any, dtype: str) -> Any:
    """A tensor of bytes as one of packed elements of this dtype; the bytes, if torch lacks it."""
    found = getattr(_torch(), f"{dtype}_x2", None)
    return tensor if found is None else tensor.view(found)


def unpacked(tensor: Any) -> tuple[Any, str, tuple[int, ...]] | None:
    """The bytes of a tensor of packed elements, their dtype and shape; None: it is another tensor."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name != "float4_e2m1fn_x2":
        return None
    *rows, last = tensor.shape or (1,)
    return tensor.view(_torch().uint8), name.removesuffix("_x2"), (*rows, last * 2)


def ordinary(kind: type) -> Callable[[Any], View] | None:
    """A function that makes Views of ordinary tensors of exactly this class and raises for others."""
    return _plain if kind is _torch().Tensor else None


def straight(target: str) -> Callable[[Any], View] | None:
    """The same, of tensors whose memory an array of `target` shows from now on."""
    return None if target == "torch" else _kept


def quick(dtype: str) -> Callable[[View], Any]:
    """`view` for compact host memory of this dtype."""
    return exchanger() or importer()


def _plain(tensor: Any) -> View:
    # The exchange table ignores these properties, and takes int4 for int8; it refuses tensors without storage.
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.dtype not in _dtypes():
        raise UnsupportedArray("torch", "any", "hand_over", "the tensor is not an ordinary one")
    # The storage may have been made smaller; it was not if the whole tensor begins at its start and fits into it.
    if tensor.untyped_storage().nbytes() < tensor.nbytes or tensor.storage_offset():
        form = _with_cut_storage(tensor)
        if form is not None:
            raise UnsupportedArray("torch", "any", "hand_over", form)
    return _core.wrap(tensor)


def _kept(tensor: Any) -> View:
    made = _plain(tensor)
    keep(tensor)
    return made


@functools.cache
def _torch() -> Any:
    # Imports once instead of reading sys.modules, where another thread's import may be incomplete.
    return ensure_module("torch")


@functools.cache
def _dtypes() -> frozenset[Any]:
    """The dtypes that `describe` accepts."""
    found = (getattr(_torch(), name, None) for name in CODES)
    return frozenset(each for each in found if isinstance(each, _torch().dtype))


@functools.cache
def importer() -> Callable[[View], Any]:
    torch = _torch()
    exchange = exchanger()
    if exchange is None:
        return cast("Callable[[View], Any]", torch.from_dlpack)

    def exchanged(view: View) -> Any:
        try:
            return exchange(view)
        except TypeError:
            return torch.from_dlpack(view)  # for memory on a GPU, which needs a stream

    return exchanged


@functools.cache
def exchanger() -> Callable[[View], Any] | None:
    """DLPack's C table, for host memory, which takes a third of the time of torch's own importer; verified before it is
    used. None: torch lacks it, or it behaves differently.
    """
    torch = _torch()
    exchange = _core.exchanger(torch.Tensor)
    trial = _core.copy_to_heap(_core.wrap_buffer(bytes(range(12)))).named("uint8")
    try:
        made = exchange(trial)
        right = made.data_ptr() == trial.address and made.tolist() == list(range(12)) and type(made) is torch.Tensor
    except Exception:
        right = False
    return exchange if right else None


def _filler(tensor: Any) -> Any:
    def fill(target: View) -> None:
        with executing():
            view(target).copy_(tensor.detach())
        if tensor.is_cuda:
            # Later readers of the bytes do not check whether they are complete.
            _torch().cuda.current_stream(tensor.device).synchronize()

    return fill


def _is_traced() -> bool:
    """Whether torch may record operations of this thread instead of executing them: below a transform of torch.func, in
    FakeTensorMode.
    """
    modes, transform = _tracers()
    return modes() > 0 or transform() is not None


@functools.cache
def _tracers() -> tuple[Callable[[], int], Callable[[], Any]]:
    """The number of modes of this thread, and its innermost transform. Neither is part of torch's public API."""
    try:
        inside = _torch()._C
        return inside._len_torch_dispatch_stack, inside._functorch.peek_interpreter_stack
    except AttributeError:
        return (lambda: 0), (lambda: None)


@contextlib.contextmanager
def executing() -> Iterator[None]:
    """In it torch executes the operations of ordinary tensors, whatever would record them."""
    if not _is_traced():
        yield
        return
    with _torch()._C._DisableFuncTorch(), ensure_module("torch.utils._python_dispatch")._disable_current_modes():
        yield


def _refuse_formless(tensor: Any) -> None:
    torch = _torch()
    form = None
    # Checked first, because it refuses all other queries.
    if _is_one_of(tensor, "torch.nn.parameter", "UninitializedTensorMixin"):
        form = f"an uninitialized tensor ({type(tensor).__name__})"
    elif tensor.is_nested:
        form = "a nested tensor"
    elif tensor.layout != torch.strided:
        layout = str(tensor.layout)
        form = f"a sparse tensor ({layout})" if "sparse" in layout else f"a tensor of the layout {layout}"
    elif tensor.is_quantized:
        form = "a quantized tensor"
    elif tensor.is_meta:
        form = "a meta tensor"
    elif torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        form = "a tensor inside a functorch transform"
    elif _is_one_of(tensor, "torch._subclasses.fake_tensor", "FakeTensor"):
        form = "a fake tensor"
    elif tensor.device.type not in ("cpu", "cuda"):
        form = f"a tensor on {tensor.device}"
    else:
        form = _without_memory(tensor) or _with_cut_storage(tensor) or _refusing_itself(tensor)
    if form is not None:
        way_out = "tensor.int_repr(), its integers" if tensor.is_quantized else _WAYS_OUT.get(type(tensor).__name__)
        if "functorch" in form:
            way_out = "the argument or the result of the transform, outside of it"
        reason = f"{form} has no memory that can be shared: pass {way_out or 'a dense tensor of values on the CPU or a GPU'}"
        raise UnsupportedArray("torch", "any", "hand_over", reason)


def _without_memory(tensor: Any) -> str | None:
    """The name of a kind of tensor that looks ordinary but has no memory."""
    if tensor.data_ptr() or 0 in tensor.shape:
        return None
    if tensor._is_zerotensor():
        return "a zero tensor"
    if _torch()._is_functional_tensor(tensor):
        return "a functional tensor"
    # The memory of a wrapper subclass lies elsewhere; its own storage has only a size.
    wrapper = tensor.untyped_storage().nbytes()
    return f"a wrapper subclass ({type(tensor).__name__})" if wrapper else "a tensor with freed storage"


def _with_cut_storage(tensor: Any) -> str | None:
    """The name of a tensor whose storage was made smaller than the tensor. Reading its last elements may end the
    process; torch does not check it.
    """
    if not tensor.numel():
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    there = tensor.untyped_storage().nbytes()
    return None if needed <= there else f"a tensor with cut storage ({there} bytes of the {needed} that it reaches)"


def _refusing_itself(tensor: Any) -> str | None:
    kind, torch = type(tensor), _torch()
    if kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        return None
    try:
        tensor.detach()
    except Exception as error:
        return f"a subclass ({kind.__name__}) that refuses to be detached ({type(error).__name__}: {error})"
    return None


def _is_one_of(tensor: Any, module: str, name: str) -> bool:
    # Read from sys.modules, not imported: an array of a class exists only if the module of the class is imported.
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(tensor, kind)


def sparse_parts(tensor: Any) -> tuple[Layout, list[Any]] | None:
    try:
        if tensor.layout is _torch().strided:
            return None
        format = _SPARSE.get(str(tensor.layout))
        # Batches of matrices and dense dimensions exist only in torch and JAX.
        if format is None or not tensor.ndim or tensor.dense_dim() or (format != "coo" and tensor.ndim != 2):
            return None
    except Exception:
        return None  # `describe` repeats the check and reports the reason
    plain, shape = tensor.detach(), tuple(tensor.shape)
    if format == "coo":
        return Layout("coo", shape, "by_axis", sorted=tensor.is_coalesced()), [plain._indices(), plain._values()]
    if format == "csr":
        return Layout("csr", shape), [plain.crow_indices(), plain.col_indices(), plain.values()]
    return Layout("csc", shape), [plain.ccol_indices(), plain.row_indices(), plain.values()]


def sparse_canonical(tensor: Any) -> Any:
    torch, known = _torch(), tensor.detach().to_sparse_coo()  # marked as coalesced, whatever its order
    whole = torch.sparse_coo_tensor(known._indices(), known._values(), known.shape, check_invariants=False).coalesce()
    return whole.to_sparse_csr() if tensor.layout is torch.sparse_csr else whole.to_sparse_csc()


def sparse_obstacle(layout: Layout, dtypes: frozenset[str]) -> str:
    if layout.format != "coo":
        return "dtype: all of torch's indices have one dtype" if len(dtypes) > 1 else ""
    if layout.indices == "apart":
        return "layout: torch stores the indices of all axes in one tensor"
    return "" if dtypes == {"int64"} else "dtype: torch's indices of a COO tensor are int64"


def sparse_made(layout: Layout, parts: Sequence[Any]) -> Any:
    torch = _torch()
    *indices, values = parts
    if layout.format != "coo":
        make = torch.sparse_csr_tensor if layout.format == "csr" else torch.sparse_csc_tensor
        if indices[0].dtype != indices[1].dtype:
            indices = [each.long() for each in indices]
        return make(*indices, values, layout.shape, check_invariants=False)  # those of a share were checked
    whole = torch.stack([each.long() for each in indices]) if layout.indices == "apart" else indices[0].long()
    by_axis = whole.t() if layout.indices == "by_value" else whole
    made = torch.sparse_coo_tensor(by_axis, values, layout.shape, check_invariants=False)
    return made._coalesced_(True) if layout.sorted else made


def gpus() -> Sequence[int]:
    torch = ensure_module("torch")
    return range(torch.cuda.device_count()) if torch.cuda.is_available() else ()


def empty_like(like: View, number: int) -> Any:
    """A tensor on GPU `number` with undefined content: compact, with the shape and dtype of a View."""
    torch = _torch()
    return torch.empty(like.shape, dtype=getattr(torch, like.dtype_name), device=f"cuda:{number}")


def uploaded(source: View, number: int) -> Any:
    return view(source).to(f"cuda:{number}", copy=True)


def plain(tensor: Any) -> Any:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def stacked(tensors: Sequence[Any]) -> Any:
    return ensure_module("torch").stack(tuple(tensors))


def clean(number: int | None) -> None:
    cuda = ensure_module("torch").cuda
    if not cuda.is_initialized():
        return
    for each in range(cuda.device_count()):
        if number in (None, each):
            with cuda.device(each):
                cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    # CUDA calls of PyTorch outside of its allocator, and its host allocator, raise no class of their own.
    torch = ensure_module("torch")
    texts = ("CUDA out of memory", "CUDA error: out of memory", "DefaultCPUAllocator: can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError) or (isinstance(error, RuntimeError) and any(text in str(error) for text in texts))
