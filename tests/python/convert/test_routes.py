# SPDX-License-Identifier: Apache-2.0
"""put, get and convert with torch, TensorFlow and JAX in one process: routes, refusals, traps."""

import ctypes

import numpy as np
import pytest
from arrays import aligned

import arraybridge
from arraybridge import (
    CopyWarning,
    MemoryConversionError,
    UnsupportedArray,
    UnsupportedDtype,
    ZeroCopyUnavailable,
)

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy


def pointer(array):
    kind = arraybridge.detect_memory_type(array)
    if kind == "torch":
        return array.data_ptr()
    if kind == "jax":
        return array.unsafe_buffer_pointer()
    if kind == "tensorflow":
        return array.__array__().__array_interface__["data"][0]
    return array.__array_interface__["data"][0]


MAKE = {
    "numpy": aligned,
    "torch": lambda: torch.from_dlpack(aligned()),
    "tensorflow": lambda: tf.constant(aligned()),
    "jax": lambda: jnp.array(aligned()),
}


@pytest.mark.parametrize("target", MAKE)
@pytest.mark.parametrize("source", MAKE)
def test_every_host_pair_shares_on_request(source, target):
    nobody = arraybridge.Broker("/nonexistent", start="never")
    array = MAKE[source]()
    if target == "torch" and source in ("jax", "tensorflow"):  # it would write to a constant
        with pytest.raises(ZeroCopyUnavailable, match="read_only"):
            nobody.convert(array, target, copy=False)
        return
    got, plan = nobody.convert(array, target, copy=False, explain=True)
    assert pointer(got) == pointer(array) and plan.copies == 0
    assert (got is array) == (source == target) == (plan.route == "identity")
    np.testing.assert_array_equal(np.asarray(got), aligned())


@pytest.mark.parametrize("source", ["tensorflow", "jax"])
def test_immutable_arrays_are_read_only_in_numpy_and_private_in_torch(broker, source):
    array = MAKE[source]()
    assert not broker.convert(array, "numpy").flags.writeable
    with pytest.warns(CopyWarning, match="read_only"):
        tensor = broker.convert(array, "torch")
    tensor += 1
    np.testing.assert_array_equal(np.asarray(array), aligned())


@pytest.mark.parametrize("target", ["tensorflow", "jax"])
def test_a_later_write_changes_no_immutable_array(broker, target):
    array = aligned()
    with pytest.warns(CopyWarning, match="immutable_target") as warned:
        got, plan = broker.convert(array, target, explain=True)
        broker.convert(array, target)
    array[:] = -1
    np.testing.assert_array_equal(np.asarray(got), aligned())
    assert plan.route == "place" and len([w for w in warned if w.category is CopyWarning]) == 1


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
@pytest.mark.parametrize(
    "source",
    [
        np.arange(12.0, dtype="f4").reshape(3, 4)[:, ::-1],
        np.arange(12.0, dtype=">f4").reshape(3, 4),
        np.zeros((3, 4), [("a", "u1"), ("b", "<f4")])["b"],
        np.broadcast_to(np.float32(1), (30, 40)),
        np.frombuffer(b"\0" + bytes(48), np.uint8)[1:].view("f4").reshape(3, 4),
    ],
    ids=["reversed", "big-endian", "packed field", "broadcast", "misaligned"],
)
@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_difficult_sources_are_copied_right_and_refused_without_a_copy(broker, source, target):
    got, plan = broker.convert(source, target, explain=True)
    assert plan.copies == 1 and pointer(got) % 64 == 0
    np.testing.assert_array_equal(np.asarray(got), source)
    with pytest.raises(ZeroCopyUnavailable) as caught:
        broker.convert(source, target, copy=False)
    assert caught.value.plan.reasons


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_jax_without_x64_refuses_what_it_would_narrow(broker, dtype):
    assert not jax.config.jax_enable_x64
    broker.put(np.arange(4).astype(dtype), "wide")
    for ask in (
        lambda: broker.get("wide", "jax"),
        lambda: broker.convert(np.arange(4).astype(dtype), "jax"),
        lambda: broker.get("wide", "jax", copy=True),
    ):
        with pytest.raises(UnsupportedDtype, match="jax_enable_x64.*allow_downcast=True"):
            ask()
    narrow, plan = broker.get("wide", "jax", allow_downcast=True, explain=True)
    assert narrow.tolist() == [0, 1, 2, 3] and str(narrow.dtype) == plan.dtype != dtype and plan.copies == 1
    with jax.enable_x64(True):
        assert str(broker.get("wide", "jax").dtype) == dtype
    with pytest.raises(UnsupportedDtype):
        broker.get("wide", "jax")


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_downcast_checks_its_range(broker, value):
    broker.put(np.array([value]), "wide")
    with pytest.raises(MemoryConversionError, match="does not fit into int32"):
        broker.get("wide", "jax", allow_downcast=True)
    with pytest.raises(MemoryConversionError, match="does not fit into int32"):
        broker.convert(np.array([value]), "jax", allow_downcast=True)


