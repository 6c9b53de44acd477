# SPDX-License-Identifier: Apache-2.0
"""What cannot be converted is refused in the package's own words: what it is, from what, to what."""

import gc
import sys
import types
import weakref

import jax
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch_forms import FORMS

import arraybridge
from arraybridge import (
    BrokerError,
    DeviceUnavailable,
    InvalidRequest,
    MemoryConversionError,
    OutOfMemory,
    UnsupportedArray,
    UnsupportedDtype,
    asdlpack,
    convert_memory,
    errors,
)

NOBODY = arraybridge.Broker("/nonexistent", start="never")
OTHERS = ("numpy", "tensorflow", "jax")


@pytest.mark.parametrize("form", FORMS)
def test_tensors_without_memory_are_refused_by_name(form):
    make, word = FORMS[form]
    for target in OTHERS:
        for ask in (
            lambda target=target: NOBODY.convert(make(), target),
            lambda target=target: NOBODY.convert(make(), target, copy=True),
            lambda target=target: NOBODY.convert([make()], target, copy=False),
            lambda target=target: NOBODY.plan(make(), target),
            lambda target=target: convert_memory(make(), "torch", target, None),
        ):
            with pytest.raises(UnsupportedArray, match=word) as caught:
                ask()
            assert (caught.value.source_type, caught.value.target_type) == ("torch", target)


@pytest.mark.parametrize("form", FORMS)
def test_tensors_without_memory_are_neither_put_nor_viewed(broker, form):
    make, word = FORMS[form]
    for ask, target in (
        (lambda: broker.put(make(), "form"), "share"),
        (lambda: broker.put({"a": np.ones(2), "b": make()}, "form"), "share"),
        (lambda: asdlpack(make()), "dlpack"),
    ):
        with pytest.raises(UnsupportedArray, match=word) as caught:
            ask()
        assert (caught.value.source_type, caught.value.target_type) == ("torch", target)
    with pytest.raises(arraybridge.ShareNotFound):
        broker.get("form")


def test_a_form_is_refused_after_others_like_it_took_the_short_way():
    for target in OTHERS:
        for _ in range(3):
            NOBODY.convert(torch.ones(16), target, copy=False, explain=True)
        for form in ("freed storage", "cut storage", "zero", "functional"):
            make, word = FORMS[form]
            with pytest.raises(UnsupportedArray, match=word):
                NOBODY.convert(make(), target, copy=False)


def test_distributed_tensors_are_refused_with_their_way_out():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        for tensor, way_out in (
            (DTensor.from_local(torch.ones(4), mesh), r"pass tensor\.to_local\(\), its part here"),
            (AsyncCollectiveTensor(torch.ones(4)), r"pass tensor\.wait\(\), its values"),
        ):
            with pytest.raises(UnsupportedArray, match=way_out):
                NOBODY.convert(tensor, "numpy")
    finally:
        torch.distributed.destroy_process_group()


REFUSED = {
    "jax": (lambda: jax.numpy.zeros(3, "int4"), "int4"),
    "numpy": (lambda: np.array([object()]), "object"),
    "tensorflow": (lambda: tf.constant(["a"]), "string"),
    "torch": (lambda: torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "float4_e2m1fn_x2"),
}


@pytest.mark.parametrize("source", REFUSED)
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax"])
def test_a_dtype_is_refused_of_its_source_for_its_target(source, target):
    make, word = REFUSED[source]
    if source == target:
        return
    for ask in (lambda: NOBODY.convert(make(), target), lambda: convert_memory(make(), source, target, None)):
        with pytest.raises(UnsupportedDtype, match=word) as caught:
            ask()
        error = caught.value
        assert (error.source_type, error.target_type) == (source, target)
        assert str(error).startswith(f"Cannot convert from {source} to {target}: {error.reason}")
        assert "NumPy's" not in error.reason


@pytest.mark.parametrize("source", REFUSED)
def test_a_dtype_is_refused_of_its_source_for_a_share(broker, source):
    make, word = REFUSED[source]
    with pytest.raises(UnsupportedDtype, match=word) as caught:
        broker.put(make(), "dtype")
    assert (caught.value.source_type, caught.value.target_type) == (source, "share")
    with pytest.raises(UnsupportedDtype, match=word) as caught:
        asdlpack(make())
    assert (caught.value.source_type, caught.value.target_type) == (source, "dlpack")


