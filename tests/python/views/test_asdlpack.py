# SPDX-License-Identifier: Apache-2.0
"""asdlpack: every provider that it accepts, in its order; what it refuses, and what it never does."""

import array
import ctypes
import gc
import importlib.util
import mmap
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from dlpack_by_hand import Holder, Producer
from processes import run_client

import arraybridge
from arraybridge import UnsupportedArray, UnsupportedDtype, View, asdlpack

VERSION = {"max_version": (1, 0)}


def address(values):
    return values.__array_interface__["data"][0]


class Described:
    """Speaks the array interface alone."""

    def __init__(self, values, **changes):
        self.values = values
        self.described = {**values.__array_interface__, **changes}

    @property
    def __array_interface__(self):
        return {key: value for key, value in self.described.items() if value is not ...}


class TableAlone:
    """Speaks the exchange API of its class, under either spelling, and nothing else."""

    def __init__(self, spelling):
        self.kind = type("Tabled", (), {spelling: getattr(View, spelling)})


def values():
    return np.arange(6, dtype="f4").reshape(2, 3)


def test_views_are_themselves_and_copies_are_private():
    source = values()
    view = asdlpack(source)
    assert type(view) is View and asdlpack(view) is view and view.address == address(source)
    copied = asdlpack(source, copy=True)
    assert copied.address != view.address and not copied.read_only
    np.from_dlpack(copied)[...] = 7
    assert source[0, 0] == 0


def test_shares_are_read_copy_on_write(broker):
    share = broker.put(values(), "a")
    np.from_dlpack(asdlpack(share))[0, 0] = 9
    assert broker.get("a")[0, 0] == 0


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax", "pyclesperanto"])
def test_arrays_of_the_frameworks(framework):
    if not importlib.util.find_spec(framework):  # imported by the adapter: beside TensorFlow, PoCL needs its help
        pytest.skip(f"{framework} is not installed")
    try:
        made = arraybridge.convert_memory(values(), "numpy", framework, 0 if framework == "pyclesperanto" else None)
    except arraybridge.DeviceUnavailable as error:
        pytest.skip(f"{framework} has no device: {error.reason}")
    if framework == "pyclesperanto":
        with pytest.raises(BufferError, match="no_foreign_memory"):
            asdlpack(made)
        return
    view = asdlpack(made)
    assert np.from_dlpack(view).tolist() == values().tolist() and view.dtype == "float32"


def test_tensors_with_a_gradient_or_pending_bits_are_refused():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedArray, match="requires grad"):
        asdlpack(weight)
    assert asdlpack(weight.detach()).address == weight.data_ptr()
    for bits in (torch.tensor([1j]).conj(), torch.tensor([1j]).conj().imag):
        with pytest.raises(UnsupportedArray, match="conjugate or negative bit"):
            asdlpack(bits)


@pytest.mark.parametrize("spelling", ["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"])
def test_the_exchange_api_of_a_class_alone_is_asked_under_both_names(spelling):
    made = TableAlone(spelling).kind()
    with pytest.raises(UnsupportedArray, match="View"):  # the table was asked: it wants its own class
        asdlpack(made)


class Old:
    """A producer that knows `stream` alone."""

    def __init__(self):
        self.values = values()

    def __dlpack__(self, stream=None):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return 1, 0


class Temporary(Old):
    """Exports an array that nobody else holds."""

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return np.arange(1000.0, 1006.0, dtype="f4").__dlpack__(max_version=max_version)


class LikeTensorflow(Old):
    """Raises RuntimeError for keywords."""

    def __dlpack__(self, **keywords):
        if keywords:
            raise RuntimeError("unsupported keyword")
        return self.values.__dlpack__()


class LikePyclesperanto(Old):
    """Has a word of its own for the version."""

    def __dlpack__(self, stream=None, version=(1, 0)):
        return self.values.__dlpack__(max_version=version)


@pytest.mark.parametrize("producer", [Old, LikeTensorflow, LikePyclesperanto])
def test_producers_of_every_age(producer):
    made = producer()
    assert asdlpack(made).address == address(made.values)


def test_a_temporary_that_was_exported_stays_valid():
    view = asdlpack(Temporary())
    gc.collect()
    junk = [np.zeros(6, "f4") for _ in range(100)]
    assert np.from_dlpack(view).tolist() == [1000, 1001, 1002, 1003, 1004, 1005] and junk


class Broken(Old):
    def __dlpack__(self, **keywords):
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("r"), ValueError("v"), BufferError("b"), KeyError("k"), IndexError("i")])
def test_what_a_producer_raises_is_chained(error):
    made = Broken()
    made.error = error
    with pytest.raises(UnsupportedArray, match=str(error)[1:-1] or str(error)) as caught:
        asdlpack(made)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("versioned", [False, True])
