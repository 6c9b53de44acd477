# SPDX-License-Identifier: Apache-2.0
"""Files of arrays: loaded once for all processes, into broker memory, and written back."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import eventually
from processes import daemons_of, environment, start_daemon, stop_daemon

import arraybridge
from arraybridge import Broker, InvalidRequest, OutOfMemory, ShareExists, ShareNotFound, UnsupportedArray, UnsupportedDtype
from arraybridge.files import loading, reading

formats = pytest.importorskip("safetensors.numpy")


def weights(count: int = 20, value: int = 0) -> dict[str, Any]:
    return {f"layers.{i}.weight": np.full((i % 5, 3), i + value, "float32") for i in range(count)}


def same(bundle: Any, arrays: dict[str, Any]) -> None:
    found = bundle.numpy()
    assert sorted(found) == sorted(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == np.asarray(array).dtype.newbyteorder("=")


def safetensors(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def run_python(broker: Broker, code: str, *arguments: object) -> subprocess.Popen[str]:
    begin = "import os, sys, time, arraybridge\nbroker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
    begin += f"import arraybridge.files.loading\narraybridge.files.loading.CLAIM_S = {loading.CLAIM_S}\n"
    words = [sys.executable, "-c", begin + textwrap.dedent(code), str(broker.address), broker.namespace, *map(str, arguments)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())


# Reading


def test_a_safetensors_file(broker: Broker, tmp_path: Path) -> None:
    arrays = {**weights(), "scalar": np.array(7, "int64"), "flags": np.array([True, False]), "naïve·名": np.arange(6, dtype="uint16")}
    file = tmp_path / "net.safetensors"
    formats.save_file(arrays, file, metadata={"format": "np", "step": "1000"})
    bundle = arraybridge.load(file, broker=broker)
    assert bundle.share.name == "net"
    assert json.loads(bundle.metadata) == {"format": "np", "step": "1000"}
    same(bundle, arrays)
    assert [listed.share.name for listed in broker.list()] == ["net"]


@pytest.mark.parametrize(
    "dtype",
    [
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bfloat16",
        "complex64", "float8_e4m3fn", "float8_e5m2",
    ],
)  # fmt: skip
def test_every_dtype_of_torch_comes_and_goes(broker: Broker, tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    kind = getattr(torch, dtype)
    array = torch.arange(24).reshape(2, 3, 4).to(torch.float32 if dtype.startswith("float8") else kind).to(kind)
    save_file({"a": array}, tmp_path / "m.safetensors")
    bundle = arraybridge.load(tmp_path / "m.safetensors", broker=broker)
    tensor = bundle.torch()["a"]
    assert tensor.dtype == kind and torch.equal(tensor.view(torch.uint8), array.view(torch.uint8))
    arraybridge.save(bundle, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").stat().st_size == (tmp_path / "m.safetensors").stat().st_size
    read = pytest.importorskip("safetensors.torch").load_file(tmp_path / "again.safetensors")["a"]
    assert read.dtype == kind and torch.equal(read.view(torch.uint8), array.view(torch.uint8))


@pytest.mark.parametrize("length", [0x280, 0x480, 0x580])
def test_a_header_may_begin_as_a_pickle_does(broker: Broker, tmp_path: Path, length: int) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode().ljust(length)
    bundle = arraybridge.load(safetensors(tmp_path / "m.safetensors", header, bytes(8)), broker=broker)
    assert bundle.numpy()["a"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("given", ["index", "folder", "files"])
def test_a_model_of_several_files(broker: Broker, tmp_path: Path, given: str) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    names = [f"model-{i}-of-2.safetensors" for i in (1, 2)]
    parts = [weights(10), {f"head.{name}": array for name, array in weights(5, 100).items()}]
    for name, part in zip(names, parts, strict=True):
        formats.save_file(part, folder / name)
    index = folder / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": {key: name for name, part in zip(names, parts, strict=True) for key in part}})
    )
    paths = {"index": index, "folder": folder, "files": [folder / name for name in names]}[given]
    bundle = arraybridge.load(paths, broker=broker)
    assert bundle.share.name == {"index": "model", "folder": "llama", "files": "model-1-of-2"}[given]
    same(bundle, parts[0] | parts[1])
    assert arraybridge.load(index, bundle.share.name, broker=broker).share.generation == bundle.share.generation
    (folder / names[1]).unlink()
    if given != "folder":
        with pytest.raises(FileNotFoundError):
            arraybridge.load(paths, "again", broker=broker)


def test_an_npz_file(broker: Broker, tmp_path: Path) -> None:
    arrays = {
        **weights(), "big": np.arange(5, dtype=">i4"), "columns": np.asfortranarray(np.arange(12.0).reshape(3, 4)), "scalar": np.array(2j),
        "big columns": np.asfortranarray(np.arange(12, dtype=">f8").reshape(3, 4)), "none": np.zeros((0, 3)), "b": np.array([True]),
        "large": np.arange(3 << 20, dtype="float64"),
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    same(arraybridge.load(tmp_path / "a.npz", broker=broker), arrays)
    same(arraybridge.load(tmp_path / "b.npz", broker=broker), arrays)


def test_a_checkpoint_of_torch(broker: Broker, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    table = torch.randn(100, 8)
    torch.save({"model": model.state_dict(), "tied": {"one": table, "other": table}, "columns": torch.randn(3, 4).t()}, tmp_path / "net.pt")
    bundle = arraybridge.load(tmp_path / "net.pt", broker=broker)
    assert bundle.share.name == "net"
    for name, tensor in model.state_dict().items():
        assert torch.equal(bundle.torch()[f"model.{name}"], tensor)
    arrays = bundle.torch()
    assert arrays["tied.one"] is arrays["tied.other"] and torch.equal(arrays["tied.one"], table)
    assert arrays["columns"].shape == (4, 3)


def test_a_checkpoint_executes_nothing(broker: Broker, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"w": Evil()}, tmp_path / "net.pt")
    with pytest.raises(InvalidRequest, match="weights_only"):
        arraybridge.load(tmp_path / "net.pt", broker=broker)
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"w": Evil()}))
    with pytest.raises(InvalidRequest, match="is a pickle"):
        arraybridge.load(tmp_path / "old.pt", broker=broker)
    np.savez(tmp_path / "objects.npz", a=np.array([Evil()], object))
    with pytest.raises(UnsupportedDtype, match="'a'"):
        arraybridge.load(tmp_path / "objects.npz", broker=broker)
    assert not (tmp_path / "executed").exists()
    endless: dict[str, Any] = {"w": torch.ones(3)}
    endless["again"] = endless
    torch.save(endless, tmp_path / "endless.pt")
    with pytest.raises(InvalidRequest, match="deeper than 16"):
        arraybridge.load(tmp_path / "endless.pt", broker=broker)
    torch.save({"w": torch.ones(3), "epoch": 3}, tmp_path / "more.pt")
    with pytest.raises(InvalidRequest, match="'epoch' is int"):
        arraybridge.load(tmp_path / "more.pt", broker=broker)
    assert not broker.list()


def test_pieces_are_divided_and_joined() -> None:
    room = memoryview(bytearray(3 * reading.PIECE + 5))
    small = [(len(room) + 8 * i, memoryview(bytearray(8))) for i in range(1000)]
    apart = [(1 << 40, memoryview(bytearray(8)))]
    pieces = list(reading.pieces_of([(0, room), *small, *apart]))
    assert [offset for offset, _ in pieces][:4] == [i * reading.PIECE for i in range(4)]
    assert pieces[-1][0] == 1 << 40
    assert len(pieces) == 3 + 2 + 1  # at most 512 buffers each
    assert sum(len(piece) for _, rooms in pieces for piece in rooms) == len(room) + 8 * 1001


# Once


def test_what_is_loaded_is_not_read_again(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    formats.save_file(weights(), file)
    seen: list[tuple[int, int]] = []
    first = arraybridge.load(file, broker=broker, progress=lambda done, total: seen.append((done, total)))
    total = sum(array.nbytes for array in weights().values())
    assert seen[0] == (0, total) and seen[-1] == (total, total) and seen == sorted(seen)
    seen.clear()
    assert arraybridge.load(file, broker=broker, progress=lambda *_: seen.append((0, 0))).share.generation == first.share.generation
    assert not seen
    formats.save_file(weights(value=1), file)
    second = arraybridge.load(file, broker=broker)
    assert second.share.generation > first.share.generation
    same(first, weights())
    same(second, weights(value=1))


def test_sha256_sees_what_the_time_of_the_file_hides(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    formats.save_file(weights(), file)
    then = file.stat()
    by_header, by_content = (arraybridge.load(file, digest, broker=broker, digest=digest) for digest in ("header", "sha256"))  # type: ignore[arg-type]
    formats.save_file(weights(value=1), file)
    os.utime(file, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert arraybridge.load(file, "header", broker=broker).share.generation == by_header.share.generation
    same(arraybridge.load(file, "sha256", broker=broker, digest="sha256"), weights(value=1))
    os.utime(file)
    generation = broker.open("sha256").share.generation
    assert arraybridge.load(file, "sha256", broker=broker, digest="sha256").share.generation == generation > by_content.share.generation


LOAD = """
    bundle = arraybridge.load(sys.argv[3], "m", broker=broker, progress=lambda *_: (print("reads", flush=True), time.sleep(0.05)))
    print(len(bundle.numpy()), bundle.share.generation, flush=True)
