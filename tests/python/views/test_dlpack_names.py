# SPDX-License-Identifier: Apache-2.0
"""arraybridge.dlpack: pydlpack's names; and what array libraries ask a View: its dtype and its namespace."""

import ctypes

import array_api_compat
import ml_dtypes
import numpy as np
import pytest
from dlpack_by_hand import Holder, Producer

import arraybridge
from arraybridge import UnsupportedArray, View, asdlpack, dlpack

WORDS = {
    "int16": ("DLInt", 16), "uint8": ("DLUInt", 8), "float32": ("DLFloat", 32), "complex64": ("DLComplex", 64), "bool": ("DLBool", 8),
}  # fmt: skip


def values():
    return np.arange(6, dtype="f4").reshape(2, 3)


class DlpackAlone:
    def __init__(self, source):
        self.__dlpack__, self.__dlpack_device__ = source.__dlpack__, source.__dlpack_device__


class InterfaceAlone:
    def __init__(self, source):
        self.__array_interface__ = source.__array_interface__


class Version2Alone:
    def __init__(self, source):
        said = source.__array_interface__
        self.__array_shape__, self.__array_typestr__, self.__array_data__ = said["shape"], said["typestr"], said["data"]


PROTOCOLS = {
    dlpack.asdlpack_dlpack: DlpackAlone,
    dlpack.asdlpack_array_interface_v3: InterfaceAlone,
    dlpack.asdlpack_array_interface_v2: Version2Alone,
    dlpack.asdlpack_buffer: memoryview,
}


