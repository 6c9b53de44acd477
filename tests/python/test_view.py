"""View: DLPack in both dialects, the exchange table, buffer and array interface, for host memory.

Producers and consumers are faked with ctypes, so that every field can be wrong.
"""

import array
import copy
import ctypes
import gc
import mmap
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
import zlib

import numpy as np
import pytest

from arraybridge import _core

c = ctypes
RANK_MAX = 64


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", Device),
        ("ndim", c.c_int32),
        ("dtype", DType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


Deleter = c.CFUNCTYPE(None, c.c_void_p)  # releases the GIL around a call


class Legacy(c.Structure):
    _fields_ = [("tensor", Tensor), ("context", c.c_void_p), ("deleter", c.c_void_p)]


class Versioned(c.Structure):
    _fields_ = [
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("context", c.c_void_p),
        ("deleter", c.c_void_p),
        ("flags", c.c_uint64),
        ("tensor", Tensor),
    ]


api = c.pythonapi
api.PyCapsule_New.restype = c.py_object
api.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
api.PyCapsule_GetPointer.restype = c.c_void_p
api.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
api.PyCapsule_GetName.restype = c.c_char_p
api.PyCapsule_GetName.argtypes = [c.py_object]
api.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]


def read(capsule):
    """The managed tensor in a live capsule."""
    name = api.PyCapsule_GetName(capsule)
    kind = {b"dltensor": Legacy, b"dltensor_versioned": Versioned}[name]
    return c.cast(api.PyCapsule_GetPointer(capsule, name), c.POINTER(kind)).contents


def consume(capsule):
    """As a consumer takes it; returns (tensor, deleter)."""
    managed = read(capsule)
    name = api.PyCapsule_GetName(capsule)
    used = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}[name]
    CONSUMED.append(used)  # PyCapsule keeps the pointer, not the characters
    api.PyCapsule_SetName(capsule, used)
    return managed, Deleter(managed.deleter)


CONSUMED: list[bytes] = []


class Producer:
    """A foreign array of six float32 whose capsule may be spoiled; counts its deletions."""

    def __init__(self, versioned=True, shape=(2, 3), strides=None, **fields):
        self.values = (c.c_float * 64)(*range(64))
        self.deletes = 0
        self.shape = (c.c_int64 * max(len(shape), 1))(*shape)
        self.strides = None if strides is None else (c.c_int64 * max(len(strides), 1))(*strides)
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        self.managed = Versioned() if versioned else Legacy()
        tensor = self.managed.tensor
        tensor.data = c.addressof(self.values)
        tensor.device = Device(1, 0)
        tensor.ndim = len(shape)
        tensor.dtype = DType(2, 32, 1)
        tensor.shape = self.shape
        if self.strides is not None:
            tensor.strides = self.strides
        if versioned:
            self.managed.major, self.managed.minor = 1, 0
        self._deleter = Deleter(self._delete)
        self.managed.deleter = c.cast(self._deleter, c.c_void_p).value
        for key, value in fields.items():
            setattr(self.managed if hasattr(self.managed, key) else tensor, key, value)

    def _delete(self, _):
        self.deletes += 1

    def capsule(self):
        return api.PyCapsule_New(c.addressof(self.managed), self.name, None)


class Owner(bytearray):
    """Memory whose end can be seen."""


def owned(count=6):
    owner = Owner(np.arange(count, dtype=np.float32).tobytes())
    view = _core.wrap_array_interface(
        {"version": 3, "shape": (count,), "typestr": "<f4", "data": owner}, owner
    )
    return view, weakref.ref(owner)


def read_only_view():
    source = np.arange(6, dtype=np.float32)
    source.flags.writeable = False
    return _core.wrap(source), source


# --- export ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (0, 8)])
def test_legacy_dialect(version):
    view = _core.wrap(np.zeros((2, 3), np.float32))
    assert api.PyCapsule_GetName(view.__dlpack__(max_version=version)) == b"dltensor"


