# SPDX-License-Identifier: Apache-2.0
"""What the arguments of a Broker may be, and the words of its refusals."""

import collections

import numpy as np
import pytest

import arraybridge
from arraybridge import (
    DeviceUnavailable,
    InvalidDevice,
    InvalidMemoryType,
    InvalidRequest,
    MemoryType,
    UnsupportedArray,
    UnsupportedDtype,
    adapters,
)


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        (3.5, UnsupportedArray, "float supports no array protocol; pass an array .*numpy.asarray"),
        ({"a": {1, 2}}, UnsupportedArray, "set supports no array protocol"),
        (np.str_("a"), UnsupportedDtype, "<U1"),
        (np.ma.array([1, 2], mask=[0, 1]), UnsupportedArray, "mask"),
        (np.array([object()]), UnsupportedDtype, "object"),
        (np.array(["a"]), UnsupportedDtype, "<U1"),
        (np.array([b"a"]), UnsupportedDtype, "S1"),
        (np.zeros(2, np.longdouble), UnsupportedDtype, "float128"),
        (np.array([(1, None)], [("a", "i4"), ("b", "O")]), UnsupportedDtype, "cannot be shared with any framework"),
        ("text", UnsupportedArray, "str"),
        (None, UnsupportedArray, "NoneType"),
        ([{1, 2}], UnsupportedArray, "set supports no array protocol"),
    ],
    ids=repr,
)
def test_what_nobody_could_read_is_refused_by_name(broker, array, error, words):
    with pytest.raises(error, match=words):
        broker.put(array, "never")
    assert not broker.list()


@pytest.mark.parametrize("name", ["", 7, None, b"a"])
def test_a_name_is_a_non_empty_str(broker, name):
    with pytest.raises(InvalidRequest):
        broker.get(name)
    if name is not None:
        with pytest.raises(InvalidRequest):
            broker.put(np.zeros(1), name)


def test_a_name_that_is_too_long_is_the_brokers_refusal(broker):
    with pytest.raises(InvalidRequest) as caught:
        broker.put(np.zeros(1), "n" * 256)
    assert caught.value.code == 3


def test_names_of_frameworks(broker):
    broker.put(np.zeros(1), "a")
    assert broker.get("a", MemoryType.NUMPY)[0] == 0
    with pytest.raises(InvalidMemoryType, match="'nmpy' is not the name of a framework .did you mean 'numpy'.*'jax'.*'pyarrow'"):
        broker.get("a", "nmpy")
    for member in MemoryType:
        assert adapters.named(member) is adapters.named(member.value)
    for odd in (None, 3, ["torch"], np):
        with pytest.raises(InvalidMemoryType, match="the name of a framework must be a str"):
            broker.get("a", odd)


def test_devices(broker):
    broker.put(np.zeros(1), "a")
    assert broker.get("a", device="cpu")[0] == 0
    with pytest.raises(DeviceUnavailable, match="CUDA"):
        broker.get("a", device=0)
    with pytest.raises(InvalidDevice):
        broker.get("a", device=-1)


def test_a_wrong_device_loses_no_array_of_a_channel(broker):
    with broker.channel("c") as frames:
        frames.send(np.arange(3))
        with pytest.raises(InvalidDevice):
            frames.receive(device="gpu0", timeout=0)
        with pytest.raises(DeviceUnavailable):
            next(frames.receiver(device="cuda:7", timeout=0))
        assert frames.receive(timeout=0).tolist() == [0, 1, 2]


def test_empty_of_odd_shapes_and_dtypes(broker):
    assert broker.empty((), np.float32).shape == ()
    assert broker.empty(3, int).dtype == np.int64
    assert broker.empty((0, 2), np.dtype("complex64")).shape == (0, 2)
    assert broker.empty([np.int64(2), 3], "int8").shape == (2, 3) and broker.empty(np.int64(2), "int8").shape == (2,)
    with pytest.raises(UnsupportedDtype):
        broker.empty(3, "object")
    with pytest.raises(UnsupportedDtype, match="nonsense"):
        broker.empty(3, "nonsense")
    with pytest.raises(InvalidRequest, match="negative"):
        broker.empty(-1, "int8")
    for shape in (2.5, "ab", None, (2, "a")):
        with pytest.raises(InvalidRequest, match="a shape must"):
            broker.empty(shape, "int8")


@pytest.mark.parametrize("shape", [(2**63,), (2**70, 0), (2**62, 2)])
def test_a_shape_that_no_memory_could_have(broker, shape):
    with pytest.raises(InvalidRequest, match="exceeds the address space"):
        broker.empty(shape, "u1")


def test_a_tree_that_is_too_large_is_refused_with_the_way_out(broker):
    with pytest.raises(InvalidRequest, match=r"limits.arrays_per_share_max.*put the tree in parts"):
        broker.put([np.zeros(1, "M8[s]")] * 1100, "much")  # DLPack lacks the dtype
    assert not broker.list()


