# SPDX-License-Identifier: Apache-2.0
"""convert_memory, Converter and MemoryType's conversions inside one process: devices, sharing, copies, errors."""

import itertools
import pickle
import sys
import warnings

import arrays
import numpy as np
import pytest
from processes import run_client

import arraybridge
from arraybridge import (
    Converter,
    DeviceFallbackWarning,
    DeviceUnavailable,
    FrameworkNotAvailable,
    InvalidDevice,
    InvalidMemoryType,
    InvalidRequest,
    MemoryConversionError,
    MemoryType,
    SourceTypeMismatch,
    UnsupportedArray,
    UnsupportedDtype,
    ZeroCopyUnavailable,
    asdlpack,
    convert,
    convert_memory,
    get_converter,
)

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy

HOST = ("numpy", "torch", "tensorflow", "jax")
KINDS = {"numpy": np.ndarray, "torch": torch.Tensor, "tensorflow": tf.Tensor, "jax": jax.Array}


def values(dtype="float32"):
    return np.arange(12).reshape(3, 4).astype(dtype)


def aligned(dtype="float32"):
    return arrays.aligned((3, 4), dtype)


MAKE = {
    "numpy": aligned,
    "torch": lambda dtype="float32": torch.from_numpy(aligned(dtype)),
    "tensorflow": lambda dtype="float32": tf.constant(aligned(dtype)),
    "jax": lambda dtype="float32": jnp.array(aligned(dtype)),
}


def pointer(array):
    kind = arraybridge.detect_memory_type(array)
    if kind == "torch":
        return array.data_ptr()
    if kind == "jax":
        return array.unsafe_buffer_pointer()
    return (array.__array__() if kind == "tensorflow" else array).__array_interface__["data"][0]


@pytest.fixture
def no_fallback_yet(monkeypatch):
    """As in a process that has warned of no fallback yet."""
    monkeypatch.setattr("arraybridge.conversion.memory.fallbacks", itertools.count())


@pytest.fixture
def no_gpu():
    if torch.cuda.is_available() or tf.config.list_logical_devices("GPU"):
        pytest.skip("needs a host without a usable GPU")


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("source", HOST)
def test_every_host_pair_keeps_shape_dtype_and_values(source, target):
    array = MAKE[source]()
    for said in (source, MemoryType(source), None):
        got = convert_memory(array, said, MemoryType(target), gpu_id=None)
        assert isinstance(got, KINDS[target]) and tuple(got.shape) == (3, 4) and "float32" in str(got.dtype)
        np.testing.assert_array_equal(np.asarray(got), values())
        assert (got is array) == (source == target)


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("source", HOST)
def test_copy_true_is_private_and_copy_false_is_shared(source, target):
    array = MAKE[source]()
    if target == "torch" and source in ("jax", "tensorflow"):  # it would write to a constant
        with pytest.raises(ZeroCopyUnavailable, match="read_only"):
            convert_memory(array, source, target, None, copy=False)
    else:
        assert pointer(convert_memory(array, source, target, None, copy=False)) == pointer(array)
    private = convert_memory(array, source, target, None, copy=True)
    assert private is not array and pointer(private) != pointer(array)
    np.testing.assert_array_equal(np.asarray(private), values())


def test_what_is_shared_by_itself_and_what_is_copied():
    array = aligned()
    assert pointer(convert_memory(array, "numpy", "torch", None)) == pointer(array)
    for constant in ("tensorflow", "jax"):
        got = convert_memory(array, "numpy", constant, None)
        assert pointer(got) != pointer(array)
        back = convert_memory(got, constant, "numpy", None)
        assert pointer(back) == pointer(got) and not back.flags.writeable
        assert pointer(convert_memory(got, constant, "torch", None)) != pointer(got)
    read_only = arrays.frozen(aligned())
    assert pointer(convert_memory(read_only, "numpy", "torch", None)) != pointer(read_only)
    assert pointer(convert_memory(read_only, "numpy", "jax", None)) == pointer(read_only)
    assert pointer(convert_memory(read_only, "numpy", "tensorflow", None)) == pointer(read_only)


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("source", HOST)
def test_convert_detects_the_source_and_is_quiet_without_a_gpu(no_fallback_yet, source, target):
    array = MAKE[source]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for device in (None, "cpu", None):
            got = convert(array, target, device=device)
            assert isinstance(got, KINDS[target])
            np.testing.assert_array_equal(np.asarray(got), values())
            wanted = convert_memory(array, source, target, None)
            assert (got is array) == (wanted is array)
            assert (pointer(got) == pointer(array)) == (pointer(wanted) == pointer(array))
        assert pointer(convert(array, target, copy=True)) != pointer(array)