"""


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is renewed five times in this time, and so outlives a stall of 5 s."""
    monkeypatch.setattr(loading, "CLAIM_S", 7.0)


@pytest.mark.usefixtures("claim")
def test_callers_at_the_same_time_read_once(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    formats.save_file({str(i): np.zeros(reading.PIECE, "uint8") for i in range(10)}, file)
    callers = [run_python(broker, LOAD, file) for _ in range(6)]
    told = [caller.communicate(timeout=120)[0].splitlines() for caller in callers]
    assert [caller.returncode for caller in callers] == [0] * 6
    assert sum("reads" in lines for lines in told) == 1
    assert {lines[-1] for lines in told} == {f"10 {broker.open('m').share.generation}"}
    assert [listed.share.name for listed in broker.list()] == ["m"]


@pytest.mark.usefixtures("claim")
def test_another_goes_on_if_the_reader_is_killed(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    formats.save_file({str(i): np.zeros(reading.PIECE, "uint8") for i in range(10)}, file)
    before = broker.stats()["charged_bytes"]
    first = run_python(
        broker, "arraybridge.load(sys.argv[3], 'm', broker=broker, progress=lambda *_: (print(flush=True), time.sleep(600)))", file
    )
    assert first.stdout is not None and first.stdout.readline() == "\n"
    second = run_python(broker, LOAD, file)
    time.sleep(1)
    assert second.poll() is None
    first.send_signal(signal.SIGKILL)
    assert second.communicate(timeout=60)[0].splitlines()[-1].startswith("10 ")
    first.communicate()
    eventually("one model is charged", lambda: broker.stats()["charged_bytes"] - before < 15 * reading.PIECE)
    assert [listed.share.name for listed in broker.list()] == ["m"]


@pytest.mark.usefixtures("claim")
def test_a_reader_keeps_its_claim(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    formats.save_file(weights(), file)
    first = run_python(
        broker,
        "arraybridge.load(sys.argv[3], 'm', broker=broker, progress=lambda done, _: (print(flush=True), time.sleep(4 if done else 5)))",
        file,
    )
    assert first.stdout is not None and first.stdout.readline() == "\n"
    same(arraybridge.load(file, "m", broker=broker, progress=pytest.fail), weights())
    assert first.wait(60) == 0
    first.stdout.close()


# What is refused


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"", "invalid"),
        (b"[]", "no JSON object"),
        (b"{", "invalid"),
        (b"\xff\xfe{}", "invalid"),
        (b"[" * 100_000, "invalid"),
        (b'{"a": {"dtype":"F32","shape":[],"data_offsets":[0,4]}, "a": {"dtype":"F32","shape":[],"data_offsets":[4,8]}}', "occurs twice"),
        ({"a": 3}, "'a' must have"),
        ({"a": {**GOOD, "data_offsets": [0]}}, "'a' must have"),
        ({"a": {**GOOD, "data_offsets": [0, 9]}}, "needs 8 bytes and has 9"),
        ({"a": {**GOOD, "data_offsets": [8, 0]}}, "needs 8 bytes"),
        ({"a": {**GOOD, "data_offsets": [-8, 0]}}, "whole numbers"),
        ({"a": {**GOOD, "data_offsets": [1 << 63, (1 << 63) + 8]}}, "whole numbers"),
        ({"a": {**GOOD, "data_offsets": [16, 24]}}, "after the file"),
        ({"a": {**GOOD, "shape": [-2]}}, "whole numbers"),
        ({"a": {**GOOD, "shape": [2.0]}}, "whole numbers"),
        ({"a": {**GOOD, "shape": [True, 2]}}, "whole numbers"),
        ({"a": {**GOOD, "shape": "ab"}}, "whole numbers"),
        ({"a": {**GOOD, "shape": [1 << 62, 1 << 62]}}, "larger than any memory"),
        ({"a": {**GOOD, "shape": [0, 1 << 62, 1 << 62], "data_offsets": [0, 0]}}, "larger than any memory"),
        ({"a": {**GOOD, "shape": [1 << 62] * 300_000}}, "300000 dimensions"),
        ({"a": {**GOOD, "shape": [1] * 65 + [2]}}, "66 dimensions"),
        (dict.fromkeys("abc", GOOD), "'b' begins before the end"),
        ({"a": {**GOOD, "shape": [1], "data_offsets": [0, 4]}}, "4 bytes follow"),
        ({"a": {**GOOD, "shape": [1], "data_offsets": [4, 8]}}, "'a' begins after the end"),
        ({"__metadata__": {"a": 3}}, "object of strings"),
        ({"__metadata__": []}, "object of strings"),
        ({"a": {"dtype": "F4", "shape": [15], "data_offsets": [0, 8]}}, "4 bits x \\[15\\], ends within a byte"),
        ({"a": {"dtype": "F6_E2M3", "shape": [3], "data_offsets": [0, 8]}}, "ends within a byte"),
        ({"a\0b": GOOD}, "NUL"),
        ({"x" * ((1 << 20) + 1): GOOD}, "has 1048577 bytes; it may have 1048576"),
    ],
)  # fmt: skip
def test_a_malformed_safetensors_file(broker: Broker, tmp_path: Path, header: object, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        arraybridge.load(safetensors(tmp_path / "m.safetensors", header, bytes(8)), broker=broker)
    assert not broker.list()


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
        {name: {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]} for name in "ab"},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        {"__metadata__": None, "a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}},
    ],
)
def test_what_the_safetensors_package_refuses_is_refused(broker: Broker, tmp_path: Path, header: object) -> None:
    file = safetensors(tmp_path / "m.safetensors", header, bytes(12))
    try:
        theirs = sorted(formats.load_file(file))
    except Exception:
        theirs = None
    try:
        own = sorted(arraybridge.load(file, broker=broker))
    except InvalidRequest:
        own = None
    assert own == theirs


