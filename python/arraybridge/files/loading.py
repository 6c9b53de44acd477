# SPDX-License-Identifier: Apache-2.0
"""load: the arrays of files as a bundle, which all processes of the host then use."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeGuard

from arraybridge import autograph
from arraybridge.arguments import check_word
from arraybridge.arrays import devices
from arraybridge.arrays.devices import Device
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle
from arraybridge.broker.delivery import gpus_for
from arraybridge.broker.keep.claim import Claim
from arraybridge.broker.progress import Meter, Progress
from arraybridge.broker.share import Share
from arraybridge.errors import BrokerTimeout, InvalidRequest, ShareExists, ShareNotFound
from arraybridge.files import safetensors, zipped
from arraybridge.files.stored import Stored

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Digest = Literal["header", "sha256"]

CLAIM_S: Final = 5.0  # how long a loader that stands still keeps the others waiting
_LOADED: Final = (b"header ", b"sha256 ")  # fingerprints that `load` makes
_EARLIER_MAX: Final = 32
_PICKLES: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_NPY: Final = b"\x93NUMPY"
_HASHED_AT_ONCE: Final = 1 << 20
_SUFFIXES: Final = (".safetensors", ".npz", ".pt", ".pth", ".bin", ".index.json")


def load(
    paths: Paths,
    name: str | None = None,
    *,
    broker: Broker | None = None,
    digest: Digest = "header",
    progress: Progress | None = None,
    lifetime: float | None = None,
    device: object = None,
    replace: bool = False,
) -> Bundle:
    """The arrays of one or several files as the bundle `name`, read at most once for all processes of the host.

    If the broker has a bundle of this name with the same content, it is opened and nothing is read. If another process
    is loading it, this call waits for that one, and goes on in its place if it dies. Otherwise the files are read into
    broker memory, without a second copy, and published when they are complete; if the bundle exists with the content of
    other files, that is its next generation, and readers keep theirs.

    A bundle that is newer than these files is opened as it is, so that a worker that starts again does not put old weights
    back: one that another program than `load` published, or one whose earlier generation came from these files.

    Args:
        paths: a file, several, or a folder: safetensors (also an index of shards, or a folder with one), .npz, or a
            checkpoint of torch in its zip format, read with weights_only=True.
        name: of the bundle; None: that of the first file, or of the folder, without its ending.
        broker: None: `Broker()`.
        digest: tells content apart: "header" by size, time of the last change and description of the arrays; "sha256"
            by every byte, which reads the files also when they are loaded already.
        progress: called with (bytes done, total bytes); its exceptions end the load.
        lifetime: as in `Broker.put`.
        device: as in `Broker.bundle`: where the bundle is to lie. A bundle of this name that lies elsewhere is not the
            same, and the files are read again as its next generation: give bundles on several GPUs names of their own.
            None: the host, and a bundle with the same content is opened wherever it lies. On its way to a GPU a file
            passes through host memory in pieces.
        replace: True: the files are also the next generation of a bundle that is newer.

    Raises:
        OSError: a file cannot be read. InvalidRequest: a file is malformed, or of another format.
            The bundle is newer than the files and does not lie on `device`.
        UnsupportedDtype: a bundle cannot have such an array. ShareExists: the name belongs to a share that is no bundle.
        OutOfMemory: no room for all of it. Other errors of `Broker.bundle`.

    Example:
        >>> arraybridge.save({"w": np.ones((2, 3))}, "net.safetensors")
        >>> arraybridge.load("net.safetensors", "net", broker=broker).torch(access="shared")["w"].shape
        torch.Size([2, 3])
    """
    check_word(digest, "digest", ("header", "sha256"))
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise InvalidRequest("load needs a file")
    with contextlib.ExitStack() as open_files:
        files = []
        for path, named in (each for one in given for each in _files_of(os.fspath(one)).items()):
            files.append(open_files.enter_context(_opened(path)))
            if lacking := sorted(named - files[-1].contents().keys()):
                raise files[-1].malformed(f"it lacks {len(lacking)} arrays that the index names: {lacking[0]!r}")
        called = name if name is not None else _name_of(Path(given[0]))
        where = devices.wished(device, gpus_for(device), "file", "bundle")
        return _Load(broker or Broker(), called, files, _fingerprint(files, digest), lifetime, where, replace).result(progress)


class _Load(NamedTuple):
    """One call of `load`."""

    broker: Broker
    name: str
    files: Sequence[Stored]
    fingerprint: bytes
    lifetime: float | None
    where: Device | None
    replace: bool

    def result(self, progress: Progress | None) -> Bundle:
        while True:
            there = self._there()
            if self._is_enough(there):
                return there
            claim = Claim(self.broker, self.name, 0 if there is None else there.share.generation, CLAIM_S)
            try:
                if not claim.is_granted(CLAIM_S):
                    continue
            except BrokerTimeout:
                continue
            with claim:
                share = self._read(progress, claim, there)
                if share is not None:
                    return self.broker.open(share)

    def _is_enough(self, there: Bundle | None) -> TypeGuard[Bundle]:
        """True: it has the same content, or is newer than these files."""
        if there is None:
            return False
        loaded, *earlier = there.fingerprint.splitlines() or [b""]
        is_same = loaded == self.fingerprint
        is_newer = self.fingerprint in earlier or not loaded.startswith(_LOADED)
        is_here = self.where is None or there.share.device == self.where
        if is_newer and not is_here and not self.replace:
            where = devices.named(there.share.device)
            raise InvalidRequest(
                f"bundle {self.name!r} is newer than these files and lies on {where}: pass device={where!r}, or replace=True"
            )
        return is_here and (is_same or (is_newer and not self.replace))

    def _there(self) -> Bundle | None:
        try:
            return self.broker.open(self.name)
        except ShareNotFound:
            return None
        except InvalidRequest as error:
            if error.reason != "NOT_A_BUNDLE":
                raise
            raise ShareExists(f"share {self.name!r} is no bundle: withdraw it, or load under another name") from error

    def _read(self, progress: Progress | None, claim: Claim, there: Bundle | None) -> Share | None:
        """None: this process stood still, and another has published the name meanwhile."""
        contents: dict[str, Any] = {}
        metadata: dict[str, str] = {}
        for file in self.files:
            for name, array in file.contents().items():
                if name in contents:
                    raise file.malformed(f"array {name!r} is in another of these files, too")
                contents[name] = array
            metadata.update(file.metadata())
        said = json.dumps(metadata).encode() if metadata else None
        device = devices.named(self.where or devices.HOST)
        # The origins of earlier generations: a line each, the latest first.
        earlier = [] if there is None else there.fingerprint.splitlines()[: _EARLIER_MAX - 1]
        known = [self.fingerprint, *(each for each in earlier if each.startswith(_LOADED) and each != self.fingerprint)]
        writer = self.broker.bundle(
            self.name, contents, fingerprint=b"\n".join(known), metadata=said, replace=True, lifetime=self.lifetime, device=device
        )
        meter = Meter(progress or _untold, writer.nbytes)
        for file in self.files:
            file.read_into(writer, meter.moved)
            file.check_unchanged()
        with contextlib.suppress(ShareNotFound):  # another reads, too: this process has finished first
            if not claim.is_granted(0.0):
                return None
        return writer.publish()


def _opened(path: str) -> Stored:
    with Stored(path) as file:
        begin = os.pread(file.fd, safetensors.LENGTH_BYTES + 1, 0)
    if begin[4:] == b"\0\0\0\0{":  # the length of a header begins with any bytes, also with those of the others
        return safetensors.SafetensorsFile(path)
    if begin.startswith(zipped.MAGIC):
        return zipped.opened(path)
    if begin.startswith(_NPY):
        raise InvalidRequest(f"{path} is one array without a name (.npy): put it, broker.put(numpy.load({path!r}), 'name')")
    if begin.startswith(_PICKLES):
        raise InvalidRequest(f"{path} is a pickle: loading it would execute it; write it again, as safetensors or with torch.save")
    return safetensors.SafetensorsFile(path)


def _files_of(path: str) -> dict[str, set[str]]:
    """The files of an argument: itself, those of an index, or of a folder; with the arrays that an index names."""
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        found = [name for name in names if name.endswith(".safetensors.index.json")]
        found = found or [name for name in names if name.endswith(".safetensors")]
        if not found:
            raise InvalidRequest(f"folder {path} has no *.safetensors: name the files")
        if len(found) > 1 and found[0].endswith(".json"):
            raise InvalidRequest(f"folder {path} has {len(found)} models: name the index of one: {', '.join(found)}")
        return {file: named for name in found for file, named in _files_of(os.path.join(path, name)).items()}
    return safetensors.shards_of(path) if path.endswith(".index.json") else {path: set()}


def _name_of(path: Path) -> str:
    name = Path(os.path.abspath(path)).name  # a link's own name, and that of "."
    for suffix in reversed(_SUFFIXES):
        name = name.removesuffix(suffix)
    if not name:
        raise InvalidRequest(f"{path} gives the bundle no name: pass one")
    return name


def _fingerprint(files: Sequence[Stored], digest: Digest) -> bytes:
    identity = hashlib.sha256()
    for file in files:
        identity.update(hashlib.sha256(file.identity()).digest() if digest == "header" else _content(file))
    return f"{digest} {identity.hexdigest()}".encode()


def _content(file: Stored) -> bytes:
    """SHA-256 of all bytes."""
    found = hashlib.sha256()
    for start in range(0, file.size, _HASHED_AT_ONCE):
        found.update(os.pread(file.fd, _HASHED_AT_ONCE, start))
    return found.digest()


def _untold(done: int, total: int) -> None:
    pass


autograph.mark_module(__name__)