def test_objects_that_are_no_arrays_are_refused_for_their_target():
    for thing, name in (("text", "str"), (3.5, "float"), (object(), "object")):
        with pytest.raises(UnsupportedArray) as caught:
            NOBODY.convert(thing, "torch")
        assert (caught.value.source_type, caught.value.target_type) == (name, "torch")


def test_a_refusal_keeps_its_array_no_longer_than_its_traceback():
    array = np.array([object()])
    gone = weakref.ref(array)
    try:
        NOBODY.convert(array, "torch")
    except UnsupportedDtype as error:
        kept = error.with_traceback(None)
    gc.disable()
    try:
        del array
        assert gone() is None and kept.target_type == "torch"
    finally:
        gc.enable()


class Exporting:
    """A producer whose own error is none of DLPack's."""

    def __init__(self, error):
        self._error = error

    def __dlpack__(self, **_):
        raise self._error

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize("error", [ValueError("odd"), NotImplementedError("not yet"), ZeroDivisionError("why")])
def test_whatever_a_producer_raises_is_chained(broker, error):
    for ask, target in (
        (lambda: NOBODY.convert(Exporting(error), "torch"), "torch"),
        (lambda: broker.put(Exporting(error), "producer"), "share"),
    ):
        with pytest.raises(UnsupportedArray, match=str(error)) as caught:
            ask()
        assert caught.value.__cause__ is error and caught.value.target_type == target


def test_whatever_a_framework_raises_is_one_of_ours():
    for error in (RuntimeError("odd"), IndexError("off"), type("Strange", (Exception,), {})("new")):
        ours = errors.raised_by(error, "numpy", "jax", "place")
        assert type(ours) is MemoryConversionError and type(error).__name__ in str(ours) and str(error) in ours.reason
    assert isinstance(errors.raised_by(MemoryError("all"), "numpy", "jax", "place"), OutOfMemory)
    assert errors.raised_by(ours, "a", "b", "place") is ours and isinstance(ours, BrokerError)


def test_an_error_between_others_keeps_what_it_knew():
    plan = NOBODY.plan(np.ones(2)[::-1], "torch")
    for error in (
        errors.ZeroCopyUnavailable("a", "any", "place", "because", plan),
        errors.FrameworkNotAvailable("a", "any", "detect", "not available", "cupy"),
        errors.UnsupportedDtype("a", "any", "hand_over", "because"),
    ):
        error.__cause__ = KeyError()
        other = error.between("numpy", "torch")
        assert type(other) is type(error) and other.__cause__ is error.__cause__ and other.reason == error.reason
        prefix = "Cannot convert from numpy to torch: " if other.names_sides else ""
        assert str(other).startswith(prefix + other.reason) and error.target_type == "any"
        assert getattr(other, "plan", None) is getattr(error, "plan", None)
        assert getattr(other, "name", None) == getattr(error, "name", None)


def quantized(name):
    return tf.bitcast(tf.constant([1, 2, 3], getattr(tf, name.removeprefix("q"))), getattr(tf, name))


