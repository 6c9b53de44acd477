# SPDX-License-Identifier: Apache-2.0
"""Arrays that break frameworks: each with the result that is documented for it, the source untouched."""

import gc
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from arrays import values_of

import arraybridge
from arraybridge import MemoryConversionError, UnsupportedArray, UnsupportedDtype, ZeroCopyUnavailable, convert_memory

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy
pytestmark = pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
TARGETS = ("numpy", "torch", "tensorflow", "jax")
LONG = bool(os.environ.get("ARRAYBRIDGE_LONG"))


# One process for all that would end it: (source, target) pairs, each converted and worked with.
DANGEROUS = """
import sys, numpy as np, tensorflow as tf, torch, jax, arraybridge
from torch._subclasses.fake_tensor import FakeTensorMode
broker = arraybridge.Broker(sys.argv[1], namespace="dangerous", start="never")
convert = broker.convert
grid = np.arange(12.0, dtype="f4").reshape(3, 4)
for reversed_ in (grid[:, ::-1], grid[::-1], grid[::-1, ::-1].T):
    assert (convert(reversed_, "torch").numpy() == reversed_).all()
    assert (torch.from_dlpack(arraybridge.asdlpack(reversed_, copy=True)).numpy() == reversed_).all()
# A dimension of one element has no direction, whatever its stride says; torch would abort all the same.
single = np.arange(32.0, dtype="f4").reshape(4, 1, 8)[:, ::-1, ::2]
assert single.strides[1] < 0
for got in (convert(single, "torch", copy=False), torch.from_dlpack(arraybridge.asdlpack(single))):
    assert got.data_ptr() == single.ctypes.data and got.stride() == (8, 4, 2) and (got.numpy() == single).all()
# 4 bytes off: TensorFlow's first operation would abort.
long = np.frombuffer(bytearray(4 + 4 * 2**20), np.uint8)[4:].view("f4")
long[:] = np.arange(2**20) % 7
got = convert(long, "tensorflow")
assert tf.reduce_sum(tf.gather(got, tf.range(2**20))).numpy() == long.sum()
assert tf.matmul(got[None, :], got[:, None]).numpy()[0, 0] == float((long * long).sum())
assert np.asarray(got).__array_interface__["data"][0] % 64 == 0
for refused, words in (
    (tf.constant(["text"]), "string"),
    (FakeTensorMode().from_tensor(torch.ones(3)), "fake"),
    (np.zeros((1,) * 64, "f4"), None),
):
    for target in ("numpy", "torch", "tensorflow", "jax"):
        try:
            result = convert(refused, target)
        except arraybridge.MemoryConversionError as error:
            assert words is None or words in str(error), error
        else:
            # As what it is already, it stays, and nobody looks at its memory.
            same = arraybridge.detect_memory_type(refused) == target and result is refused
            assert same or (words is None and result.shape == (1,) * 64)
# What a torch alias of read-only pages would do on a write.
share = broker.put(grid, "sealed", sealed=True)
for tensor in (broker.get("sealed", "torch"), convert(share, "torch"), torch.from_dlpack(arraybridge.asdlpack(share))):
    tensor.numpy()[0, 0] = 7
    tensor.mul_(-1)
assert (broker.get("sealed") == grid).all()
frozen = grid.copy(); frozen.flags.writeable = False
convert(frozen, "torch").zero_()
assert (frozen == grid).all()
text = b"Hello!"
torch.from_dlpack(arraybridge.asdlpack(text))[0] = 74
assert text == b"Hello!"
print("alive")
"""


def test_what_would_end_the_process_does_not(client):
    assert client(DANGEROUS) == "alive\n"


