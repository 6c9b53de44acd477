# SPDX-License-Identifier: Apache-2.0
"""Adapters beyond the four of every day: pyclesperanto, Numba, PyArrow; GPU cases with fakes; trees and progress."""

import collections
import dataclasses
import enum

import numpy as np
import pytest
import simulated

import arraybridge
from arraybridge import (
    InvalidRequest,
    SourceTypeMismatch,
    UnsupportedArray,
    UnsupportedDtype,
    ZeroCopyUnavailable,
    adapters,
    convert_memory,
)
from arraybridge.adapters import jax as jax_adapter, tensorflow as tensorflow_adapter, torch as torch_adapter
from arraybridge.broker import progress
from arraybridge.commands import samples

GPU_CASES = [
    "layouts_of_a_gpu",
    "immutables_are_shared_with_a_note",
    "tensorflow_gets_what_is_complete",
    "a_gpus_memory_never_reaches_who_has_no_gpu",
    "int32_on_a_gpu_is_read_where_it_lies",
    "exports_wait_for_their_queue",
    "managed_memory_is_relabelled",
    "nothing_wrong_reaches_pyclesperanto",
    "the_prototypes_arrays_are_uploaded_as_they_are",
    "one_share_lies_on_one_device",
    "numba_speaks_its_interface_alone",
    "a_pickle_comes_after_the_stream_of_the_thread_that_sent_it",
]


@pytest.fixture(scope="module")
def gpu():
    with simulated.daemon() as started:
        yield started


@pytest.mark.parametrize("name", GPU_CASES)
def test_on_the_simulated_gpu(gpu, name):
    address, environment = gpu
    assert simulated.run("convert/gpu_cases_program.py", environment, address, name) == "done\n"


@pytest.fixture
def pyarrow():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_pyarrow_shares_numbers(broker, pyarrow):
    for kind in ("int8", "uint16", "int64", "float16", "float32", "float64"):
        values = np.arange(5).astype(kind)
        values.flags.writeable = False
        made, plan = broker.convert(values, "pyarrow", explain=True)
        assert isinstance(made, pyarrow.Array) and plan.zero_copy
        assert made.buffers()[1].address == values.ctypes.data
        back, plan = broker.convert(made, "numpy", explain=True)
        assert plan.zero_copy and back.ctypes.data == values.ctypes.data and not back.flags.writeable
        part = broker.convert(made[1:4], "numpy", copy=False)
        assert part.tolist() == values[1:4].tolist() and part.ctypes.data == values[1:].ctypes.data
    tensor = broker.convert(np.ones((2, 3), "i2"), "pyarrow")
    assert isinstance(tensor, pyarrow.Tensor) and broker.convert(tensor, "numpy").tolist() == [[1] * 3] * 2
    broker.put(made, "arrow")
    assert broker.get("arrow", "pyarrow").equals(made)


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_pyarrow_copies_bits_and_chunks_and_refuses_nulls_and_text(broker, pyarrow):
    bits = pyarrow.array([True, False, True])
    got, plan = broker.convert(bits, "numpy", explain=True)
    assert got.tolist() == [True, False, True] and plan.copies == 1
    assert broker.convert(np.array([True, False]), "pyarrow").to_pylist() == [True, False]
    chunks = pyarrow.chunked_array([[1, 2], [3]])
    assert broker.convert(chunks, "numpy").tolist() == [1, 2, 3]
    assert broker.plan(pyarrow.chunked_array([[1, 2]]), "numpy").zero_copy
    with pytest.raises(ZeroCopyUnavailable, match="2 chunks"):
        broker.convert(chunks, "numpy", copy=False)
    for some in (pyarrow.array([1, None]), pyarrow.array([True, None]), pyarrow.chunked_array([[1, None], [3]])):
        with pytest.raises(UnsupportedArray, match="1 nulls would be lost: call fill_null first"):
            broker.convert(some, "numpy")
    with pytest.raises(UnsupportedDtype, match="string"):
        broker.convert(pyarrow.array(["a"]), "numpy")
    with pytest.raises(UnsupportedArray, match="at least 1 dimension, and the array has 0"):
        broker.convert(np.array(1.0), "pyarrow")


