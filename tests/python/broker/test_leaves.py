# SPDX-License-Identifier: Apache-2.0
"""Trees with plain values and classes of the user's own through put, send and convert, from process to process; the paths in
errors; a message's metadata."""

import asyncio
import dataclasses
import datetime
import enum
import itertools

import numpy as np
import pytest
from leaf_types import Flags, Frame, Kind, Pair

import arraybridge
from arraybridge import InvalidRequest, Record, SourceTypeMismatch, UnsupportedArray, UnsupportedDtype, convert_memory

WHEN = datetime.datetime(2026, 3, 4, 5, 6, 7, 8, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "there"))
PLAIN = [None, True, 7, 2.5, 1j, "text", b"bytes", Kind.DARK, Flags.A | Flags.B, WHEN, datetime.timedelta(1, 2, 3)]


def tree_of():
    return {"frame": Frame(np.arange(3), Kind.RAW, "left"), "plain": PLAIN, "pair": Pair(np.ones(2), (1, "x"))}


def check(got):
    assert list(got) == ["frame", "plain", "pair"]
    frame, pair = got["frame"], got["pair"]
    assert type(frame) is Frame and frame.kind is Kind.RAW and frame.name == "left" and np.asarray(frame.image).tolist() == [0, 1, 2]
    assert got["plain"] == PLAIN and [type(each) for each in got["plain"]] == [type(each) for each in PLAIN]
    assert got["plain"][7] is Kind.DARK and got["plain"][9].tzname() == "there"
    assert type(pair) is Pair and np.asarray(pair.first).tolist() == [1, 1] and pair.second == (1, "x")


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax"])
@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_put_send_and_convert_take_the_same_trees(broker, framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    wishes = {"allow_downcast": True} if framework == "jax" else {}
    broker.put(tree_of(), "tree")
    check(broker.get("tree", framework, **wishes))
    check(broker.get_many(["tree"], framework, **wishes)[0])
    with broker.channel("trees") as sends:
        sends.send(tree_of())
        check(broker.channel("trees").receive(framework, **wishes))
    check(broker.convert(tree_of(), framework, **wishes))
    check(convert_memory(tree_of(), "numpy", framework, None, **wishes))


def test_another_process_has_the_classes_that_it_has_imported(broker, client):
    broker.put(tree_of(), "tree")
    reads = """
import sys, arraybridge
if sys.argv[3] != "without":
    import leaf_types
with arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never") as broker:
    got = broker.get("tree", types=[] if sys.argv[3] == "refuses" else None)
    kind = got["frame"].kind if sys.argv[3] == "with" else got["frame"]["kind"]
    print([type(each).__name__ for each in (got["frame"], kind, got["pair"])])
    print(got["plain"][8], "leaf_types" in sys.modules, got["plain"][9])
    broker.put(got, "again")
"""
    for how, kinds, flags in (
        ("with", ["Frame", "Kind", "Pair"], "Flags.A|B"), ("without", ["Record", "str", "Record"], "3"),
        ("refuses", ["Record", "str", "Record"], "3"),
    ):  # fmt: skip
        first, second = client(reads, broker.namespace, how).splitlines()
        assert first == str(kinds)
        assert second == f"{flags} {how != 'without'} 2026-03-04 05:06:07.000008+02:00"
        again = broker.get("again")
        assert type(again["frame"]) is Frame and type(again["pair"]) is Pair, "a Record goes on as what it was"
        assert again["frame"].kind == (Kind.RAW if how == "with" else "raw")
        broker.withdraw("again")


def test_the_caller_says_which_classes(broker):
    broker.put(tree_of(), "tree")
    got = broker.get("tree", types=[Frame])
    assert type(got["frame"]) is Frame and got["frame"].kind == "raw" and type(got["pair"]) is Record
    assert got["pair"].type_name == "leaf_types:Pair" and got["pair"]["second"] == (1, "x")
    with broker.channel("trees") as sends:
        sends.send(tree_of())
        sends.send(tree_of())
        received = broker.channel("trees").receiver(types=[Kind])
        assert next(received)["frame"]["kind"] is Kind.RAW
        assert type(broker.channel("trees").receive(types=())["pair"]) is Record
    with pytest.raises(InvalidRequest, match="types must contain dataclasses"):
        broker.get("tree", types=[int])


def test_bytes_alone_are_an_array_and_in_a_tree_are_bytes(broker):
    broker.put(b"abc", "alone")
    assert broker.get("alone").tolist() == [97, 98, 99]
    broker.put([np.ones(1), b"abc", memoryview(b"abc")], "tree")
    _, plain, array = broker.get("tree")
    assert plain == b"abc" and array.tolist() == [97, 98, 99]


@pytest.mark.parametrize(
    "ask",
    [
        lambda broker, tree: broker.put(tree, "never"),
        lambda broker, tree: broker.put(tree, "never", wait=False),
        lambda broker, tree: broker.channel("never").send(tree),
        lambda broker, tree: broker.convert(tree, "torch"),
        lambda broker, tree: convert_memory(tree, None, "torch", None),
    ],
    ids=["put", "enter", "send", "convert", "convert_memory"],
)
def test_an_error_names_the_path_of_its_leaf(broker, ask):
    pytest.importorskip("torch", reason="torch is not installed")
    for tree, path in (
        ({"a": [np.ones(1), 1, {"b": (None, object())}]}, r"\['a'\]\[2\]\['b'\]\[1\]"),
        ({"a": [0, 1, 2, np.array(["text"])]}, r"\['a'\]\[3\]"),
        (Pair(1, Frame(np.array([object()]), Kind.RAW, "x")), r"\.second\.image"),
        ({3.5: {None: [np.ma.array([1], mask=[1])]}}, r"\[3\.5\]\[None\]\[0\]"),
    ):
        with pytest.raises(arraybridge.MemoryConversionError, match=f"^{path}: (Cannot convert|object is not an array)"):
            ask(broker, tree)


def test_a_reader_is_told_the_path_too(broker):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    broker.put({"a": [np.ones(1, "f4"), Pair(0, np.arange(3))]}, "wide")
    if jax.config.jax_enable_x64:
        pytest.skip("needs JAX without x64")
    with pytest.raises(UnsupportedDtype, match=r"^\['a'\]\[1\]\.second: .*jax would narrow int64"):
        broker.get("wide", "jax")


def test_what_would_come_back_as_something_else_is_refused(broker):
    class Mine(str):
        pass

    for value, words in ((Mine("x"), "a value of Mine would be read as another class"), ({1, 2}, "set supports no array protocol")):
        with pytest.raises((InvalidRequest, UnsupportedArray), match=rf"^\['k'\]: .*{words}"):
            broker.put({"k": value, "a": np.ones(1)}, "never")
    # Inside one process nothing has to come back.
    assert type(broker.convert({"k": Mine("x"), "a": np.ones(1)}, "numpy")["k"]) is Mine


def test_classes_that_cannot_be_found_come_back_as_records(broker):
    local = enum.Enum("local", "A B")
    broker.put([np.ones(1), local.B], "local")
    assert broker.get("local")[1] == 2 and broker.get("local", types=[local])[1] is local.B


@pytest.mark.parametrize("send", [False, True])
def test_the_size_of_a_structure_is_limited_and_says_what_to_do(broker, send):
    ask = broker.channel("large").send if send else broker.put
    fits = {"a": np.ones(1), "text": "x" * 32_000}
    ask(fits)
    for large in ({"a": np.ones(1), "text": "x" * (8 << 20)}, {"a": np.ones(1, "M8[s]"), "data": bytes(30_000)}):
        with pytest.raises(InvalidRequest, match=r"limits\.structure_bytes_max.*long text and bytes as arrays") as caught:
            ask(large)
        assert "32768" in str(caught.value).replace(",", "") and caught.value.reason == "TOO_LARGE"


def test_convert_memory_takes_trees_as_convert_does():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    frame = Frame(np.ones(3, "f4"), Kind.RAW, "left")
    got = convert_memory([frame, (1, {"x": np.zeros(2)})], None, "torch", None)
    assert type(got[0]) is Frame and isinstance(got[0].image, torch.Tensor) and type(got[1]) is tuple and got[1][0] == 1
    assert got[0].image.data_ptr() == frame.image.ctypes.data and isinstance(frame.image, np.ndarray)
    private = convert_memory({"a": frame.image}, "numpy", "torch", None, copy=True)
    assert private["a"].data_ptr() != frame.image.ctypes.data
    assert isinstance(arraybridge.MemoryType.NUMPY.to_torch([frame.image], None)[0], torch.Tensor)
    assert isinstance(arraybridge.get_converter("torch").to_numpy({"a": torch.ones(1)})["a"], np.ndarray)
    with pytest.raises(SourceTypeMismatch, match=r"^\['a'\]\[1\]: .*the data is torch, not numpy"):
        convert_memory({"a": [np.ones(1), torch.ones(1)]}, "numpy", "torch", None)
    mixed = convert_memory({"a": [np.ones(1), torch.ones(1)]}, None, "numpy")
    assert all(isinstance(each, np.ndarray) for each in mixed["a"])


def test_convert_memory_of_a_tree_warns_of_the_fallback(monkeypatch):
    monkeypatch.setattr("arraybridge.conversion.memory.fallbacks", itertools.count())
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("needs a host without a GPU")
    with pytest.warns(arraybridge.DeviceFallbackWarning):
        assert not convert_memory([np.ones(1)], "numpy", "torch")[0].is_cuda


@pytest.mark.parametrize("direct_channels", [True, False])
def test_metadata_travels_with_what_is_sent(address, request, direct_channels):
    namespace = f"m{abs(hash(request.node.nodeid)):x}"
    with arraybridge.Broker(address, namespace=namespace, start="never", direct_channels=direct_channels) as broker:
        with broker.channel("frames") as sends:
            receives = broker.channel("frames")
            receives.open("receiver")
            sends.send(np.arange(3), metadata=b"\0first")
            sends.send({"a": np.ones(1)}, metadata=b"second")
            sends.send(np.zeros(2))
            sends.send(np.zeros(2), metadata=b"x" * 16_384)
            first = receives.receive(info=True)
            assert type(first) is arraybridge.Received and first.metadata == b"\0first" and first.array.tolist() == [0, 1, 2]
            array, metadata, *_ = receives.receive(info=True, explain=True)
            assert metadata == b"second" and array.plan.zero_copy and array.array["a"].tolist() == [1]
            assert next(receives.receiver(info=True)).metadata == b""
            assert receives.receive().tolist() == [0, 0]
            with pytest.raises(InvalidRequest, match=r"metadata.*limits\.metadata_bytes_max"):
                sends.send(np.zeros(2), metadata=b"x" * 16_385)
            with pytest.raises(InvalidRequest, match="metadata holds plain values"):
                sends.send(np.zeros(2), metadata=np.zeros(2))

        async def both():
            async with broker.channel("later") as sends:
                receives = broker.channel("later")
                receives.open("receiver")
                await sends.asend(np.zeros(1), metadata=b"a")
                await sends.asend(np.zeros(1), metadata=b"b")
                one = await receives.areceive(info=True)
                other = await anext(receives.receiver(info=True))
                return one.metadata, other.metadata

        assert asyncio.run(both()) == (b"a", b"b")


def test_a_dataclass_that_cannot_be_walked_is_a_named_error(broker):
    @dataclasses.dataclass
    class Stubborn:
        x: object

        def __copy__(self):
            raise ValueError("stays alone")

    unset = object.__new__(Frame)
    for tree, said in (({"y": unset}, "has no value"), ({"y": Stubborn(np.ones(2))}, "stays alone")):
        for convert in (lambda t: broker.convert(t, "torch"), lambda t: convert_memory(t, None, "torch", None)):
            with pytest.raises(arraybridge.InvalidRequest, match=rf"^\['y'\]: .*{said}"):
                convert({"a": np.ones(2), **tree})