OPENCL = """
import sys, numpy as np, tensorflow, torch, arraybridge
from arraybridge import adapters
broker = arraybridge.Broker(sys.argv[1], namespace="opencl", start="never")
try:
    image = broker.convert(np.ones((2, 3), "u2"), "pyclesperanto")
except (arraybridge.FrameworkNotAvailable, arraybridge.DeviceUnavailable) as missing:
    print("missing", missing); sys.exit()
# torch would take its capsule, raise, and crash.
assert broker.convert(image, "torch").dtype is torch.uint16
for ask in (lambda: broker.convert(image, "torch", copy=False), lambda: arraybridge.asdlpack(image)):
    try:
        ask()
    except BufferError as error:
        assert "no_foreign_memory" in str(error)
    else:
        raise AssertionError("nobody can address it")
print("alive")
"""


CUT = """
import sys
import numpy as np, tensorflow, torch, jax, arraybridge
from arraybridge import UnsupportedArray, convert_memory

broker = arraybridge.Broker(sys.argv[1], namespace="cut", start="never")
bytes_ = 256 << 20


def cut():
    tensor = torch.empty(bytes_, dtype=torch.uint8)
    tensor.untyped_storage().resize_(4096)
    return tensor


def refused(ask):
    try:
        ask()
    except UnsupportedArray as error:
        assert "cut storage (4096 bytes of the 268435456" in str(error), error
        return
    raise SystemExit("not refused")


for _ in range(2):  # the second time there is a short way
    for target in ("numpy", "tensorflow", "jax"):
        for copy in (None, True, False):
            refused(lambda: broker.convert(cut(), target, copy=copy))
            refused(lambda: convert_memory(cut(), "torch", target, None, copy=copy))
        broker.convert(torch.zeros(bytes_, dtype=torch.uint8), target, copy=False)
    refused(lambda: broker.convert(cut(), "torch", copy=True))
    refused(lambda: broker.put(cut(), "a"))
    refused(lambda: broker.put(cut(), "a", wait=False))
    refused(lambda: broker.put({"x": np.ones(3), "y": cut()}, "a"))
    broker.put(torch.ones(16, dtype=torch.uint8), f"b{_}", wait=False)
    refused(lambda: arraybridge.asdlpack(cut()))
same = cut()
assert broker.convert(same, "torch") is same
wide = torch.ones(1, 4).expand(1000, 4)
assert broker.convert(wide, "numpy").sum() == 4000, "less memory than elements, and all of it there"
assert broker.convert(torch.zeros(3, 4)[:, 1:3], "numpy").shape == (3, 2)
broker.flush()
print("alive")
"""


def test_a_tensor_whose_storage_was_cut_under_it_is_never_read(client):
    assert client(CUT) == "alive\n"


def test_opencl_memory_never_reaches_torch_and_lives_beside_tensorflow(client):
    printed = client(OPENCL)
    if printed.startswith("missing"):
        pytest.skip(printed)
    assert printed == "alive\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0, 2), (1,), (1, 1, 1)])
def test_small_shapes_stay(broker, target, shape):
    for source in TARGETS:
        array = broker.convert(np.ones(shape, "f4"), source)
        got = broker.convert(array, target)
        assert tuple(got.shape) == shape and values_of(got).dtype == np.float32


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">u2", ">c16", "<f8"])
@pytest.mark.parametrize("target", TARGETS)
def test_foreign_byte_order_is_swapped_by_one_copy(broker, dtype, target):
    array = np.array([1, 2, 3], dtype)
    before = array.tobytes()
    with jax.enable_x64(True):
        got, plan = broker.convert(array, target, explain=True)
    found = values_of(got)
    if target != "numpy":
        assert found.dtype == array.dtype.newbyteorder("=") and plan.copies == (0 if dtype[0] == "<" and target == "torch" else 1)
    np.testing.assert_array_equal(found, array)
    assert array.tobytes() == before


