# SPDX-License-Identifier: Apache-2.0
"""The advice of a message works when one follows it: each row makes a refusal, finds the advice in its message, and does
what it says. Dtypes that only one framework has are in test_refusals.
"""

import array
import collections
import contextlib
import ctypes
import dataclasses
import datetime
import enum
import gc
import pickle
import zoneinfo
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas
import pyarrow
import pytest
import scipy.sparse
import tensorflow as tf
import torch
from jax.experimental import sparse as jax_sparse

import arraybridge
from arraybridge import Broker, BundleSpec, asdlpack, convert_memory
from arraybridge.integrations.torch import attach, publish

ONE = np.arange(3.0)
COLUMN = np.zeros(4, [("f0", "i4"), ("f1", "f8")])[::2]
OVERLAPPING = np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}))
CONJUGATE = torch.tensor([1 + 2j, 3 - 4j]).conj()
SYMBOLS = np.array(["a", "b"])
CHANNELS = ["closed", "four", "full False", "full True", "newest", "p"]  # of the rows
PARIS = zoneinfo.ZoneInfo("Europe/Paris")


@pytest.fixture
def broker(broker: Broker) -> Iterator[Broker]:
    """The broker of other tests; leaves no channel that waits for a receiver."""
    yield broker
    gc.collect()
    for name in CHANNELS:
        with contextlib.suppress(arraybridge.BrokerError):
            broker.channel(name).drain()


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_double))


class Either(ctypes.Union):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_float))


class Bits(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int, 3), ("y", ctypes.c_int, 5))


NULLS = pyarrow.table({"x": [1, None]})


class Colour(enum.Enum):
    ODD = object()


@dataclasses.dataclass
class Frame:
    image: Any


class Number(int):
    pass


class Row(NamedTuple):
    """A call that is refused, words of its message, and a call that does what they say."""

    cause: str
    refused: Callable[[Broker], object]
    advice: str
    followed: Callable[[Broker], object]


def put(made: Any) -> Callable[[Broker], object]:
    return lambda broker: broker.put(made)


def beside(value: Any) -> Callable[[Broker], object]:
    """A put of a tree with this value, which is read as it is."""

    def same(broker: Broker) -> None:
        got = broker.get(broker.put({"a": ONE, "value": value}))["value"]
        assert np.asarray(got).tolist() == np.asarray(value).tolist()

    return same


def dlpack(made: Any) -> Callable[[Broker], object]:
    return lambda broker: np.from_dlpack(asdlpack(made))


def values(got: Any, wanted: Any) -> None:
    assert np.asarray(got).tolist() == np.asarray(wanted).tolist()


def bundled(arrays: dict[str, Any]) -> Callable[[Broker], object]:
    return lambda broker: broker.bundle(None, arrays).fill().publish()


def attached(make: Callable[[], torch.nn.Module], **options: Any) -> Callable[[Broker], object]:
    """Attaches the weights of a layer of 2 inputs and 3 outputs."""

    def ask(broker: Broker) -> None:
        publish(torch.nn.ModuleDict({"inner": torch.nn.Linear(2, 3)}), "model", broker=broker, replace=True)
        attach(make(), broker.open("model"), **options)  # the rows outlive the test, and so would a module of theirs

    return ask


def empty(dtype: Any) -> Callable[[Broker], object]:
    return lambda broker: broker.empty((2,), dtype)


def of_another_class(**wishes: Any) -> Callable[[Broker], object]:
    """A get of a dataclass that has another field in the reading process."""

    def ask(broker: Broker) -> None:
        share = broker.put([Frame(ONE)])
        kind = dataclasses.make_dataclass("Frame", [("picture", Any)], namespace={"__module__": __name__})
        broker.get(share, types=wishes.get("types", [kind]))

    return ask


def gone(broker: Broker) -> Any:
    share = broker.put(ONE, "gone", replace=True)
    broker.put(ONE + 1, "gone", replace=True)
    return share


def opened(broker: Broker, name: str, capacity: int | None = None, **options: Any) -> Any:
    return broker.channel(name, capacity, **options).open("sender")