def test_writes_to_a_torch_get_reach_nobody(broker):
    broker.put(np.arange(4096.0), "a")
    mine, other = broker.get("a", "torch"), broker.get("a", "torch")
    reader = broker.get("a")
    mine.mul_(-1)
    mine.numpy()[0] = 7
    assert mine[0] == 7 and other[1] == 1 and reader[1] == 1 and broker.get("a")[1] == 1
    share = broker.put(np.arange(8.0), "b")
    torch.from_dlpack(share).zero_()
    assert broker.get("b").tolist() == list(range(8))


SHARE_TO_TORCH = """
import sys, torch, arraybridge, numpy
broker = arraybridge.Broker(sys.argv[1], namespace="to-torch", start="never")
share = broker.put(numpy.arange(8.0), "a", replace=True)
for tensor in (
    broker.convert(share, "torch", copy=False),
    broker.convert(share, "torch"),
    torch.from_dlpack(arraybridge.asdlpack(share)),
):
    tensor[0] = 7
    assert tensor[0] == 7 and broker.get("a").tolist() == list(range(8))
"""


def test_torch_may_write_to_whatever_it_makes_of_a_share(client):
    client(SHARE_TO_TORCH)  # in a process of its own, which a write to read-only memory would end


def test_a_share_is_converted_as_it_is_got(broker):
    share = broker.put(np.arange(8.0), "a")
    for framework in ("numpy", "torch", "tensorflow"):
        got = broker.get(share, framework, explain=True).plan
        assert broker.convert(share, framework, explain=True).plan == got == broker.plan(share, framework)
        assert got.zero_copy


def test_torch_born_in_broker_memory(broker):
    tensor = broker.empty((3, 2), torch.float32, "torch")
    tensor.fill_(2)
    broker.put(tensor, "born")
    tensor[0, 0] = 3
    assert broker.get("born")[0].tolist() == [3, 2]
    with pytest.raises(UnsupportedArray, match="cannot be written"):
        broker.empty(3, "float32", "jax")


def test_torch_gradients_conjugates_and_negatives(broker):
    weight = torch.nn.Parameter(torch.ones(3))
    got, plan = broker.convert(weight, "numpy", explain=True)
    assert plan.zero_copy and plan.notes[0].startswith("detached") and weight.requires_grad
    assert broker.convert(weight, "torch") is weight
    broker.put({"w": weight}, "grad")
    assert broker.get("grad", "torch")["w"].requires_grad is False
    conjugate = torch.tensor([1 + 2j]).conj()
    broker.put([conjugate, conjugate.imag], "bits")
    first, second = broker.get("bits")
    assert (first[0], second[0]) == (1 - 2j, -2)
    assert got.tolist() == [1, 1, 1]
    with pytest.raises(ZeroCopyUnavailable, match="conjugate"):
        broker.convert(conjugate, "numpy", copy=False)


def fake_tensor():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def deleted():
    array = jnp.ones(3)
    array.delete()
    return array


REFUSED = {
    "sparse blocks": (lambda: torch.eye(4).to_sparse_bsr((2, 2)), UnsupportedArray, "sparse"),
    "sparse and dense": (lambda: torch.ones(2, 2).to_sparse(1), UnsupportedArray, "sparse"),
    "meta": (lambda: torch.ones(3, device="meta"), UnsupportedArray, "meta"),
    "fake": (fake_tensor, UnsupportedArray, "fake"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), UnsupportedArray, "quantized"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), UnsupportedArray, "nested"),
    "tf string": (lambda: tf.constant("text"), UnsupportedDtype, "string"),
    "tf ragged": (lambda: tf.ragged.constant([[1], [2, 3]]), UnsupportedArray, "RaggedTensor"),
    "jax key": (lambda: jax.random.key(0), UnsupportedArray, "key"),
    "jax deleted": (deleted, UnsupportedArray, "deleted"),
    "numpy masked": (lambda: np.ma.array([1], mask=[1]), UnsupportedArray, "mask"),
}


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_forms_without_plain_memory_are_refused_by_name(broker, form):
    make, error, words = REFUSED[form]
    array = make()
    with pytest.raises(error, match=words):
        broker.put(array, "never")
    with pytest.raises(error, match=words):
        broker.convert(array, "torch" if isinstance(array, np.ndarray) else "numpy")  # as what it is it stays
    with pytest.raises(BufferError):
        arraybridge.asdlpack(array)