def test_foreign_byte_order_stays_in_numpys_own_array_alone(broker):
    array = np.array([1, 2, 300], ">i4")
    fields = np.array([(1, 2.5)], [("a", ">i4"), ("b", ">f8")])
    assert broker.convert(array, "numpy") is array
    assert arraybridge.convert_memory(array, "numpy", "numpy", None) is array
    share, tree = broker.put(array), broker.put(fields)
    for got in (broker.get(share), arraybridge.convert_memory(array, "numpy", "numpy", None, copy=True)):
        assert got.dtype.str == "<i4" and got.tolist() == [1, 2, 300]
    assert broker.get(tree).dtype.descr == [("a", "<i4"), ("b", "<f8")] and broker.get(tree).tolist() == [(1, 2.5)]


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 2], np.longdouble),
        np.array(["2026-11-21"], "M8[ns]"),
        np.array([object()]),
        np.array(["abc"]),
        np.array([b"abc"]),
        np.array([(1, 2.0)], [("a", "u1"), ("b", "<f4")]),
        np.array(["x"], np.dtypes.StringDType()),
    ],
    ids=lambda array: array.dtype.name,
)
@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_dtypes_of_numpy_alone_are_refused_by_name(broker, array, target):
    with pytest.raises(UnsupportedDtype) as caught:
        broker.convert(array, target)
    assert (caught.value.source_type, caught.value.target_type) == ("numpy", target)
    assert isinstance(caught.value, BufferError)


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_packed_fields_masks_and_subclasses(broker, target):
    packed = np.zeros(3, [("a", "u1"), ("b", "<f4")])
    packed["b"] = 1, 2, 3
    assert values_of(broker.convert(packed["b"], target)).tolist() == [1, 2, 3]
    with pytest.raises(ZeroCopyUnavailable, match="layout"):
        broker.convert(packed["b"], target, copy=False)
    with pytest.raises(UnsupportedArray, match="mask"):
        broker.convert(np.ma.array([1, 2, 3], "f4", mask=[0, 1, 0]), target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = np.matrix([[1, 2]], "f4")
    assert values_of(broker.convert(matrix, target)).tolist() == [[1, 2]]


def test_a_broadcast_array_is_never_written_by_torch(broker):
    one = np.array([1], "f4")
    tensor = broker.convert(np.broadcast_to(one, (1000, 1000)), "torch")
    tensor[0, 0] = 5
    assert one[0] == 1 and tensor[0, 1] == 1


@pytest.mark.parametrize("target", TARGETS)
def test_bits_survive(broker, target):
    for width in (2, 4, 8):
        odd = (0, 1, 2**63, 2**64 - 1, 0x7FF0000000000001, 0xFFF8DEADBEEF0000, 0x7F800001, 0x80000000, 0x7C01)
        bits = np.array([number % 2 ** (8 * width) for number in odd], f"u{width}")
        with jax.enable_x64(True):
            got = broker.convert(bits.view(f"f{width}"), target, copy=True)
            assert values_of(got).view(f"u{width}").tobytes() == bits.tobytes()
            again = broker.convert(got, "numpy")
        assert again.view(f"u{width}").tobytes() == bits.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("int64", [2**53 + 1, -(2**63), 2**63 - 1]), ("uint64", [2**53 + 1, 2**64 - 1]),
        ("float64", [1e-300, 1 + 2**-52]), ("complex128", [1e-300 - 1e300j]),
    ],
    ids=["int64", "uint64", "float64", "complex128"],
)  # fmt: skip
def test_sixty_four_bits_are_exact(broker, target, dtype, numbers):
    source = np.array(numbers, dtype)
    with jax.enable_x64(True):
        got = broker.convert(source, target)
        assert dtype in str(got.dtype) and values_of(got).tolist() == numbers
        assert broker.convert(got, "numpy").tolist() == numbers