@pytest.mark.parametrize("dtype", ["I4", "F8_X", "\x1b[31m", 3, None, []])
def test_a_dtype_that_no_bundle_has(broker: Broker, tmp_path: Path, dtype: object) -> None:
    with pytest.raises((UnsupportedDtype, InvalidRequest)) as caught:
        arraybridge.load(safetensors(tmp_path / "m.safetensors", {"a": {**GOOD, "dtype": dtype}}, bytes(16)), broker=broker)
    assert "'a'" in str(caught.value) and "\x1b" not in str(caught.value)


def test_files_that_are_none(broker: Broker, tmp_path: Path) -> None:
    def refused(path: object, text: str, error: type[Exception] = InvalidRequest) -> None:
        with pytest.raises(error, match=text):
            arraybridge.load(path, "m", broker=broker)  # type: ignore[arg-type]

    file = tmp_path / "m.safetensors"
    for length in (9, 1 << 40, (1 << 64) - 1):
        refused(safetensors(file, b"", b"12345678", length), "cut off")
    file.write_bytes(b"123")
    refused(file, "cut off")
    file.write_bytes(b"")
    refused(file, "cut off")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "no regular file")
    refused(tmp_path / "absent", "absent", FileNotFoundError)
    refused([], "needs a file")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "has no")
    for shard in ("a\0b", "../secret", "/etc/passwd", "..", ""):
        index = tmp_path / "empty" / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"a": shard}}))
        refused(index, "no file of its folder")
    os.mkfifo(tmp_path / "pipe.index.json")
    refused(tmp_path / "pipe.index.json", "no regular file")
    for text in ('{"weight_map": {}}', "{}", "[]", "{", '{"weight_map": []}', "\xff"):
        index.write_text(text, encoding="latin-1")
        refused(index, "no index")
    formats.save_file(weights(3), tmp_path / "one.safetensors")
    refused([tmp_path / "one.safetensors", tmp_path / "one.safetensors"], "another of these files")
    with pytest.raises(InvalidRequest, match="digest must be one of"):
        arraybridge.load(tmp_path / "one.safetensors", broker=broker, digest="md5")  # type: ignore[arg-type]
    assert not broker.list()