def into_four(capacity: int | None) -> Callable[[Broker], object]:
    return lambda broker: (opened(broker, "four", 4), opened(broker, "four", capacity))


def into_newest(mode: Any) -> Callable[[Broker], object]:
    return lambda broker: (opened(broker, "newest", mode="latest"), opened(broker, "newest", mode=mode))


def after_close(again: bool) -> Callable[[Broker], object]:
    def ask(broker: Broker) -> None:
        channel = opened(broker, "closed")
        channel.close()
        (broker.channel("closed") if again else channel).send(ONE)

    return ask


def into_full(receives: bool) -> Callable[[Broker], object]:
    def ask(broker: Broker) -> None:
        name = f"full {receives}"
        sender, receiver = opened(broker, name, 1), broker.channel(name).open("receiver")
        sender.send(ONE)
        if receives:
            receiver.receive()
        sender.send(ONE, timeout=60 if receives else 0.02)

    return ask


def read_again(broker: Broker, again: bool) -> None:
    watch = broker.watch("publish")
    watch.close()
    if again:
        watch = broker.watch("publish")
        broker.put(ONE)
    watch.next(timeout=60)


def text_of(tensor: Any) -> dict[str, Any]:
    return {"text": np.asarray(tensor).tolist(), "values": ONE}


def sparse_with(dimensions: str) -> Any:
    return jax_sparse.BCOO.fromdense(jax.numpy.ones((2, 2)), **{dimensions: 1})


def in_graph(inside: Callable[[Any], Any]) -> Callable[[Broker], object]:
    return lambda broker: tf.function(inside)(tf.constant([1.0, 2.0])).numpy()


def converted(tensor: Any) -> Any:
    return convert_memory(convert_memory(tensor, "tensorflow", "numpy", None), "numpy", "tensorflow", None)


def capsule_of() -> Any:
    return np.ones(3).__dlpack__()


def wider(x64: bool) -> Callable[[Broker], object]:
    def ask(broker: Broker) -> None:
        with jax.enable_x64(x64):
            assert broker.convert(ONE, "jax").dtype == "float64"

    return ask