def test_convert_takes_trees_memory_types_and_ways_but_no_device_that_is_missing():
    tree = {"a": [values(), torch.ones(2)], "n": 3}
    got = convert(tree, MemoryType.TORCH, via="host")
    assert isinstance(got["a"][0], torch.Tensor) and isinstance(got["a"][1], torch.Tensor) and got["n"] == 3
    with pytest.raises(DeviceUnavailable, match="cuda:99"):
        convert(values(), "torch", device="cuda:99")
    with pytest.raises(InvalidDevice, match="'gpu7' is not a device"):
        convert(values(), "torch", device="gpu7")
    with pytest.raises(InvalidMemoryType, match="invalid"):
        convert(values(), "invalid")
    with pytest.raises(InvalidMemoryType, match="str is not an array"):
        convert("text", "torch")
    with pytest.raises(ZeroCopyUnavailable):
        convert(values()[::-1], "torch", copy=False)


def test_convert_finds_no_gpu_that_was_asked_for(no_gpu):
    with pytest.raises(DeviceUnavailable, match="cuda"):
        convert(values(), "torch", device="cuda")


def test_a_shared_result_keeps_its_source_alive():
    tensor = convert_memory(aligned(), "numpy", "torch", None)
    junk = [np.full(4096, 7, np.uint8) for _ in range(50)]
    np.testing.assert_array_equal(tensor.numpy(), values())
    assert junk


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_the_default_gpu_falls_back_with_a_warning_and_no_other_does(no_gpu, no_fallback_yet, target):
    with pytest.warns(DeviceFallbackWarning, match=f"{target}.*gpu_id=0") as warned:
        got = convert_memory(values(), "numpy", target)
    assert warned[0].filename == __file__
    assert isinstance(got, KINDS[target])
    with pytest.raises(DeviceUnavailable, match="CUDA") as caught:
        convert_memory(values(), "numpy", target, gpu_id=1)
    assert "cpu" in str(caught.value) and isinstance(caught.value, RuntimeError)


def test_a_second_fallback_takes_the_short_way_without_a_warning(no_gpu, no_fallback_yet, monkeypatch):
    data = aligned()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = convert_memory(data, "numpy", "torch", copy=False)
        with monkeypatch.context() as patched:
            patched.setattr("arraybridge.conversion.memory.moved", None)  # the careful way
            again = convert_memory(data, "numpy", "torch", copy=False)
        convert_memory(values(">f4"), "numpy", "jax")
    assert pointer(first) == pointer(again) == pointer(data)
    assert [each.filename for each in caught] == [__file__], "once in a process, whatever the target"
    with pytest.raises(DeviceUnavailable):
        convert_memory(data, "numpy", "torch", gpu_id=1, copy=False)


def test_numpy_ignores_gpu_numbers_and_nobody_takes_what_is_none():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(convert_memory(torch.ones(2), "torch", "numpy", gpu_id=7), np.ndarray)
        array = convert_memory(values(), "numpy", "jax", gpu_id=None)
        assert next(iter(array.devices())).platform == "cpu"
    for bad in (-1, 1.5, "0", True, [0]):
        with pytest.raises(InvalidDevice, match="is not the number of a GPU: pass 0, 1, .* or None") as caught:
            convert_memory(values(), "numpy", "torch", gpu_id=bad)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(InvalidDevice, match="gpu_id=-1 is not the number of a GPU"):
        convert_memory(values(), "numpy", "torch", gpu_id=-1)