@pytest.mark.parametrize("version", [(1, 0), (1, 3), (2, 0), (100, 3), (2**70, 0)])
def test_versioned_dialect_says_our_version(version):
    view = _core.wrap(np.zeros((2, 3), np.float32))
    capsule = view.__dlpack__(max_version=version)
    assert api.PyCapsule_GetName(capsule) == b"dltensor_versioned"
    managed = read(capsule)
    assert (managed.major, managed.minor) == (1, 3) == _core.dlpack_version


@pytest.mark.parametrize(
    "keywords",
    [
        {"max_version": 1},
        {"max_version": (1,)},
        {"max_version": (1, "0")},
        {"max_version": [1, 0]},
        {"dl_device": 1},
        {"copy": 1},
        {"stream": "1"},
        {"version": (1, 0)},
    ],
)
def test_wrong_types_and_unknown_keywords_are_type_errors(keywords):
    with pytest.raises(TypeError):
        _core.wrap(np.zeros(3)).__dlpack__(**keywords)


def test_positional_arguments_are_type_errors():
    with pytest.raises(TypeError):
        _core.wrap(np.zeros(3)).__dlpack__(None)


def test_keywords_that_are_not_interned():
    view = _core.wrap(np.zeros(3))
    name = "".join(["max_", "version"])
    assert api.PyCapsule_GetName(view.__dlpack__(**{name: (1, 0)})) == b"dltensor_versioned"


@pytest.mark.parametrize("stream", [-1, 0, 1, 2, 77])
def test_host_memory_has_no_stream(stream):
    with pytest.raises(ValueError):
        _core.wrap(np.zeros(3)).__dlpack__(stream=stream)


def test_device():
    view = _core.wrap(np.zeros(3))
    assert view.__dlpack_device__() == (1, 0) == view.device
    read(view.__dlpack__(dl_device=(1, 0)))
    for device in [(2, 0), (4, 0), (1, 1)]:
        with pytest.raises(BufferError, match=r"\(1, 0\)"):
            view.__dlpack__(dl_device=device)


@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 3), (0,), (3, 0, 2), (1,) * RANK_MAX])
def test_exported_fields(shape):
    source = np.zeros(shape, np.float32)
    view = _core.wrap(source)
    for version in (None, (1, 0)):
        managed = read(capsule := view.__dlpack__(max_version=version))
        tensor = managed.tensor
        assert tensor.ndim == len(shape)
        assert tuple(tensor.shape[i] for i in range(tensor.ndim)) == shape
        assert tensor.byte_offset == 0
        assert managed.deleter
        if shape:
            compact = [int(np.prod([max(n, 1) for n in shape[i + 1 :]])) for i in range(len(shape))]
            assert [tensor.strides[i] for i in range(tensor.ndim)] == compact
        assert (tensor.data or 0) == (source.ctypes.data if source.size else 0)
        del capsule


def test_copy_is_private_writable_and_says_so():
    view, source = read_only_view()
    managed = read(capsule := view.__dlpack__(max_version=(1, 0), copy=True))
    assert managed.flags == 2
    assert managed.tensor.data != source.ctypes.data
    assert managed.tensor.data % 256 == 0
    c.cast(managed.tensor.data, c.POINTER(c.c_float))[0] = 9
    assert source[0] == 0
    assert api.PyCapsule_GetName(view.__dlpack__(copy=True)) == b"dltensor"
    assert read(view.__dlpack__(max_version=(1, 0), copy=False)).tensor.data == source.ctypes.data
    del capsule


def test_read_only_is_said_or_refused():
    view, source = read_only_view()
    assert view.read_only
    assert read(view.__dlpack__(max_version=(1, 0))).flags == 1
    with pytest.raises(BufferError):
        view.__dlpack__()
    with pytest.raises(BufferError):
        _core.wrap_buffer(view, read_only=False)  # asks for a writable buffer
    assert memoryview(view).readonly
    assert view.__array_interface__["data"] == (source.ctypes.data, True)
    assert not np.from_dlpack(view).flags.writeable
    assert read(view.for_immutable_consumer().__dlpack__()).tensor.data == source.ctypes.data


