# SPDX-License-Identifier: Apache-2.0
"""The documented matrix, cell by cell: which route every pair takes, with its values and its pointers.

On the host. On a GPU tests/simulated_cuda/frameworks/together/test_matrix.py has the cells, and here are all layouts of all
dtypes with fakes, whose number the interpreted kernels of the real packages would make too slow.
"""

import os
from typing import Any

import numpy as np
import pytest
import simulated

import arraybridge
from arraybridge import adapters
from arraybridge.errors import DeviceUnavailable, FrameworkNotAvailable, UnsupportedDtype, ZeroCopyUnavailable

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

TARGETS = ("numpy", "cupy", "torch", "tensorflow", "jax", "pyclesperanto")
# I the same object, H shared, P one copy in the same kind of memory, U one upload, D one download, X no such device.
ON_HOST = {
    "numpy": "I X H P P X",
    "torch": "H X I P P X",
    "tensorflow": "H X P I H X",
    "jax": "H X P H I X",
    "pyclesperanto": "D X D D D X",
}
NUMBERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
           "float64", "complex64", "complex128"]  # fmt: skip
OF_PYCLESPERANTO = {"int8", "uint8", "int16", "uint16", "int32", "uint32", "float32"}


def cells(table: dict[str, str]) -> list[Any]:
    return [
        pytest.param(source, target, way, id=f"{source}-{target}")
        for source, ways in table.items()
        for target, way in zip(TARGETS, ways.split(), strict=True)
    ]


@pytest.fixture(scope="module")
def wide():
    """JAX has all types."""
    with jax.enable_x64(True):
        yield


def pyclesperanto():
    """Its adapter, which makes PoCL safe beside TensorFlow before the first device is asked for."""
    adapter = adapters.named("pyclesperanto")
    try:
        adapter.caps()
    except (FrameworkNotAvailable, DeviceUnavailable) as missing:
        pytest.skip(str(missing))
    return adapter


def made(framework: str, values: np.ndarray) -> Any:
    """A host array of that framework with these values, aligned as its own are."""
    if framework == "numpy":
        room = np.zeros(values.nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64
        array = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
        array[...] = values
        return array
    if framework == "torch":
        return torch.from_numpy(made("numpy", values))
    if framework == "tensorflow":
        return tf.constant(values)
    if framework == "jax":
        return jax.numpy.array(values)
    return pyclesperanto().upload(arraybridge.asdlpack(np.ascontiguousarray(values)), (4, 0))


def values_of(array: Any) -> np.ndarray:
    kind = arraybridge.detect_memory_type(array)
    return array.get() if kind == "pyclesperanto" else array.numpy() if kind == "torch" else np.asarray(array)


def pointer(array: Any) -> int:
    kind = arraybridge.detect_memory_type(array)
    if kind == "torch":
        return array.data_ptr()
    if kind == "jax":
        return array.unsafe_buffer_pointer()
    # A scalar's __array__ is a copy.
    return (np.from_dlpack(array) if kind == "tensorflow" else array).__array_interface__["data"][0]


def letter(plan: arraybridge.Plan) -> str:
    moved = {"h2d": "U", "d2h": "D"}.get(plan.via or "", "P")
    return {"identity": "I", "hand_over": "H"}.get(plan.route, moved)


def check(got: Any, plan: arraybridge.Plan, array: Any, values: np.ndarray, target: str) -> None:
    assert arraybridge.detect_memory_type(got) == target
    found = values_of(got)
    assert found.dtype == values.dtype and found.shape == values.shape
    assert found.tobytes() == values.tobytes()
    assert plan.zero_copy == (plan.copies == 0) and (plan.copied_bytes > 0) == (plan.copies > 0 and values.size > 0)
    source = arraybridge.detect_memory_type(array)
    if values.size and "pyclesperanto" not in (source, target):
        assert (pointer(got) == pointer(array)) == plan.zero_copy


@pytest.mark.usefixtures("wide")
@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("source", "target", "way"), cells(ON_HOST))
def test_on_the_host(broker, source, target, way):
    if source == "pyclesperanto" or target == "pyclesperanto":
        pyclesperanto()
    for dtype in NUMBERS:
        if source == "pyclesperanto" and dtype not in OF_PYCLESPERANTO:
            continue
        for shape in [(2, 3), (4,)] if source == "pyclesperanto" else [(2, 3), (), (0, 3), (3, 0, 2)]:
            values = (np.arange(np.prod(shape, dtype=int)) % 5).astype(dtype).reshape(shape)
            array = made(source, values)
            before = values_of(array).tobytes()
            if way == "X":
                with pytest.raises((DeviceUnavailable, FrameworkNotAvailable)):
                    broker.convert(array, target, device="cpu")
                continue
            got, plan = broker.convert(array, target, device="cpu", explain=True)
            assert letter(plan) == way, (dtype, shape, str(plan))
            check(got, plan, array, values, target)
            assert values_of(array).tobytes() == before
            if way == "P" and target == "torch":  # it would write to a constant
                with pytest.raises(ZeroCopyUnavailable, match="read_only"):
                    broker.convert(array, target, copy=False)
            elif way == "P":
                shared = broker.convert(array, target, copy=False, explain=True)
                assert shared.plan.zero_copy
                assert not values.size or pointer(shared.array) == pointer(array)
            if source != "pyclesperanto":
                private, plan = broker.convert(array, target, copy=True, explain=True)
                check(private, plan, array, values, target)
                assert plan.copies == 1


