# SPDX-License-Identifier: Apache-2.0
"""A recording is input from outside: whatever its bytes are, it is read, or refused with an error that names the defect. It runs
no code, and no memory is allocated for what it merely states.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies
from recordings import PATIENCE_S, Taken, sender

from arraybridge import Broker, InvalidRequest
from arraybridge.recording import Recorder, entry, reading, replay
from arraybridge.recording.reading import Recording

SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def files(address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Recordings of an array, a tree and a class, by their compression."""
    found = {}
    with Broker(address, namespace="hostile", start="never") as broker:
        for compression in ("none", "zstd"):
            path = tmp_path_factory.mktemp("files") / "run.mcap"
            out = sender(broker, "frames")
            with Recorder(path, ["frames"], broker=broker, compression=compression) as recorder:  # type: ignore[arg-type]
                out.send(np.arange(24, dtype="u2").reshape(2, 3, 4), metadata=b"left")
                out.send({"a": [np.ones(3), "text"], "dates": np.array(["2026-11-30"], "M8[D]"), "c": np.array([1j])})
                out.close()
                assert recorder.wait(PATIENCE_S)
            found[compression] = path.read_bytes()
    return found


def read(path: Path) -> list[entry.Entry]:
    with Recording(str(path)) as recording:
        return [entry.decoded(each.data) for each in recording.messages() if each.channel.encoding == "safetensors"]


