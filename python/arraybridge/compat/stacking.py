# SPDX-License-Identifier: Apache-2.0
"""Stacking: 2-D arrays of any frameworks as one 3-D array of one framework, and back, and slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from arraybridge import adapters, autograph, planner
from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.classes import FRAMEWORKS, MEMORY_TYPES, detect_memory_type, memory_type_named
from arraybridge.compat.scaling import scale_dtype
from arraybridge.conversion.memory import brought, converted, device_of, values_of
from arraybridge.errors import MemoryConversionError, UnsupportedDtype

_DEFAULT: Final = "numpy"


def stack_slices(slices: Sequence[Any], memory_type: str | None = None, gpu_id: int | None = 0, *, target_type: str | None = None) -> Any:
    """The slices as one array of shape (Z, Y, X) of `memory_type`, each copied once into its place.

    On a GPU the framework itself stacks; slices that already lie there are copied there once, others are uploaded
    first.

    Args:
        slices: arrays of equal shape (Y, X), of any mix of the six frameworks. Their dtypes are promoted by NumPy's
            rules; dtypes that NumPy cannot promote must be equal.
        memory_type: a name or MemoryType; default: "numpy".
        gpu_id: as in convert_memory.
        target_type: an alias of memory_type.

    Raises:
        ValueError: no slices; a slice that is not 2-D; unequal shapes (nothing is broadcast).
        TypeError: memory_type and target_type differ. UnsupportedDtype: (a TypeError) no common dtype.
        MemoryConversionError: as convert_memory.

    Example:
        >>> planes = [np.zeros((4, 5)), np.ones((4, 5))]
        >>> arraybridge.stack_slices(planes, "torch", gpu_id=None).shape
        torch.Size([2, 4, 5])
    """
    memory_type = _wanted(memory_type, target_type)
    slices = list(slices)
    if not slices:
        raise ValueError("Cannot stack empty list of slices: pass at least one 2D array")
    shapes = [_shape(each, number) for number, each in enumerate(slices)]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(f"slice {number} has shape {shape}, slice 0 has {shapes[0]}: all must be equal")
    if _on_gpu(memory_type, gpu_id):
        return _stacked_on_gpu(slices, memory_type, gpu_id)
    arrays = [values_of(each, memory_type) for each in slices]
    stack = _empty((len(slices), *shapes[0]), _common([each.dtype for each in arrays], memory_type), memory_type)
    for place, each in zip(stack, arrays, strict=True):
        place[...] = each
    return brought(stack, memory_type, gpu_id)


def unstack_slices(
    array: Any,
    memory_type: str = _DEFAULT,
    gpu_id: int | None = 0,
    validate_slices: bool = True,
    *,
    copy: bool | None = None,
) -> list[Any]:
    """The Z slices of an array of shape (Z, Y, X), as 2-D arrays of `memory_type`: one conversion of the whole, then slices.

    They share the memory of the whole if the framework's indexing does (NumPy, CuPy, torch); `copy=True` makes each an
    array of its own.

    Args:
        validate_slices: check that each slice is 2-D.

    Raises:
        ValueError: the array is not 3-D. MemoryConversionError: as convert_memory.

    Example:
        >>> [plane.shape for plane in arraybridge.unstack_slices(np.ones((2, 4, 5)))]
        [(4, 5), (4, 5)]
    """
    shape = tuple(getattr(array, "shape", ()))
    if detect_memory_type(array) is None or len(shape) != 3:
        six = ", ".join(FRAMEWORKS[: len(MEMORY_TYPES)])
        raise ValueError(f"Array must be 3D, of one of the frameworks {six}: this is {_named(array)} of shape {shape}")
    whole = converted(array, None, _wanted(memory_type, None), gpu_id, trees=False)
    slices = [whole[number] for number in range(int(shape[0]))]
    if copy:
        slices = [converted(each, None, memory_type, device_of(each), copy=True, trees=False) for each in slices]
    if validate_slices:
        for number, each in enumerate(slices):
            if not is_2d(each):
                raise ValueError(f"slice {number} is not a 2D array: {_named(each)} of shape {tuple(each.shape)}")
    return slices


def process_slices(
    image: Any,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    gpu_id: int | None = None,
) -> Any:
    """func(slice, *args, **kwargs) for each slice of a 3-D image; stacks the results as an array of the image's framework.

    Args:
        image: of shape (Z, Y, X), of one of the six frameworks.
        func: returns a 2-D array, or a tuple that starts with one.
        gpu_id: None: the device of the image (only here it does not mean the CPU).

    Returns:
        The stack; for tuples (stack, [second element of each slice], ...).

    Raises:
        ValueError: the image is not 3-D or has no slices; tuples of different lengths, or tuples mixed with plain
            results. Exceptions of func.

    Example:
        >>> arraybridge.process_slices(np.ones((2, 4, 5)), lambda plane: plane.T).shape
        (2, 5, 4)
    """
    planes = Planes.of(image, gpu_id)
    return planes.restacked([func(each, *args, **(kwargs or {})) for each in planes.slices])


class Planes(NamedTuple):
    """The slices of an image, and the form of the image."""

    slices: list[Any]
    memory_type: str
    gpu_id: int | None

    @classmethod
    def of(cls, image: Any, gpu_id: int | None = None) -> Planes:
        """The arguments of process_slices."""
        memory_type = detect_memory_type(image, strict=True)
        assert memory_type is not None
        where = device_of(image) if gpu_id is None else gpu_id
        return cls(unstack_slices(image, memory_type, where), memory_type, where)

    def restacked(self, results: Sequence[Any]) -> Any:
        """The results of a function for each slice, stacked as process_slices returns them."""
        return _restacked(results, self.memory_type, self.gpu_id)


def _restacked(results: Sequence[Any], memory_type: str, where: int | None) -> Any:
    lengths = {len(each) if isinstance(each, tuple) else None for each in results}
    if len(lengths) > 1:
        numbers = sorted(map(str, lengths))
        raise ValueError(f"the slices have different numbers of results: {numbers}; return as many for each slice")
    if lengths in (set(), {None}):
        return stack_slices(results, memory_type, where)
    if lengths == {0}:
        raise ValueError("an empty tuple has no result to stack: return at least one array for each slice")
    stack = stack_slices([each[0] for each in results], memory_type, where)
    return (stack, *([each[more] for each in results] for more in range(1, len(results[0]))))


def is_2d(data: Any) -> bool:
    """Whether it has two dimensions."""
    return len(getattr(data, "shape", ())) == 2


def is_3d(data: Any) -> bool:
    """Whether it has three dimensions."""
    return len(getattr(data, "shape", ())) == 3


def _wanted(memory_type: str | None, target_type: str | None) -> str:
    if memory_type is not None and target_type is not None and str(memory_type) != str(target_type):
        raise TypeError(f"memory_type={memory_type!s} and target_type={target_type!s} differ: pass only one of them")
    wanted = target_type if memory_type is None else memory_type
    wanted = _DEFAULT if wanted is None else wanted
    return memory_type_named(wanted)


def _shape(each: Any, number: int) -> tuple[int, ...]:
    shape = tuple(getattr(each, "shape", ()))
    if detect_memory_type(each) is None or len(shape) != 2:
        raise ValueError(f"slice {number} is not a 2D array: {_named(each)} of shape {shape}")
    return tuple(int(size) for size in shape)


def _common(dtypes: Sequence[Any], memory_type: str) -> Any:
    """The dtype of NumPy's promotion; if NumPy cannot promote, the one dtype of all slices."""
    if all(dtype == dtypes[0] for dtype in dtypes):
        return dtypes[0]
    try:
        return ensure_module("numpy").result_type(*dtypes)
    except TypeError as error:
        reason = f"no common dtype for {sorted({str(dtype) for dtype in dtypes})}: convert the slices to one dtype first"
        raise UnsupportedDtype("slices", memory_type, "place", reason) from error


def _empty(shape: tuple[int, ...], dtype: Any, memory_type: str) -> Any:
    try:
        return numpy_adapter.empty(shape, dtype)
    except MemoryConversionError as error:
        raise error.between("numpy", memory_type) from error.__cause__


def _on_gpu(memory_type: str, gpu_id: object) -> bool:
    adapter = adapters.of_memory_type(memory_type)
    if not isinstance(gpu_id, int) or not hasattr(adapter, "stacked"):
        return False
    return devices.CUDA in adapter.caps().devices and gpu_id in adapter.gpus()


def _stacked_on_gpu(slices: Sequence[Any], memory_type: str, gpu_id: Any) -> Any:
    names = [planner.dtype_name(each.dtype) for each in slices]
    dtype = _common([numpy_adapter.dtype_of(name) for name in names], memory_type)
    # A promotion keeps every value, so the scaling has no effect.
    alike = [scale_dtype(each, dtype, scaling="clip") for each in slices]
    return adapters.of_memory_type(memory_type).stacked([converted(each, None, memory_type, gpu_id, trees=False) for each in alike])


def _named(data: object) -> str:
    return type(data).__name__


autograph.mark_module(__name__)
