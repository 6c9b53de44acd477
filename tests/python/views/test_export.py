# SPDX-License-Identifier: Apache-2.0
"""What a View exports by DLPack, in both dialects, and who deletes it when."""

import gc
import operator
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest
from dlpack_by_hand import RANK_MAX, Owner, api, c, consume, owned, read, read_only_view

from arraybridge import _core


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


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_unconsumed_capsule_deletes_once_and_keeps_the_pending_exception(version):
    view, alive = owned()
    capsule = view.__dlpack__(max_version=version)
    del view
    assert alive() is not None
    del capsule
    assert alive() is None
    view, alive = owned()
    # What a function raises is pending while its arguments go.
    with pytest.raises(TypeError, match="'PyCapsule' object cannot be interpreted"):
        operator.index(view.__dlpack__(max_version=version))
    del view
    assert alive() is None


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