def test_what_pyclesperanto_and_pyarrow_have_no_arrays_of_is_refused(broker):
    wrong = {"pyclesperanto": [np.zeros((2, 2, 2, 2), "f4"), np.zeros((), "f4"), np.zeros((0, 3), "f4")]}
    wrong["pyarrow"] = [np.zeros((1,) * 33, "f4"), np.zeros((), "f4")]
    missing = []
    for target, arrays_ in wrong.items():
        for array in arrays_:
            try:
                with pytest.raises(UnsupportedArray, match="rank|without elements"):
                    broker.convert(array, target)
            except (arraybridge.FrameworkNotAvailable, arraybridge.DeviceUnavailable):
                missing.append(target)
    if missing:
        pytest.skip(f"not here, or without a device: {sorted(set(missing))}")


@pytest.mark.parametrize("rank", [33, 64, 65])
def test_ranks(broker, rank):
    if rank == 65:
        capsule = _of_rank(65)
        with pytest.raises(BufferError):
            arraybridge.asdlpack(capsule)
        return
    array = np.zeros((1,) * rank, "f4")
    for target in TARGETS:
        assert tuple(broker.convert(array, target).shape) == (1,) * rank


def _of_rank(rank):
    from dlpack_by_hand import Producer

    return Producer(shape=(1,) * rank).capsule()


def test_more_than_four_gibi_elements_are_counted_in_64_bits(broker):
    huge = np.broadcast_to(np.uint8(7), (2**31 + 8,))
    plan = broker.plan(huge, "tensorflow")
    assert plan.copied_bytes == 2**31 + 8
    assert np.from_dlpack(arraybridge.asdlpack(huge)).shape == (2**31 + 8,)
    assert broker.plan(huge, "torch").copied_bytes == 2**31 + 8


@pytest.mark.skipif(not LONG, reason="moves 2 GiB: ARRAYBRIDGE_LONG")
@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_more_than_two_gibi_elements_are_moved(target):
    if int(re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text()).group(1)) < 6 << 20:
        pytest.skip("needs 6 GiB of free memory")
    count = 2**31 + 8
    values = np.zeros(count, np.uint8)
    ends = [0, 2**31 - 1, 2**31, count - 1]
    values[ends] = 1, 2, 3, 4
    got = arraybridge.convert_memory(values, "numpy", target, None, copy=True)
    del values
    assert tuple(got.shape) == (count,)
    back = arraybridge.convert_memory(got, target, "numpy", None)
    assert back[ends].tolist() == [1, 2, 3, 4] and np.count_nonzero(back) == 4


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
def test_unsigned_torch_round_trip(broker, name):
    array = np.array([0, 1, np.iinfo(name).max], name)
    assert broker.convert(broker.convert(array, "torch"), "numpy").tolist() == array.tolist()


def test_two_numbers_in_a_byte_are_refused_by_name(broker):
    pairs = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert broker.convert(pairs, "torch") is pairs
    for target in ("numpy", "tensorflow", "jax"):
        with pytest.raises(UnsupportedDtype, match="float4_e2m1fn_x2"):
            broker.convert(pairs, target)