ROWS = [
    # NumPy's scalars, and what other libraries call an array
    Row("text of NumPy in a tree", beside(np.str_("x")), '{"text": numpy.asarray(text).tolist()', beside(np.asarray(np.str_("x")).tolist())),
    Row("bytes of NumPy in a tree", beside(np.bytes_(b"x")), "numpy.asarray(text).tolist()", beside(np.asarray(np.bytes_(b"x")).tolist())),
    Row("an array of text", put(SYMBOLS), '{"text": numpy.asarray(text).tolist(), "values": values}', put(text_of(SYMBOLS))),
    Row("text of the array module", put(array.array("u", "ab")), "numpy.asarray(text).tolist()", put(text_of(array.array("u", "ab")))),
    Row("raw bytes", put(np.zeros(2, "V4")), 'numpy.frombuffer(array.tobytes(), "uint8")', put(np.frombuffer(np.zeros(2, "V4").tobytes(), "uint8"))),
    Row("raw bytes in a tree", beside(np.void(b"abc")), 'numpy.frombuffer(array.tobytes(), "uint8")',
        beside(np.frombuffer(np.void(b"abc").tobytes(), "uint8"))),
    Row("a dtype without fields", put(np.zeros(2, [])), 'numpy.frombuffer(array.tobytes(), "uint8")',
        put(np.frombuffer(np.zeros(2, []).tobytes(), "uint8"))),
    Row("a long double of NumPy", beside(np.longdouble(2)), "astype(float)", beside(np.longdouble(2).astype(float))),
    Row("a dtype with metadata", put(np.zeros(2, np.dtype("M8[s]", metadata={"a": 1}))), 'view("int64")', put(np.zeros(2, "M8[s]").view("int64"))),
    Row("numbers as objects", put(np.array([1, 2], object)), "astype(float)", put(np.array([1, 2], object).astype(float))),
    Row("fields that overlap", put(OVERLAPPING), "{name: array[name] for name in array.dtype.names}",
        put({name: OVERLAPPING[name] for name in OVERLAPPING.dtype.names})),
    Row("a field of bfloat16", put(np.zeros(2, [("a", "bfloat16")])), "{name: array[name] for name in array.dtype.names}",
        put({"a": np.zeros(2, [("a", "bfloat16")])["a"]})),
    Row("a field of objects", put(np.zeros(2, [("a", object), ("b", "f8")])), "pass its other fields as a dict",
        put({"b": np.zeros(2, [("a", object), ("b", "f8")])["b"]})),
    Row("a masked array", put(np.ma.array([1, 2], mask=[0, 1])), "pass .data or .filled()", put(np.ma.array([1, 2], mask=[0, 1]).filled())),
    Row("a struct with bits", put(Bits()), "pass their bytes, bytes(array)", put(bytes(Bits()))),
    Row("wide characters of C", put((ctypes.c_wchar * 2)()), "pass their bytes, bytes(array)", put(bytes((ctypes.c_wchar * 2)()))),
    Row("pointers of C", put(ctypes.pointer(ctypes.c_int(3))), "pass what they point to", put(ctypes.pointer(ctypes.c_int(3)).contents)),
    Row("a union of C", put((Either * 2)()), "pass its fields as a dict", put({"x": np.zeros(2, "i4"), "y": np.zeros(2, "f4")})),
    Row("a number", put(3.5), "numpy.asarray makes one of numbers", put(np.asarray(3.5))),
    Row("a decimal in a tree", beside(Decimal("1.5")), "a tree may also contain numbers", beside(float(Decimal("1.5")))),
    Row("a sparse array in a bundle", bundled({"s": scipy.sparse.eye_array(3)}), "toarray()", bundled({"s": scipy.sparse.eye_array(3).toarray()})),
    Row("SciPy's other formats", put(scipy.sparse.eye_array(3, format="lil")), "pass array.tocsr()", put(scipy.sparse.eye_array(3, format="lil").tocsr())),
    Row("Arrow's nulls", lambda b: b.convert(pyarrow.array([1, None]), "torch"), "call fill_null first",
        lambda b: b.convert(pyarrow.array([1, None]).fill_null(0), "torch")),
    Row("Arrow's text", lambda b: b.convert(pyarrow.array(["a"]), "torch"), "put text as a list beside an array (to_pylist)",
        beside(pyarrow.array(["a"]).to_pylist())),
    Row("nulls of a column", lambda b: b.get(b.put(NULLS), "torch", column="x"), "call fill_null before the put",
        lambda b: b.get(b.put(NULLS.set_column(0, "x", NULLS["x"].fill_null(0))), "torch", column="x")),
    Row("nulls of a column for a library", lambda b: b.get(b.put(NULLS), column="x"), "get it as 'pyarrow'", lambda b: b.get(b.put(NULLS), "pyarrow")),
    Row("text of a column", lambda b: b.get(b.put(pyarrow.table({"x": ["a"]})), column="x"), "get it as 'pyarrow', 'pandas'",
        lambda b: b.get(b.put(pyarrow.table({"x": ["a"]})), "pandas")),
    Row("a table that cannot be written", lambda b: b.get(b.put(NULLS), "pyarrow", copy=True), "get it as 'pandas'",
        lambda b: b.get(b.put(NULLS), "pandas", copy=True)),
    Row("objects of pandas", put(pandas.DataFrame({"x": [1, "a"]})), "astype(str)", put(pandas.DataFrame({"x": [1, "a"]}).astype(str))),
    Row("TensorFlow's text", put(tf.constant(["a"])), "numpy.asarray(tensor).tolist()", put(text_of(tf.constant(["a"])))),
    Row("one text of TensorFlow", put(tf.constant("a")), "numpy.asarray(tensor).tolist()", put(text_of(tf.constant("a")))),
    Row("a ragged tensor", put(tf.ragged.constant([[1], [2, 3]])), "use to_tensor", put(tf.ragged.constant([[1], [2, 3]]).to_tensor())),
    Row("a symbolic tensor", in_graph(lambda x: convert_memory(x, "tensorflow", "numpy", None)), "tf.py_function",
        in_graph(lambda x: tf.py_function(converted, [x], tf.float32))),
    Row("JAX's batches", put(sparse_with("n_batch")), "array.todense()", put(sparse_with("n_batch").todense())),
    Row("JAX's old formats", put(jax_sparse.COO.fromdense(jax.numpy.ones((2, 2)))), "array.todense()",
        put(jax_sparse.COO.fromdense(jax.numpy.ones((2, 2))).todense())),
    # Trees
    Row("a key of NumPy", put({np.int64(3): ONE}), "pass str(key)", put({str(np.int64(3)): ONE})),
    Row("a key that is a tuple", put({(1, 2): ONE}), "pass str(key)", put({str((1, 2)): ONE})),
    Row("a key that is no number", put({float("nan"): ONE}), "pass str(key)", put({str(float("nan")): ONE})),
    Row("a class of dict", put(collections.defaultdict(list, a=ONE)), "pass a dict", put(dict(collections.defaultdict(list, a=ONE)))),
    Row("torch's size", beside(torch.Size([1])), "pass a dict, list or tuple", beside(tuple(torch.Size([1])))),
    Row("a class of int", beside(Number(3)), "a value of the base class of Number", beside(int(Number(3)))),
    Row("a large int", beside(1 << 5000), "int.to_bytes", put({"a": ONE, "n": (1 << 5000).to_bytes(700, "little")})),
    Row("half characters", beside("\ud800\udc00"), 'text.encode("utf-8", "surrogatepass")',
        put({"a": ONE, "t": "\ud800\udc00".encode("utf-8", "surrogatepass")})),
    Row("a time in a zone", beside(datetime.time(1, tzinfo=PARIS)), "pass a datetime", put({"a": ONE, "t": datetime.datetime(2026, 1, 1, tzinfo=PARIS)})),
    Row("an enum of objects", beside(Colour.ODD), "put the value of another field", beside(Colour.ODD.name)),
    Row("a tree without arrays", lambda b: b.convert([1, 2], "torch"), "numpy.asarray", lambda b: b.convert(np.asarray([1, 2]), "torch")),
    Row("a class with other fields", of_another_class(), "pass types=[] to get a Record", of_another_class(types=[])),
    Row("a tree as one array", lambda b: np.from_dlpack(b.put([ONE, ONE])), "use share.to(framework)", lambda b: b.put([ONE, ONE]).to("numpy")),
    # DLPack
    Row("a conjugate", dlpack(CONJUGATE), "tensor.resolve_conj().resolve_neg()", dlpack(CONJUGATE.resolve_conj().resolve_neg())),
    Row("a negative", dlpack(CONJUGATE.imag), "tensor.resolve_conj().resolve_neg()", dlpack(CONJUGATE.imag.resolve_conj().resolve_neg())),
    Row("a gradient", dlpack(torch.ones(2, requires_grad=True)), "tensor.detach()", dlpack(torch.ones(2, requires_grad=True).detach())),
    Row("the gradient of a conjugate", dlpack(CONJUGATE.clone().requires_grad_().conj()), "tensor.detach().resolve_conj().resolve_neg()",
        dlpack(CONJUGATE.clone().requires_grad_().conj().detach().resolve_conj().resolve_neg())),
    Row("dates in DLPack", dlpack(np.zeros(2, "M8[ns]")), 'array.view("int64")', dlpack(np.zeros(2, "M8[ns]").view("int64"))),
    Row("one date in DLPack", dlpack(np.datetime64(3, "s")), 'array.view("int64")', dlpack(np.datetime64(3, "s").view("int64"))),
    Row("records in DLPack", dlpack(COLUMN), "pass a field, array[name].copy()", dlpack(COLUMN["f1"].copy())),
    Row("a struct of C in DLPack", dlpack((Point * 2)()), "pass a field, array[name].copy()", dlpack(np.zeros(2, "i4,f8")["f1"].copy())),
    Row("a field in DLPack", dlpack(np.zeros(4, COLUMN.dtype)["f1"]), "array.copy()", dlpack(np.zeros(4, COLUMN.dtype)["f1"].copy())),
    Row("another byte order in DLPack", dlpack(np.arange(2, dtype=">f4")), 'array.astype(array.dtype.newbyteorder("="))',
        dlpack(np.arange(2, dtype=">f4").astype("=f4"))),
    Row("Arrow's booleans in DLPack", dlpack(pyarrow.array([True])), 'array.cast("uint8")', dlpack(pyarrow.array([True]).cast("uint8"))),
    Row("Arrow's chunks in DLPack", dlpack(pyarrow.chunked_array([[1], [2]])), "array.combine_chunks()",
        dlpack(pyarrow.chunked_array([[1], [2]]).combine_chunks())),
    Row("dates of a share in DLPack", lambda b: np.from_dlpack(b.put(np.zeros(2, "M8[ns]"))), "use numpy.asarray(share)",
        lambda b: values(np.asarray(b.put(np.zeros(2, "M8[ns]"))), np.zeros(2, "M8[ns]"))),
    Row("strides in Arrow", lambda b: pyarrow.array(asdlpack(np.arange(6)[::2])), "copy it first", lambda b: pyarrow.array(asdlpack(np.arange(6)[::2], copy=True))),
    Row("a pickled View", lambda b: pickle.dumps(asdlpack(ONE)), "put it, and pickle the Share", lambda b: pickle.dumps(b.put(asdlpack(ONE)))),
    Row("a capsule to plan for", lambda b: b.plan(capsule_of(), "torch"), "plan for asdlpack(capsule)", lambda b: b.plan(asdlpack(capsule_of()), "torch")),
    # Conversions
    Row("dates for torch", lambda b: b.convert(np.zeros(2, "M8[s]"), "torch"), "convert the values to another dtype first",
        lambda b: b.convert(np.zeros(2, "M8[s]").astype("int64"), "torch")),
    Row("dates of a share for torch", lambda b: b.get(b.put(np.zeros(2, "M8[s]")), "torch"), "read it as numpy", lambda b: b.get(b.put(np.zeros(2, "M8[s]")), "numpy")),
    Row("64 bits for JAX", wider(False), "set jax_enable_x64", wider(True)),
    Row("64 bits for JAX, narrowed", wider(False), "pass allow_downcast=True", lambda b: b.convert(ONE, "jax", allow_downcast=True)),
    Row("a copy that is not permitted", lambda b: b.convert(ONE[::-1], "torch", copy=False), "drop copy=False", lambda b: b.convert(ONE[::-1], "torch")),
    Row("bits in a matrix for Arrow", lambda b: b.convert(np.ones((2, 2), bool), "pyarrow"), "use reshape(-1)",
        lambda b: b.convert(np.ones((2, 2), bool).reshape(-1), "pyarrow")),
    Row("a wrong source", lambda b: convert_memory(ONE, "torch", "numpy"), "source_type=None detects it", lambda b: convert_memory(ONE, None, "numpy")),
    Row("a wrong gpu_id", lambda b: convert_memory(ONE, "numpy", "torch", "gpu0"), "or None for the CPU", lambda b: convert_memory(ONE, "numpy", "torch", None)),
    Row("a complex number scaled", lambda b: arraybridge.scale_dtype(np.array([1j]), "uint8"), "use .real or abs()",
        lambda b: (arraybridge.scale_dtype(np.array([1j]).real, "uint8"), arraybridge.scale_dtype(abs(np.array([1j])), "uint8"))),
    # What is allocated
    Row("objects to allocate", empty("float33"), "pass a name such as 'float32'", empty("float32")),
    Row("torch's four bits to allocate", empty(torch.int4), "or the dtype of an array that can be shared", empty(torch.int8)),
    Row("JAX's arrays to allocate", lambda b: b.empty(3, "f4", "jax"), "compute the values, and put the result", lambda b: b.put(jax.numpy.ones(3))),
    Row("dates in a bundle", bundled({"t": np.zeros(2, "M8[ns]")}), 'use "int64", as array.view("int64") has it', bundled({"t": np.zeros(2, "M8[ns]").view("int64")})),
    Row("dates to allocate in a bundle", lambda b: b.bundle(None, {"t": BundleSpec((2,), "M8[ns]")}), 'use "int64"',
        lambda b: b.bundle(None, {"t": BundleSpec((2,), "int64")})),
    Row("records in a bundle", bundled({"t": COLUMN}), "use an array for each field, as array[field]", bundled({f"t.{name}": COLUMN[name] for name in COLUMN.dtype.names})),
    Row("JAX's arrays of a bundle", lambda b: b.bundle(None, {"w": ONE}).array("w", "jax"), "use numpy", lambda b: b.bundle(None, {"w": ONE}).array("w", "numpy")),
    # Modules
    Row("another shape of a module", attached(lambda: torch.nn.Linear(3, 3), prefix="inner."), "make the module with that shape", attached(lambda: torch.nn.Linear(2, 3), prefix="inner.")),
    Row("another dtype of a module", attached(lambda: torch.nn.Linear(2, 3).half(), prefix="inner."), "make the module with that dtype",
        attached(lambda: torch.nn.Linear(2, 3), prefix="inner.")),
    Row("other names of a module", attached(lambda: torch.nn.Linear(2, 3)), "pass prefix=, with which the bundle's names begin", attached(lambda: torch.nn.Linear(2, 3), prefix="inner.")),
    # Names, channels, watches
    Row("a taken name", lambda b: (b.put(ONE, "a"), b.put(ONE, "a")), "pass replace=True", lambda b: b.put(ONE, "a", replace=True)),
    Row("a replaced share", lambda b: gone(b).to("numpy"), "get its name", lambda b: values(b.get("gone"), ONE + 1)),
    Row("a newer share than one", lambda b: b.get(b.put(ONE, "n", replace=True), newer_than=0), "pass share.name", lambda b: b.get(b.put(ONE, "n", replace=True).name, newer_than=0)),
    Row("another capacity", into_four(2), "pass this number, or None", lambda b: (into_four(4)(b), into_four(None)(b))),
    Row("another mode", into_newest("broadcast"), "pass the channel's mode", lambda b: (into_newest("latest")(b), into_newest(None)(b))),
    Row("a full channel", into_full(False), "receive from the channel", into_full(True)),
    Row("a closed channel", after_close(False), "make a new one with Broker.channel", after_close(True)),
    Row("a pickled Receiver", lambda b: pickle.dumps(b.channel("p").receiver()), "pass the Channel or its name", lambda b: pickle.loads(pickle.dumps(b.channel("p"))).receiver()),
    Row("a closed watch", lambda b: read_again(b, False), "make a new one with Broker.watch", lambda b: read_again(b, True)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
def test_the_advice_of_a_message_works(broker: Broker, row: Row) -> None:
    with pytest.raises(Exception) as caught:
        row.refused(broker)
    assert row.advice in str(caught.value)
    row.followed(broker)


class OnlyNumpys:
    """As objects of many libraries, it becomes an array by NumPy alone."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(ONE, dtype)


def stored(module: str, make: Callable[[Any, str], Any]) -> Callable[[Path], Any]:
    return lambda folder: make(pytest.importorskip(module, reason=f"{module} is not installed"), str(folder / "stored"))


def made(module: str, make: Callable[[Any], Any]) -> Callable[[Path], Any]:
    return stored(module, lambda library, _: make(library))


# Containers of other libraries, of the values ONE: the advice, the same as code, and the object.
CONTAINERS: list[tuple[str, Callable[[Any], Any], Callable[[Path], Any]]] = [
    ("array.to_numpy()", lambda array: array.to_numpy(), made("xarray", lambda xr: xr.DataArray(ONE, dims="x"))),
    ("variable.to_numpy()", lambda variable: variable.to_numpy(), made("xarray", lambda xr: xr.Variable("x", ONE))),
    ("{name: array.to_numpy() for name, array in dataset.items()}",
     lambda dataset: {name: array.to_numpy() for name, array in dataset.items()}, made("xarray", lambda xr: xr.Dataset({"a": ("x", ONE)}))),
    ("series.to_numpy()", lambda series: series.to_numpy(), made("pandas", lambda pd: pd.Series(ONE))),
    ("index.to_numpy()", lambda index: index.to_numpy(), made("pandas", lambda pd: pd.Index(ONE))),
    ("{name: frame[name].to_numpy() for name in frame}",
     lambda frame: {name: frame[name].to_numpy() for name in frame}, made("pandas", lambda pd: pd.DataFrame({"a": ONE}))),
    ("array.to_numpy()", lambda array: array.to_numpy(), made("pandas", lambda pd: pd.array(ONE))),
    ("series.to_numpy()", lambda series: series.to_numpy(), made("polars", lambda pl: pl.Series(ONE))),
    ("{name: frame[name].to_numpy() for name in frame.columns}",
     lambda frame: {name: frame[name].to_numpy() for name in frame.columns}, made("polars", lambda pl: pl.DataFrame({"a": ONE}))),
    ("{name: column.to_numpy() for name, column in frame.collect().to_dict().items()}",
     lambda frame: {name: column.to_numpy() for name, column in frame.collect().to_dict().items()},
     made("polars", lambda pl: pl.LazyFrame({"a": ONE}))),
    ("dict(zip(table.schema.names, table.columns))", lambda table: dict(zip(table.schema.names, table.columns, strict=True)),
     made("pyarrow", lambda pa: pa.table({"a": ONE}))),
    ("dict(zip(batch.schema.names, batch.columns))", lambda batch: dict(zip(batch.schema.names, batch.columns, strict=True)),
     made("pyarrow", lambda pa: pa.record_batch({"a": ONE}))),
    ("dataset[...]", lambda dataset: dataset[...],
     stored("h5py", lambda h5py, path: h5py.File(path, "w").create_dataset("a", data=ONE))),
    ("{name: dataset[...] for name, dataset in group.items()}",
     lambda group: {name: dataset[...] for name, dataset in group.items()},
     stored("h5py", lambda h5py, path: h5py.File(path, "w").create_dataset("a", data=ONE).parent)),
    ("array[...]", lambda array: array[...], stored("zarr", lambda zarr, path: zarr.save(path, ONE) or zarr.open_array(path))),
    ("{name: array[...] for name, array in group.arrays()}",
     lambda group: {name: array[...] for name, array in group.arrays()},
     stored("zarr", lambda zarr, path: zarr.save(path, a=ONE) or zarr.open_group(path))),
    ("numpy.asarray(array)", lambda array: np.asarray(array), lambda _: OnlyNumpys()),
]  # fmt: skip


# A put takes these as they are, and calls for arrays do not. Conversions take the arrays of files, and of `__array__`.
TAKEN = {"DataArray", "Dataset", "Series", "DataFrame", "Table", "RecordBatch"}
FILES = {"h5py", "zarr"}


@pytest.mark.parametrize(("advice", "followed", "make"), CONTAINERS, ids=[f"{number} {each[0]}" for number, each in enumerate(CONTAINERS)])
def test_the_advice_for_another_librarys_container_works(
    broker: Broker, tmp_path: Path, advice: str, followed: Callable[[Any], Any], make: Callable[[Path], Any]
) -> None:
    container = make(tmp_path)
    calls: list[Callable[[], object]] = [lambda: asdlpack(container)]
    of_a_file = type(container).__module__.partition(".")[0] in FILES and "Group" not in type(container).__name__
    written = of_a_file or type(container) is OnlyNumpys
    if not written:
        calls += [lambda: broker.convert(container, "torch"), lambda: arraybridge.convert(container, "torch")]
    if written or type(container).__name__ in TAKEN:
        broker.put({"k": container})
    else:
        calls += [lambda: broker.put(container), lambda: broker.put({"k": container}), lambda: broker.put([ONE, container])]
    for call in calls:
        with pytest.raises((arraybridge.UnsupportedArray, arraybridge.InvalidMemoryType)) as caught:
            call()
        assert str(caught.value).endswith(f"{type(container).__name__} is not an array itself: pass {advice}")
    got = broker.get(broker.put(followed(container)))
    values(got["a"] if isinstance(got, dict) else got, ONE)
