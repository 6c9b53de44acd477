# SPDX-License-Identifier: Apache-2.0
"""convert_memory on the simulated GPU, with fakes of the frameworks: ``convert_program.py NAME`` runs one function.

The real packages have the cells of the matrix (tests/simulated_cuda/frameworks). Here is what these cannot show: pyclesperanto,
whose CUDA backend needs more of the driver; kernels of PyTorch and TensorFlow, which are machine code; memory that is free
again, where the packages keep theirs; and a framework that can use no GPU on a machine that has one.
"""

import ctypes
import gc
import sys
import warnings
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies
from fakes.gpu import Held

import arraybridge
from arraybridge import DeviceUnavailable, convert_memory, get_device_id, scale_dtype, stack_slices, unstack_slices

NAMES = ("numpy", "cupy", "torch", "tensorflow", "jax", "pyclesperanto")
VALUES = np.arange(1, 7, dtype="f4").reshape(2, 3)
# conversion-api 5, right halves: a source on the GPU (NumPy's on the host), gpu_id=0.
ON_GPU = {
    source: {target: "I" if source == target else "D" if target == "numpy" else "U" if source == "numpy" else "H" for target in NAMES}
    for source in NAMES
}


def made(name: str, values: Any = VALUES) -> Any:
    return values.copy() if name == "numpy" else frameworks.ARRAYS[name].of(values)


def values_of(array: Any) -> Any:
    return array.values() if isinstance(array, Held) else array


def address(array: Any) -> int:
    return array.address if isinstance(array, Held) else array.ctypes.data


def way(array: Any, source: str, target: str, gpu_id: Any, copy: Any = None) -> str:
    """The letter of what happened."""
    try:
        got = convert_memory(array, source, target, gpu_id, copy=copy)
    except DeviceUnavailable as error:
        assert "CUDA" in str(error), error
        return "X"
    assert arraybridge.detect_memory_type(got) == target, got
    assert got.shape == array.shape and values_of(got).dtype == VALUES.dtype
    assert (values_of(got) == values_of(array)).all(), (source, target, values_of(got))
    to_gpu, from_gpu = (isinstance(each, Held) and each.on_gpu for each in (got, array))
    assert to_gpu == (gpu_id is not None and target != "numpy"), (source, target, got)
    if got is array:
        return "I"
    if to_gpu != from_gpu:
        return "U" if to_gpu else "D"
    return "H" if address(got) == address(array) else "P"


def every_cell_of_pyclesperanto() -> None:
    for source in NAMES:
        for target in NAMES if source == "pyclesperanto" else ("pyclesperanto",):
            found = way(made(source), source, target, 0)
            assert found == ON_GPU[source][target], (source, target, found)
            private = way(made(source), source, target, 0, copy=True)
            assert private == {"H": "P", "I": "P"}.get(found, found), (source, target, private)


def none_is_the_host() -> None:
    for source in NAMES:
        for target in NAMES:
            found = way(made(source), source, target, None)
            if target in ("cupy", "pyclesperanto"):
                expected = "X"
            elif source == "numpy":
                expected = {"numpy": "I", "torch": "H"}.get(target, "P")
            else:
                expected = "D"
            assert found == expected, (source, target, found)


def strided_arrays_are_handed_over_or_made_compact_once() -> None:
    for target in NAMES[2:]:
        for strides, offset in (((8, 16), 0), ((-12, 4), 12)):
            array = frameworks.CupyArray.of(VALUES, strides, offset)
            taken = target == "torch" and min(strides) > 0
            assert way(array, "cupy", target, 0) == ("H" if taken else "P"), target
            assert way(array, "cupy", "numpy", None) == "D"
    tensor = frameworks.ARRAYS["torch"].of(VALUES, (8, 16))
    assert way(tensor, "torch", "jax", 0) == "P"
    assert way(VALUES[:, ::-1], "numpy", "torch", 0) == "U"
    assert way(VALUES.astype(">f4"), "numpy", "jax", 0) == "U"