@pytest.mark.parametrize(
    ("tree", "name", "metadata", "limit"),
    [
        ([np.zeros(1, "M8[s]")] * 1100, "x", b"", "arrays_per_share_max"),
        ([np.zeros((1,) * 32, "M8[s]")] * 1000, "x", b"", "spec_bytes_max"),
        ({"k" * 40000: np.zeros(1, "M8[s]")}, "x", b"", "structure_bytes_max"),
        (np.zeros(1), "x", b"m" * 20000, "metadata_bytes_max"),
        (np.zeros(1), "n" * 300, b"", "name_bytes_max"),
    ],
)
def test_what_cannot_be_published_is_not_copied(broker, tree, name, metadata, limit):
    with arraybridge.Broker(broker.address) as fresh:
        with pytest.raises(InvalidRequest, match=f"limits.{limit} ") as refused:
            fresh.put(tree, name, metadata=metadata)
        assert refused.value.reason in ("TOO_MANY", "TOO_LARGE")
        assert fresh.stats()["client_arenas_written"] == 0


def test_the_broker_says_it_in_the_same_words(broker):
    born_there = broker.empty(3, "int8")  # nothing is placed: only the broker can refuse it
    with pytest.raises(InvalidRequest) as its:
        broker.put(born_there, "x", metadata=b"m" * 20000)
    with pytest.raises(InvalidRequest) as ours:
        broker.put(np.zeros(3, "int8"), "x", metadata=b"m" * 20000)
    assert (str(its.value), its.value.code, its.value.reason) == (str(ours.value), ours.value.code, ours.value.reason)


def test_a_truth_is_no_shape(broker):
    with pytest.raises(InvalidRequest, match="a shape must"):
        broker.empty(True, "u1")


def test_arguments_of_a_broker():
    with pytest.raises(InvalidRequest, match="start"):
        arraybridge.Broker(start="sometimes")
    with pytest.raises(InvalidRequest, match="private"):
        arraybridge.Broker("/somewhere", start="private")


@pytest.mark.parametrize("dtype", ["f4", "double", "<i2", ">i4", "datetime64[ns]", "m8[D]", [("a", "i4"), ("b", "f8", 3)]])
def test_empty_takes_what_numpy_calls_a_dtype(broker, dtype):
    array = broker.empty((2, 3), dtype)
    assert array.dtype == np.dtype(dtype).newbyteorder("=") and array.shape == (2, 3) and array.flags.writeable
    array.reshape(-1).view(np.uint8)[:] = 1
    share = broker.put(array)
    assert broker.get(share).tobytes() == b"\1" * array.nbytes


@pytest.mark.parametrize("namespace", ["", 3, None])
def test_a_namespace_is_a_non_empty_str(namespace):
    with pytest.raises(InvalidRequest, match="namespace"):
        arraybridge.Broker(namespace=namespace)


def test_other_arguments_are_refused_before_anything_is_asked():
    nobody = arraybridge.Broker("/nonexistent", start="never")
    with pytest.raises(InvalidRequest, match="metadata holds plain values .*not ndarray"):
        nobody.put(np.zeros(1), metadata=np.zeros(1))
    with pytest.raises(InvalidRequest, match="a prefix must be a str"):
        nobody.list(3)
    for ask in (nobody.get, nobody.withdraw, nobody.list, lambda text: nobody.put(np.zeros(1), text)):
        with pytest.raises(InvalidRequest, match="surrogate"):
            ask("half \ud800")
    with pytest.raises(InvalidRequest, match="surrogate"):
        arraybridge.Broker(namespace="\ud800")
    with pytest.raises(InvalidRequest, match="replace must be True or False, not 'no'"):
        nobody.put(np.zeros(1), "a", replace="no")
    with pytest.raises(InvalidRequest, match="sealed must be True or False, not 1"):
        nobody.put(np.zeros(1), "a", sealed=1)
    with pytest.raises(InvalidRequest, match="copy must be True, False or None, not 'yes'"):
        nobody.convert(np.zeros(1), "numpy", copy="yes")
    for number in (float("inf"), float("nan")):
        with pytest.raises(InvalidRequest, match="JSON has no such number"):
            nobody.put({number: np.zeros(1)})
    for odd in (None, 3, ""):
        with pytest.raises(InvalidRequest, match="named by a non-empty str or a Share, not by"):
            nobody.withdraw(odd)
        with pytest.raises(InvalidRequest, match=f"named by a non-empty str or a Share, not by {odd!r}"):
            nobody.get_many([odd])
    for odd in (None, 3, "a name"):
        with pytest.raises(InvalidRequest, match=f"get_many takes a sequence of names or Shares, not {odd!r}"):
            nobody.get_many(odd)
    for wait in (10**400, b"", "soon"):
        with pytest.raises(ValueError, match="wait must be 0 or more seconds"):
            nobody.get("a", wait=wait)


def test_a_state_dict_is_a_dict(broker):
    broker.put(collections.OrderedDict(b=np.zeros(1), a=np.ones(2)), "model")
    got = broker.get("model")
    assert type(got) is dict and list(got) == ["b", "a"] and got["a"].tolist() == [1, 1]