def test_tracers_symbolic_and_functorch_tensors_are_refused_by_name(broker):
    def put(array):
        with pytest.raises(UnsupportedArray, match=r"tracer|symbolic|functorch"):
            broker.put(array, "never")
        return array

    jax.jit(put)(jnp.ones(3))
    tf.function(put, autograph=False)(tf.ones(3))
    torch.vmap(put)(torch.ones(3, 2))
    assert not broker.list()


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_dtypes_beyond_numpy_keep_every_bit(broker, name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    width = np.dtype(getattr(ml_dtypes, name)).itemsize
    bits = np.arange(2 ** (8 * width), dtype=f"u{width}")
    source = torch.from_numpy(bits.copy()).view(getattr(torch, name))
    broker.put(source, "t")
    broker.put(bits.view(getattr(ml_dtypes, name)), "n")
    for share in ("t", "n"):
        for framework in ("numpy", "torch", "tensorflow", "jax"):
            got, plan = broker.get(share, framework, explain=True)
            assert name in str(got.dtype)
            assert plan.copies == (1 if framework == "tensorflow" and name != "bfloat16" else 0)
            raw = got.view(torch.uint8).numpy() if framework == "torch" else np.asarray(got).view(np.uint8)
            assert raw.tobytes() == bits.tobytes(), framework
            broker.put(got, f"{share}-{framework}-again")
            assert broker.get(f"{share}-{framework}-again").view(f"u{width}").tobytes() == bits.tobytes()


@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "bool"])
def test_nobody_writes_to_constant_arrays_by_way_of_numpy(broker, framework, name):
    """TensorFlow's own alias of what no buffer has is writable."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    ones = np.ones(16, getattr(ml_dtypes, name, name))
    constant = broker.convert(ones, framework, copy=True)
    for _ in range(2):
        for out in (broker.convert(constant, "numpy"), arraybridge.convert_memory(constant, framework, "numpy")):
            assert not out.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                out[0] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                out.flags.writeable = True
        assert arraybridge.asdlpack(constant).read_only
    assert np.asarray(constant).astype("f4").tolist() == [1] * 16


def test_a_variable_is_its_value_of_this_moment(broker):
    variable = tf.Variable([1.0, 2.0])
    got = broker.convert(variable, "numpy")
    broker.put(variable, "v")
    variable.assign([5.0, 6.0])
    assert got.tolist() == [1, 2] == broker.get("v").tolist()


def test_a_share_of_everybody_is_usable_in_real_work(broker):
    matrix = np.random.default_rng(0).random((128, 128), np.float32)
    broker.put(matrix, "m")
    expected = matrix @ matrix
    results = {
        "torch": lambda m: (m @ m).numpy(),
        "tensorflow": lambda m: tf.matmul(m, m).numpy(),
        "jax": lambda m: np.asarray(jax.jit(jnp.matmul)(m, m)),
        "numpy": lambda m: m @ m,
    }
    for framework, multiply in results.items():
        np.testing.assert_allclose(multiply(broker.get("m", framework)), expected, rtol=1e-4)


def test_asdlpack_of_everything(broker):
    for framework, make in MAKE.items():
        array = make()
        view = arraybridge.asdlpack(array)
        assert view.address == pointer(array) and view.shape == (4, 4), framework
    copied = arraybridge.asdlpack(aligned(), copy=True)
    assert not copied.read_only
    share = broker.put(aligned(), "s")
    assert arraybridge.asdlpack(share).read_only and share.view().read_only
    text = bytes(map(ord, "Hello!"))  # no constant: that would be what it is compared with
    torch.from_dlpack(arraybridge.asdlpack(text))[0] = 74
    assert text == b"Hello!"
    with pytest.raises(TypeError):
        arraybridge.asdlpack(object())
    with pytest.raises(BufferError):
        arraybridge.asdlpack(np.array([1], ">i4"))


def test_detection():
    assert arraybridge.detect_memory_type(torch.nn.Parameter(torch.ones(1))) == "torch"
    assert arraybridge.detect_memory_type(tf.Variable(1.0)) == "tensorflow"
    assert arraybridge.detect_memory_type(jax.random.key(0)) == "jax"
    for other in (torch.Size([1]), torch.float32, torch.nn.Linear(1, 1), tf.float32, jnp.float32):
        assert arraybridge.detect_memory_type(other) is None


def test_deleting_in_every_order(broker):
    for framework in MAKE:
        share = broker.put(aligned(), f"order-{framework}")
        array = share.to(framework)
        share.withdraw()
        del share
        broker.flush()
        np.testing.assert_array_equal(np.asarray(array), aligned())
        del array
    jax.clear_caches()
    broker.flush()
    assert broker.stats()["client_live_leases"] == 0


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_swapping_and_narrowing_are_two_copies_and_the_plan_says_so(broker):
    got, plan = broker.convert(np.array([1.5, 2.5], ">f8"), "jax", allow_downcast=True, explain=True)
    assert got.tolist() == [1.5, 2.5] and (plan.copies, plan.copied_bytes) == (2, 24)


def test_a_copy_that_is_asked_for_is_one_also_of_what_lies_in_broker_memory(broker):
    first = broker.convert(np.arange(6.0), "torch", copy=True)
    second = broker.convert(first, "torch", copy=True)
    assert second.data_ptr() != first.data_ptr()
    second[0] = 9
    assert first[0] == 0


def test_a_plan_does_not_use_a_capsule_up(broker):
    capsule = torch.arange(3).__dlpack__()
    with pytest.raises(UnsupportedArray, match="read only once, and a plan would consume it") as caught:
        broker.plan(capsule, "numpy")
    assert (caught.value.source_type, caught.value.target_type) == ("PyCapsule", "numpy")
    view = arraybridge.asdlpack(capsule)
    assert broker.plan(view, "numpy").zero_copy and broker.convert(view, "numpy").tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
@pytest.mark.parametrize("target", ["tensorflow", "jax"])
def test_memory_that_was_born_there_is_copied_for_who_never_writes(broker, target):
    """It lies in broker memory already, and is writable all the same."""
    for array in (broker.empty((32,), "float32"), broker.convert(np.zeros(32, "f4"), "numpy", copy=True)):
        array[:] = 1
        got, plan = broker.convert(array, target, explain=True)
        array[:] = 9
        assert np.asarray(got).tolist() == [1] * 32
        assert plan.copies == 1 and pointer(got) != pointer(array) and plan.reasons[0].startswith("immutable_target")
        assert pointer(broker.convert(array, target, copy=False)) == pointer(array)


def test_what_a_framework_refuses_in_the_end_is_told_and_chained(broker, monkeypatch):
    """Its array looked like any other."""
    refusal = LookupError("not today")

    def refuse(_):
        raise refusal

    monkeypatch.setattr("arraybridge.adapters.torch.export", refuse)
    for ask in (
        lambda: broker.convert(torch.ones(3, 5), "numpy"),
        lambda: broker.put(torch.ones(3, 5), "never", metadata=b"the short way has none"),
        lambda: arraybridge.convert_memory(torch.ones(3, 5, dtype=torch.int16), "torch", "numpy", None, copy=True),
        lambda: arraybridge.asdlpack(torch.ones(3, 5)),
    ):
        with pytest.raises(UnsupportedArray, match="its framework refuses: LookupError: not today") as caught:
            ask()
        assert caught.value.__cause__ is refusal and caught.value.source_type == "torch"
    assert not broker.list()


WITHOUT_A_TABLE = """
import sys, warnings
import numpy as np, torch
del torch.Tensor.__dlpack_c_exchange_api__
import arraybridge
from arraybridge import convert_memory
broker = arraybridge.Broker(sys.argv[1], namespace="no table", start="never")
warnings.simplefilter("ignore")
for target in ("numpy", "tensorflow", "jax"):
    for _ in range(2):
        weight = torch.arange(16.0, requires_grad=True)
        for copy in (None, False, True):
            got, plan = broker.convert(weight, target, copy=copy, explain=True)
            assert np.asarray(got).tolist() == list(range(16)), (target, copy)
            assert plan.notes[:1] == ("detached: the result has no gradient",), plan
            assert np.asarray(convert_memory(weight, "torch", target, None, copy=copy)).tolist() == list(range(16))
        negative = torch.tensor([1 + 2j]).conj().imag
        assert np.asarray(broker.convert(negative, target)).tolist() == [-2]
        back = broker.convert(got, "torch")
        assert back.tolist() == list(range(16)) and torch.utils.dlpack.from_dlpack(arraybridge.asdlpack(back)).sum() == 120
    assert weight.requires_grad