# Of a refused array: its maker, the advice of its message, and the same as a program.
ADVICE = {
    **{
        f"torch {name}": (
            lambda name=name: torch.tensor([1, 2, 3], dtype=torch.uint8).view(getattr(torch, name)),
            "share its bytes, tensor.view(torch.uint8)",
            lambda tensor: tensor.view(torch.uint8),
        )
        for name in ("int1", "int4", "int7", "uint1", "uint4", "uint7", "float4_e2m1fn_x2", "bits8")
    },
    **{
        f"tf {name}": (
            lambda name=name: quantized(name),
            f"share its integers, tf.bitcast(tensor, tf.{name[1:]})",
            lambda tensor, name=name: tf.bitcast(tensor, getattr(tf, name[1:])),
        )
        for name in ("qint8", "quint8", "qint16", "quint16", "qint32")
    },
    "torch qint8": (
        lambda: torch.quantize_per_tensor(torch.tensor([1.0, 2.0, 3.0]), 1.0, 0, torch.qint8),
        "pass tensor.int_repr()",
        lambda tensor: tensor.int_repr(),
    ),
    "ml_dtypes int4": (lambda: np.array([1, 2, 3], "int4"), 'convert it with astype("int8")', lambda array: array.astype("int8")),
    "jax uint4": (lambda: jax.numpy.array([1, 2, 3], "uint4"), 'convert it with astype("uint8")', lambda array: array.astype("uint8")),
    "jax float4": (
        lambda: jax.numpy.array([1, 2, 3], "float4_e2m1fn"), 'convert it with astype("float32")', lambda array: array.astype("float32")
    ),
    "long complex": (lambda: np.array([1, 2, 3j], np.clongdouble), "for example with astype(complex)", lambda array: array.astype(complex)),
    "long double": (lambda: np.array([1, 2, 3], np.longdouble), "for example with astype(float)", lambda array: array.astype(float)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.parametrize("kind", ADVICE)
def test_a_dtype_that_no_other_has_is_refused_by_every_verb_and_its_advice_works(broker, kind):
    make, advice, follow = ADVICE[kind]
    array = make()
    # Plans of ordinary arrays of its class exist.
    for ordinary in (torch.ones(3, dtype=torch.int8), tf.constant([1, 2, 3], tf.int8), np.ones(3, "i1"), jax.numpy.ones(3, "int8")):
        broker.put(ordinary, "like it", replace=True)
        for target in ("numpy", "torch"):
            broker.convert(ordinary, target)
    sender, receiver = broker.channel("of it"), broker.channel("of it").receiver()
    for ask in (
        lambda: broker.put(array, "it"),
        lambda: (broker.put(array, "it", wait=False), broker.flush()),
        lambda: (broker.put_many({"it": array}), broker.flush()),
        lambda: broker.put({"it": array}, "it"),
        lambda: broker.put(array, "it", sealed=True),
        lambda: sender.send(array),
        lambda: sender.send(array, timeout=5),
        lambda: broker.bundle("it", {"it": array}) if kind != "torch float4_e2m1fn_x2" else broker.put(array, "it"),  # bundles have it
        lambda: broker.convert(array, "numpy" if not isinstance(array, np.ndarray) else "torch"),
        lambda: asdlpack(array),
    ):
        with pytest.raises(BrokerError) as caught:
            ask()
    assert broker.list(prefix="it") == []
    with pytest.raises(BrokerError) as caught:
        broker.put(array, "it")
    assert advice in str(caught.value)
    followed = follow(array)
    broker.put(followed, "it")
    got = broker.get("it")
    assert got.shape == (3,) and (got == ([1, 2, 3j] if "complex" in kind else [1, 2, 3])).all()
    sender.send(followed)
    assert (next(iter(receiver)) == got).all()


WHERE = {
    "fake": lambda ask: in_mode(ask),
    "fake, allowing others": lambda ask: in_mode(ask, allow_non_fake_inputs=True),
    "vmap": lambda ask: torch.func.vmap(lambda each: (ask(), each)[1])(torch.ones(2, 3)),
    "grad": lambda ask: torch.func.grad(lambda each: (ask(), each.sum())[1])(torch.ones(3)),
    "functionalize": lambda ask: torch.func.functionalize(lambda each: (ask(), each)[1])(torch.ones(3)),
}  # fmt: skip
ORDINARY = {
    "compact": lambda: torch.arange(3.0),
    "strided": lambda: torch.arange(6.0)[::2],
    "with a gradient": lambda: torch.arange(3.0, requires_grad=True),
    "conjugate": lambda: torch.tensor([1 + 2j, 3j, 4]).conj(),
    "negative": lambda: torch.tensor([1 + 2j, 3j, 4]).conj().imag,
}


def in_mode(ask, **options):
    with FakeTensorMode(**options):
        ask()


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_tensors_are_read_where_torch_records_operations(broker, tmp_path, where, kind):
    tensor = ORDINARY[kind]()
    values = tensor.detach().resolve_conj().resolve_neg().numpy().copy()
    plain = tensor.detach().resolve_conj().resolve_neg()
    sender, receiver = broker.channel("of it"), broker.channel("of it").receiver()
    read = []

    def ask():
        broker.put(tensor, "put", replace=True)
        broker.put({"a": tensor}, "tree", replace=True)
        broker.bundle("bundle", {"a": tensor}, replace=True).fill().publish()
        arraybridge.save({"a": tensor}, tmp_path / "a.safetensors")
        sender.send(tensor)
        read.extend(broker.convert(tensor, target, copy=copy) for target in ("numpy", "jax") for copy in (None, True))
        read.extend([convert_memory(tensor, "torch", "numpy", None), convert_memory(values, "numpy", "torch", None)])
        read.extend([broker.get("put", "torch"), broker.convert(tensor, "torch", copy=True), np.asarray(asdlpack(plain))])

    WHERE[where](ask)
    read += [broker.get("put"), broker.get("tree")["a"], broker.open("bundle").numpy()["a"], next(iter(receiver))]
    for each in read:
        each = each.detach().resolve_conj().resolve_neg() if isinstance(each, torch.Tensor) else each
        assert (np.asarray(each) == values).all(), each


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
@pytest.mark.parametrize(
    ("where", "advice"), [("fake", "made outside of FakeTensorMode"), ("vmap", "outside of it"), ("grad", "outside of it")]
)
def test_tensors_that_torch_records_are_refused_and_the_advice_works(broker, where, advice):
    outside = torch.ones(2, 3)
    refused = []

    def ask(tensor):
        for verb in lambda: broker.put(tensor, "it"), lambda: broker.convert(tensor, "numpy"), lambda: asdlpack(tensor):
            with pytest.raises(UnsupportedArray, match=advice):
                verb()
            refused.append(tensor)
        return tensor.sum()

    if where == "fake":
        with FakeTensorMode():
            ask(torch.ones(2, 3))
            broker.put(outside, "it")
    else:
        result = getattr(torch.func, where)(ask)(outside)
        assert (broker.convert(result, "numpy") == result.numpy()).all()
        broker.put(outside, "it")
    assert len(refused) == 3 and (broker.get("it") == 1).all()


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_advice_about_dimensions_works(broker):
    for array, target, shape, advice in (
        (np.float32([3])[0] + np.zeros((), "f4"), "pyarrow", (1,), r"at least 1 dimension, and the array has 0: reshape it to \(1,\)"),
        (np.zeros((2,) * 33, "i1")[(slice(0, 1),) * 33], "pyarrow", (1,) * 32, "at most 32 dimensions, and the array has 33: reshape it"),
    ):
        array = np.asarray(array)
        with pytest.raises(UnsupportedArray, match=advice):
            broker.convert(array, target)
        assert broker.convert(array.reshape(shape), target).to_numpy().reshape(array.shape).tolist() == array.tolist()


def test_advice_about_where_empty_allocates_works(broker, monkeypatch):
    cupy = types.ModuleType("cupy")
    cupy.__version__ = "14.0"
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for device in None, "cpu":
        with pytest.raises(
            DeviceUnavailable, match="cupy has no arrays on cpu: this process sees no GPU: allocate it for 'numpy' or 'torch'"
        ):
            broker.empty(3, "float32", "cupy", device=device)
    for framework in "numpy", "torch":
        assert broker.empty(3, "float32", framework).shape == (3,)


def test_advice_about_a_file_of_one_array_works(broker, tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(3))
    with pytest.raises(InvalidRequest, match=r"is one array without a name \(\.npy\): put it, broker\.put\(numpy\.load"):
        arraybridge.load(path, broker=broker)
    broker.put(np.load(path), "name")
    assert broker.get("name").tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_arrows_arrays_of_tensors_are_read(broker):
    pyarrow = pytest.importorskip("pyarrow")
    values = np.arange(12.0).reshape(2, 2, 3)
    array = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(values)
    broker.put(array, "it")
    for read in broker.get("it"), broker.convert(array, "torch"), convert_memory(array, None, "numpy", None), np.asarray(asdlpack(array)):
        assert (np.asarray(read) == values).all()
    with_null = pyarrow.ExtensionArray.from_storage(array.type, pyarrow.array([[1.0] * 6, None], array.type.storage_type))
    with pytest.raises(UnsupportedArray, match="1 nulls would be lost: call drop_null first"):
        broker.convert(with_null, "torch")
    assert broker.get(broker.put(with_null), "pyarrow").equals(with_null)  # a column of a table has nulls
    broker.put(with_null.drop_null(), "it", replace=True)
    assert broker.get("it").shape == (1, 2, 3)
