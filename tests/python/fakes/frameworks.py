# SPDX-License-Identifier: Apache-2.0
"""CuPy, PyTorch, TensorFlow, JAX, pyclesperanto with its CUDA backend, its prototype, and Numba, each in its own dialect.

`install()` puts them into sys.modules. Dialects as in the frameworks' own code: who passes which keyword, who answers
in which capsule, who refuses what, and how.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from arraybridge import _core
from arraybridge.planner import layout_of
from fakes.gpu import (
    LEGACY,
    VERSIONED,
    Held,
    abort,
    consumed,
    current,
    enter,
    labelled,
    order,
    ordinal,
    read,
    synchronize,
    taken,
    wait,
    write,
)  # fmt: skip

BOTH = (LEGACY, VERSIONED)


class CupyArray(Held):
    """cupy.ndarray: both dialects out, an integer stream in."""

    dtype = property(lambda self: np.dtype(self.held.dtype_name))
    strides = property(lambda self: tuple(stride * self.dtype.itemsize for stride in self.held.strides))
    data = property(lambda self: SimpleNamespace(ptr=self.address))
    device = property(lambda self: SimpleNamespace(id=self.held.device[1]))
    flags = property(lambda self: SimpleNamespace(c_contiguous=self.held.compact))

    size = property(lambda self: self.held.size)
    nbytes = property(lambda self: self.held.nbytes)

    def astype(self, dtype: str, copy: bool = True) -> "CupyArray":
        return self if self.dtype == dtype and not copy else CupyArray.of(self.values().astype(dtype))

    def __getitem__(self, index: int) -> "CupyArray":
        return CupyArray.of(self.values()[index])

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        if copy:
            raise BufferError("copy=True is not supported on a device")
        # It orders the current stream of its current device, whichever that is.
        assert sys.modules["cupy"].__dict__["current"] == self.held.device[1], "exported in its device"
        streams = sys.modules["cupy"].__dict__["streams"]
        if (producer := getattr(streams, "current", None)) is not None and stream not in (None, -1):
            order(stream, producer)
        return self.exported(VERSIONED if max_version and max_version[0] >= 1 else LEGACY, stream=stream)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class LikeCupy(ModuleType):
    def __init__(self) -> None:
        super().__init__("cupy")
        self.__version__, self.ndarray, self.current = "14.0.0", CupyArray, 0
        self.streams = threading.local()  # its `current`: the stream that this thread has chosen, if any
        legacy = SimpleNamespace(synchronize=wait, ptr=0, record=lambda: None, wait_event=lambda event: None)
        self.cuda = SimpleNamespace(Device=self.device, get_current_stream=lambda: legacy)

    @contextmanager
    def device(self, number: int) -> Iterator[SimpleNamespace]:
        before, self.current = self.current, number
        try:
            yield SimpleNamespace(synchronize=lambda: synchronize(number))
        finally:
            self.current = before

    def from_dlpack(self, source: Any) -> CupyArray:
        kind, number = source.__dlpack_device__()
        if kind not in (2, 13):
            raise TypeError(f"CPU arrays cannot be imported: {kind}")
        assert number == self.current, "in its device"
        return CupyArray(taken(source, BOTH, stream=1, max_version=(1, 0)))

    def copyto(self, target: CupyArray, source: CupyArray) -> None:
        write(target.address, source.values())


class spmatrix:
    """cupyx.scipy.sparse: parts on the GPU alone, indices of int32 alone, which it would convert in silence."""

    format = ""

    def __init__(self, parts: Any, shape: tuple[int, int]) -> None:
        self.data, indices = parts[0], parts[1:] if self.format != "coo" else parts[1]
        assert all(isinstance(each, CupyArray) for each in (self.data, *indices))
        assert all(each.dtype == np.int32 for each in indices)
        self.shape = shape
        for name, each in zip(("row", "col") if self.format == "coo" else ("indices", "indptr"), indices, strict=True):
            setattr(self, name, each)


spmatrix.__module__ = "cupyx.scipy.sparse._base"


class LikeCupyx(ModuleType):
    def __init__(self) -> None:
        super().__init__("cupyx.scipy.sparse")
        for name in ("csr", "csc", "coo", "dia"):
            setattr(self, f"{name}_matrix", type(f"{name}_matrix", (spmatrix,), {"format": name}))


class TorchTensor(Held):
    """torch.Tensor: versioned if asked; its own default stream is -1."""

    is_nested = is_quantized = is_meta = requires_grad = False
    layout = "strided"
    __torch_dispatch__ = None  # who subclasses it may have one
    dtype = property(lambda self: f"torch.{self.held.dtype_name}")
    is_cuda = property(lambda self: self.on_gpu)
    device = property(lambda self: SimpleNamespace(type="cuda" if self.on_gpu else "cpu", index=self.held.device[1]))

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def is_contiguous(self) -> bool:
        return self.held.compact

    def stride(self) -> tuple[int, ...]:
        return self.held.strides

    def data_ptr(self) -> int:
        return self.address

    def numel(self) -> int:
        return self.held.size

    def element_size(self) -> int:
        return self.held.dtype_code[1] // 8

    def storage_offset(self) -> int:
        return 0

    def untyped_storage(self) -> Any:
        """As far as its last element reaches."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.held.strides, strict=True))
        return SimpleNamespace(nbytes=lambda: (last + 1) * self.element_size())

    def detach(self) -> "TorchTensor":
        return self

    def copy_(self, source: "TorchTensor") -> None:
        before = current()
        enter(self.held.device[1])
        write(self.address, source.values())
        enter(before)

    def __dlpack__(self, *, stream: Any = -1, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        assert stream is not None or not self.on_gpu
        return self.exported(VERSIONED if max_version and max_version[0] >= 1 else LEGACY, stream=stream)


class LikeTorch(ModuleType):
    def __init__(self) -> None:
        super().__init__("torch")
        self.__version__, self.Tensor, self.strided = "2.13.0", TorchTensor, "strided"
        wrapped = SimpleNamespace(is_functorch_wrapped_tensor=lambda tensor: False)
        self._C = SimpleNamespace(_functorch=wrapped)
        legacy = SimpleNamespace(synchronize=wait, ptr=0, record=lambda: None, wait_event=lambda event: None)
        self.cuda = SimpleNamespace(current_stream=lambda device: legacy)
        self.current = 1  # its current stream: the legacy one
        self.sparse_csr_tensor = lambda starts, indices, values, shape, check_invariants: (starts, indices, values, shape)

    def from_dlpack(self, source: Any) -> TorchTensor:
        kind, _ = source.__dlpack_device__()
        if kind not in (1, 2):
            raise BufferError(f"device {kind}")
        view = taken(source, BOTH, max_version=(1, 0), **({"stream": self.current} if kind == 2 else {}))
        if any(stride < 0 for stride in view.strides):
            abort("a negative stride in torch")
        return TorchTensor(view)


class TfTensor(Held):
    """An EagerTensor: unversioned capsules, RuntimeError for every keyword it dislikes, no stream."""

    dtype = property(lambda self: SimpleNamespace(name=self.held.dtype_name))
    device = property(lambda self: f"/job:localhost/replica:0/task:0/device:{f'GPU:{self.held.device[1]}' if self.on_gpu else 'CPU:0'}")

    def __dlpack__(self, **keywords: Any) -> Any:
        if set(keywords) - {"max_version", "copy"} or keywords.get("copy"):
            raise RuntimeError(f"not supported: {keywords}")
        return self.exported(LEGACY)


def physical(number: int) -> Any:
    """What TensorFlow calls a GPU that CUDA_VISIBLE_DEVICES lets it see."""
    return SimpleNamespace(name=f"/physical_device:GPU:{number}")


class LikeTensorflow(ModuleType):
    def __init__(self) -> None:
        super().__init__("tensorflow")
        self.__version__, self.Tensor = "2.21.0", TfTensor
        self.Variable = type("Variable", (), {})
        self.gpus = [physical(0)]
        self.config = SimpleNamespace(
            list_physical_devices=lambda kind: list(self.gpus),
            get_visible_devices=lambda kind: list(self.gpus),
            get_logical_device_configuration=lambda gpu: None,
        )
        dlpack = SimpleNamespace(to_dlpack=lambda tensor: tensor.__dlpack__(), from_dlpack=self.from_dlpack)
        self.experimental = SimpleNamespace(dlpack=dlpack)

    def is_symbolic_tensor(self, tensor: Any) -> bool:
        return False

    def from_dlpack(self, capsule: Any) -> TfTensor:
        kind, number = labelled(capsule)
        if kind == 2:
            if number >= len(self.gpus):
                abort("memory of a device that TensorFlow does not know")
        view = consumed(capsule, (LEGACY,))
        if kind == 2 and view.address:
            assert ordinal(view.address) == view.device[1], "it would take one GPU's memory for another's"
        if not view.compact:
            raise ValueError("strides")
        if view.device[0] == 1 and view.address % 64:
            abort("misaligned memory in TensorFlow")
        return TfTensor(view)


class _Platform:
    def __init__(self, platform: str, number: int) -> None:
        self.platform, self.local_hardware_id = platform, number


class JaxArray(Held):
    """jax.Array: unversioned whatever is asked, ordered after the stream that it is told."""

    dtype = property(lambda self: np.dtype(self.held.dtype_name))
    sharding = property(lambda self: SimpleNamespace(device_set={_Platform("gpu" if self.on_gpu else "cpu", self.held.device[1])}))

    def is_deleted(self) -> bool:
        return False

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        return self.exported(LEGACY, stream=stream)


class LikeJax(ModuleType):
    def __init__(self) -> None:
        super().__init__("jax")
        self.__version__, self.Array = "0.10.2", JaxArray
        self.core = SimpleNamespace(Tracer=type("Tracer", (), {}))
        self.dtypes = SimpleNamespace(issubdtype=lambda dtype, kind: False, extended=object)
        self.config = SimpleNamespace(jax_enable_x64=True)
        self.dlpack = ModuleType("jax.dlpack")
        self.dlpack.from_dlpack = self.from_dlpack  # type: ignore[attr-defined]

    def local_devices(self, backend: str) -> list[Any]:
        return [_Platform("gpu", 0)] if backend == "cuda" else [_Platform("cpu", 0)]

    def from_dlpack(self, source: Any) -> JaxArray:
        kind, number = source.__dlpack_device__()
        if kind not in (1, 2):
            raise TypeError(f"device {kind}")
        if kind == 2 and number not in [each.local_hardware_id for each in self.local_devices("cuda")]:
            raise ValueError(f"no local device with local_hardware_id == {number}")
        view = taken(source, (LEGACY,), stream=2 if kind == 2 else None)
        if layout_of(view.shape, view.strides) not in ("compact_c", "compact_permutation"):
            raise RuntimeError("strides")
        if kind == 1 and view.address % 64:
            raise ValueError("it would be copied in silence")
        return JaxArray(view)


class CleArray(Held):
    """An array of pyclesperanto_cuda: `stream` and `version` are its only keywords; versioned alone."""

    dtype = property(lambda self: np.dtype(self.held.dtype_name))
    device = property(lambda self: LikePyclesperanto.DEVICE)
    read = 0

    def __dlpack__(self, stream: Any = None, version: Any = (1, 0)) -> Any:
        return self.exported(VERSIONED, stream=stream)

    def get(self, origin: Any = None, region: Any = None) -> np.ndarray[Any, Any]:
        self.read += 1  # its queue has ended
        return read(self.held)


class LikePyclesperanto(ModuleType):
    DEVICE = SimpleNamespace(type=SimpleNamespace(name="CUDA"), index=0)

    def __init__(self) -> None:
        super().__init__("pyclesperanto")
        self.__version__, self.Array = "0.25.1", CleArray

    def get_device(self) -> Any:
        return self.DEVICE

    def list_available_devices(self) -> list[str]:
        return ["GPU 0"]

    def from_dlpack(self, source: Any, *, device: Any) -> CleArray:
        assert device is self.DEVICE
        assert source.__dlpack_device__() == (2, 0)
        view = taken(source, (VERSIONED,), max_version=(1, 0))
        if not 1 <= view.ndim <= 3 or not view.size or not view.compact:
            raise ValueError("rank, size or strides")
        return CleArray(view)


class OCLArray:
    """pyclesperanto_prototype's array: frozen, on the host only by get()."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self._values = values.copy()
        self.dtype, self.shape = values.dtype, values.shape

    @classmethod
    def from_array(cls, values: np.ndarray[Any, Any]) -> "OCLArray":
        return cls(values)

    def get(self) -> np.ndarray[Any, Any]:
        return self._values.copy()


OCLArray.__module__ = "pyclesperanto_prototype._tier0._pycl"


class LikePrototype(ModuleType):
    def __init__(self) -> None:
        super().__init__("pyclesperanto_prototype")
        self._tier0 = SimpleNamespace(_pycl=SimpleNamespace(OCLArray=OCLArray))

    def push(self, values: Any) -> OCLArray:
        return OCLArray(np.asarray(values, np.float32))


class DeviceNDArrayBase(Held):
    """Numba's device array: the CUDA array interface alone."""

    __dlpack_device__ = None  # type: ignore[assignment]
    dtype = property(lambda self: np.dtype(self.held.dtype_name))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        itemsize = np.dtype(self.held.dtype_name).itemsize
        strides = None if self.held.compact else tuple(stride * itemsize for stride in self.held.strides)
        return {
            "shape": self.shape, "typestr": np.dtype(self.held.dtype_name).str, "data": (self.address, False), "version": 3,
            "strides": strides, "stream": None,
        }  # fmt: skip

    @property
    def gpu_data(self) -> Any:
        return SimpleNamespace(context=SimpleNamespace(device=SimpleNamespace(id=self.held.device[1])))

    def copy_to_device(self, source: Any) -> None:
        assert current() == self.held.device[1], "copied in its own context"
        write(self.address, source.values())


DeviceNDArrayBase.__module__ = "numba.cuda.cudadrv.devicearray"


class InContext:
    """What numba.cuda.gpus holds: with it, that GPU's context is current."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.before: list[int] = []

    def __enter__(self) -> None:
        self.before.append(current())
        enter(self.number)

    def __exit__(self, *_: object) -> None:
        enter(self.before.pop())


class LikeNumba(ModuleType):
    def __init__(self) -> None:
        super().__init__("numba")
        self.cuda = ModuleType("numba.cuda")
        self.cuda.as_cuda_array = self.as_cuda_array  # type: ignore[attr-defined]
        self.cuda.gpus = [InContext(number) for number in range(len(_core.gpus()))]  # type: ignore[attr-defined]
        self.cuda.synchronize = lambda: synchronize(current())  # type: ignore[attr-defined]
        self.cuda.device_array = lambda shape, dtype: DeviceNDArrayBase.of(np.zeros(shape, dtype))  # type: ignore[attr-defined]

    def as_cuda_array(self, source: Any) -> DeviceNDArrayBase:
        return DeviceNDArrayBase(_core.wrap_cuda_array_interface(source.__cuda_array_interface__, source))


ARRAYS: dict[str, type[Held]] = {
    "cupy": CupyArray,
    "torch": TorchTensor,
    "tensorflow": TfTensor,
    "jax": JaxArray,
    "pyclesperanto": CleArray,
    "numba": DeviceNDArrayBase,
}


def install() -> None:
    """Puts every fake but the prototype where an import finds it."""
    sys.modules.update({"cupyx": ModuleType("cupyx"), "cupyx.scipy": ModuleType("cupyx.scipy")})
    for made in (LikeCupy(), LikeCupyx(), LikeTorch(), LikeTensorflow(), LikeJax(), LikePyclesperanto(), LikeNumba()):
        sys.modules[made.__name__] = made
        for name in ("dlpack", "cuda"):
            inner = getattr(made, name, None)
            if isinstance(inner, ModuleType):
                sys.modules[f"{made.__name__}.{name}"] = inner
