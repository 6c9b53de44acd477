# SPDX-License-Identifier: Apache-2.0
"""Layouts and dtypes between real PyTorch and Numba on the simulated GPU, in one process without a broker:
``layout_program.py NAME...`` runs these functions.

Values, dtypes and shapes are compared exactly; a plan's claims are verified by address. A strided array is read through the
memory of its base, because no kernel of PyTorch runs on the simulated GPU.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import cuda

import arraybridge
from arraybridge import UnsupportedDtype, convert_memory

DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128")
BEYOND_NUMPY = ("bfloat16", "float8_e4m3fn", "complex32")
SHAPE = (6, 8)
# Views of an array of SHAPE, in expressions that NumPy, PyTorch and Numba share.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "compact": lambda array: array[:],
    "offset": lambda array: array[2:5],
    "columns": lambda array: array[:, 3:7],
    "stepped": lambda array: array[::2, ::3],
    "transposed": lambda array: array.T,
    "row": lambda array: array[1:2],
    "empty": lambda array: array[3:3],
}
HERE = arraybridge.Broker("/nonexistent", start="never")


def values_of(dtype: str) -> np.ndarray[Any, Any]:
    return (np.arange(48) % 7 + np.arange(48) % 2 * (1j if "complex" in dtype else 1)).astype(dtype).reshape(SHAPE)


def numba_shape(array: Any) -> tuple[Any, ...]:
    return tuple(array.shape), tuple(stride // array.dtype.itemsize for stride in array.strides)


def address(array: Any) -> int:
    return array.data_ptr() if isinstance(array, torch.Tensor) else array.__cuda_array_interface__["data"][0]


def read(array: Any, base: Any, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that shares the memory of `base`, which holds `values`; it is read from there by its address."""
    shape, strides = (tuple(array.shape), array.stride()) if isinstance(array, torch.Tensor) else numba_shape(array)
    item = values.dtype.itemsize
    host = base.cpu().numpy() if isinstance(base, torch.Tensor) else base.copy_to_host()
    assert host.tobytes() == values.tobytes()
    return np.ndarray(shape, values.dtype, host.tobytes(), address(array) - address(base), [item * each for each in strides])


def torch_to_numba_and_back() -> None:
    for dtype in DTYPES:
        values = values_of(dtype)
        base = convert_memory(values, "numpy", "torch", 0)
        assert base.device.type == "cuda" and base.dtype == getattr(torch, dtype)
        for name, view in LAYOUTS.items():
            source, expected = view(base), view(values)
            for _ in range(2):
                got, plan = HERE.convert(source, "numba", copy=False, explain=True)
                assert plan.route == "hand_over" and plan.zero_copy and plan.device == "cuda:0", (dtype, name, plan)
                assert got.shape == expected.shape and got.dtype == values.dtype, (dtype, name, got.dtype)
                if not expected.size:
                    continue
                assert address(got) == source.data_ptr(), (dtype, name)
                assert (read(got, base, values) == expected).all(), (dtype, name)
                back = HERE.convert(got, "torch", copy=False)
                assert back.data_ptr() == source.data_ptr() and back.dtype == source.dtype, (dtype, name)
                assert back.shape == source.shape and (read(back, base, values) == expected).all(), (dtype, name)


def numba_to_torch() -> None:
    for dtype in DTYPES:
        values = values_of(dtype)
        base, fortran = cuda.to_device(values), cuda.to_device(np.asfortranarray(values))
        turned = HERE.convert(fortran, "torch", copy=False)
        assert turned.stride() == (1, 6) and turned.data_ptr() == address(fortran), dtype
        assert (turned.T.cpu().numpy() == values.T).all(), dtype
        for name, view in LAYOUTS.items():
            if name == "transposed":
                continue  # it would need a kernel of Numba
            source, expected = view(base), view(values)
            got, plan = HERE.convert(source, "torch", explain=True)
            assert plan.zero_copy and got.dtype == getattr(torch, dtype), (dtype, name, plan)
            assert tuple(got.shape) == expected.shape and got.device.type == "cuda", (dtype, name)
            if expected.size:
                assert got.data_ptr() == address(source), (dtype, name)
                assert (read(got, base, values) == expected).all(), (dtype, name)
        point = HERE.convert(cuda.to_device(values[2, 3].reshape(())), "torch")
        assert point.shape == () and point.cpu().numpy().tobytes() == values[2, 3].tobytes()


def compact_arrays_reach_the_host() -> None:
    warnings.simplefilter("error")  # no conversion falls back
    for dtype in DTYPES:
        values = values_of(dtype)
        tensor = convert_memory(values, "numpy", "torch", 0)
        for name in ("compact", "offset", "row", "empty"):
            expected = LAYOUTS[name](values)
            for source in (LAYOUTS[name](tensor), LAYOUTS[name](cuda.to_device(values))):
                got = convert_memory(source, None, "numpy")
                assert got.dtype == expected.dtype and got.shape == expected.shape, (dtype, name)
                assert got.tobytes() == expected.tobytes(), (dtype, name)
            for layout in (expected, np.asfortranarray(expected), expected[::-1]):
                up = convert_memory(layout, "numpy", "torch", 0)
                assert up.device.type == "cuda" and up.cpu().numpy().tobytes() == layout.tobytes(), (dtype, name)
        point = convert_memory(tensor[1, 2], "torch", "numpy")
        assert point.shape == () and point.tobytes() == values[1, 2].tobytes()


def dtypes_beyond_numpys_are_kept_or_refused_by_name() -> None:
    for dtype in BEYOND_NUMPY:
        kind = getattr(torch, dtype)
        held = torch.arange(96, dtype=torch.uint8)
        source = held.to("cuda").view(kind)
        again = HERE.convert(source, "torch", copy=False)
        assert again is source
        on_host = convert_memory(source, "torch", "torch", None)
        assert on_host.dtype == kind and torch.equal(on_host.view(torch.uint8), held)
        try:
            HERE.convert(source, "numba", copy=False)
        except UnsupportedDtype as refusal:
            assert dtype in str(refusal) and "numba" in str(refusal), refusal
        else:
            raise AssertionError(dtype)


for name in sys.argv[1:]:
    globals()[name]()
    print(name, flush=True)
