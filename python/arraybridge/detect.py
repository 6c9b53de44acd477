# SPDX-License-Identifier: Apache-2.0
"""The six memory types, by their names, and conversions between them as methods.

The sets of names have members or strings, which are equal:

    >>> sorted(arraybridge.VALID_MEMORY_TYPES) == sorted(arraybridge.SUPPORTED_MEMORY_TYPES)
    True
    >>> arraybridge.MEMORY_TYPE_NUMPY in arraybridge.CPU_MEMORY_TYPES
    True
    >>> arraybridge.VALID_GPU_MEMORY_TYPES == arraybridge.GPU_MEMORY_TYPES
    True
    >>> {arraybridge.MEMORY_TYPE_CUPY, arraybridge.MEMORY_TYPE_TORCH, arraybridge.MEMORY_TYPE_TENSORFLOW,
    ...  arraybridge.MEMORY_TYPE_JAX, arraybridge.MEMORY_TYPE_PYCLESPERANTO} == arraybridge.GPU_MEMORY_TYPES
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from arraybridge import autograph
from arraybridge.arrays.classes import MEMORY_TYPES, detect_memory_type, memory_type_named, unknown_framework
from arraybridge.asdlpack import asdlpack

__all__ = [
    "CPU_MEMORY_TYPES",
    "GPU_MEMORY_TYPES",
    "MEMORY_TYPE_CUPY",
    "MEMORY_TYPE_JAX",
    "MEMORY_TYPE_NUMPY",
    "MEMORY_TYPE_PYCLESPERANTO",
    "MEMORY_TYPE_TENSORFLOW",
    "MEMORY_TYPE_TORCH",
    "SUPPORTED_MEMORY_TYPES",
    "VALID_GPU_MEMORY_TYPES",
    "VALID_MEMORY_TYPES",
    "MemoryType",
    "detect_memory_type",
]


class MemoryType(str, Enum):
    """The six memory types. A member equals and hashes like its string.

    Attributes:
        NUMPY, CUPY, TORCH, TENSORFLOW, JAX, PYCLESPERANTO: the frameworks, by the names that every call takes.

    Example:
        >>> arraybridge.MemoryType.NUMPY.to_torch(np.ones(3), gpu_id=None)
        tensor([1., 1., 1.], dtype=torch.float64)
    """

    NUMPY = "numpy"
    CUPY = "cupy"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    PYCLESPERANTO = "pyclesperanto"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise unknown_framework(value)

    # The same text on every Python version: versions differ in str() and format() of a str enum.
    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, spec: str) -> str:
        return str.__format__(self, spec)

    def __hash__(self) -> int:
        return str.__hash__(self)

    @property
    def converter(self) -> Converter:
        """Conversions from and to this type, as methods."""
        return Converter(self)

    def to_numpy(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of NumPy: `convert_memory(data, self, "numpy", gpu_id)`."""
        return _converted(data, self, "numpy", gpu_id)

    def to_cupy(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of CuPy."""
        return _converted(data, self, "cupy", gpu_id)

    def to_torch(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of torch."""
        return _converted(data, self, "torch", gpu_id)

    def to_tensorflow(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of TensorFlow."""
        return _converted(data, self, "tensorflow", gpu_id)

    def to_jax(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of JAX."""
        return _converted(data, self, "jax", gpu_id)

    def to_pyclesperanto(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of pyclesperanto."""
        return _converted(data, self, "pyclesperanto", gpu_id)


# The arguments by which a type checker knows the result's class.
NumpyName = Literal["numpy", MemoryType.NUMPY]
CupyName = Literal["cupy", MemoryType.CUPY]
TorchName = Literal["torch", MemoryType.TORCH]
TensorflowName = Literal["tensorflow", MemoryType.TENSORFLOW]
JaxName = Literal["jax", MemoryType.JAX]

CPU_MEMORY_TYPES: Final = frozenset({MemoryType.NUMPY})
SUPPORTED_MEMORY_TYPES: Final = frozenset(MemoryType)
GPU_MEMORY_TYPES: Final = SUPPORTED_MEMORY_TYPES - CPU_MEMORY_TYPES
VALID_MEMORY_TYPES: Final = MEMORY_TYPES
VALID_GPU_MEMORY_TYPES: Final = frozenset(member.value for member in GPU_MEMORY_TYPES)
MEMORY_TYPE_NUMPY: Final = "numpy"
MEMORY_TYPE_CUPY: Final = "cupy"
MEMORY_TYPE_TORCH: Final = "torch"
MEMORY_TYPE_TENSORFLOW: Final = "tensorflow"
MEMORY_TYPE_JAX: Final = "jax"
MEMORY_TYPE_PYCLESPERANTO: Final = "pyclesperanto"


@dataclass(frozen=True, slots=True)
class Converter:
    """convert_memory from and to one memory type, as methods; each takes `gpu_id` and raises as convert_memory does.

    Attributes:
        memory_type: the type whose arrays the `to_` methods take and the `from_` methods return.

    Example:
        >>> torch_arrays = arraybridge.get_converter("torch")
        >>> tensor = torch_arrays.from_numpy(np.ones(3), gpu_id=None)
        >>> torch_arrays.to_numpy(tensor)
        array([1., 1., 1.])
    """

    memory_type: MemoryType

    def to_numpy(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of NumPy."""
        return _converted(data, self.memory_type, MemoryType.NUMPY, gpu_id)

    def to_cupy(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of CuPy."""
        return _converted(data, self.memory_type, MemoryType.CUPY, gpu_id)

    def to_torch(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of torch."""
        return _converted(data, self.memory_type, MemoryType.TORCH, gpu_id)

    def to_tensorflow(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of TensorFlow."""
        return _converted(data, self.memory_type, MemoryType.TENSORFLOW, gpu_id)

    def to_jax(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of JAX."""
        return _converted(data, self.memory_type, MemoryType.JAX, gpu_id)

    def to_pyclesperanto(self, data: Any, gpu_id: int | None = 0) -> Any:
        """The array of this type as one of pyclesperanto."""
        return _converted(data, self.memory_type, MemoryType.PYCLESPERANTO, gpu_id)

    def from_numpy(self, data: Any, gpu_id: int | None = 0) -> Any:
        """A NumPy array as one of this type."""
        return _converted(data, MemoryType.NUMPY, self.memory_type, gpu_id)

    def from_dlpack(self, obj: Any, gpu_id: int | None = 0) -> Any:
        """An object that `asdlpack` accepts, for example a DLPack capsule, as an array of this type."""
        return _converted(asdlpack(obj), None, self.memory_type, gpu_id)

    def move_to_device(self, data: Any, gpu_id: int | None) -> Any:
        """An array of this type on another device."""
        return _converted(data, self.memory_type, self.memory_type, gpu_id)


def get_converter(memory_type: str) -> Converter:
    """The Converter of a name or MemoryType.

    Raises:
        InvalidMemoryType: there is no such memory type.

    Example:
        >>> isinstance(arraybridge.get_converter("torch"), arraybridge.Converter)
        True
    """
    return Converter(MemoryType(memory_type_named(memory_type)))


def _converted(data: Any, source: str | None, target: str, gpu_id: int | None) -> Any:
    from arraybridge.conversion.memory import converted  # loads the extension

    return converted(data, source, target, gpu_id)


autograph.mark_module(__name__)