def test_capsules_of_both_dialects_are_consumed_once(versioned):
    producer = Producer(versioned)
    capsule = producer.capsule()
    view = asdlpack(capsule)
    assert np.from_dlpack(view).tolist() == values().tolist()
    with pytest.raises(BufferError, match="used_dltensor"):
        asdlpack(capsule)
    del view
    assert producer.deletes == 1
    with pytest.raises(UnsupportedArray):
        asdlpack(__import__("datetime").datetime_CAPI)


def test_the_array_interface_with_an_address():
    made = Described(values())
    view = asdlpack(made)
    assert view.address == address(made.values) and view.shape == (2, 3)
    source = values()
    weak = sys.getrefcount(source)
    view = asdlpack(Described(source))
    assert sys.getrefcount(source) > weak
    del view
    assert sys.getrefcount(source) == weak
    read_only = values()
    read_only.flags.writeable = False
    assert asdlpack(Described(read_only)).read_only


def test_the_array_interface_with_a_buffer_object():
    memory = bytearray(32)
    view = asdlpack(Described(values(), data=memory, offset=8))
    np.from_dlpack(view)[0, 0] = 1
    assert memory[8:12] == np.float32(1).tobytes() and not view.read_only
    assert asdlpack(Described(values(), data=bytes(32), offset=None)).read_only
    for refused in ({"offset": 16}, {"offset": -1}, {"data": memoryview(bytes(4))}):
        with pytest.raises(BufferError):
            asdlpack(Described(values(), **{"data": memory, **refused}))


class DescribedBuffer(bytearray):
    """Has the array interface without data: the bytes are its own."""

    __array_interface__ = {"version": 3, "typestr": "|u1", "shape": (6,)}


def test_the_array_interface_without_data_is_the_buffers():
    memory = DescribedBuffer(b"Hello!")
    np.from_dlpack(asdlpack(memory))[0] = 74
    assert memory == b"Jello!"


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 1}, {"version": 4}, {"typestr": ">f4"}, {"typestr": "<M8"}, {"typestr": "|V4"}, {"typestr": "<U1"},
        {"mask": np.zeros(6, "?")}, {"strides": (5, 4)}, {"shape": ...}, {"typestr": ...}, {"shape": (-1, 3)},
        {"typestr": "<f16"},
    ],
    ids=str,
)  # fmt: skip
def test_array_interfaces_that_dlpack_cannot_say(changes):
    with pytest.raises(BufferError):
        asdlpack(Described(values(), **changes))


def mapped():
    made = mmap.mmap(-1, 6)
    made.write(b"Hello!")
    return made


@pytest.mark.parametrize(
    ("make", "read_only"),
    [
        (lambda: bytearray(b"Hello!"), False), (lambda: memoryview(b"Hello!"), True), (mapped, False),
        (lambda: array.array("B", b"Hello!"), False), (lambda: (ctypes.c_uint8 * 6)(*b"Hello!"), False),
        (lambda: memoryview(bytearray(b"Hello!")).cast("B", (2, 3)), False), (lambda: b"Hello!", False),
        (lambda: np.frombuffer(b"Hello!", np.uint8), True),
    ],
    ids=["bytearray", "memoryview", "mmap", "array", "ctypes", "2-D memoryview", "bytes", "ndarray"],
)  # fmt: skip
def test_buffers(make, read_only):
    view = asdlpack(make())
    assert np.asarray(view).tobytes() == b"Hello!" and view.read_only == read_only and view.dtype_code == (1, 8, 1)


def test_a_memory_mapped_file_is_read_where_it_lies(tmp_path):
    path = tmp_path / "values"
    path.write_bytes(values().tobytes())
    mapped_file = np.memmap(path, "f4", "r", shape=(2, 3))
    view = asdlpack(mapped_file)
    assert view.read_only and view.address == address(mapped_file)
    np.testing.assert_array_equal(np.asarray(view), values())


