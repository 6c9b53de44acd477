# SPDX-License-Identifier: Apache-2.0
"""What an import brings, and that the extension stands beside every framework in every order."""

import importlib.util
import os
from functools import partial

import pytest
from processes import run_client, run_together, selected

import arraybridge

HEAVY = {"numpy", "torch", "tensorflow", "jax", "jaxlib", "ml_dtypes", "grpc", "google.protobuf", "cupy"}


def modules_after(code):
    return set(run_client(f"{code}\nimport sys; print(*sys.modules)").split())


@pytest.mark.parametrize(
    "code",
    [
        "import arraybridge",
        "import arraybridge; arraybridge.Broker; arraybridge.View; arraybridge.Share",
        "from arraybridge import *",
        "import arraybridge; arraybridge.detect_memory_type([1])",
        "import arraybridge; arraybridge.asdlpack(bytearray(b'ab'))",
        "import arraybridge; arraybridge.Broker('/nonexistent', start='never')",
    ],
)
def test_imports_no_framework(code):
    assert not HEAVY & modules_after(code)


def test_first_uses_import_no_more_of_numpy():
    """numpy.ma takes milliseconds, in the first frame of a camera."""
    run_client("""
import sys, numpy, arraybridge
known = set(sys.modules)
with arraybridge.Broker(start="private") as broker, broker.channel("c") as frames:
    for sent in (numpy.zeros((2, 3)), broker.empty((2, 3), "float32"), {"a": numpy.zeros(2)}):
        frames.send(sent)
        frames.receive()
        broker.put(sent, "a", replace=True)
        broker.get("a")
assert not {name for name in set(sys.modules) - known if name.partition(".")[0] == "numpy"}
""")


def test_every_name_resolves_and_nothing_is_shadowed():
    for name in arraybridge.__all__:
        assert getattr(arraybridge, name) is not None
    assert not {"numpy", "torch", "tensorflow", "jax", "cupy"} & set(arraybridge.__all__)
    with pytest.raises(AttributeError):
        arraybridge.nothing


def test_asdlpack_is_the_function_after_its_module_was_imported():
    run_client("import arraybridge.asdlpack, arraybridge; arraybridge.asdlpack(b'x')")


TOUCH = {
    "arraybridge": "broker.put(bytearray(b'abc'), replace=True); assert broker.list() is not None",
    "torch": "assert torch.ones(8).sum() == 8",
    "tensorflow": "assert tensorflow.reduce_sum(tensorflow.ones(8)) == 8",
    "jax": "import jax.numpy; assert jax.numpy.ones(8).sum() == 8",
    "grpc": "grpc.insecure_channel('unix:/nonexistent').close()",
    "pyarrow": "assert len(pyarrow.array([1, 2])) == 2",
    # It has a protobuf of its own inside, and registers messages with Python's.
    "sentencepiece": "import io, sentencepiece.sentencepiece_model_pb2 as messages; model = io.BytesIO(); "
    "sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(['one two three', 'two four']), model_writer=model, "
    "vocab_size=16, hard_vocab_limit=False, minloglevel=3); assert messages.ModelProto.FromString(model.getvalue()).pieces; "
    "assert sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode('two')",
    "google.protobuf.empty_pb2": "google.protobuf.empty_pb2.Empty().SerializeToString()",
}
EVERYTHING = tuple(TOUCH)
# All of them in one process, beginning with each in turn, and the other way round.
ROTATIONS = [EVERYTHING[n:] + EVERYTHING[:n] for n in range(len(EVERYTHING))]
ROTATIONS += [turned[::-1] for turned in ROTATIONS]
PERMUTATIONS = [("arraybridge", "tensorflow", "torch"), ("torch", "tensorflow", "arraybridge"), ("tensorflow", "arraybridge", "torch")]
PERMUTATIONS += [("torch", "arraybridge", "tensorflow"), ("jax", "arraybridge", "grpc")]
PERMUTATIONS += [("grpc", "tensorflow", "arraybridge"), ("arraybridge", "grpc", "tensorflow")]
PERMUTATIONS += [("arraybridge", "torch", "tensorflow"), ("arraybridge", "jax", "grpc"), ("grpc", "jax", "arraybridge")]
PERMUTATIONS += [("arraybridge", "sentencepiece", "google.protobuf.empty_pb2"), ("jax", "torch", "arraybridge")]
# The package last, and between two that bring a protobuf of their own.
FEW = [("tensorflow", "torch", "arraybridge"), ("sentencepiece", "arraybridge", "tensorflow")]


@pytest.mark.parametrize(
    "order",
    FEW + (PERMUTATIONS + ROTATIONS if os.environ.get("ARRAYBRIDGE_LONG") else [EVERYTHING, EVERYTHING[::-1]]),
    ids=" ".join,
)
def test_import_orders(orders, order):
    if missing := [name for name in order if not importlib.util.find_spec(name.partition(".")[0])]:
        pytest.skip(f"not installed: {missing}")
    orders[order].result()


@pytest.fixture(scope="module")
def orders(request, address):
    cases = [case["order"] for case in selected(request, "test_import_orders")]
    return run_together({order: partial(run_client, code_of(order), address) for order in cases})


def code_of(order):
    lines = ["import sys"]
    for name in order:
        lines.append(f"import {name}")
        if name == "arraybridge":
            lines.append("broker = arraybridge.Broker(sys.argv[1], namespace='orders', start='never')")
        lines.append(TOUCH[name])
    for name in {"torch", "tensorflow", "jax"} & set(order):
        lines.append(f"share = broker.put(bytearray(b'abc')); assert len(broker.get(share, {name!r})) == 3")
    return "\n".join(lines)


def test_detection_reads_no_attribute_and_imports_nothing():
    class Loud:
        def __getattribute__(self, name):
            raise RuntimeError("read")

    assert arraybridge.detect_memory_type(Loud()) is None
    with pytest.raises(arraybridge.InvalidMemoryType, match="Loud is not an array"):
        arraybridge.detect_memory_type(Loud(), strict=True)


def test_what_is_an_array_and_what_is_not():
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    for array in (np.zeros(1), np.ma.zeros(1), np.zeros((1, 1)).view(np.matrix), np.recarray(1, [("a", "i4")])):
        assert arraybridge.detect_memory_type(array) == "numpy"
    for other in ([1], np.float32(3), np.dtype("i4"), 5, b"x", arraybridge.asdlpack(b"x")):
        assert arraybridge.detect_memory_type(other) is None


def test_memory_types_are_their_strings():
    member = arraybridge.MemoryType.NUMPY
    assert member == "numpy" and hash(member) == hash("numpy") and f"{member}" == str(member) == "numpy"
    assert "numpy" in arraybridge.CPU_MEMORY_TYPES and arraybridge.MemoryType("numpy") is member
    assert len(arraybridge.SUPPORTED_MEMORY_TYPES) == 6 == len(arraybridge.VALID_MEMORY_TYPES)
    assert arraybridge.GPU_MEMORY_TYPES == arraybridge.SUPPORTED_MEMORY_TYPES - arraybridge.CPU_MEMORY_TYPES
