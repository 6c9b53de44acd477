"""PyTorch: ignores read-only, so a host share comes to it copy-on-write; a negative stride aborts the process.

On a GPU its tensors come after what its current stream has to do, and go to that stream.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from arraybridge import _core, devices
from arraybridge.adapters import ensure_module
from arraybridge.errors import UnsupportedArray, UnsupportedDtype
from arraybridge.planner import CODES, COMMON, DETACHED, FLOAT8, Caps, Description
from arraybridge.sparse_layout import Layout

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
_SPARSE: Final = {"torch.sparse_coo": "coo", "torch.sparse_csr": "csr", "torch.sparse_csc": "csc"}


def caps() -> Caps:
    if sys.modules.get("torch") is None:
        ensure_module("torch")
    return CAPS


def describe(tensor: Any) -> Description:
    _refuse_formless(tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in CODES:
        raise UnsupportedDtype("torch", "any", "hand_over", f"no framework can be handed torch.{name}")
    obstacles: tuple[str, ...] = ()
    if tensor.is_conj() or tensor.is_neg():
        obstacles = ("layout: a pending conjugate or negative bit",)
    # Only torch itself copies what is strided on a GPU.
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
    """A private copy there, through which gradients flow to the tensor; None: it has none."""
    if not tensor.requires_grad:
        return None
    torch = _torch()
    return tensor.to("cpu" if where == devices.HOST else f"cuda:{where[1]}", copy=True, memory_format=torch.contiguous_format)


def location(tensor: Any) -> devices.Device | None:
    where = tensor.device
    return devices.HOST if where.type == "cpu" else (devices.CUDA, where.index) if where.type == "cuda" else None


def export(tensor: Any) -> View:
    return _core.wrap(tensor.detach())


def view(view: View) -> Any:
    return _importer()(view)


def ordinary(kind: type) -> Callable[[Any], View] | None:
    """How tensors of exactly this class become Views if there is nothing to say about them; it raises for others."""
    return _plain if kind is _torch().Tensor else None


def quick(dtype: str) -> Callable[[View], Any]:
    """What `view` does with compact host memory of this dtype."""
    return _exchanger() or _importer()


def _plain(tensor: Any) -> View:
    # The exchange table exports all three as if they were nothing; what has no storage it refuses.
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        raise UnsupportedArray("torch", "any", "hand_over", "there is something to say about it")
    # Its storage may have been cut under it: surely not if it has room for what begins where it begins.
    if tensor.untyped_storage().nbytes() < tensor.nbytes or tensor.storage_offset():
        form = _cut(tensor)
        if form is not None:
            raise UnsupportedArray("torch", "any", "hand_over", form)
    return _core.wrap(tensor)


@functools.cache
def _torch() -> Any:
    # Once, by import: what is in sys.modules may still be on its way in, in another thread.
    return ensure_module("torch")


@functools.cache
def _importer() -> Callable[[View], Any]:
    torch = _torch()
    exchange = _exchanger()
    if exchange is None:
        return cast("Callable[[View], Any]", torch.from_dlpack)

    def exchanged(view: View) -> Any:
        try:
            return exchange(view)
        except TypeError:
            return torch.from_dlpack(view)  # of a GPU's memory, which wants a stream

    return exchanged


@functools.cache
def _exchanger() -> Callable[[View], Any] | None:
    """DLPack's C table, which takes a third of the time of torch's own importer, for host memory; tried before it is relied
    upon. None: an older torch, or one that has changed its mind."""
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
        view(target).copy_(tensor.detach())
        if tensor.is_cuda:
            # Whoever is told of the bytes next asks nobody whether they are there.
            _torch().cuda.current_stream(tensor.device).synchronize()

    return fill


def _refuse_formless(tensor: Any) -> None:
    torch = _torch()
    form = None
    # First: it refuses every other question, too.
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
        form = _without_memory(tensor) or _cut(tensor) or _refusing_itself(tensor)
    if form is not None:
        raise UnsupportedArray("torch", "any", "hand_over", f"{form} has no memory that can be handed on")


def _without_memory(tensor: Any) -> str | None:
    """What a tensor is that looks like any other and has no memory."""
    if tensor.data_ptr() or 0 in tensor.shape:
        return None
    if tensor._is_zerotensor():
        return "a zero tensor"
    if _torch()._is_functional_tensor(tensor):
        return "a functional tensor"
    # What a subclass wraps is somewhere else; its own storage has a size alone.
    wrapper = tensor.untyped_storage().nbytes()
    return f"a wrapper subclass ({type(tensor).__name__})" if wrapper else "a tensor with freed storage"


def _cut(tensor: Any) -> str | None:
    """What a tensor is whose storage was made smaller under it: to read its last elements may end the process, which torch
    does not check either."""
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
    # Looked up, not imported: who has a tensor of a class has imported its module.
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(tensor, kind)


def sparse_parts(tensor: Any) -> tuple[Layout, list[Any]] | None:
    try:
        if tensor.layout is _torch().strided:
            return None
        format = _SPARSE.get(str(tensor.layout))
        # A batch of matrices and a dense dimension in each value are torch's and JAX's alone.
        if format is None or not tensor.ndim or tensor.dense_dim() or (format != "coo" and tensor.ndim != 2):
            return None
    except Exception:
        return None  # it is asked again, and says why not
    plain, shape = tensor.detach(), tuple(tensor.shape)
    if format == "coo":
        return Layout("coo", shape, "by_axis", sorted=tensor.is_coalesced()), [plain._indices(), plain._values()]
    if format == "csr":
        return Layout("csr", shape), [plain.crow_indices(), plain.col_indices(), plain.values()]
    return Layout("csc", shape), [plain.ccol_indices(), plain.row_indices(), plain.values()]


def sparse_obstacle(layout: Layout, dtypes: frozenset[str]) -> str:
    if layout.format != "coo":
        return "dtype: torch's indices are all of one dtype" if len(dtypes) > 1 else ""
    if layout.indices == "apart":
        return "layout: torch has the indices of all axes in one tensor"
    return "" if dtypes == {"int64"} else "dtype: torch's indices of a COO tensor are int64"


def sparse_made(layout: Layout, parts: Sequence[Any]) -> Any:
    torch = _torch()
    *indices, values = parts
    if layout.format != "coo":
        make = torch.sparse_csr_tensor if layout.format == "csr" else torch.sparse_csc_tensor
        if indices[0].dtype != indices[1].dtype:
            indices = [each.long() for each in indices]
        return make(*indices, values, layout.shape, check_invariants=False)  # of a share's they were checked
    whole = torch.stack([each.long() for each in indices]) if layout.indices == "apart" else indices[0].long()
    by_axis = whole.t() if layout.indices == "by_value" else whole
    made = torch.sparse_coo_tensor(by_axis, values, layout.shape, check_invariants=False)
    return made._coalesced_(True) if layout.sorted else made

def gpus() -> Sequence[int]:
    torch = ensure_module("torch")
    return range(torch.cuda.device_count()) if torch.cuda.is_available() else ()


def room(like: View, number: int) -> Any:
    """A tensor on GPU `number` of undefined content: compact, of the shape and dtype of a View."""
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
    # A CUDA call of PyTorch's that is none of its allocator's, and the host's allocator, have no class of their own.
    torch = ensure_module("torch")
    texts = ("CUDA out of memory", "CUDA error: out of memory", "DefaultCPUAllocator: can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    )