def test_names_come_first_then_the_source_then_the_target(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidMemoryType, match="'invalid' is not the name of a framework"):
        convert_memory([1], "numpy", "invalid", gpu_id=-1)
    with pytest.raises(InvalidMemoryType, match="'invalid'"):
        convert_memory([1], "invalid", "torch", gpu_id=-1)
    with pytest.raises(SourceTypeMismatch, match="set, not numpy"):
        convert_memory({1}, "numpy", "torch", gpu_id=-1)
    with pytest.raises(FrameworkNotAvailable, match="torch is not available") as caught:
        convert_memory(values(object), "numpy", "torch", gpu_id=-1)
    assert (caught.value.source_type, caught.value.target_type, caught.value.name) == ("numpy", "torch", "torch")
    monkeypatch.undo()
    with pytest.raises(InvalidDevice):
        convert_memory(values(object), "numpy", "torch", gpu_id=-1)
    with pytest.raises(UnsupportedDtype):
        convert_memory(values(object), "numpy", "torch", None, copy=False)


def test_a_wrong_source_type_names_both():
    with pytest.raises(SourceTypeMismatch, match="the data is torch, not numpy") as caught:
        convert_memory(torch.ones(2), "numpy", "jax")
    assert isinstance(caught.value, TypeError)
    with pytest.raises(SourceTypeMismatch):
        convert_memory({1, 2}, "numpy", "numpy")
    with pytest.raises(InvalidMemoryType, match="set is not an array: pass an array of numpy, torch"):
        convert_memory({1, 2}, None, "numpy")
    with pytest.raises(InvalidMemoryType):
        convert_memory(values(), "numpy", None)
    with pytest.raises(InvalidMemoryType):
        convert_memory(values(), 3, "numpy")


@pytest.mark.parametrize("make", [bytearray, asdlpack, memoryview, lambda text: np.frombuffer(text, np.uint8)[0:6]])
def test_without_a_source_type_whatever_asdlpack_reads_is_one(make):
    for target in ("numpy", "torch", "tensorflow", "jax"):
        got = convert_memory(make(b"Hello!"), None, target, None)
        assert np.asarray(got).tobytes() == b"Hello!"


def test_bytes_never_change():
    text = bytes(map(ord, "Hello!"))  # no constant: that would be what it is compared with
    tensor = convert_memory(text, None, "torch", None)
    tensor[0] = 74
    assert text == b"Hello!" and not convert_memory(text, None, "numpy").flags.writeable


def test_a_capsule_is_read_once():
    array = values()
    capsule = array.__dlpack__(max_version=(1, 0))
    assert pointer(get_converter("torch").from_dlpack(capsule, gpu_id=None)) == pointer(array)
    with pytest.raises(BufferError, match="used_dltensor"):
        get_converter("torch").from_dlpack(capsule, gpu_id=None)


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
@pytest.mark.parametrize(
    "source",
    [
        values()[:, ::-1],
        values(">f4"),
        np.zeros((3, 4), [("a", "u1"), ("b", "<f4")])["b"],
        np.broadcast_to(np.float32(1), (30, 40)),
        np.frombuffer(b"\0" + bytes(48), np.uint8)[1:].view("f4").reshape(3, 4),
        np.asfortranarray(values())[::2],
        np.zeros((3, 0, 2), "f4"),
        np.array(2.5, "f4"),
    ],
    ids=["reversed", "big-endian", "packed field", "broadcast", "misaligned", "stepped", "empty", "0-d"],
)
def test_difficult_sources_come_out_right(source, target):
    before = source.tobytes()
    for copy in (None, True):
        got = convert_memory(source, "numpy", target, None, copy=copy)
        assert tuple(got.shape) == source.shape and "float32" in str(got.dtype)
        np.testing.assert_array_equal(np.asarray(got), source)
    assert source.tobytes() == before


def test_copy_false_says_why_not():
    with pytest.raises(ZeroCopyUnavailable, match="layout") as caught:
        convert_memory(values()[:, ::-1], "numpy", "torch", None, copy=False)
    assert caught.value.plan.reasons and isinstance(caught.value, (BufferError, ValueError))
    with pytest.raises(ZeroCopyUnavailable, match="byte_order"):
        convert_memory(values(">f4"), "numpy", "torch", None, copy=False)
    with pytest.raises(InvalidRequest, match="copy must be True, False or None"):
        convert_memory(values(), "numpy", "torch", None, copy="yes")