broker.put(weight, "w")
assert broker.get("w", "torch").tolist() == list(range(16))
print("done")
"""


def test_a_torch_that_has_no_exchange_table_yet(client):
    assert client(WITHOUT_A_TABLE) == "done\n"


def half(tensor):
    return tensor.view(torch.bfloat16)


HANDED_OVER = {
    "convert": lambda broker, tensor: broker.convert(tensor, "numpy"),
    "convert_memory": lambda broker, tensor: arraybridge.convert_memory(tensor, "torch", "numpy"),
    "part": lambda broker, tensor: broker.convert(tensor[2:], "numpy"),
    "tree": lambda broker, tensor: broker.convert({"a": [tensor]}, "numpy")["a"][0],
    "bfloat16": lambda broker, tensor: broker.convert(half(tensor), "numpy"),
    "gradient": lambda broker, tensor: broker.convert(tensor.requires_grad_(), "numpy"),
    "asdlpack": lambda broker, tensor: np.from_dlpack(arraybridge.asdlpack(tensor)),
    "buffer": lambda broker, tensor: memoryview(arraybridge.asdlpack(tensor)),
    "jax": lambda broker, tensor: broker.convert(tensor, "jax", copy=False),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("verb", HANDED_OVER)
def test_a_tensor_whose_memory_another_array_shows_cannot_be_resized(broker, verb, again):
    """torch would free the memory: the other array read freed memory, or ended the process."""
    if again:
        HANDED_OVER[verb](broker, torch.ones(64))
    tensor = torch.full((64,), 7.0)
    shown = HANDED_OVER[verb](broker, tensor)
    for resize in (lambda: tensor.detach().resize_(1 << 20), lambda: torch.ones(1 << 20, out=tensor.detach())):
        with torch.no_grad(), pytest.raises(RuntimeError, match="not resizable"):
            resize()
    expected = half(torch.full((64,), 7.0)) if verb == "bfloat16" else torch.full((64,), 7.0)
    assert np.asarray(shown).tobytes() == expected.view(torch.uint8).numpy().tobytes()[-np.asarray(shown).nbytes :]


def test_a_tensor_that_was_copied_can_be_resized(broker):
    tensor = torch.ones(4)
    broker.put(tensor, "a")
    broker.convert(tensor, "numpy", copy=True)
    assert tensor.resize_(8).shape == (8,)


# What programs pass a View to. TensorFlow takes capsules only.
TAKERS = {
    "numpy": np.from_dlpack,
    "torch": torch.from_dlpack,
    "torch capsule": lambda view: torch.utils.dlpack.from_dlpack(view.__dlpack__()),
    "jax": jax.dlpack.from_dlpack,
    "jax.numpy": jnp.from_dlpack,
    "tensorflow": lambda view: tf.experimental.dlpack.from_dlpack(view.__dlpack__()),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_view_without_elements_is_taken_by_all(broker, taker):
    for shape, dtype in [((0, 4), "f4"), ((0,), "u1"), ((3, 0, 2), "i2"), ((0, 4), "c8"), ((0, 4), "f2")]:
        frozen = np.zeros(shape, dtype)
        frozen.flags.writeable = False
        share = broker.put(frozen, "empty", replace=True)
        for view in (share.view(), arraybridge.asdlpack(frozen), arraybridge.asdlpack(tf.constant(frozen))):
            assert tuple(TAKERS[taker](view).shape) == shape
        for framework in ("numpy", "torch", "jax", "tensorflow"):
            assert tuple(broker.get("empty", framework).shape) == shape


def of_ctypes():
    return (ctypes.c_float.__ctype_be__ * 4)(1, 2, 3, 4)


def of_pillow():
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    return image.fromarray(np.array([[1, 2], [3, 4]], ">u2"))


@pytest.mark.parametrize(
    "make", [lambda: memoryview(np.array([1, 2, 3, 4], ">f4")), of_ctypes, of_pillow], ids=["memoryview", "ctypes", "Pillow"]
)
def test_numbers_of_the_other_byte_order_are_converted_in_every_object(broker, make):
    source = make()
    broker.put(source, "a")
    broker.put({"tree": [source]}, "b")
    for got in (broker.get("a"), broker.get("b")["tree"][0], broker.convert(source, "torch"), broker.convert(source, "numpy", copy=True)):
        assert np.asarray(got).ravel().tolist() == [1, 2, 3, 4] and np.asarray(got).dtype.isnative