def test_zip_files_that_are_none(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "a.npz"

    def refused(text: str, error: type[Exception] = InvalidRequest) -> None:
        with pytest.raises(error, match=text):
            arraybridge.load(file, "m", broker=broker)
        assert not broker.list()

    np.savez_compressed(file, a=np.arange(100_000), b=np.zeros(3))
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2])
    refused("cannot be read")
    middle = len(good) // 3
    file.write_bytes(good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :])
    refused("cannot be read")
    np.savez(file, a=np.zeros(3, [("x", "f4")]))
    refused("'a' has dtype", UnsupportedDtype)
    np.savez(file, a=np.array(["text"]))
    refused("'a' has dtype", UnsupportedDtype)

    def member(name: str, header: str, data: bytes = b"") -> None:
        with zipfile.ZipFile(file, "w") as made:
            made.writestr(name, b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data)

    member("a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}", bytes(8))
    refused("needs 8000000000000 bytes and has 8")
    member("a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}", bytes(8))
    refused("has the shape|cannot be read")
    member("a.npy", f"{{'descr': '<f8', 'fortran_order': False, 'shape': (0, {1 << 62}, {1 << 62})}}")
    refused("larger than any memory")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("a.npy", bytes(1000))
    packed_bytes = file.read_bytes()
    file.write_bytes(packed_bytes.replace(b"BZh9", b"BZh9\xff\xff", 1)[: len(packed_bytes)])
    refused("cannot be read")
    member("a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", bytes(24))
    refused("needs 16 bytes and has 24")
    member("a.npy", "__import__('os').mkdir('executed')")
    refused("cannot be read")
    member("a.npy", "{'descr': '<f8'")
    refused("cannot be read")
    member("a.txt", "")
    refused("neither .npz nor a checkpoint")
    file.write_bytes(b"PK\x03\x04")
    refused("cannot be read")
    made = io.BytesIO()
    np.save(made, np.zeros(3))
    with pytest.warns(UserWarning), zipfile.ZipFile(file, "w") as twice:
        twice.writestr("a.npy", made.getvalue())
        twice.writestr("a.npy", made.getvalue())
    refused("two arrays have the name 'a'")