def test_negative_strides_never_end_the_process():
    code = """
import numpy, arraybridge
array = numpy.arange(12.0).reshape(3, 4)[:, ::-1]
tensor = arraybridge.convert_memory(array, "numpy", "torch", None)
assert (tensor.numpy() == array).all()
"""
    run_client(code)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_jax_without_x64_refuses_or_narrows_on_request(dtype):
    assert not jax.config.jax_enable_x64
    with pytest.raises(UnsupportedDtype, match=r"jax_enable_x64.*allow_downcast=True"):
        convert_memory(values(dtype), "numpy", "jax", None)
    got = convert_memory(values(dtype), "numpy", "jax", None, allow_downcast=True)
    np.testing.assert_array_equal(np.asarray(got), values(dtype))
    swapped = np.dtype(dtype).newbyteorder(">")
    got = convert_memory(values(swapped), "numpy", "jax", None, allow_downcast=True)
    np.testing.assert_array_equal(np.asarray(got), values(dtype))
    with jax.enable_x64(True):
        assert str(convert_memory(values(dtype), "numpy", "jax", None).dtype) == dtype


def test_a_downcast_checks_its_range():
    with pytest.raises(MemoryConversionError, match="does not fit into int32"):
        convert_memory(np.array([2**31]), "numpy", "jax", None, allow_downcast=True)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_dtypes_beyond_numpy_keep_every_bit(name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    width = np.dtype(getattr(ml_dtypes, name)).itemsize
    bits = np.arange(2 ** (8 * width), dtype=f"u{width}")
    source = bits.view(getattr(ml_dtypes, name))
    for target in HOST:
        for copy in (None, True):
            got = convert_memory(source, "numpy", target, None, copy=copy)
            assert name in str(got.dtype)
            assert convert_memory(got, target, "numpy").view(f"u{width}").tobytes() == bits.tobytes()


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "object", "U3", "longdouble", "i4,f4"])
def test_dtypes_of_numpy_alone_are_refused_elsewhere_and_stay_at_home(dtype):
    array = np.zeros(3, dtype)
    for target in ("torch", "tensorflow", "jax"):
        with pytest.raises(UnsupportedDtype):
            convert_memory(array, "numpy", target, None)
    assert convert_memory(array, "numpy", "numpy") is array


def test_masks_are_never_lost():
    masked = np.ma.array([1.0], mask=[1])
    assert convert_memory(masked, "numpy", "numpy") is masked
    for target, copy in (("torch", None), ("numpy", True)):
        with pytest.raises(UnsupportedArray, match="mask"):
            convert_memory(masked, "numpy", target, None, copy=copy)
    matrix = convert_memory(np.matrix([[1.0]]), "numpy", "torch", None)
    assert tuple(matrix.shape) == (1, 1)


def test_gradients_conjugates_negatives_and_variables():
    weight = torch.nn.Parameter(torch.ones(3))
    got = convert_memory(weight, "torch", "numpy")
    assert pointer(got) == weight.data_ptr() and weight.requires_grad
    assert convert_memory(weight, "torch", "torch", None) is weight
    conjugate = torch.tensor([1 + 2j]).conj()
    for copy in (None, True):
        assert convert_memory(conjugate, "torch", "numpy", copy=copy)[0] == 1 - 2j
        assert convert_memory(conjugate.imag, "torch", "numpy", copy=copy)[0] == -2
    variable = tf.Variable([1.0, 2.0])
    value = convert_memory(variable, "tensorflow", "numpy")
    variable.assign([5.0, 6.0])
    assert value.tolist() == [1, 2]


def test_forms_without_memory_are_refused_from_what_to_what():
    with pytest.raises(UnsupportedArray, match="from torch to numpy.*sparse"):
        convert_memory(torch.eye(4).to_sparse_bsr((2, 2)), "torch", "numpy")
    deleted = jnp.ones(3)
    deleted.delete()
    with pytest.raises(UnsupportedArray, match="from jax to torch.*deleted"):
        convert_memory(deleted, "jax", "torch", None)
    with pytest.raises(UnsupportedDtype, match="from tensorflow to numpy.*string"):
        convert_memory(tf.constant("text"), "tensorflow", "numpy")


