# SPDX-License-Identifier: Apache-2.0
"""What a View is made of that comes by DLPack: foreign producers, broken ones included."""

import gc
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from dlpack_by_hand import RANK_MAX, Device, DType, Producer, api, read

import arraybridge
from arraybridge import _core


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


@pytest.mark.parametrize("kind", [KnowsOnlyStream, RefusesKeywords, CallsItVersion, IgnoresVersion, LiesAboutItsDevice])
@pytest.mark.parametrize("versioned", [True, False])
def test_producers_as_they_are(kind, versioned):
    source = kind()
    source.producer = Producer(versioned)
    assert np.from_dlpack(_core.wrap(source)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert source.producer.deletes == 1


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax"])
@pytest.mark.parametrize("versioned", [True, False])
def test_page_locked_memory_is_the_hosts(versioned, target):
    """Device 3, which torch, CuPy, and JAX without a GPU refuse."""
    pytest.importorskip(target, reason=f"{target} is not installed")
    source = LiesAboutItsDevice()
    source.producer = Producer(versioned, device=Device(3, 0))
    view = arraybridge.asdlpack(source)
    assert view.__dlpack_device__() == (1, 0) and read(view.__dlpack__()).tensor.device.type == 1
    for copy in (None, True):
        got = arraybridge.convert_memory(view, None, target, None, copy=copy)
        assert np.asarray(got).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert source.producer.deletes == 0
    del view, got
    gc.collect()
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


def test_a_foreign_deleter_is_not_called_while_the_interpreter_ends():
    """A thread of its own drops a View at the end of the process, as the client's threads do with copies to a GPU. A
    deleter that asks for the GIL then would end that thread in the middle of C++, and so the process.
    """
    script = """
        import builtins
        from dlpack_by_hand import Producer, c, consume
        from arraybridge import _core

        producer = Producer()
        managed, _ = consume(_core.wrap(producer.capsule()).__dlpack__(max_version=(1, 0)))
        libc = c.CDLL(None)
        libc.pthread_create.argtypes = [c.c_void_p] * 4

        class Last:
            def __del__(self, libc=libc, managed=managed, thread=c.c_ulong(), address=c.addressof, producer=producer):
                libc.pthread_create(address(thread), None, managed.deleter, address(managed))
                libc.usleep(200_000)  # without the GIL
                libc.write(1, b"end", 3)

        builtins.last = Last()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end", "")