@pytest.mark.parametrize("read", PROTOCOLS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("kind", [None, dlpack.DLManagedTensor, dlpack.DLManagedTensorVersioned])
def test_each_protocol_by_its_name_and_no_other(read, kind):
    source = values()
    view = read(PROTOCOLS[read](source), impl_cls=kind)
    assert type(view) is View and view.address == source.ctypes.data and np.from_dlpack(view).tolist() == source.tolist()
    assert dlpack.asdlpack(PROTOCOLS[read](source), kind).address == source.ctypes.data
    for others in set(PROTOCOLS.values()) - {PROTOCOLS[read]}:
        with pytest.raises(TypeError, match="supports no"):
            read(others(source))
    with pytest.raises(TypeError, match="impl_cls"):
        read(source, impl_cls=3)


def test_no_gpus_interface_on_the_host():
    with pytest.raises(TypeError, match="supports no __cuda_array_interface__"):
        dlpack.asdlpack_cuda_array_interface(values())


def test_what_a_protocol_would_drop_is_refused_by_each():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    masked = np.ma.array([1, 2], mask=[0, 1])
    for read in (dlpack.asdlpack, dlpack.asdlpack_dlpack, dlpack.asdlpack_array_interface_v3, dlpack.asdlpack_buffer):
        with pytest.raises(UnsupportedArray, match="mask"):
            read(masked)
    for read in (dlpack.asdlpack, dlpack.asdlpack_dlpack):
        with pytest.raises(UnsupportedArray, match="conjugate or negative bit"):
            read(torch.tensor([1j]).conj().imag)
    assert dlpack.asdlpack_dlpack(torch.ones(2)).dtype == "float32"
    assert dlpack.asdlpack_array_interface_v3(values()).shape == (2, 3)


def test_bytes_never_change():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    text = bytes(map(ord, "Hello!"))
    torch.from_dlpack(dlpack.asdlpack_buffer(text))[0] = 74
    assert text == b"Hello!"


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_as_a_dictionary(dtype, versioned):
    source = np.zeros((2, 3), dtype)
    view = asdlpack(source)
    capsule = view.__dlpack__(max_version=(1, 0) if versioned else None)
    for _ in range(2):
        said = dlpack.todict(capsule)
        code, bits = WORDS[dtype]
        assert said["dl_tensor"] == {
            "data": source.ctypes.data, "device": {"device_type": "DLCPU", "device_id": 0}, "ndim": 2, "shape": (2, 3),
            "dtype": {"code": code, "bits": bits, "lanes": 1}, "strides": (3, 1), "byte_offset": 0,
        }  # fmt: skip
        assert isinstance(said["deleter"], int) and isinstance(said["manager_ctx"], int)
        assert (said.get("version"), said.get("flags")) == (({"major": 1, "minor": 3}, 0) if versioned else (None, None))
    assert np.from_dlpack(Holder(capsule)).tolist() == source.tolist(), "the capsule is still live"
    with pytest.raises(UnsupportedArray, match="used_dltensor"):
        dlpack.todict(capsule)


def test_capsules_that_are_none_and_words_that_dlpack_lacks():
    for nothing in (3, None, __import__("datetime").datetime_CAPI):
        with pytest.raises(UnsupportedArray, match="DLPack capsule"):
            dlpack.todict(nothing)
    with pytest.raises(UnsupportedArray, match="2.0"):
        dlpack.todict(Producer(True, major=2).capsule())
    said = dlpack.todict(Producer(shape=(), strides=None).capsule())["dl_tensor"]
    assert said["ndim"] == 0 and said["strides"] is None


def test_the_structures_are_dlpacks():
    assert ctypes.sizeof(dlpack.DLManagedTensor) == 64 and ctypes.sizeof(dlpack.DLManagedTensorVersioned) == 80
    assert dlpack.DLManagedTensorVersioned.dl_tensor.offset == 32


def test_jax_reads_a_view_as_an_array():
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    for name in ("float32", "int8", "bool", "complex64"):
        source = np.ones((2, 3), name)
        for got in (jnp.asarray(asdlpack(source)), jnp.array(asdlpack(source)), jnp.add(jnp.asarray(asdlpack(source)), 0)):
            assert np.asarray(got).tolist() == source.tolist()
        assert jnp.asarray(asdlpack(source)).dtype == name


def test_a_views_dtype_is_numpys():
    for name in ("float32", "complex128", "bool", "uint16"):
        view = asdlpack(np.zeros(2, name))
        assert view.dtype is np.dtype(name) and view.dtype_name == name and view.dtype.itemsize
    half = arraybridge.adapters.named("numpy").export(np.zeros(2, ml_dtypes.bfloat16))
    assert half.dtype == np.dtype(ml_dtypes.bfloat16) and half.dtype_name == "bfloat16"
    assert half.named("mine").dtype == "mine"
    assert "float32" in repr(asdlpack(values()))


def test_the_array_api_knows_views_and_shares(broker):
    view, share = asdlpack(values()), broker.put(values(), "s")
    for array in (view, share):
        assert array.__array_namespace__() is array_api_compat.numpy
        assert array.__array_namespace__(api_version="2023.12") is array_api_compat.numpy
        for names in (array_api_compat.array_namespace(array), arraybridge.array_namespace(array, values())):
            assert names.sum(array) == 15 and names.astype(names.asarray(array), names.int8).dtype == "int8"
        with pytest.raises(ValueError, match="1999"):
            array.__array_namespace__(api_version="1999.12")
        with pytest.raises(TypeError):
            array.__array_namespace__("2023.12")
    tree = broker.put([values(), values()], "t")
    with pytest.raises(UnsupportedArray, match="tree"):
        tree.__array_namespace__()


def test_the_helpers_of_array_api_compat_take_views_and_shares(broker):
    for array in asdlpack(values()), broker.put(values(), "s"):
        assert array_api_compat.is_array_api_obj(array) and not array_api_compat.is_lazy_array(array)
        assert array_api_compat.size(array) == array.size == values().size and tuple(array.shape) == values().shape
        assert array.dtype == values().dtype
        here = array_api_compat.device(array)
        for device in here, "cpu":
            assert array_api_compat.to_device(array, device) is array
        with pytest.raises(TypeError, match="device='cuda:0'"):
            array_api_compat.to_device(array, "cuda:0")
        names = array_api_compat.array_namespace(array)
        assert names.isdtype(array.dtype, "integral") == (values().dtype.kind in "iu")
        with pytest.raises(TypeError):
            array.to_device(device=here)


def test_a_share_knows_the_dtype_and_shape_of_every_array(broker):
    for array in (
        np.zeros((2, 0), "M8[ns]"), np.zeros(3, [("a", "i4"), ("b", "f8", 2)]), np.ones((), ml_dtypes.bfloat16), np.zeros((4, 3), "?"),
    ):  # fmt: skip
        share = broker.put(array, "s", replace=True)
        assert (share.shape, share.size, share.dtype) == (array.shape, array.size, array.dtype)
    tree = broker.put([values(), values()], "t")
    assert not any(hasattr(tree, name) for name in ("shape", "size", "dtype"))
    with pytest.raises(UnsupportedArray, match="tree"):
        tree.to_device("cpu")
