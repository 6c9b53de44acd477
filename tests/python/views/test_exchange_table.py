# SPDX-License-Identifier: Apache-2.0
"""DLPack's exchange table, called from C as frameworks call it."""

import pytest
from dlpack_by_hand import Deleter, Device, DType, Producer, Tensor, Versioned, api, c, owned

from arraybridge import _core

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