def test_what_a_framework_raises_is_told_and_chained(monkeypatch):
    class Refusal(Exception):
        pass

    def refuse(_):
        raise Refusal("not today")

    # The adapter looks its framework's importer up once, and so does the short way that a plan of such arrays is kept for:
    # no other test converts arrays of six dimensions.
    monkeypatch.setattr("arraybridge.adapters.tensorflow.importer", lambda: refuse)
    with pytest.raises(MemoryConversionError, match="from jax to tensorflow: Refusal: not today") as caught:
        convert_memory(jnp.ones((1, 1, 1, 1, 1, 3)), "jax", "tensorflow", None)
    error = caught.value
    assert isinstance(error.__cause__, Refusal) and type(error) is MemoryConversionError
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.method == "hand_over" and again.reason == error.reason
    assert str(error) == f"Cannot convert from jax to tensorflow: {error.reason}"


def test_converters_are_values():
    converter = MemoryType.TORCH.converter
    assert converter == get_converter("torch") == get_converter(MemoryType.TORCH) == Converter(MemoryType.TORCH)
    assert converter is not MemoryType.TORCH.converter and hash(converter) == hash(get_converter("torch"))
    assert pickle.loads(pickle.dumps(converter)) == converter
    with pytest.raises(AttributeError):
        converter.memory_type = MemoryType.JAX
    for bad in ("invalid", None, 5):
        with pytest.raises(InvalidMemoryType, match="the name of a framework.*numpy"):
            get_converter(bad)


@pytest.mark.parametrize("source", HOST)
def test_every_conversion_is_a_method(source):
    array, converter = MAKE[source](), get_converter(source)
    for target in HOST:
        for method in (getattr(MemoryType(source), f"to_{target}"), getattr(converter, f"to_{target}")):
            assert isinstance(method(array, gpu_id=None), KINDS[target])
    assert isinstance(converter.from_numpy(values(), gpu_id=None), KINDS[source])
    assert isinstance(converter.from_dlpack(values(), gpu_id=None), KINDS[source])
    assert converter.move_to_device(array, None) is array
    for gone in ("to_cupy", "to_pyclesperanto"):
        for to in (getattr(MemoryType(source), gone), getattr(converter, gone)):
            with pytest.raises(MemoryConversionError):
                to(array, gpu_id=None)


def test_no_broker_is_asked_or_started_and_only_the_target_is_imported(tmp_path):
    code = """
import os, sys, numpy
import arraybridge
for name in ("tensorflow", "jax"):
    assert name not in sys.modules
before = set(os.listdir(os.environ["XDG_RUNTIME_DIR"]))
array = numpy.arange(12.0)[::-1]
tensor = arraybridge.convert_memory(array, "numpy", "torch", None)
assert tensor.tolist() == array.tolist()
assert "arraybridge.broker" not in sys.modules
assert set(os.listdir(os.environ["XDG_RUNTIME_DIR"])) == before
assert not {"tensorflow", "jax"} & set(sys.modules)
"""
    run_client(code, XDG_RUNTIME_DIR=str(tmp_path))


def test_many_threads_get_right_values():
    from concurrent.futures import ThreadPoolExecutor

    def work(number):
        for _ in range(60):
            source = np.full((5, number + 1), number, "f4")
            for target in ("torch", "tensorflow", "jax"):
                got = convert_memory(source[:, ::-1], "numpy", target, None)
                assert tuple(got.shape) == source.shape and (np.asarray(got) == number).all()
        return number

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(16))) == list(range(16))


def test_a_thousand_conversions_leave_nothing_behind():
    source = aligned()
    convert_memory(source, "numpy", "torch", None)
    before = sys.getrefcount(source)
    for _ in range(1000):
        convert_memory(source, "numpy", "torch", None)
        convert_memory(source, "numpy", "jax", None)
        asdlpack(source)
    assert sys.getrefcount(source) == before


def test_a_share_is_a_source_too(broker):
    share = broker.put(values(), "a")
    assert convert_memory(share, None, "numpy").tolist() == values().tolist()
    tensor = convert_memory(share, None, "torch", None)
    tensor[0, 0] = 9
    assert broker.get("a")[0, 0] == 0
    share.withdraw()
    tree = broker.put([values(), values()], "tree")
    with pytest.raises(UnsupportedArray):
        convert_memory(tree, None, "numpy")