def numbers_of_gpus() -> None:
    warnings.simplefilter("error")  # nobody falls back
    for target in NAMES[1:]:
        array = convert_memory(VALUES, "numpy", target)
        assert get_device_id(array, target) == 0
        for number in (1, 99):
            try:
                convert_memory(VALUES, "numpy", target, number)
            except DeviceUnavailable as error:
                assert "cuda:0" in str(error) and "CUDA" in str(error)
            else:
                raise AssertionError(target)
    # A framework that can use no GPU counts as having none, also on a host with one.
    sys.modules["torch"].cuda.is_available = lambda: False
    warnings.simplefilter("ignore")
    assert not convert_memory(VALUES, "numpy", "torch").on_gpu


def without_copying_only_what_can_be_shared() -> None:
    for source in NAMES[1:]:
        for target in NAMES[1:]:
            array = made(source)
            assert address(convert_memory(array, source, target, 0, copy=False)) == address(array)
        for target, gpu_id in (("numpy", 0), ("torch", None)):
            try:
                convert_memory(made(source), source, target, gpu_id, copy=False)
            except arraybridge.ZeroCopyUnavailable as error:
                assert "different_device" in str(error)
            else:
                raise AssertionError(target)


def slices_are_stacked_and_scaled_where_they_are() -> None:
    for target in NAMES[1:-1]:
        stack = stack_slices([made("cupy"), made("numpy"), made(target)], target, 0)
        assert stack.on_gpu and (stack.values() == np.stack([VALUES] * 3)).all()
        mixed = stack_slices([made(target), made("numpy", VALUES.astype("i2"))], target, 0)
        assert mixed.on_gpu and mixed.values().dtype == "f4"
    stack = stack_slices([VALUES] * 2, "pyclesperanto")
    assert stack.on_gpu and (stack.values() == np.stack([VALUES] * 2)).all()
    for target in NAMES[1:]:
        scaled = scale_dtype(made(target), "uint8")
        assert scaled.on_gpu and (scaled.values() == VALUES).all() and scaled.values().dtype == "u1"
    assert [each.tolist() for each in unstack_slices(np.stack([VALUES] * 2))] == [VALUES.tolist()] * 2


def every_conversion_is_a_method() -> None:
    for source in NAMES:
        array, converter = made(source), arraybridge.get_converter(source)
        for target in NAMES:
            for got in (getattr(arraybridge.MemoryType(source), f"to_{target}")(array), getattr(converter, f"to_{target}")(array)):
                assert arraybridge.detect_memory_type(got) == target and (values_of(got) == VALUES).all(), (source, target)
                assert isinstance(got, Held) == (target != "numpy"), "gpu_id is 0 if nothing is said"
        if source != "numpy":
            there = converter.from_numpy(VALUES)
            assert there.on_gpu and (there.values() == VALUES).all() and converter.move_to_device(there, 0) is there
        if source in ("torch", "tensorflow", "jax"):
            back = converter.move_to_device(there, None)
            assert not back.on_gpu and (back.values() == VALUES).all()


def a_thousand_conversions_give_everything_back() -> None:
    def free() -> int:
        found, total = ctypes.c_size_t(), ctypes.c_size_t()
        gpu.checked(ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(found), ctypes.byref(total)))
        return found.value

    def all_of_them() -> None:
        for source in NAMES[1:]:
            array = made(source)
            for target in NAMES:
                convert_memory(array, source, target, 0)
                convert_memory(array, source, target, 0, copy=True)

    all_of_them()
    gc.collect()
    before = free()
    kept = made("cupy")
    assert free() < before, "what is held is seen"
    del kept
    for _ in range(17):  # of sixty each
        all_of_them()
    gc.collect()
    assert free() == before, (free(), before)


def numba_and_capsules_reach_everybody() -> None:
    for target in NAMES[1:]:
        array = made("numba")
        got = convert_memory(array, None, target, 0)
        assert address(got) == address(array) and (values_of(got) == VALUES).all()
        from_capsule = arraybridge.get_converter(target).from_dlpack(made("cupy").__dlpack__(max_version=(1, 0)))
        assert (values_of(from_capsule) == VALUES).all()
    assert (convert_memory(made("numba"), None, "numpy") == VALUES).all()


gpu.start()
frameworks.install()
own_copies.install()
warnings.simplefilter("ignore")
globals()[sys.argv[1]]()
print("done")
