# SPDX-License-Identifier: Apache-2.0
"""Any shape, strides and dtype, from every framework to every framework: value, dtype and shape exact, the source as it
was, and a plan that is true about the memory."""

import os

import ml_dtypes
import numpy as np
import pytest
from arrays import address_of, bits_of
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import arraybridge
from arraybridge import UnsupportedArray, UnsupportedDtype, ZeroCopyUnavailable

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax", "pyarrow")
EXAMPLES = 5000 if os.environ.get("ARRAYBRIDGE_LONG") else 300
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8"]
BEYOND_NUMPY = [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn]
OF_PYARROW = "biuf"


@st.composite
def arrays(draw):
    """An ndarray over more memory than it needs: cut, stepped, reversed, transposed, broadcast, at any offset."""
    dtype = np.dtype(draw(st.sampled_from([*DTYPES, *DTYPES, *BEYOND_NUMPY])))
    rank = draw(st.integers(0, 4))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1, -3])) for _ in range(rank)]
    sizes = [draw(st.integers(0, 4)) for _ in range(rank)]
    whole = [abs(step) * size + 1 for step, size in zip(steps, sizes, strict=True)]
    count = int(np.prod(whole, dtype=int))
    offset = draw(st.sampled_from([0, 0, 1, 4, 16, 64]))
    data = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).bytes(count * dtype.itemsize + offset)
    room = np.frombuffer(bytearray(data), np.uint8)[offset:]
    if dtype.kind == "b":
        room[...] &= 1
    base = room.view(dtype).reshape(whole)
    cut = tuple(slice(None, None, step) for step in steps)
    array = base[(..., *cut)][(..., *(slice(0, size) for size in sizes))]
    array = array.transpose(draw(st.permutations(range(rank))))
    if rank and draw(st.booleans()) and array.shape[0] == 1:
        array = np.broadcast_to(array, (3, *array.shape[1:]))
    if draw(st.booleans()):
        array.flags.writeable = False
    return room, array


def made(framework, array, turned):
    """The framework's own array: over the same memory where it can be, as its user would have made it. `turned`: torch's has
    a pending conjugate, or a negative bit."""
    native = np.array(array, array.dtype.newbyteorder("="))
    if framework == "numpy":
        return array
    if framework == "pyarrow":
        return pyarrow.array(native) if native.ndim == 1 else pyarrow.Tensor.from_numpy(native)
    if framework == "tensorflow":
        return tf.constant(native)
    if framework == "jax":
        return jax.numpy.array(native)
    if array.dtype.type in BEYOND_NUMPY:
        bits = torch.from_numpy(native.view(f"i{native.itemsize}"))
        return bits.view(getattr(torch, native.dtype.name))
    plain = array.dtype.isnative and array.flags.writeable and all(stride >= 0 for stride in array.strides)
    try:
        tensor = torch.from_dlpack(array) if plain else torch.from_numpy(native)
    except (BufferError, RuntimeError):
        tensor = torch.from_numpy(native)
    if tensor.is_complex() and turned is not None:
        return tensor.conj().imag if turned else tensor.conj()
    return tensor


def values_of(array):
    if isinstance(array, torch.Tensor):
        plain = array.resolve_conj().resolve_neg()
        if array.dtype not in (torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn):
            return plain.numpy()
        bits = plain.contiguous().reshape(-1).view(torch.int16 if array.dtype is torch.bfloat16 else torch.int8).numpy()
        return bits.view(getattr(ml_dtypes, str(array.dtype).removeprefix("torch."))).reshape(tuple(array.shape))
    if isinstance(array, pyarrow.Array):
        return array.to_numpy(zero_copy_only=False)
    if isinstance(array, tf.Tensor):
        return np.asarray(array.numpy())
    return array.to_numpy() if isinstance(array, pyarrow.Tensor) else np.asarray(array)


def has(framework, array):
    """Whether PyArrow, which has few, has arrays like this one."""
    if framework != "pyarrow":
        return True
    ranks = (1,) if array.dtype.kind == "b" else range(1, 33)
    return array.ndim in ranks and array.dtype.kind in OF_PYARROW and array.dtype.type not in BEYOND_NUMPY


@pytest.fixture(scope="module")
def wide():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def shared_broker(address):
    with arraybridge.Broker(address, namespace="properties", start="never") as broker:
        yield broker


@pytest.mark.usefixtures("wide")
@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning", "ignore::UserWarning")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=EXAMPLES < 1000)
@given(
    arrays(),
    st.sampled_from(FRAMEWORKS),
    st.sampled_from(FRAMEWORKS),
    st.sampled_from([None, None, True, False]),
    st.sampled_from([None, False, True]),
)
def test_values_dtype_shape_source_and_claim(shared_broker, drawn, source, target, copy, turned):
    room, array = drawn
    assume(has(source, array))
    held = made(source, array, turned)
    before, expected = room.tobytes(), values_of(held).copy()
    try:
        got, plan = shared_broker.convert(held, target, copy=copy, explain=True)
    except ZeroCopyUnavailable as refused:
        assert copy is False and refused.plan.reasons
        return
    except (UnsupportedDtype, UnsupportedArray) as refused:
        assert not has(target, expected), refused
        return
    found = values_of(got)
    assert has(target, expected)
    kinds = (pyarrow.Array, pyarrow.Tensor)
    assert isinstance(got, kinds) if target == "pyarrow" else arraybridge.detect_memory_type(got) == target
    if plan.route != "identity":
        assert found.dtype == expected.dtype.newbyteorder("=")
    assert found.shape == expected.shape
    assert bits_of(found) == bits_of(expected.astype(found.dtype))
    assert room.tobytes() == before
    assert plan.zero_copy == (plan.copies == 0) and bool(plan.reasons) != plan.zero_copy
    addresses = address_of(got), address_of(held)
    if expected.size and None not in addresses:
        assert (addresses[0] == addresses[1]) == plan.zero_copy, plan
    if copy is True and target != source and target in ("numpy", "torch") and expected.size:
        found[...] = 0
        assert room.tobytes() == before