@pytest.mark.parametrize("source", ON_HOST)
def test_to_opencl_everything_is_uploaded(broker, source):
    pyclesperanto()
    for dtype in sorted(OF_PYCLESPERANTO):
        values = np.arange(6).astype(dtype).reshape(2, 3)
        array = made(source, values)
        got, plan = broker.convert(array, "pyclesperanto", explain=True)
        assert letter(plan) == ("I" if source == "pyclesperanto" else "U") and plan.device == "opencl:0"
        assert got.get().tobytes() == values.tobytes() and str(got.dtype) == dtype
    if source == "pyclesperanto":
        return
    for dtype in sorted(set(NUMBERS) - OF_PYCLESPERANTO):
        with jax.enable_x64(True), pytest.raises(UnsupportedDtype, match=dtype):
            broker.convert(made(source, np.zeros(3, dtype)), "pyclesperanto")


# Strides of a (4, 4) float32 array → who takes it as it is.
LAYOUTS = {
    "compact": (lambda a: a, {"numpy", "torch", "tensorflow", "jax"}),
    "rows": (lambda a: a[1:3], {"numpy", "torch", "tensorflow", "jax"}),
    "fortran": (lambda a: a.T, {"numpy", "torch", "jax"}),
    "columns": (lambda a: a[:, 1:3], {"numpy", "torch"}),
    "stepped": (lambda a: a[::2, ::2], {"numpy", "torch"}),
    "broadcast": (lambda a: np.broadcast_to(a[:1], (4, 4)), {"numpy"}),  # read-only
    "reversed": (lambda a: a[::-1], {"numpy"}),
    "reversed columns": (lambda a: a[:, ::-1], {"numpy"}),
}


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_layouts_that_a_target_takes_and_others(broker, layout, target):
    view, takers = LAYOUTS[layout]
    base = made("numpy", np.arange(64, dtype="f4").reshape(16, 4))[:4]
    array = view(base)
    as_tensor = layout[:3] != "rev" and array.flags.writeable
    array = broker.convert(array, "torch", copy=False) if target == "numpy" and as_tensor else array
    if target == "numpy" and not as_tensor:
        array = memoryview(array)  # whatever speaks a protocol
    expected = view(base)
    # Rows of four float32 start at multiples of 16 bytes, not of 64.
    aligned = pointer(expected) % 64 == 0 or target in ("numpy", "torch")
    got, plan = broker.convert(array, target, explain=True)
    np.testing.assert_array_equal(values_of(got), expected)
    if target in takers and aligned:
        got, plan = broker.convert(array, target, copy=False, explain=True)
        assert plan.zero_copy and pointer(got) == pointer(expected)
        np.testing.assert_array_equal(values_of(got), expected)
        return
    assert plan.copies == 1 and pointer(got) != pointer(expected)
    with pytest.raises(ZeroCopyUnavailable, match="layout|read_only" if target not in takers else "alignment"):
        broker.convert(array, target, copy=False)


def test_every_layout_of_every_dtype_on_a_gpu():
    with simulated.daemon() as (address, environment):
        part = "whole" if os.environ.get("ARRAYBRIDGE_LONG") else "a third"
        done, refused = map(int, simulated.run("convert/layouts_gpu_program.py", environment, address, part).split())
    parts = 1 if part == "whole" else 3
    assert done > 9000 // parts and refused > 2400 // parts
