# SPDX-License-Identifier: Apache-2.0
"""Zip files of arrays: NumPy's .npz, and torch's checkpoints."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final, NamedTuple

from arraybridge.adapters import ensure_module
from arraybridge.broker.bundle import BundleSpec, BundleWriter
from arraybridge.errors import BrokerError, InvalidRequest, UnsupportedDtype
from arraybridge.files.stored import Stored, Told

MAGIC: Final = b"PK\x03\x04"
_PIECE: Final = 4 << 20
_DEPTH_MAX: Final = 16  # of the dicts of a checkpoint
_TENSORS_MAX: Final = 1_000_000


class _Zipped(Stored):
    """A zip file. Its header is its list of members, with their checksums."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        try:
            with self._explained():
                self._zip = zipfile.ZipFile(open(self.fd, "rb", closefd=False))
        except BaseException:
            super().close()
            raise

    def close(self) -> None:
        if hasattr(self, "_zip"):
            self._zip.close()
        super().close()

    def members(self) -> list[str]:
        return self._zip.namelist()

    def header(self) -> bytes:
        return repr([(each.filename, each.CRC, each.file_size) for each in self._zip.infolist()]).encode()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        # zipfile raises NotImplementedError for unknown methods of compression, RuntimeError for encrypted members.
        try:
            yield
        except BrokerError:
            raise
        except OSError as error:
            if error.errno is not None:
                raise
            raise self.malformed(f"it cannot be read: {error}") from error  # bzip2's way to say so
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
            raise self.malformed(f"it cannot be read: {error}") from error


class _Member(NamedTuple):
    file: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: Any  # NumPy's, with the byte order of the file
    by_columns: bool


class NpzFile(_Zipped):
    """A file of numpy.savez or savez_compressed. Objects, which only pickle could read, are refused."""

    def contents(self) -> Mapping[str, Any]:
        self._members: dict[str, _Member] = {}
        for file in self._zip.infolist():
            with self._explained(), self._zip.open(file) as stream:
                name = file.filename.removesuffix(".npy")
                if name in self._members:
                    raise self.malformed(f"two arrays have the name {name!r}")
                self._members[name] = self._member(name, file, stream)
        return {name: BundleSpec(each.shape, each.dtype.newbyteorder("=")) for name, each in self._members.items()}

    def read_into(self, writer: BundleWriter, told: Told) -> None:
        for name, member in self._members.items():
            with self._explained(), self._zip.open(member.file) as stream:
                _skip_header(stream)
                self._read(stream, name, member, writer, told)

    def _member(self, name: str, file: zipfile.ZipInfo, stream: IO[bytes]) -> _Member:
        shape, by_columns, dtype = _skip_header(stream)
        if dtype.kind not in "biufc":
            raise UnsupportedDtype("numpy", "bundle", "load", f"{self.path}: array {name!r} has dtype {dtype}")
        if min(shape, default=0) < 0:
            raise self.malformed(f"array {name!r} has the shape {list(shape)}")
        nbytes = self.bytes_of(name, shape, dtype.itemsize * 8)
        if file.file_size - stream.tell() != nbytes:
            raise self.malformed(f"array {name!r}, {dtype}{list(shape)}, needs {nbytes} bytes and has {file.file_size - stream.tell()}")
        return _Member(file, shape, dtype, by_columns)

    def _read(self, stream: IO[bytes], name: str, member: _Member, writer: BundleWriter, told: Told) -> None:
        numpy: Any = ensure_module("numpy")
        whole = numpy.empty(member.shape[::-1], member.dtype.newbyteorder("=")) if member.by_columns else None
        destination = writer.bytes_of([name])[name] if whole is None else memoryview(whole.reshape(-1).view("u1"))
        for start in range(0, len(destination), _PIECE):
            count = min(_PIECE, len(destination) - start)
            read = stream.read(count)
            if len(read) < count:
                raise self.malformed(f"{member.file.filename} is cut off")
            if not member.dtype.isnative:
                read = numpy.frombuffer(read, member.dtype).byteswap().view("u1").data
            destination[start : start + count] = memoryview(read)
            told(count)
        stream.read(1)  # at the end zipfile compares the checksum
        if whole is not None:
            writer.fill({name: whole.T})


def _skip_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, order and dtype of a .npy file, whose header is read.

    Raises:
        ValueError: it is none.
    """
    form = ensure_module("numpy").lib.format
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    try:
        version = form.read_magic(stream)
        found: tuple[tuple[int, ...], bool, Any] | None = readers[version](stream) if version in readers else None
    except (OSError, MemoryError):
        raise
    except Exception as error:  # NumPy parses a header as Python, and fails in many ways
        raise ValueError(f"a .npy header is invalid: {error}") from error
    if found is None:
        raise ValueError(f"version {version} of the .npy format is for structured dtypes, which no bundle has")
    return found


class CheckpointFile(_Zipped):
    """A file of torch.save: a state_dict, or dicts of them, whose names are joined by dots. torch reads it with
    weights_only=True, which executes nothing, and without a copy.
    """

    def contents(self) -> Mapping[str, Any]:
        torch: Any = ensure_module("torch")
        try:
            read = torch.load(f"/proc/self/fd/{self.fd}", map_location="cpu", mmap=True, weights_only=True)
        except Exception as error:
            raise self.malformed(f"torch reads no weights from it (weights_only=True): {error}") from error
        self._tensors: dict[str, Any] = {}
        self._collect(read, "", torch.Tensor)
        return self._tensors

    def read_into(self, writer: BundleWriter, told: Told) -> None:
        before = 0

        def moved(done: int, total: int) -> None:
            nonlocal before
            told(done - before)
            before = done

        writer.fill(self._tensors, moved)

    def _collect(self, value: Any, name: str, tensor: type, depth: int = 0) -> None:
        if depth > _DEPTH_MAX or len(self._tensors) > _TENSORS_MAX:
            raise self.malformed(f"its dicts are deeper than {_DEPTH_MAX}, or have more than {_TENSORS_MAX} tensors")
        if isinstance(value, tensor):
            if not name or name in self._tensors:
                raise self.malformed(f"two tensors have the name {name!r}" if name else "it is one tensor without a name")
            self._tensors[name] = value.detach()  # type: ignore[attr-defined]
            return
        if not isinstance(value, Mapping):
            way_out = "load it with torch.load, and publish the tensors of it with Broker.bundle"
            raise self.malformed(f"{name or 'it'!r} is {type(value).__name__}, and a bundle has tensors only: {way_out}")
        for key, each in value.items():
            self._collect(each, f"{name}.{key}" if name else str(key), tensor, depth + 1)


def opened(path: str) -> Stored:
    """A zip file of either kind.

    Raises:
        InvalidRequest: it is neither.
    """
    with _Zipped(path) as found:
        names = found.members()
    if any(name.endswith("/data.pkl") for name in names):
        return CheckpointFile(path)
    if names and all(name.endswith(".npy") for name in names):
        return NpzFile(path)
    raise InvalidRequest(f"{path} is a zip file, but neither .npz nor a checkpoint of torch")
