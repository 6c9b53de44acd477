# SPDX-License-Identifier: Apache-2.0
"""to_bytes and from_bytes: what goes through a pipe or a file comes back with its dtype, shape and bits; what is no such bytes
is refused and runs nothing."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from processes import environment, run_client

import arraybridge
from arraybridge import InvalidMemoryType, InvalidRequest, UnsupportedArray, from_bytes, to_bytes
from arraybridge.conversion import byte_format
from arraybridge.planner import CODES, COMMON

STRUCTURED = np.dtype([("a", "i4"), ("b", "<f8", (2,)), ("c", [("d", "S3"), ("e", "M8[us]")])], align=True)
DTYPES = sorted(COMMON) + [
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "M8[ns]", "m8[25s]",
]  # fmt: skip


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def random_bits(dtype, shape):
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    bits = np.random.default_rng(7).integers(0, 256, count, np.uint8)
    return (bits & 1 if dtype == np.bool_ else bits).view(dtype).reshape(shape)


def header_of(data):
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])


def message(header, elements=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + elements


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4), (1,) * 64], ids=str)
def test_every_dtype_and_bit_comes_back(name, shape):
    source = random_bits(dtype_of(name), shape)
    got = from_bytes(to_bytes(source))
    assert type(got) is np.ndarray and got.dtype == source.dtype and got.shape == shape
    assert got.tobytes() == source.tobytes()


def test_a_sparse_array_is_told_what_helps():
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    matrix = sparse.csr_array(np.eye(3))
    for read in (to_bytes, arraybridge.asdlpack):
        with pytest.raises(UnsupportedArray, match=r"csr_array .*several arrays.*toarray\(\)"):
            read(matrix)
    assert from_bytes(to_bytes(matrix.toarray())).tolist() == np.eye(3).tolist()
    assert all((from_bytes(to_bytes(part)) == part).all() for part in (matrix.indptr, matrix.indices, matrix.data))


@pytest.mark.parametrize("framework", ["foo", "", None, "numba"])
def test_an_unknown_framework_is_refused_with_the_names_that_are_known(framework):
    with pytest.raises(InvalidMemoryType, match="framework.*use one of .*'jax', 'cupy'") as caught:
        from_bytes(to_bytes(np.ones(3)), framework)
    assert caught.value.source_type == "bytes"


@pytest.mark.parametrize("shape", [(3,), (2, 2), (0,)])
def test_structured_dtypes_come_back(shape):
    source = np.zeros(shape, STRUCTURED)
    source["a"], source["b"], source["c"]["d"] = 7, 1.5, b"xyz"
    got = from_bytes(to_bytes(source))
    assert got.dtype == source.dtype and got.shape == shape and got.tobytes() == source.tobytes()


def test_strides_and_byte_order_become_plain():
    source = np.arange(24, dtype=">i4").reshape(4, 6)
    for array in (source, source[:, ::-2], source.T, np.broadcast_to(source[0], (3, 6))):
        got = from_bytes(to_bytes(array))
        assert got.flags.c_contiguous and got.dtype == np.int32 and (got == array).all()


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "bool", "complex64"])
def test_frameworks_on_both_ends(framework, name):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    source = random_bits(dtype_of(name), (4, 3))
    made = arraybridge.convert_memory(source, "numpy", framework, None)
    data = to_bytes(made)
    assert header_of(data) == header_of(to_bytes(source))
    got = from_bytes(data, framework)
    assert arraybridge.detect_memory_type(got) == framework
    assert from_bytes(to_bytes(got)).tobytes() == source.tobytes()


def test_complex32_comes_back_to_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    source = torch.tensor([[1 + 2j, -0.0 + 0j]], dtype=torch.complex32)
    got = from_bytes(to_bytes(source), "torch")
    assert got.dtype == torch.complex32 and got.tolist() == source.tolist()


def test_the_format_is_the_documented_one():
    data = to_bytes(np.arange(6, dtype="f4").reshape(2, 3))
    assert header_of(data) == {
        "array": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"arraybridge": "1"}
    }  # fmt: skip
    assert (len(data) - 24) % 64 == 0 and data[-24:] == np.arange(6, dtype="f4").tobytes()
    assert header_of(to_bytes(np.ones(2, "c16")))["array"] == {"dtype": "F64", "shape": [2, 2], "data_offsets": [0, 32]}
    assert header_of(to_bytes(np.ones(2, "M8[s]")))["__metadata__"]["dtype"] == "datetime64[s]"


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "bool", "uint16"])
def test_safetensors_reads_it_and_is_read(name):
    theirs = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    source = random_bits(dtype_of(name), (2, 3))
    tensor = theirs.load(to_bytes(source))["array"]
    assert str(tensor.dtype) == f"torch.{name}" and to_bytes(tensor) == to_bytes(source)
    got = from_bytes(theirs.save({"theirs": tensor}, {"made by": "them"}))
    assert got.dtype == source.dtype and got.tobytes() == source.tobytes()


def test_safetensors_reads_what_it_has_no_word_for():
    theirs = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    assert theirs.load(to_bytes(np.array([1 + 2j])))["array"].tolist() == [[1, 2]]
    assert theirs.load(to_bytes(np.array([3], "M8[s]")))["array"].tolist() == [3]
    assert theirs.load(to_bytes(np.zeros((2, 2), STRUCTURED)))["array"].shape == (2, 2, STRUCTURED.itemsize)


def test_through_a_pipe_and_a_file(tmp_path):
    source = np.arange(1000, dtype="i2").reshape(10, 100)
    code = (
        "import sys, numpy, arraybridge\n"
        "array = arraybridge.from_bytes(sys.stdin.buffer.read())\n"
        "sys.stdout.buffer.write(arraybridge.to_bytes(numpy.asarray(array * 2, 'f8')))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=to_bytes(source), capture_output=True, env=environment(), check=True)
    got = from_bytes(done.stdout)
    assert got.dtype == np.float64 and (got == source * 2.0).all()
    path = tmp_path / "array.safetensors"
    path.write_bytes(to_bytes(source))
    assert (from_bytes(np.memmap(path, "u1", "r")) == source).all()


def test_numpy_reads_the_bytes_where_they_are_and_others_get_their_own():
    data = to_bytes(np.arange(100, dtype="f4"))
    got = from_bytes(data)
    assert not got.flags.writeable and got.ctypes.data == np.frombuffer(data, "u1").ctypes.data + len(data) - 400
    room = bytearray(data)
    from_bytes(room)[0] = 9
    assert from_bytes(room)[0] == 9 and from_bytes(data)[0] == 0
    private = from_bytes(data, copy=True)
    private[0] = 7
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from_bytes(data, "torch")[0] = 5
    assert from_bytes(data)[0] == 0 and torch.equal(from_bytes(data, "torch")[:1], torch.zeros(1))


def test_shares_and_views_and_what_nobody_could_read(broker):
    source = np.arange(4.0)
    share = broker.put(source, "s")
    assert from_bytes(to_bytes(share)).tolist() == from_bytes(to_bytes(share.view())).tolist() == [0, 1, 2, 3]
    for nothing in ([1, 2], {"a": source}, object(), None):
        with pytest.raises(UnsupportedArray):
            to_bytes(nothing)
    with pytest.raises(UnsupportedArray, match="mask"):
        to_bytes(np.ma.array([1], mask=[1]))


GOOD = {"array": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"arraybridge": "1"}}


def changed(**changes):
    return {**GOOD, "array": {**GOOD["array"], **changes}}


def described(named, **tensor):
    return {"array": {**GOOD["array"], **tensor}, "__metadata__": {"arraybridge": "1", "dtype": named}}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"), (b"1234567", "7 bytes"), (message(GOOD, length=2**63), "the limit is 1048576"),
        (message(GOOD, length=500), "they are truncated"), (message(GOOD, b"1234567"), "7 bytes follow"),
        (message(GOOD, b"123456789"), "9 bytes follow"), (message(b"\xff\xfe"), "not JSON"), (message(b"{"), "not JSON"),
        (message(b"[" * 100_000), "not JSON"), (message(b"[1]"), "not a JSON object"), (message(b'{"a":1,"a":2}'), "twice"),
        (message(b"9" * 5000), "not JSON"), (message({}), "0 arrays"), (message({"a": GOOD["array"], "b": GOOD["array"]}), "2 arrays"),
        (message({**GOOD, "__metadata__": {"arraybridge": "2"}}, b"12345678"), "version '2'"),
        (message({**GOOD, "__metadata__": 3}, b"12345678"), "__metadata__"),
        (message({**GOOD, "__metadata__": {"arraybridge": 1}}, b"12345678"), "__metadata__"),
        (message(changed(dtype="F31"), b"12345678"), "unknown dtype"), (message(changed(dtype=["F32"]), b"12345678"), "unknown dtype"),
        (message(changed(shape=[-2]), b"12345678"), "list of sizes"), (message(changed(shape=[True, 2]), b"12345678"), "list of sizes"),
        (message(changed(shape=[2.0]), b"12345678"), "list of sizes"), (message(changed(shape=2), b"12345678"), "list of at most 65"),
        (message(changed(shape=[1] * 65, data_offsets=[0, 4]), b"1234"), "65 dimensions"),
        (message(changed(shape=[2**40, 2**40]), b"12345678"), "data_offsets"),
        (message(changed(data_offsets=[0, 4]), b"12345678"), "data_offsets"),
        (message(changed(data_offsets=[4, 12]), b"12345678"), "data_offsets"),
        (message(changed(data_offsets=None), b"12345678"), "data_offsets"), (message(changed(more=1), b"12345678"), "data_offsets only"),
        (message({"array": 3}, b"12345678"), "data_offsets only"),
        (message(described("float32"), b"12345678"), "unknown dtype"), (message(described("object"), b"12345678"), "unknown dtype"),
        (message(described("complex128"), b"12345678"), "needs F64"),
        (message(described("complex32", dtype="F16", shape=[4]), b"12345678"), "ends with"),
        (message(described("datetime64[s]"), b"12345678"), "needs I64"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_bytes_that_are_none_are_refused_by_what_is_wrong(data, why):
    with pytest.raises(InvalidRequest, match=why) as caught:
        from_bytes(data)
    assert isinstance(caught.value, ValueError) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "dtype",
    [
        'struct:[["a","|O"]]', 'struct:[["a","<f4"]]', "struct:__import__('os')", "struct:" + "[" * 10_000, "datetime64[x]",
        'struct:[["a","<i4",[1000000000,1000000000]]]',
    ],
    ids=lambda each: each[:24],
)  # fmt: skip
def test_dtypes_that_are_none_are_refused(dtype):
    word, shape = ("U8", [1, 8]) if dtype.startswith("struct:") else ("I64", [1])
    with pytest.raises((InvalidRequest, arraybridge.UnsupportedDtype)):
        from_bytes(message(described(dtype, dtype=word, shape=shape), b"12345678"))


def test_a_header_has_a_limit_that_both_ends_name():
    many = np.dtype([(f"{'field' * 12}{number}", "u1") for number in range(14_000)])
    with pytest.raises(InvalidRequest, match=str(byte_format.HEADER_BYTES_MAX)):
        to_bytes(np.zeros(1, many))
    text = json.dumps(GOOD).encode()
    for more, fits in ((0, True), (1, False)):
        full = text + b" " * (byte_format.HEADER_BYTES_MAX - len(text) + more)
        if fits:
            assert from_bytes(message(full, b"\0" * 8)).tolist() == [0, 0]
            continue
        with pytest.raises(InvalidRequest, match=str(byte_format.HEADER_BYTES_MAX)):
            from_bytes(message(full, b"\0" * 8))


@pytest.mark.parametrize("data", [3, "text", None, [1]])
def test_what_is_no_buffer_is_refused(data):
    with pytest.raises(InvalidRequest, match="contiguous bytes"):
        from_bytes(data)
    with pytest.raises(InvalidRequest, match="contiguous bytes"):
        from_bytes(np.zeros((4, 4), "u1")[:, ::2])


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_bytes_are_an_array_or_refused(data):
    good = bytearray(to_bytes(np.arange(6, dtype="f4").reshape(2, 3)))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))]) if data.draw(st.booleans()) else bytes(good)
    try:
        got = from_bytes(cut)
    except (InvalidRequest, arraybridge.UnsupportedDtype):
        return
    assert got.nbytes <= 24


def test_reading_imports_and_executes_nothing():
    code = (
        "import sys, arraybridge, numpy\n"
        "data = arraybridge.to_bytes(numpy.zeros(3, [('a', 'i4')]))\n"
        "ran = []\n"
        "sys.addaudithook(lambda event, _: ran.append(event) if event in ('exec', 'compile', 'os.system', 'pickle.find_class') else None)\n"
        "arraybridge.from_bytes(data)\n"
        "before = set(sys.modules); del ran[:]\n"
        "arraybridge.from_bytes(data); print(set(sys.modules) - before, ran)"
    )
    assert run_client(code) == "set() []\n"


def test_every_dtype_that_conversions_know_has_its_bytes():
    assert set(CODES) == set(byte_format.WORDS) | set(byte_format.HELD)