def test_pyclesperanto_over_opencl(broker):
    adapter = adapters.named("pyclesperanto")
    try:
        caps = adapter.caps()
    except (arraybridge.FrameworkNotAvailable, arraybridge.DeviceUnavailable) as missing:
        pytest.skip(str(missing))
    assert caps.own is not None and caps is adapter.caps()
    image = np.arange(6, dtype="u2").reshape(2, 3)[::-1]
    got, plan = broker.convert(image, "pyclesperanto", device=0, explain=True)
    assert (got.get() == image).all() and str(got.dtype) == "uint16"
    assert (plan.route, plan.via, plan.copies, plan.device) == ("place", "h2d", 1, "opencl:0")
    for target in samples.installed(["numpy", "torch", "tensorflow", "jax"]):
        copies = 1 if target in ("numpy", "torch") else 2
        back, plan = broker.convert(got, target, explain=True)
        assert (np.asarray(back) == image).all() and (plan.via, plan.copies) == ("d2h", copies), target
    private, plan = broker.convert(got, "pyclesperanto", copy=True, explain=True)
    assert private is not got and (private.get() == image).all() and plan.copies == 2
    broker.put({"image": got, "host": image}, "both")
    both = broker.get("both", "pyclesperanto")
    assert (both["image"].get() == both["host"].get()).all()
    swapped = broker.convert(np.array([1, 2, 3], ">u2"), "pyclesperanto")
    assert swapped.get().tolist() == [1, 2, 3]
    with pytest.raises(arraybridge.MemoryConversionError, match="does not fit"):
        broker.convert(np.array([2**40]), "pyclesperanto", allow_downcast=True)
    for wrong in ("cpu", "cuda:0", 7, "opencl:7"):
        with pytest.raises(arraybridge.DeviceUnavailable, match="pyclesperanto|CUDA"):
            broker.convert(image, "pyclesperanto", device=wrong)
    with pytest.raises(arraybridge.DeviceUnavailable, match="no arrays on cpu: allocate it for 'numpy', and convert it"):
        broker.empty(3, "float32", "pyclesperanto")
    assert broker.convert(broker.empty(3, "float32", "numpy"), "pyclesperanto").shape == (3,)


class Producer:
    """Has nothing but DLPack's table on its type, or fails in a way of its own."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __dlpack__(self, **_: object) -> object:
        raise self.error


class Peculiar(Exception):
    """Derives from no builtin but Exception, as TensorFlow's do."""


@pytest.mark.parametrize("error", [RuntimeError("no"), Peculiar("no"), AssertionError("no"), AttributeError("no")])
def test_whatever_a_producer_raises_is_an_error_of_ours(error):
    with pytest.raises(UnsupportedArray, match="no") as caught:
        arraybridge.asdlpack(Producer(error))
    assert caught.value.__cause__ is error or isinstance(error, RuntimeError)


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Frame:
    image: object
    name: str = ""
    scale: float = 1.0
    points: object = None


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_trees_convert_to_the_same_classes(broker):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    frame = Frame(np.ones(3), "left", 2.0, Point([np.zeros(2)], {"z": (np.array([1], ">i4"),)}))
    got, plan = broker.convert(frame, "torch", explain=True)
    assert type(got) is Frame and type(got.points) is Point and (got.name, got.scale) == ("left", 2.0)
    assert all(isinstance(leaf, torch.Tensor) for leaf in (got.image, got.points.x[0], got.points.y["z"][0]))
    assert got.points.y["z"][0].tolist() == [1] and plan.copies == 1
    assert isinstance(frame.image, np.ndarray), "the source is as it was"
    ordered = collections.OrderedDict(b=np.ones(1), a=np.ones(2))
    assert list(broker.convert(ordered, "torch")) == ["b", "a"]
    with pytest.raises(InvalidRequest, match="nested 64 deep"):
        broker.convert(_deep(70), "torch")
    with pytest.raises(InvalidRequest, match="Counter would be read as another class"):
        broker.put(collections.Counter(a=np.ones(1)))