@pytest.mark.parametrize("format", ["b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "f", "d"])
def test_formats_of_buffers(format):
    view = asdlpack(array.array(format, [1, 2, 3]))
    assert np.from_dlpack(view).tolist() == [1, 2, 3] and view.dtype_code[1] == array.array(format).itemsize * 8


@pytest.mark.parametrize("scalar", [np.float32(3), np.int64(-2), np.complex64(1j), np.bool_(True), np.uint8(7)])
def test_numpy_scalars_have_no_dimensions(scalar):
    view = asdlpack(scalar)
    assert view.shape == () and np.from_dlpack(view) == scalar


def test_bytes_are_copied_and_never_change():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    text = bytes(map(ord, "Hello!"))  # no constant: that would be what it is compared with
    tensor = torch.from_dlpack(asdlpack(text))
    assert tensor.tolist() == [72, 101, 108, 108, 111, 33] and tensor.dtype == torch.uint8
    tensor[0] = 74
    assert text == b"Hello!"


@pytest.mark.parametrize(
    "nothing", [[1, 2], 5, "text", None, object(), SimpleNamespace(two=2, typekind="f", itemsize=4, shape=(1,))],
    ids=["list", "int", "str", "None", "object", "attribute style"],
)  # fmt: skip
def test_what_speaks_nothing_is_a_type_error(nothing):
    with pytest.raises(TypeError, match="supports no array protocol") as caught:
        asdlpack(nothing)
    assert type(caught.value) is UnsupportedArray


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array([1], ">i4"), lambda: np.ma.array([1], mask=[1]), lambda: np.zeros(2, "u1,f4")["f1"],
        lambda: np.zeros(2, np.longdouble), lambda: np.zeros(2, "M8[s]"), lambda: np.zeros(2, "i4,f4"),
        lambda: np.array(["text"]), lambda: np.array([object()]),
    ],
    ids=["big-endian", "masked", "packed", "longdouble", "datetime", "structured", "str", "object"],
)  # fmt: skip
def test_what_dlpack_cannot_say_is_a_buffer_error(make):
    with pytest.raises(BufferError) as caught:
        asdlpack(make())
    assert isinstance(caught.value, (UnsupportedArray, UnsupportedDtype))


def test_the_refusal_of_a_foreign_byte_order_says_what_helps():
    foreign = np.array([1, 2], ">i4")
    with pytest.raises(UnsupportedArray, match=r'pass array\.astype\(array\.dtype\.newbyteorder\("="\)\)$') as caught:
        asdlpack(foreign)
    assert "copy" not in caught.value.reason, "nothing is copied here"
    native = foreign.astype(foreign.dtype.newbyteorder("="))
    assert np.from_dlpack(asdlpack(native)).tolist() == [1, 2]


def test_sizes_of_nothing_and_everything_else_come_out():
    for shape in ((0,), (0, 3), (3, 0, 2)):
        view = asdlpack(np.zeros(shape, "f4"))
        assert view.shape == shape and view.address == 0 and np.from_dlpack(view).shape == shape
    for strided in (values()[:, ::-1], values().T, values()[:, ::2], np.broadcast_to(np.float32(1), (2, 3))):
        view = asdlpack(strided)
        assert view.address == address(strided)
        np.testing.assert_array_equal(np.from_dlpack(view), strided)


def test_the_version_asked_for_is_the_name_of_the_capsule():
    view = asdlpack(values())
    for asked, name in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"), ((2, 5), "dltensor_versioned")):
        assert f'"{name}"' in repr(view.__dlpack__(max_version=asked))
    assert view.__dlpack_device__() == (1, 0)
    read_only = asdlpack(memoryview(b"abc"))
    assert "dltensor" in repr(read_only.__dlpack__()), "a copy"
    assert not np.from_dlpack(read_only).flags.writeable
    for stream in (-1, 1, 2, 77):
        with pytest.raises(ValueError):
            view.__dlpack__(stream=stream)
    private = np.from_dlpack(Holder(view.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=True)))
    private[...] = 9
    assert np.from_dlpack(view)[0, 0] == 0
    with pytest.raises(BufferError):
        view.__dlpack__(dl_device=(2, 0))


def test_unused_views_and_capsules_leak_nothing():
    source = values()
    before = sys.getrefcount(source)
    for _ in range(100):
        asdlpack(source).__dlpack__(**VERSION)
        asdlpack(source)
    assert sys.getrefcount(source) == before
    view = asdlpack(source)
    first = np.from_dlpack(view)
    del first
    assert np.from_dlpack(view)[1, 2] == 5


def test_views_may_outlive_the_interpreter():
    run_client(
        "import numpy, arraybridge, threading\n"
        "kept = [numpy.from_dlpack(arraybridge.asdlpack(numpy.ones(3))) for _ in range(100)]\n"
        "thread = threading.Thread(target=kept.pop); thread.start(); thread.join()\n"
        "import arraybridge.asdlpack as module; module.kept = kept"
    )


def test_bytes_of_a_class_of_its_own_never_change_either():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Named(bytes):
        pass

    text = Named(b"Hello!")
    torch.from_dlpack(asdlpack(text))[0] = 74
    assert text == b"Hello!"