def test_a_file_that_changes_while_it_is_read(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    formats.save_file(weights(), file)

    def write(done: int, total: int) -> None:
        os.utime(file, ns=(done, total))

    with pytest.raises(InvalidRequest, match="was written to while it was read"):
        arraybridge.load(file, broker=broker, progress=write)
    with pytest.raises(InvalidRequest, match="has become shorter"):
        arraybridge.load(file, broker=broker, progress=lambda *_: os.truncate(file, file.stat().st_size - 8))
    assert not broker.list()


def test_a_progress_that_raises_ends_it(broker: Broker, tmp_path: Path) -> None:
    formats.save_file(weights(), tmp_path / "m.safetensors")
    before = broker.stats()["charged_bytes"]

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arraybridge.load(tmp_path / "m.safetensors", broker=broker, progress=stop)
    with pytest.raises(ShareNotFound):
        broker.open("m")
    eventually("its memory is free", lambda: broker.stats()["charged_bytes"] <= before)


def test_the_name_of_another_share_is_not_replaced(broker: Broker, tmp_path: Path) -> None:
    formats.save_file(weights(), tmp_path / "m.safetensors")
    broker.put(np.ones(3), "m")
    with pytest.raises(ShareExists, match="is no bundle"):
        arraybridge.load(tmp_path / "m.safetensors", broker=broker)
    assert broker.get("m").tolist() == [1.0] * 3


def test_what_was_loaded_is_returned_whatever_has_the_name_now(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        formats.save_file(weights(value=number), tmp_path / f"{number}.safetensors")
        os.utime(tmp_path / f"{number}.safetensors", ns=(0, number))
    leave = loading.Claim.__exit__

    def overtaken(self: Any, *error: object) -> None:
        leave(self, *error)
        monkeypatch.undo()
        arraybridge.load(tmp_path / "2.safetensors", "m", broker=broker)

    monkeypatch.setattr(loading.Claim, "__exit__", overtaken)
    same(arraybridge.load(tmp_path / "1.safetensors", "m", broker=broker), weights(value=1))
    same(broker.open("m"), weights(value=2))


def test_a_reader_that_stood_still_takes_what_another_has_read(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    formats.save_file(weights(), file)
    first = run_python(broker, LOAD.replace("0.05", "2"), file)
    assert first.stdout is not None and first.stdout.readline() == "reads\n"
    first.send_signal(signal.SIGSTOP)
    there = arraybridge.load(file, "m", broker=broker)
    first.send_signal(signal.SIGCONT)
    assert first.communicate(timeout=60)[0].splitlines()[-1] == f"20 {there.share.generation}"
    assert broker.open("m").share.generation == there.share.generation
    assert [listed.share.name for listed in broker.list()] == ["m"]


def test_a_link_gives_its_own_name(broker: Broker, tmp_path: Path) -> None:
    formats.save_file(weights(), tmp_path / "0123456789abcdef")
    (tmp_path / "llama.safetensors").symlink_to("0123456789abcdef")
    assert arraybridge.load(tmp_path / "llama.safetensors", broker=broker).share.name == "llama"


def test_no_other_name_is_in_the_way(broker: Broker, tmp_path: Path) -> None:
    formats.save_file(weights(), tmp_path / "m.safetensors")
    broker.put(np.ones(3), "m.loading")
    same(arraybridge.load(tmp_path / "m.safetensors", broker=broker), weights())
    assert sorted(listed.share.name for listed in broker.list()) == ["m", "m.loading"]


def test_a_reader_that_fails_lets_the_next_go_on_at_once(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "CLAIM_S", 600.0)  # no claim expires
    file = tmp_path / "m.safetensors"
    formats.save_file(weights(), file)
    fails = """
    def fail(done, total):
        print("reads", flush=True)
        sys.stdin.readline()
        raise OSError
    arraybridge.load(sys.argv[3], "m", broker=broker, progress=fail)
    """
    first = run_python(broker, fails, file)
    assert first.stdout is not None and first.stdout.readline() == "reads\n"
    second = run_python(broker, LOAD, file)
    eventually("the second waits", lambda: broker.stats()["waiting"] >= 1)
    first.communicate("\n", timeout=60)
    assert second.communicate(timeout=60)[0].splitlines()[-1].startswith("20 ")


def test_one_process_reads_although_the_daemon_is_killed(tmp_path: Path) -> None:
    """Its keeper continues it; the claim is lost, and its holder renews it before another process gets it."""
    file = tmp_path / "m.safetensors"
    formats.save_file({str(i): np.zeros(reading.PIECE, "uint8") for i in range(10)}, file)
    keeper = start_daemon(str(tmp_path / "broker"), "--keeper", "--log-level", "off")
    with Broker(tmp_path / "broker", start="never") as broker:
        first = run_python(broker, LOAD.replace("0.05", "0.5"), file)
        assert first.stdout is not None and first.stdout.readline() == "reads\n"
        second = run_python(broker, LOAD, file)
        eventually("the second waits", lambda: broker.stats()["waiting"] >= 1)
        (daemon,) = daemons_of(tmp_path / "broker")
        os.kill(daemon, signal.SIGKILL)
        told = [each.communicate(timeout=120)[0].splitlines() for each in (first, second)]
        assert "reads" in told[0] and told[1] == told[0][-1:] == [f"10 {broker.open('m').share.generation}"]
    assert stop_daemon(keeper) == 0


def test_a_model_without_room(tmp_path: Path) -> None:
    formats.save_file({"a": np.zeros(32 << 20, "uint8")}, tmp_path / "m.safetensors")
    directory = tmp_path / "broker"
    daemon = start_daemon(str(directory), "--host-capacity", str(8 << 20), "--log-level", "off")
    with Broker(directory, start="never", timeout_s=3) as broker:
        with pytest.raises(OutOfMemory):
            arraybridge.load(tmp_path / "m.safetensors", broker=broker)
        assert not broker.list()
    assert stop_daemon(daemon) == 0


PACKED = {  # an array of the file: dtype, shape, bytes, and the shape of its bytes in frameworks without the dtype
    "F4": ("F4", [3, 4], bytes(range(6)), (3, 2)),
    "F4 in odd rows": ("F4", [2, 3], bytes(range(3)), (3,)),
    "F4, empty": ("F4", [0, 4], b"", (0, 2)),
    "F6, with 2 bits of exponent": ("F6_E2M3", [2, 8], bytes(range(12)), (2, 6)),
    "F6, with 3 bits of exponent": ("F6_E3M2", [4], bytes(range(3)), (3,)),
}


@pytest.mark.parametrize("kind", PACKED)
def test_elements_of_less_than_a_byte_keep_their_dtype(broker: Broker, tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    dtype, shape, data, rows = PACKED[kind]
    named = {"F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn"}[dtype]
    header = {
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "p": {"dtype": dtype, "shape": shape, "data_offsets": [8, 8 + len(data)]},
    }
    file = safetensors(tmp_path / "m.safetensors", header, np.ones(2, "f4").tobytes() + data)
    bundle = arraybridge.load(file, broker=broker)
    assert bundle.numpy()["w"].tolist() == [1.0, 1.0]
    assert (bundle["p"].dtype, bundle["p"].shape, bundle["p"].nbytes) == (named, tuple(shape), len(data))
    for read in bundle.numpy()["p"], bundle.arrays("tensorflow")["p"].numpy(), np.asarray(bundle.jax()["p"]):
        assert (read.dtype, read.shape, read.tobytes()) == (np.uint8, rows, data)
    tensor = bundle.torch()["p"]
    assert tensor.dtype == (torch.float4_e2m1fn_x2 if dtype == "F4" else torch.uint8) and tensor.shape == rows
    assert tensor.view(torch.uint8).flatten().tolist() == list(data)
    if kind == "F4":  # the package refuses the others
        theirs = pytest.importorskip("safetensors.torch").load_file(file)["p"]
        assert theirs.dtype == tensor.dtype and theirs.shape == tensor.shape
        arraybridge.save({"p": tensor, "s": tensor[0, 0]}, tmp_path / "tensors.safetensors")
        theirs = pytest.importorskip("safetensors.torch").load_file(tmp_path / "tensors.safetensors")
        assert theirs["p"].view(torch.uint8).flatten().tolist() == list(data) and theirs["s"].view(torch.uint8).tolist() == [0]
    arraybridge.save(bundle, tmp_path / "again.safetensors")
    entries = dict(pytest.importorskip("safetensors").deserialize((tmp_path / "again.safetensors").read_bytes()))
    assert (entries["p"]["dtype"], entries["p"]["shape"], bytes(entries["p"]["data"])) == (dtype, shape, data)
    copied = broker.bundle("copy", {**bundle, "tied": bundle["p"], "bytes": bundle["p"].as_bytes(), "t": tensor}).fill().publish()
    copy = broker.open(copied)
    assert [copy[name].dtype for name in ("p", "tied", "bytes", "t")] == [named, named, "uint8", named if dtype == "F4" else "uint8"]
    assert all(copy.numpy()[name].tobytes() == data for name in ("p", "tied", "bytes", "t"))
    writer = broker.bundle("again", {"p": arraybridge.BundleSpec(tuple(shape), named)})
    assert writer["p"].shape == rows and writer.nbytes == len(data)
    assert writer.fill({"p": bundle["p"]}).fill({"p": bundle.numpy()["p"]})["p"].tobytes() == data
    with pytest.raises(UnsupportedDtype, match=r"use its bytes, view\.as_bytes\(\)"):
        broker.put(bundle["p"], "bytes")
    assert broker.put(bundle["p"].as_bytes(), "bytes").to("numpy").tobytes() == data
    same_again = arraybridge.load(tmp_path / "again.safetensors", "loaded again", broker=broker)
    assert same_again.numpy()["p"].tobytes() == data


def test_names_are_those_of_the_safetensors_package(broker: Broker, tmp_path: Path) -> None:
    arrays = {"": np.arange(3.0), "n" * 4097: np.arange(4.0), "é" * 50_000: np.arange(5.0), "\n": np.arange(2.0), " ": np.arange(1.0)}
    formats.save_file(arrays, tmp_path / "m.safetensors")
    bundle = arraybridge.load(tmp_path / "m.safetensors", broker=broker)
    same(bundle, arrays)
    assert "" in bundle and np.asarray(bundle[""]).tolist() == [0, 1, 2] and "n" * 4096 not in bundle
    arraybridge.save(bundle, tmp_path / "again.safetensors")
    assert sorted(formats.load_file(tmp_path / "again.safetensors")) == sorted(arrays)
    tied = {"": arrays[""], "a": arrays[""], "b": arrays[""]}
    same(broker.open(broker.bundle("tied", tied).fill().publish()), tied)
    same(broker.open(broker.bundle("other order", dict(reversed(tied.items()))).fill().publish()), tied)


# Saving


def test_what_is_saved_is_what_safetensors_reads(broker: Broker, tmp_path: Path) -> None:
    arrays = {
        **weights(),
        "flags": np.array([True, False, True]),
        "wide": np.arange(3, dtype="float64"),
        "turned": np.arange(6).reshape(2, 3).T,
    }
    formats.save_file({"first": np.ones(3)}, tmp_path / "first.safetensors", metadata={"format": "pt"})
    seen: list[tuple[int, int]] = []
    arraybridge.save(arrays, tmp_path / "m.safetensors", metadata={"a": "b"}, progress=lambda *numbers: seen.append(numbers))
    assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1] == sum(array.nbytes for array in arrays.values())
    read = formats.load_file(tmp_path / "m.safetensors")
    assert sorted(read) == sorted(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
    safe_open = pytest.importorskip("safetensors").safe_open
    with safe_open(tmp_path / "m.safetensors", "np") as file:
        assert file.metadata() == {"a": "b"}
    arraybridge.save(arraybridge.load(tmp_path / "first.safetensors", broker=broker), tmp_path / "second.safetensors")
    assert (tmp_path / "second.safetensors").read_bytes() == (tmp_path / "first.safetensors").read_bytes()
    (tmp_path / "ordinary").touch()
    assert (tmp_path / "m.safetensors").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def kinds_of_arrays() -> dict[str, Any]:
    torch, pyarrow = pytest.importorskip("torch"), pytest.importorskip("pyarrow")
    jax, tensorflow = pytest.importorskip("jax"), pytest.importorskip("tensorflow")
    whole = np.arange(24, dtype="i2").reshape(4, 6)
    conjugate = torch.tensor([[1 + 2j, 3j, 4]]).conj()
    return {
        "big-endian": np.arange(3, dtype=">f4"), "big-endian halves": np.arange(6, dtype=">f2").reshape(2, 3)[:, ::-1],
        "a field": np.array([(1, 2.5), (3, 4.5)], [("a", "i1"), ("b", "f4")])["b"], "reversed": whole[::-1, ::-2], "transposed": whole.T,
        "one value": np.broadcast_to(np.float32(3), (2, 5)), "scalar": np.array(7, ">i8"), "empty": np.zeros((3, 0), ">f4"),
        "conjugate": conjugate, "negative": conjugate.imag, "expanded": torch.ones(1, 3).expand(4, 3), "gradient": torch.ones(3, requires_grad=True),
        "bits": pyarrow.array([True, False, True]), "chunks": pyarrow.chunked_array([[1, 2], [3]]), "chunks of bits": pyarrow.chunked_array([[True], [False]]),
        "jax": jax.numpy.arange(3.0), "tensorflow": tensorflow.constant([[1, 2]]), "bytes": b"abc",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
def test_what_can_be_put_can_be_saved(broker: Broker, tmp_path: Path) -> None:
    arrays = kinds_of_arrays()
    arrays["share"], arrays["view"] = broker.put(np.arange(5), "s"), arraybridge.asdlpack(np.arange(4))
    seen: list[tuple[int, int]] = []
    arraybridge.save(arrays, tmp_path / "m.safetensors", progress=lambda *numbers: seen.append(numbers))
    read = formats.load_file(tmp_path / "m.safetensors")
    assert sorted(read) == sorted(arrays) and seen[-1][0] == seen[-1][1] == sum(each.nbytes for each in read.values())
    for name, array in arrays.items():
        put = broker.put(array, replace=True, name="it") if name != "share" else array
        expected = put.to("numpy")
        assert read[name].dtype == expected.dtype and read[name].shape == expected.shape, name
        np.testing.assert_array_equal(read[name], expected, err_msg=name)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    arraybridge.save({"a": np.ones(3)}, file)
    old = file.read_bytes()
    with pytest.raises(UnsupportedDtype, match="'b' has dtype complex128"):
        arraybridge.save({"a": np.ones(3), "b": np.ones(3, "complex128")}, file)
    with pytest.raises(UnsupportedArray):
        arraybridge.save({"a": object()}, file)
    with pytest.raises(InvalidRequest, match="surrogate"):
        arraybridge.save({"\ud800": np.ones(3)}, file)
    for name in (3, "__metadata__"):
        with pytest.raises(InvalidRequest, match="must have a name"):
            arraybridge.save({name: np.ones(3)}, file)  # type: ignore[dict-item]
    with pytest.raises(InvalidRequest, match="strings to strings"):
        arraybridge.save({"a": np.ones(3)}, file, metadata={"a": 3})  # type: ignore[dict-item]

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arraybridge.save({"a": np.zeros(3)}, file, progress=stop)
    with pytest.raises(FileNotFoundError):
        arraybridge.save({"a": np.ones(3)}, tmp_path / "absent" / "m.safetensors")
    assert file.read_bytes() == old and os.listdir(tmp_path) == [file.name]


def test_ordered_dicts_and_prefixes(broker: Broker, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(OrderedDict(w=torch.ones(3)), tmp_path / "m.bin")
    assert arraybridge.load(tmp_path / "m.bin", broker=broker).state_dict()["w"].tolist() == [1.0] * 3


# The command


def command(*words: object, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "arraybridge", "load", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment(**changes),
        check=False,
    )


def test_the_command(address: str, broker: Broker, tmp_path: Path) -> None:
    formats.save_file(weights(), tmp_path / "m.safetensors")
    done = command(tmp_path / "m.safetensors", "--address", address, "--namespace", broker.namespace)
    generation = broker.open("m").share.generation
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(f"m: generation {generation}, 20 arrays, "), done
    done = command(
        tmp_path / "m.safetensors", "--name=n", "--sha256", "--output=json", "--namespace", broker.namespace, ARRAYBRIDGE_ADDRESS=address
    )
    told = json.loads(done.stdout)
    assert (told["name"], told["arrays"]) == ("n", 20) and broker.open("n").share.nbytes == told["bytes"]
    done = command(
        tmp_path / "m.safetensors", "--device=cpu", "--output=json", "--namespace", broker.namespace, ARRAYBRIDGE_ADDRESS=address
    )
    assert json.loads(done.stdout)["generation"] == generation
    absent, there = tmp_path / "absent", tmp_path / "m.safetensors"
    for words, text in (
        ((absent,), "No such file"), ((there, "--address=/nowhere"), "/nowhere"), ((there, "--device=cuda:77"), "cuda:77"),
    ):  # fmt: skip
        done = command("--namespace", broker.namespace, *words, ARRAYBRIDGE_ADDRESS=address)
        assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr, done


def test_an_index_that_names_an_array_which_its_shard_lacks(broker: Broker, tmp_path: Path) -> None:
    formats.save_file(weights(3), tmp_path / "one.safetensors")
    there = sorted(weights(3))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys([*there, "lost"], "one.safetensors")}))
    for path in (index, tmp_path):
        with pytest.raises(InvalidRequest, match=r"one\.safetensors: it lacks 1 arrays that the index names: 'lost'"):
            arraybridge.load(path, "m", broker=broker)
    assert not broker.list()
    index.write_text(json.dumps({"weight_map": dict.fromkeys(there, "one.safetensors")}))
    assert sorted(arraybridge.load(index, "m", broker=broker)) == there


def test_a_worker_that_starts_again_puts_no_old_weights_back(broker: Broker, tmp_path: Path) -> None:
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"

    def written(path: Path, value: float, when: int) -> None:
        formats.save_file({"w": np.full(4, value, "f4")}, path)
        os.utime(path, (when, when))  # a file system may give both the same time

    def loaded(path: Path, **wishes: Any) -> float:
        return float(arraybridge.load(path, "m", broker=broker, **wishes).numpy()["w"][0])

    written(old, 1, 1000)
    written(new, 2, 2000)
    assert [loaded(old), loaded(new)] == [1, 2]
    assert loaded(old) == 2, "an earlier generation came from this file"
    assert loaded(old, digest="sha256") == 1, "no generation was compared by these bytes"
    assert [loaded(new), loaded(new, replace=True), loaded(old)] == [1, 2, 2]
    broker.bundle("m", {"w": np.full(4, 5.0, "f4")}, replace=True).fill().publish()
    assert [loaded(old), loaded(new)] == [5, 5], "another program published it"
    assert [loaded(new, replace=True), loaded(new)] == [2, 2]
    written(new, 8, 3000)
    assert loaded(new) == 8, "the file has changed since"
