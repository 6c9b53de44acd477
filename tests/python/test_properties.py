"""Any shape, strides and dtype, from every framework to every framework: value, dtype and shape exact, the source as it
was, and a plan that is true about the memory."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arraybridge
from arraybridge import ZeroCopyUnavailable

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")
EXAMPLES = 5000 if os.environ.get("ARRAYBRIDGE_LONG") else 300
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8"]


@st.composite
def arrays(draw):
    """An ndarray over more memory than it needs: cut, stepped, reversed, transposed, broadcast, at any offset."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
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


def made(framework, array):
    """The framework's own array: over the same memory where it can be, as its user would have made it."""
    if framework == "numpy":
        return array
    if framework == "torch":
        plain = array.dtype.isnative and array.flags.writeable and all(stride >= 0 for stride in array.strides)
        try:
            return torch.from_dlpack(array) if plain else torch.from_numpy(np.array(array, array.dtype.newbyteorder("=")))
        except (BufferError, RuntimeError):
            return torch.from_numpy(np.array(array, array.dtype.newbyteorder("=")))
    if framework == "tensorflow":
        return tf.constant(np.array(array, array.dtype.newbyteorder("=")))
    return jax.numpy.array(np.array(array, array.dtype.newbyteorder("=")))


def values_of(array):
    return array.numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


def pointer(array):
    if isinstance(array, torch.Tensor):
        return array.data_ptr()
    if isinstance(array, tf.Tensor):
        return np.from_dlpack(array).__array_interface__["data"][0]
    return array.unsafe_buffer_pointer() if isinstance(array, jax.Array) else array.__array_interface__["data"][0]


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
    arrays(), st.sampled_from(FRAMEWORKS), st.sampled_from(FRAMEWORKS), st.sampled_from([None, None, True, False])
)
def test_values_dtype_shape_source_and_claim(shared_broker, drawn, source, target, copy):
    room, array = drawn
    held = made(source, array)
    before, expected = room.tobytes(), values_of(held).copy()
    try:
        got, plan = shared_broker.convert(held, target, copy=copy, explain=True)
    except ZeroCopyUnavailable as refused:
        assert copy is False and refused.plan.reasons
        return
    found = values_of(got)
    assert arraybridge.detect_memory_type(got) == target
    if plan.route != "identity":
        assert found.dtype == expected.dtype.newbyteorder("=")
    assert found.shape == expected.shape == tuple(got.shape)
    assert np.ascontiguousarray(found).tobytes() == expected.astype(found.dtype).tobytes()
    assert room.tobytes() == before
    assert plan.zero_copy == (plan.copies == 0) and bool(plan.reasons) != plan.zero_copy
    if expected.size:
        assert (pointer(got) == pointer(held)) == plan.zero_copy, plan
    if copy is True and target != source and target in ("numpy", "torch") and expected.size:
        found[...] = 0
        assert room.tobytes() == before