@pytest.mark.parametrize("tree", [[], {}, (), [1, 2], {"a": [None, "text"]}], ids=str)
def test_a_tree_without_arrays_is_refused_in_the_same_words(broker, tree):
    words = "^a tree without any array has nothing to convert: convert numbers to an array first"
    for ask in (
        lambda: broker.convert(tree, "numpy"),
        lambda: convert_memory(tree, None, "numpy"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            ask()
    with pytest.raises(SourceTypeMismatch, match=words.removeprefix("^")):
        convert_memory(tree, "numpy", "numpy", copy=False)


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_plain_values_stay_in_every_container(broker):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    plain = [None, True, 3, 2.5, 1j, "text", Kind.RAW]
    for container in (
        list, tuple, lambda values: dict(enumerate(values)), lambda values: collections.OrderedDict(enumerate(values)),
        lambda values: Eight(*values), lambda values: Parts(*values),
    ):  # fmt: skip
        got = broker.convert(container([*plain, np.ones(2)]), "torch")
        values = list(got.values()) if isinstance(got, dict) else list(vars(got).values()) if isinstance(got, Parts) else list(got)
        assert values[:-1] == plain and isinstance(values[-1], torch.Tensor)
        for scalar in (np.float64(3), np.float32(3), np.int64(3), np.bool_(True)):  # arrays without dimensions
            got = broker.convert(container([*plain, scalar]), "torch")
            last = next(reversed(got.values())) if isinstance(got, dict) else got.h if isinstance(got, (Eight, Parts)) else got[-1]
            assert isinstance(last, torch.Tensor) and last.shape == () and last.item() == scalar
        with pytest.raises(InvalidRequest, match="without any array"):
            broker.convert(container([*plain, None]), "torch")
        with pytest.raises(UnsupportedArray, match="supports no array protocol"):
            broker.convert(container([*plain, object()]), "torch")
    for alone in (None, 3, "text"):
        with pytest.raises(UnsupportedArray, match="supports no array protocol"):
            broker.convert(alone, "torch")


Eight = collections.namedtuple("Eight", "a b c d e f g h")
Parts = dataclasses.make_dataclass("Parts", "abcdefgh")


class Kind(enum.Enum):
    RAW = 1


def _deep(depth):
    tree = np.ones(1)
    for _ in range(depth):
        tree = [tree]
    return tree


def test_progress_is_told_in_pieces(broker, monkeypatch):
    monkeypatch.setattr(progress, "PIECE", 1000)
    told = []
    source = np.arange(3000.0).reshape(3, 10, 100)[:, ::-1]
    broker.put({"a": source, "b": np.arange(5, dtype=">i4")}, "told", progress=lambda *numbers: told.append(numbers))
    assert (broker.get("told")["a"] == source).all()
    assert told[0] == (0, 24020) and told[-1] == (24020, 24020) and len(told) == 5
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    torch = pytest.importorskip("torch", reason="torch is not installed")
    again = []
    with pytest.warns(arraybridge.CopyWarning):
        tensor = broker.convert(source, "torch", progress=lambda *numbers: again.append(numbers))
    assert (tensor.numpy() == source).all() and again[-1] == (24000, 24000) and isinstance(tensor, torch.Tensor)


def test_progress_may_end_a_move(broker):
    def enough(done, total):
        raise KeyboardInterrupt

    before = broker.stats()["shares"]
    with pytest.raises(KeyboardInterrupt):
        broker.put(np.ones(4), "never", progress=enough)
    assert broker.stats()["shares"] == before and "never" not in [listed.share.name for listed in broker.list()]


def test_private_roads_are_taken_and_left(monkeypatch):
    """What is tried and found different falls back to the public way."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    jax = pytest.importorskip("jax", reason="jax is not installed")
    assert torch_adapter.importer() is not torch.from_dlpack
    assert jax_adapter.importer(jax).__name__ == "private"
    below = __import__("importlib").import_module("jax._src.lib")._jax
    monkeypatch.setattr(jax_adapter, "is_alike", lambda public, private: False)
    assert jax_adapter.importer.__wrapped__(jax).__name__ == "public"
    monkeypatch.undo()
    monkeypatch.setattr(below, "dlpack_managed_tensor_to_buffer", lambda *_: jax.numpy.ones(48, "uint8"))
    assert jax_adapter.importer.__wrapped__(jax).__name__ == "public"
    monkeypatch.undo()
    monkeypatch.setattr(torch_adapter._core, "exchanger", lambda kind: lambda view: torch.ones(12, dtype=torch.uint8))
    assert torch_adapter.exchanger.__wrapped__() is None
    monkeypatch.setattr(torch_adapter, "exchanger", lambda: None)
    assert torch_adapter.importer.__wrapped__() is torch.from_dlpack


def test_tensorflows_own_alias_is_tried_before_it_is_relied_upon(monkeypatch):
    pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    assert tensorflow_adapter.straight("numpy") is not None
    assert tensorflow_adapter.straight("torch") is None

    class Copies(np.ndarray):
        def _numpy_internal(self):
            return np.arange(48, dtype="u1")

    monkeypatch.setattr(tensorflow_adapter, "view", lambda view: np.asarray(view).view(Copies))
    assert tensorflow_adapter.straight.__wrapped__("numpy") is None, "a copy"
    monkeypatch.setattr(tensorflow_adapter, "view", lambda view: np.asarray(view))
    assert tensorflow_adapter.straight.__wrapped__("numpy") is None, "it has no such method"