ALONE = {
    **{f"jax {name}": ("jax", lambda name=name: jnp.zeros(4, name)) for name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")},
    "torch complex32": ("torch", lambda: torch.zeros(4, dtype=torch.complex32)),
    "tensorflow qint8": ("tensorflow", lambda: tf.cast(tf.zeros(4, tf.float32), tf.qint8)),
    **{f"numpy {name}": ("numpy", lambda name=name: np.zeros(4, name)) for name in ("m8[s]", "clongdouble", "S3", "V4")},
}


@pytest.mark.parametrize(("case", "target"), [(case, target) for case in ALONE for target in TARGETS if target != ALONE[case][0]])
def test_dtypes_that_one_framework_has_alone_are_refused_by_name(broker, case, target):
    source, make = ALONE[case]
    for copy in (None, True, False):
        with pytest.raises(UnsupportedDtype) as caught:
            convert_memory(make(), source, target, None, copy=copy, allow_downcast=True)
        assert (caught.value.source_type, caught.value.target_type) == (source, target)
        said = {"m8[s]": "timedelta64", "clongdouble": "clongdouble|complex256", "S3": "S3", "V4": "V4"}
        name = case.partition(" ")[2]
        assert re.search(said.get(name, name), caught.value.reason), caught.value.reason


def test_gradients_stay_with_their_tensor(broker):
    weight = torch.ones(3, requires_grad=True)
    doubled = weight * 2
    for target in TARGETS[2:]:
        broker.convert(doubled, target)
    assert not broker.convert(doubled, "numpy", explain=True).plan.reasons
    doubled.sum().backward()
    assert weight.grad.tolist() == [2, 2, 2]


class Named(torch.Tensor):
    """A subclass of somebody's."""


def test_subclasses_of_tensor_are_tensors(broker):
    tensor = torch.ones(3).as_subclass(Named)
    assert arraybridge.detect_memory_type(tensor) == "torch"
    assert broker.convert(tensor, "numpy").tolist() == [1, 1, 1]
    assert broker.convert(torch.nn.Parameter(torch.ones(2)), "jax").tolist() == [1, 1]


@pytest.mark.parametrize("target", ["numpy", "tensorflow", "jax"])
def test_conjugate_and_negative_bits_are_resolved(broker, target):
    conjugate = torch.tensor([1 + 2j]).conj()
    assert values_of(broker.convert(conjugate, target)).tolist() == [1 - 2j]
    assert values_of(broker.convert(conjugate.imag, target)).tolist() == [-2]
    assert conjugate.is_conj()


def test_odd_strides_of_single_rows_are_nothing(broker):
    tensor = torch.empty_strided((1, 3), (77, 1)).fill_(2)
    assert broker.convert(tensor, "tensorflow", copy=True).numpy().tolist() == [[2, 2, 2]]
    assert broker.plan(tensor, "tensorflow", copy=False).zero_copy
    try:
        image = broker.convert(tensor, "pyclesperanto")
    except (arraybridge.FrameworkNotAvailable, arraybridge.DeviceUnavailable) as missing:
        pytest.skip(str(missing))
    assert image.get().tolist() == [[2, 2, 2]]


def test_jax_copies_are_copies_and_inputs_are_not_donated_away(broker):
    room = np.zeros(1024, np.uint8)
    start = -room.ctypes.data % 64
    source = room[start : start + 64].view("f4")
    private = broker.convert(source, "jax", copy=True)
    source[:] = 9
    assert private.tolist() == [0] * 16
    broker.put(np.arange(16, dtype="f4"), "donated")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a donation came to nothing
        jax.jit(lambda x: x + 1, donate_argnums=0)(broker.get("donated", "jax")).block_until_ready()
    assert broker.get("donated").tolist() == list(range(16))


def test_a_jax_result_that_is_still_computed_is_waited_for(broker):
    big = jnp.ones((1500, 1500))
    multiply = jax.jit(lambda x: x @ x @ x)
    multiply(big).block_until_ready()
    for target in ("numpy", "torch", "tensorflow"):
        for _ in range(3):
            assert (values_of(broker.convert(multiply(big), target)) == 1500.0**2).all()


def test_sharded_jax_arrays_are_refused_by_name_and_replicated_ones_are_their_first_shard(client):
    code = """
import sys, jax, numpy as np, arraybridge
from jax.sharding import Mesh, NamedSharding, PartitionSpec
assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()), "x")
array = jax.device_put(np.arange(8.0, dtype="f4"), NamedSharding(mesh, PartitionSpec("x")))
replicated = jax.device_put(np.arange(8.0, dtype="f4"), NamedSharding(mesh, PartitionSpec()))
broker = arraybridge.Broker(sys.argv[1], namespace="sharded", start="never")
for target in ("numpy", "torch"):
    for call in (lambda: broker.convert(array, target), lambda: arraybridge.convert_memory(array, "jax", target, None)):
        try:
            call()
        except arraybridge.UnsupportedArray as error:
            assert "export the shards" in str(error)
        else:
            raise AssertionError(target)
shards = [broker.convert(shard.data, "numpy", copy=False) for shard in array.addressable_shards]
assert np.concatenate(shards).tolist() == list(range(8)) and len(shards) == 4
first = arraybridge.asdlpack(replicated.addressable_data(0)).address
for _ in range(2):
    for target in ("numpy", "torch", "tensorflow"):
        for got in (broker.convert(replicated, target), arraybridge.convert_memory(replicated, None, target, None)):
            assert np.asarray(got).tolist() == list(range(8)), target
    assert broker.convert(replicated, "numpy", copy=False).ctypes.data == first
    assert arraybridge.asdlpack(replicated).address == first
    assert arraybridge.convert_memory(replicated, "jax", "jax", None) is replicated
broker.put(replicated, "r")
assert broker.get("r").tolist() == list(range(8))
print("ok")
"""
    assert client(code, XLA_FLAGS="--xla_force_host_platform_device_count=4") == "ok\n"


JAX_DEVICES = """
import sys, jax, numpy as np, arraybridge
from arraybridge.adapters import jax as adapter
if sys.argv[2] == "public":
    adapter._made_anew = None  # as if its arguments had changed
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
one, other = jax.devices()
array = np.frombuffer(bytes(range(256)) * 64, "f4").copy()
view = broker.put(array, "x").view()
broker.bundle("b", {"x": array}).fill().publish()
sender, receiver = broker.channel("c"), broker.channel("c").receiver("jax")
sparse = arraybridge.convert_memory(__import__("scipy.sparse").sparse.coo_array(np.eye(3, dtype="f4")), None, "jax", None)
tensor = broker.get("x", "torch")
for _ in range(3):
    sender.send(array)
    arrays = {
        "get": broker.get("x", "jax"), "receive": next(iter(receiver)), "bundle": broker.open("b").jax()["x"],
        "convert": broker.convert(array, "jax"), "torch": broker.convert(tensor, "jax"), "copy": broker.convert(array, "jax", copy=True),
        "tree": broker.convert([array], "jax")[0], "memory": arraybridge.convert_memory(array, "numpy", "jax"), "sparse": sparse.data,
    }
    assert arrays["get"].unsafe_buffer_pointer() == view.address != 0
    for name, made in arrays.items():
        assert made.devices() == {one} and not made.committed, name
        with jax.default_device(other):
            assert (made + 1).devices() == {other} == (jax.numpy.asarray(array) + 1).devices(), name
            assert (jax.device_put(made, one) + 1).devices() == {one}
    named = broker.get("x", "jax", device="cpu"), broker.convert(array, "jax", device="cpu")
    assert named[0].unsafe_buffer_pointer() == view.address
    with jax.default_device(other):
        assert all((made + 1).devices() == {one} for made in named)
print("ok")
"""


JAX_IN_JIT = """
import sys, jax, jax.numpy as jnp, numpy as np, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace="jit", start="never")
broker.put(np.arange(4.0, dtype="f4"), "x")

@jax.jit
def traced(y):
    got = [broker.get("x", "jax"), broker.get("x", "jax", device="cpu")]
    assert all((np.asarray(each) == np.arange(4)).all() for each in got)
    return y + sum(got)

assert traced(jnp.ones(4)).tolist() == [1, 3, 5, 7]
assert not broker.get("x", "jax").committed and broker.get("x", "jax", device="cpu").committed
print("ok")
"""


def test_jax_reads_within_jit_as_outside(client):
    assert client(JAX_IN_JIT) == "ok\n"


@pytest.mark.parametrize("way", ["own", "public"])
def test_jax_computes_where_its_default_device_says_unless_a_device_was_named(client, way):
    assert client(JAX_DEVICES, way, XLA_FLAGS="--xla_force_host_platform_device_count=2", PYTHONWARNINGS="ignore") == "ok\n"


def test_a_variable_is_its_value_at_the_call(broker):
    variable = tf.Variable([1.0, 2.0])
    got = broker.convert(variable, "torch")
    variable.assign([5.0, 6.0])
    assert got.tolist() == [1, 2]


KERAS = """
import sys, keras, numpy as np, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace="keras", start="never")
variable = keras.Variable([1.0, 2.0], trainable=keras.backend.backend() != "torch")
got = [broker.convert(variable, target) for target in ("numpy", "torch")]
got += [arraybridge.convert_memory(variable, None, "numpy"), np.asarray(arraybridge.asdlpack(variable))]
broker.put({"weight": variable}, f"of {keras.backend.backend()}")
assert all(each.tolist() == [1, 2] for each in got), got
variable.assign([5.0, 6.0])
# A parameter of torch's is changed in place, and shared with who asked for its memory.
after = [5, 6] if keras.backend.backend() == "torch" else [1, 2]
assert got[0].tolist() == after, got
assert broker.get(f"of {keras.backend.backend()}")["weight"].tolist() == [1, 2]
dense = keras.layers.Dense(3)
dense.build((None, 2))
assert (broker.convert(dense.kernel, "numpy") == keras.ops.convert_to_numpy(dense.kernel)).all()
print("ok")
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_keras_variable_is_its_value_whatever_keras_runs_on(client, backend):
    pytest.importorskip("keras", reason="keras is not installed")
    assert client(KERAS, KERAS_BACKEND=backend) == "ok\n"


def test_a_symbolic_tensor_and_a_tracer_never_reach_memory(broker):
    for wrapper, array in ((tf.function, tf.ones(3)), (jax.jit, jnp.ones(3))):

        def body(x):
            for target in ("numpy", "torch"):
                with pytest.raises(MemoryConversionError, match=r"symbolic|tracer"):
                    broker.convert(x, target)
            return x

        wrapper(body, **({"autograph": False} if wrapper is tf.function else {}))(array)


def test_numpy_scalars_own_their_value():
    views = [arraybridge.asdlpack(np.float64(number)) for number in range(1000)]
    gc.collect()
    assert [float(np.asarray(view)) for view in views] == list(range(1000))


ONE_FOR_MANY = {
    "numpy": lambda: np.lib.stride_tricks.as_strided(np.zeros(3, "f4"), (4, 3), (0, 4)),
    "torch": lambda: torch.zeros(3).expand(4, 3),
}


@pytest.mark.parametrize("source", ONE_FOR_MANY)
@pytest.mark.parametrize("target", ["numpy", "torch", "view"])
def test_one_element_is_never_written_through_many(broker, source, target):
    """Writable memory that shows one element many times: who writes one of them means that one alone."""
    if source == target:
        return
    if target == "view":  # of no framework
        array, target = memoryview(ONE_FOR_MANY["numpy"]()), source
    else:
        array = ONE_FOR_MANY[source]()
    for _ in range(3):  # the short way never takes it
        for convert in (broker.convert, lambda array, target, **more: convert_memory(array, None, target, None, **more)):
            got = convert(array, target)
            got[1, 2] = 5
            assert got.tolist() == [[0] * 3, [0, 0, 5], [0] * 3, [0] * 3]
            assert np.asarray(array).sum() == 0
            with pytest.raises(ZeroCopyUnavailable, match="layout: .* have one address"):
                convert(array, target, copy=False)
    plan = broker.plan(array, target)
    assert plan.copies == 1 and plan.copied_bytes == 48


def test_what_shows_one_element_many_times_stays_what_it_is():
    tensor = torch.zeros(3).expand(4, 3)
    assert convert_memory(tensor, "torch", "torch", None) is tensor
    single = torch.empty_strided((1, 3), (0, 1)).fill_(2)
    assert convert_memory(single, "torch", "numpy", copy=False).tolist() == [[2, 2, 2]]
    fixed = np.broadcast_to(np.float32(1), (4, 3))
    assert convert_memory(memoryview(fixed), None, "numpy", copy=False).strides == (0, 0), "nobody can write there"