@SETTINGS
@given(data=strategies.data())
def test_a_mutated_file_is_read_or_refused(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    whole = bytearray(files[data.draw(strategies.sampled_from(sorted(files)))])
    for _ in range(data.draw(strategies.integers(1, 4))):
        at = data.draw(strategies.integers(8, len(whole) - 1))
        change = data.draw(strategies.sampled_from(["byte", "number", "cut", "repeat"]))
        if change == "byte":
            whole[at] ^= data.draw(strategies.integers(1, 255))
        elif change == "number":
            whole[at : at + 8] = struct.pack("<Q", data.draw(strategies.sampled_from([0, 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1])))
        elif change == "cut":
            del whole[at : at + data.draw(strategies.integers(1, 64))]
        else:
            whole[at:at] = whole[at : at + data.draw(strategies.integers(1, 64))]
        if len(whole) < 16:
            break
    path = tmp_path_factory.getbasetemp() / "mutated.mcap"
    path.write_bytes(bytes(whole))
    try:
        for found in read(path):
            assert sum(part.values.nbytes for part in found.parts) <= len(whole)
    except InvalidRequest as error:
        assert str(path) in str(error) or "header" in str(error) or "array" in str(error) or "structure" in str(error), error


@SETTINGS
@given(data=strategies.data())
def test_a_mutated_entry_is_read_or_refused(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """As above, below the checksums: an attacker computes them."""
    whole = bytearray(data.draw(strategies.sampled_from(entries(files, tmp_path_factory))))
    for _ in range(data.draw(strategies.integers(1, 3))):
        at = data.draw(strategies.integers(0, len(whole) - 1))
        piece = data.draw(
            strategies.sampled_from([b"9", b"-", b"[", b'"', b"{", b"99999999999", b"0", b"null", b"}", b"\xff", b"1e9", b":"])
        )
        whole[at : at + data.draw(strategies.integers(0, 2))] = piece
    try:
        found = entry.decoded(memoryview(bytes(whole)))
        assert sum(part.values.nbytes for part in found.parts) <= len(whole)
    except InvalidRequest as error:
        assert len(str(error)) < 2000


def entries(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.getbasetemp() / "whole.mcap"
    path.write_bytes(files["none"])
    with Recording(str(path)) as recording:
        return [bytes(each.data) for each in recording.messages() if each.channel.encoding == "safetensors"]


def altered(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """An entry with another header."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def facts(**changes: str) -> Callable[[dict[str, Any]], object]:
    return lambda header: header["__metadata__"].update(changes)


def array(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda header: header["array"].update(changes)


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "more bytes than there are": (array(shape=[2**40], data_offsets=[0, 2**41]), "end after the entry"),
    "a shape that is larger": (array(shape=[2**31, 2**31]), "does not have 48 bytes"),
    "a shape without end": (array(shape=[0, 2**62, 2**62]), "does not have 48 bytes"),
    "a negative shape": (array(shape=[-2, -3, 4]), "not a list of at most 64 sizes"),
    "many dimensions": (array(shape=[1] * 65), "not a list of at most 64 sizes"),
    "a hole": (array(data_offsets=[8, 48]), "are not where the array before it ends"),
    "a dtype of nothing": (array(dtype="F1"), "header is malformed"),
    "a text for a number": (facts(sequence="many"), "header is malformed"),
    "a tree of other arrays": (facts(structure='{"l":[0,1]}'), "names array 1 of 1"),
    "a tree that names an array twice": (facts(structure='{"l":[0,0]}'), "names array 0 twice"),
    "no tree": (facts(structure="import os"), "structure is not readable"),
    "a deep tree": (facts(structure='{"l":[' * 100 + "0" + "]}" * 100), "nested more than 64 deep"),
    "metadata of another alphabet": (facts(metadata="?"), "header is malformed"),
    "another version": (facts(arraybridge="2"), "not one of arraybridge's recordings, version 1"),
    "an unknown dtype": (
        lambda header: (header["array"].update(dtype="U8"), facts(dtypes='{"array": ["object", [1, 64, 1], [6]]}')(header)),
        "unknown dtype 'object'",
    ),
    "a dtype with another code": (
        lambda header: (header["array"].update(dtype="U8"), facts(dtypes='{"array": ["float64", [2, 1, 1], [384]]}')(header)),
        "unknown dtype 'float64'",
    ),
    "bytes after the last array": (lambda header: header.pop("array"), "48 bytes follow its last array"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_entry_is_refused(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    change, text = HOSTILE[name]
    with pytest.raises(InvalidRequest, match=text):
        entry.decoded(memoryview(altered(entries(files, tmp_path_factory)[0], change)))


def test_an_object_array_is_never_made(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> None:
    """A struct with Python objects in it passes as bytes; its reader refuses it."""

    def change(header: dict[str, Any]) -> None:
        header["array"]["dtype"] = "U8"
        facts(dtypes=json.dumps({"array": ['struct:[["a", "|O"]]', [1, 8, 1], [6, 8]]}))(header)

    made = entry.decoded(memoryview(altered(entries(files, tmp_path_factory)[0], change)))
    path = tmp_path_factory.getbasetemp() / "objects.mcap"
    path.write_bytes(mcap([channel_record(), message_record(altered(entries(files, tmp_path_factory)[0], change))]))
    assert made.parts[0].dtype.startswith("struct:")
    taken = Taken(broker, "frames")
    replay(path, broker=broker, timeout=PATIENCE_S)
    taken.join(PATIENCE_S)
    assert taken.received == []
    assert "not a dtype of NumPy" in str(taken.error) or "do not fit the dtype" in str(taken.error)


def record(opcode: int, body: bytes) -> bytes:
    return struct.pack("<BQ", opcode, len(body)) + body


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def channel_record(number: int = 1) -> bytes:
    pairs = text("arraybridge") + text("channel")
    return record(4, struct.pack("<HH", number, 0) + text("frames") + text("safetensors") + struct.pack("<I", len(pairs)) + pairs)


def message_record(data: bytes, number: int = 1) -> bytes:
    return record(5, struct.pack("<HIQQ", number, 1, 10**18, 10**18) + data)


def chunk_record(content: bytes, compression: str = "", size: int | None = None, checksum: int | None = None) -> bytes:
    size = len(content) if size is None else size
    checksum = zlib.crc32(content) if checksum is None else checksum
    head = struct.pack("<QQQI", 10**18, 10**18, size, checksum) + text(compression)
    return record(6, head + struct.pack("<Q", len(content)) + content)


def mcap(records: list[bytes]) -> bytes:
    """A file of these records, with an end."""
    end = record(15, bytes(4)) + record(2, bytes(20))
    return reading.MAGIC + record(1, text("") + text("")) + b"".join(records) + end + reading.MAGIC


def bomb(size: int) -> bytes:
    return bytes(pytest.importorskip("zstandard", reason="zstandard is not installed").compress(bytes(size)))


FILES: dict[str, tuple[Callable[[], list[bytes]], str]] = {
    "a message without a channel": (lambda: [message_record(b"")], "of channel 1, which the file has not described"),
    "a message that is too short": (lambda: [channel_record(), record(5, b"short")], "a message is too short"),
    "a chunk that is too short": (lambda: [record(6, b"short")], "a chunk is too short"),
    "a chunk with another checksum": (lambda: [chunk_record(channel_record(), checksum=1)], "the checksum of a chunk is wrong"),
    "a record that leaves its chunk": (lambda: [chunk_record(struct.pack("<BQ", 5, 2**40))], "a record ends after its chunk"),
    "a head that leaves its chunk": (lambda: [chunk_record(b"\x05")], "a record ends after its chunk"),
    "a name that leaves its chunk": (
        lambda: [record(6, struct.pack("<QQQII", 0, 0, 0, 0, 2**31) + bytes(8))], "the head of a chunk ends after the chunk",
    ),
    "a compression of nothing": (lambda: [chunk_record(b"x", "rar")], "compressed by b'rar', which is unknown"),
    "a size that is not there": (lambda: [chunk_record(b"x", "zstd", size=2**50)], "exceeds the limit of 1,073,741,824: pass a larger"),
    "less than it states": (lambda: [chunk_record(bomb(1000), "zstd", size=2**29)], "has other than the 536,870,912 bytes"),
    "more than it states": (lambda: [chunk_record(bomb(64 << 20), "zstd", size=1000)], "has other than the 1,000 bytes"),
    "no zstd": (lambda: [chunk_record(b"no zstd at all", "zstd", size=100)], "cannot be decompressed"),
    "no lz4": (lambda: [chunk_record(b"no lz4 at all", "lz4", size=100)], "cannot be decompressed|has other than"),
    "a channel that is too short": (lambda: [record(4, b"\x01")], "the description of a channel is malformed"),
    "a channel with a long name": (
        lambda: [record(4, struct.pack("<HHI", 1, 0, 2**31))], "the description of a channel is malformed: a text ends after it",
    ),
    "an entry that is none": (lambda: [channel_record(), message_record(b"\xff" * 100)], "a message of channel 'frames': its header"),
}  # fmt: skip


@pytest.fixture
def little_memory() -> Iterator[None]:
    """This process may allocate 256 MiB more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (256 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused(name: str, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    make, text = FILES[name]
    path = tmp_path / "hostile.mcap"
    path.write_bytes(mcap(make()))
    request.getfixturevalue("little_memory")
    with pytest.raises(InvalidRequest, match=text) as caught:
        replay(path, broker=broker, speed=float("inf"), timeout=1.0)
    assert str(path) in str(caught.value)


def test_the_limit_of_a_chunk_can_be_raised(files: dict[str, bytes], broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    path.write_bytes(files["zstd"])
    with pytest.raises(InvalidRequest, match="exceeds the limit of 100: pass a larger chunk_bytes_max="):
        replay(path, broker=broker, chunk_bytes_max=100)
    taken = Taken(broker, "frames")
    assert replay(path, broker=broker, chunk_bytes_max=1 << 20, timeout=PATIENCE_S).messages == {"frames": 2}
    assert len(taken.all()) == 2


def test_a_folder_and_a_pipe_are_refused(broker: Broker, tmp_path: Path) -> None:

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises((InvalidRequest, OSError)):
            replay(path, broker=broker)
