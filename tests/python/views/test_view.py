# SPDX-License-Identifier: Apache-2.0
"""A View as an object, and handed from framework to framework."""

import copy
import pickle
import subprocess
import weakref

import numpy as np
import pytest

from arraybridge import _core


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