# --- capsules and deleters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_unconsumed_capsule_deletes_once_and_keeps_the_pending_exception(version):
    view, alive = owned()
    capsule = view.__dlpack__(max_version=version)
    del view
    assert alive() is not None
    try:
        raise KeyError("pending")
    except KeyError as pending:
        del capsule
        assert alive() is None
        assert pending.args == ("pending",)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_consumed_capsule_leaves_the_deleter_to_its_consumer(version):
    view, alive = owned()
    capsule = view.__dlpack__(max_version=version)
    managed, delete = consume(capsule)
    address = c.addressof(managed)
    del view, capsule
    gc.collect()
    assert alive() is not None
    delete(address)
    assert alive() is None
    delete(address)  # TensorFlow does this


def test_eight_threads_delete_once_without_the_gil():
    view, alive = owned()
    managed, delete = consume(view.__dlpack__(max_version=(1, 0)))
    del view
    barrier = threading.Barrier(8)

    def run():
        barrier.wait()
        delete(c.addressof(managed))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alive() is None


def test_deleter_after_the_interpreter_has_gone():
    script = """
        import ctypes, atexit, numpy as np
        from arraybridge import _core
        source = bytearray(64)
        capsule = _core.wrap_buffer(source).__dlpack__()
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
        tensor = api.PyCapsule_GetPointer(capsule, b"dltensor")
        used = b"used_dltensor"
        api.PyCapsule_SetName(capsule, used)
        deleter = ctypes.cast(tensor + 56, ctypes.POINTER(ctypes.c_void_p))[0]
        # libc runs the deleter with Py_IsInitialized() == 0
        libc = ctypes.CDLL(None)
        libc.__cxa_atexit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        libc.__cxa_atexit(deleter, tensor, None)
        print("armed")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "armed\n", "")


def test_never_exported_views_leak_nothing_and_export_works_again():
    source = bytearray(64)
    before = sys.getrefcount(source)
    views = [_core.wrap_buffer(source) for _ in range(100)]
    assert sys.getrefcount(source) == before + 100
    view = views.pop()
    del views
    assert sys.getrefcount(source) == before + 1
    for _ in range(300):
        np.from_dlpack(view)
    del view
    assert sys.getrefcount(source) == before


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_any_order_of_death(order):
    owner = Owner(np.arange(6, dtype=np.float32).tobytes())
    alive = weakref.ref(owner)
    view = _core.wrap_buffer(owner)
    things = [owner, view, np.from_dlpack(view)]
    del owner, view
    for index in order:
        if things[2] is not None:
            assert bytes(things[2]) == np.arange(6, dtype=np.float32).tobytes()
        things[index] = None
    assert alive() is None


def test_a_temporary_of_the_producer_is_kept():
    class Temporary:
        def __dlpack__(self, **keywords):
            return np.arange(1000, dtype=np.float64).__dlpack__(**keywords)

    view = _core.wrap(Temporary())
    np.zeros(1000)
    assert np.array_equal(np.from_dlpack(view), np.arange(1000))


def test_sixteen_threads_export_the_same_view():
    view, alive = owned()
    failures = []

    def run():
        for _ in range(200):
            if np.from_dlpack(view)[5] != 5:
                failures.append(1)

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    del view
    assert alive() is None


# --- import ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [True, False])
def test_capsule_consumed_twice_is_an_error_and_one_delete(versioned):
    producer = Producer(versioned)
    capsule = producer.capsule()
    view = _core.wrap(capsule)
    assert api.PyCapsule_GetName(capsule).startswith(b"used_dltensor")
    with pytest.raises(BufferError, match="used_"):
        _core.wrap(capsule)
    assert producer.deletes == 0
    del view
    assert producer.deletes == 1


def test_import_normalises():
    view = _core.wrap(Producer(byte_offset=8).capsule())
    assert view.strides == (3, 1)
    assert np.from_dlpack(view)[0, 0] == 2
    assert _core.wrap(Producer(shape=(2, 1, 3), strides=(3, 99, 1)).capsule()).strides == (3, 3, 1)
    assert _core.wrap(Producer(shape=(0, 3), data=None).capsule()).address == 0
    assert _core.wrap(Producer(device=Device(3, 2)).capsule()).device == (1, 0)
    assert _core.wrap(Producer(shape=(1,) * RANK_MAX).capsule()).ndim == RANK_MAX
    assert _core.wrap(Producer(shape=()).capsule()).shape == ()
    assert _core.wrap(Producer(flags=1 | 1 << 40).capsule()).read_only
    reverse = _core.wrap(Producer(shape=(3,), strides=(-1,), byte_offset=8).capsule())
    assert np.from_dlpack(reverse).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"dtype": DType(2, 32, 2)}, "2 lanes"),
        ({"dtype": DType(3, 64, 1)}, "code 3"),
        ({"dtype": DType(99, 32, 1)}, "code 99"),
        ({"dtype": DType(2, 0, 1)}, "0 bits"),
        ({"dtype": DType(15, 8, 1)}, "8 bits"),
        ({"data": None}, "NULL"),
        ({"shape": (2, -3)}, "-3"),
        ({"shape": (2**62, 2**62)}, "overflow"),
        ({"shape": (1,) * (RANK_MAX + 1)}, "65"),
        ({"shape": (3,), "strides": (2**62,)}, "stride"),
        ({"shape": (3,), "strides": (-(2**63),)}, "stride"),
        ({"ndim": -1}, "-1"),
        ({"device": Device(4, 0)}, "4, 0"),
        ({"device": Device(99, 0)}, "99, 0"),
    ],
)
@pytest.mark.parametrize("versioned", [True, False])
def test_import_refuses_by_name_and_takes_nothing(fields, named, versioned):
    producer = Producer(versioned, **fields)
    capsule = producer.capsule()
    with pytest.raises(BufferError, match=named):
        _core.wrap(capsule)
    assert api.PyCapsule_GetName(capsule) == producer.name
    assert producer.deletes == 0


def test_foreign_major_version():
    producer = Producer(major=2)
    with pytest.raises(BufferError, match="2.0"):
        _core.wrap(producer.capsule())
    assert producer.deletes == 0


def test_null_deleter_is_legal():
    view = _core.wrap(Producer(deleter=None).capsule())
    assert view.shape == (2, 3)
    del view


class KnowsOnlyStream:
    def __dlpack__(self, stream=None):
        return self.producer.capsule()


class RefusesKeywords:
    def __dlpack__(self, **keywords):
        if keywords:
            raise RuntimeError("no keywords")
        return self.producer.capsule()


class CallsItVersion:
    def __dlpack__(self, stream=None, version=None):
        return self.producer.capsule()


class IgnoresVersion:
    def __dlpack__(self, *, stream=None, max_version=None):
        return self.producer.capsule()


class LiesAboutItsDevice:
    def __dlpack__(self, **keywords):
        return self.producer.capsule()

    def __dlpack_device__(self):
        return (3, 0)


@pytest.mark.parametrize(
    "kind", [KnowsOnlyStream, RefusesKeywords, CallsItVersion, IgnoresVersion, LiesAboutItsDevice]
)
@pytest.mark.parametrize("versioned", [True, False])
def test_producers_as_they_are(kind, versioned):
    source = kind()
    source.producer = Producer(versioned)
    assert np.from_dlpack(_core.wrap(source)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert source.producer.deletes == 1


def test_what_does_not_speak_dlpack():
    for thing in (3, "text", object(), None, bytearray(3)):
        with pytest.raises(TypeError):
            _core.wrap(thing)

    class Wrong:
        def __dlpack__(self, **keywords):
            return 3

    with pytest.raises(TypeError):
        _core.wrap(Wrong())

    class Fails:
        def __dlpack__(self, **keywords):
            raise KeyError("mine")

    with pytest.raises(KeyError):
        _core.wrap(Fails())
    with pytest.raises(BufferError):
        _core.wrap(api.PyCapsule_New(8, b"something", None))


def test_a_view_is_its_own_view():
    view = _core.wrap(np.zeros(3))
    assert _core.wrap(view) is view


# --- the exchange table ---------------------------------------------------------------------------------------------

SetError = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)


class Table(c.Structure):
    _fields_ = [
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("prev", c.c_void_p),
        ("allocate", c.CFUNCTYPE(c.c_int, c.POINTER(Tensor), c.POINTER(c.c_void_p), c.c_void_p, SetError)),
        ("from_object", c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(c.c_void_p))),
        ("to_object", c.PYFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_void_p))),
        ("borrow", c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(Tensor))),
        ("stream", c.CFUNCTYPE(c.c_int, c.c_int, c.c_int32, c.POINTER(c.c_void_p))),
    ]


def table():
    capsule = _core.View.__dlpack_c_exchange_api__
    return c.cast(api.PyCapsule_GetPointer(capsule, b"dlpack_exchange_api"), c.POINTER(Table)).contents


def test_table_is_on_the_type():
    assert _core.View.__c_dlpack_exchange_api__ == c.addressof(table())
    assert (table().major, table().minor, table().prev) == (1, 3, None)


def test_table_exports_borrows_and_takes():
    view, alive = owned()
    out = c.c_void_p()
    assert table().from_object(view, c.byref(out)) == 0
    managed = c.cast(out, c.POINTER(Versioned)).contents
    assert managed.tensor.data == view.address
    made = c.c_void_p()
    assert table().to_object(out, c.byref(made)) == 0
    other = c.cast(made, c.py_object).value
    c.pythonapi.Py_DecRef(c.py_object(other))
    assert isinstance(other, _core.View)
    tensor = Tensor()
    assert table().borrow(view, c.byref(tensor)) == 0
    assert (tensor.data, tensor.ndim, tensor.shape[0], tensor.strides[0]) == (view.address, 1, 6, 1)
    stream = c.c_void_p(77)
    assert table().stream(1, 0, c.byref(stream)) == 0
    assert stream.value is None
    del view, other
    assert alive() is None


def test_table_refuses_what_is_no_view():
    out = c.c_void_p()
    with pytest.raises(TypeError):
        table().from_object(3, c.byref(out))
    with pytest.raises(TypeError):
        table().borrow(3, c.byref(Tensor()))
    producer = Producer(dtype=DType(99, 32, 1))
    with pytest.raises(BufferError):
        table().to_object(c.addressof(producer.managed), c.byref(out))
    assert producer.deletes == 0


def test_table_allocates():
    errors = []
    on_error = SetError(lambda _, kind, message: errors.append(kind))
    out = c.c_void_p()
    assert table().allocate(Producer().managed.tensor, c.byref(out), None, on_error) == 0
    managed = c.cast(out, c.POINTER(Versioned)).contents
    assert managed.tensor.data % 256 == 0
    assert [managed.tensor.shape[i] for i in range(2)] == [2, 3]
    Deleter(managed.deleter)(out)
    for spoiled in (Producer(device=Device(2, 0)), Producer(shape=(-1,)), Producer(shape=(2**62, 2**62))):
        assert table().allocate(spoiled.managed.tensor, c.byref(out), None, on_error) != 0
    assert errors == [b"BufferError"] * 3
    assert table().allocate(Producer(shape=(2**58,)).managed.tensor, c.byref(out), None, on_error) != 0
    assert errors[3:] == [b"MemoryError"]


# --- buffer, array interface ----------------------------------------------------------------------------------------

NUMBERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_type_of_numpy_both_ways(dtype):
    source = np.ones((2, 3), dtype)
    for view in (_core.wrap(source), _core.wrap_buffer(source), _core.wrap_array_interface(source.__array_interface__, source)):
        assert view.dtype == dtype
        for result in (np.from_dlpack(view), np.asarray(memoryview(view)), np.asarray(view), view.__array__()):
            assert result.dtype == source.dtype
            assert result.ctypes.data == source.ctypes.data
            assert np.array_equal(result, source)


@pytest.mark.parametrize("make", [lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: a[:0], lambda a: a[1, 2]])
def test_layouts(make):
    source = np.asarray(make(np.arange(24.0).reshape(4, 6)))
    expected = source.copy()
    for view in (_core.wrap(source), _core.wrap_buffer(source), _core.wrap_array_interface(source.__array_interface__, source)):
        assert np.array_equal(np.from_dlpack(view), expected)
        assert np.array_equal(np.asarray(view), expected)
        assert np.array_equal(np.from_dlpack(_core.copy_to_heap(view)), expected)
        assert view.compact == source.flags.c_contiguous
        assert view.nbytes == source.nbytes


def test_a_strided_view_is_no_flat_buffer():
    view = _core.wrap(np.arange(24.0).reshape(4, 6).T)
    with pytest.raises(BufferError):
        zlib.crc32(view)  # asks for bytes without strides
    assert memoryview(view).f_contiguous


@pytest.mark.parametrize("source", [b"bytes", memoryview(b"bytes"), np.arange(5, dtype=np.uint8).data.toreadonly()])
def test_read_only_buffers(source):
    view = _core.wrap_buffer(source)
    assert view.read_only
    with pytest.raises(BufferError):
        _core.wrap_buffer(source, read_only=False)


@pytest.mark.parametrize("source", [bytearray(8), array.array("d", [1]), (c.c_int16 * 4)(), mmap.mmap(-1, 8)])
def test_writable_buffers(source):
    view = _core.wrap_buffer(source)
    assert not view.read_only
    assert view.nbytes == 8
    np.frombuffer(view, np.uint8)[0] = 7
    assert bytes(memoryview(source))[0] == 7
    assert _core.wrap_buffer(source, read_only=True).read_only


def test_the_buffer_is_held():
    source = bytearray(8)
    view = _core.wrap_buffer(source)
    with pytest.raises(BufferError):
        source.extend(b"more")
    del view
    source.extend(b"more")


@pytest.mark.parametrize(
    "source",
    [
        np.zeros(3, ">f4"),
        np.zeros(3, "S3"),
        np.zeros(3, "U3"),
        np.zeros(3, object),
        np.zeros(3, [("a", "i4")]),
        np.zeros(3, np.longdouble),
        np.zeros(3, np.clongdouble),
        np.zeros(3, "M8[ns]"),
        np.zeros(3, [("a", "u1"), ("b", "<f4")])["b"],
    ],
    ids=str,
)
def test_what_dlpack_cannot_say_is_a_buffer_error(source):
    with pytest.raises((BufferError, ValueError)) as refusal:
        _core.wrap_buffer(source)
    if source.dtype.kind != "M":  # NumPy itself refuses to export datetimes, by ValueError
        assert isinstance(refusal.value, BufferError)
    with pytest.raises(BufferError):
        _core.wrap_array_interface(source.__array_interface__, source)


def interface(**changes):
    source = np.arange(6, dtype=np.float32)
    return {**source.__array_interface__, **changes}, source


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": None},
        {"mask": np.zeros(6, bool)},
        {"typestr": "<V4"},
        {"typestr": "f4"},
        {"typestr": "<f16"},
        {"typestr": "<f999"},
        {"typestr": 4},
        {"shape": None},
        {"shape": [6]},
        {"shape": (-1,)},
        {"shape": (2**62, 4)},
        {"shape": (2**70,)},
        {"shape": (1,) * (RANK_MAX + 1)},
        {"strides": (5,)},
        {"strides": (4, 4)},
        {"data": (0, False)},
        {"data": (2**70, False)},
        {"data": (1,)},
        {"data": bytearray(23)},
        {"data": bytearray(27), "offset": 4},
        {"data": bytearray(64), "offset": -1},
        {"data": bytearray(64), "strides": (-4,)},
    ],
    ids=str,
)
def test_hostile_array_interfaces_are_buffer_errors(changes):
    said, source = interface(**changes)
    with pytest.raises(BufferError):
        _core.wrap_array_interface(said, source)


def test_array_interface_data_forms():
    data = bytearray(np.arange(8, dtype=np.float32).tobytes())
    view = _core.wrap_array_interface(interface(data=data, offset=8)[0], data)
    assert np.from_dlpack(view).tolist() == [2, 3, 4, 5, 6, 7]
    assert not view.read_only
    assert _core.wrap_array_interface(interface(data=bytes(data))[0], None).read_only
    said, source = interface()
    del said["data"]
    assert _core.wrap_array_interface(said, source).address == source.ctypes.data
    assert _core.wrap_array_interface({**said, "data": (source.ctypes.data, True)}, source).read_only


def test_types_outside_numpys_words():
    view = _core.wrap(Producer(dtype=DType(4, 16, 1)).capsule())
    assert view.dtype == "bfloat16"
    assert not hasattr(view, "__array_interface__")
    assert not hasattr(view, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(view)
    with pytest.raises(TypeError, match="bfloat16"):
        np.asarray(view)
    assert read(view.__dlpack__()).tensor.dtype.code == 4


def test_named():
    view = _core.wrap(np.zeros(3, np.uint16))
    other = view.named("bfloat16", (4, 16, 1))
    assert (other.dtype, other.dtype_code, other.address) == ("bfloat16", (4, 16, 1), view.address)
    assert view.named("mine").dtype_code == (1, 16, 1)
    with pytest.raises(ValueError):
        view.named("float32", (2, 32, 1))
    with pytest.raises(TypeError):
        view.named("float32", 3)


# --- the object -----------------------------------------------------------------------------------------------------


def test_immutable_weak_referenceable_and_not_picklable():
    view = _core.wrap(np.zeros(3))
    assert weakref.ref(view)() is view
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(view)
    with pytest.raises(AttributeError):
        view.shape = (1,)
    with pytest.raises(AttributeError):
        view.other = 1
    with pytest.raises(TypeError):
        _core.View()
    with pytest.raises(TypeError):
        _core.View.shape = 1
    assert not hasattr(view, "__cuda_array_interface__")


def test_one_symbol():
    symbols = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in symbols.stdout.splitlines()] == ["PyInit__core"]


# --- real frameworks ------------------------------------------------------------------------------------------------


def numpy_pair():
    return lambda: np.arange(64, dtype=np.float32).reshape(8, 8), np.from_dlpack, lambda a: a.ctypes.data


def torch_pair():
    torch = pytest.importorskip("torch")
    return lambda: torch.arange(64, dtype=torch.float32).reshape(8, 8), torch.from_dlpack, lambda t: t.data_ptr()


def jax_pair():
    jax = pytest.importorskip("jax")
    return (
        lambda: jax.numpy.arange(64, dtype="float32").reshape(8, 8),
        lambda view: jax.dlpack.from_dlpack(view.for_immutable_consumer()),
        lambda a: a.unsafe_buffer_pointer(),
    )


def tensorflow_pair():
    tf = pytest.importorskip("tensorflow")
    return (
        lambda: tf.reshape(tf.range(64, dtype=tf.float32), (8, 8)),
        lambda view: tf.experimental.dlpack.from_dlpack(view.for_immutable_consumer().__dlpack__()),
        lambda t: np.asarray(t).ctypes.data,
    )


FRAMEWORKS = {"numpy": numpy_pair, "torch": torch_pair, "jax": jax_pair, "tensorflow": tensorflow_pair}


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_all_pairs_share_one_address(source, target):
    make, _, address = FRAMEWORKS[source]()
    _, take, address_there = FRAMEWORKS[target]()
    array_here = make()
    view = _core.copy_to_heap(_core.wrap(array_here))  # aligned as TensorFlow and JAX need it
    assert np.array_equal(np.asarray(view), np.asarray(array_here))
    there = take(view)
    assert address_there(there) == view.address
    if address(array_here) % 64 == 0:
        assert address_there(take(_core.wrap(array_here))) == address(array_here)
    del view, array_here
    assert np.array_equal(np.asarray(there), np.arange(64, dtype=np.float32).reshape(8, 8))


def test_torch_uses_the_table():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0)
    view = _core.wrap(tensor)
    assert view.address == tensor.data_ptr()
    assert not view.read_only
