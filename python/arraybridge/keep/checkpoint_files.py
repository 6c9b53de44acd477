# SPDX-License-Identifier: Apache-2.0
"""The files of checkpoints: safetensors files of one folder, each complete and durable when it has its name."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arraybridge import _core, autograph
from arraybridge.arrays import devices
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import BundleWriter
from arraybridge.broker.bundled_tree import METADATA
from arraybridge.broker.placing import bytes_of
from arraybridge.broker.share import Share
from arraybridge.errors import InvalidRequest, ShareExists, UnsupportedDtype
from arraybridge.files.safetensors import DTYPES, SafetensorsFile
from arraybridge.files.saving import save

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_DIGITS: Final = 12  # so that files sort by their steps
STEP_MAX: Final = 10**_DIGITS - 1
_TREE: Final = "arraybridge.tree"  # keys of the file's metadata
_SHA256: Final = "arraybridge.sha256"
_STORABLE: Final = frozenset(DTYPES.values())


_LOCKED: weakref.WeakSet[CheckpointFiles] = weakref.WeakSet()


def _unlock_in_child() -> None:
    """A child that outlives its parent would keep the lock, although it saves nothing."""
    for each in tuple(_LOCKED):
        each.unlock()


os.register_at_fork(after_in_child=_unlock_in_child)


class DamagedFile(InvalidRequest):
    """A file of a checkpoint is not what was written."""


class CheckpointFiles:
    """The files of one series of checkpoints, NAME-STEP.safetensors. Makes the folder.

    Raises:
        InvalidRequest: a name that no file can have. OSError: the folder cannot be made or read.
    """

    def __init__(self, name: str, directory: str | os.PathLike[str]) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidRequest(f"the name of checkpoints must have 1 to 64 letters, digits, '_', '.' or '-', not {name!r}")
        self._name, self._folder = name, Path(os.path.abspath(directory))
        self._pattern = re.compile(rf"{re.escape(name)}-(\d{{{_DIGITS}}})\.safetensors")
        self._lock = -1
        self._folder.mkdir(parents=True, exist_ok=True)
        self.id = self._own_id()

    def path(self, step: int) -> Path:
        return self._folder / f"{self._name}-{step:0{_DIGITS}}.safetensors"

    def steps(self) -> list[int]:
        """The steps of the files, ascending."""
        return sorted(int(found[1]) for each in os.listdir(self._folder) if (found := self._pattern.fullmatch(each)))

    def lock(self) -> None:
        """Makes this process the only one that writes here, until it ends; removes what a killed one left.

        Raises:
            InvalidRequest: another process writes here.
        """
        if self._lock >= 0:
            return
        lock = os.open(self._id_file(), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            text = f"another process saves checkpoints {self._name!r} in {self._folder}: let one process save, or choose another name"
            raise InvalidRequest(text) from error
        self._lock = lock
        _LOCKED.add(self)
        for each in self._folder.glob(f".{self._name}-*.safetensors.*"):
            each.unlink(missing_ok=True)

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def write(self, step: int, structure: bytes, views: Mapping[str, _core.View]) -> None:
        """Writes the arrays and their structure, as `named_leaves` has it; returns when they are on the disk under the name of
        the step.

        Raises:
            OSError: they cannot be written; nothing is left of them.
        """
        arrays = {name: view if view.device == devices.HOST else _core.copy_to_heap(view) for name, view in views.items()}
        digest = _digest(structure, (bytes_of(view) for _, view in sorted(arrays.items())))
        save(arrays, self.path(step), metadata={_TREE: structure.decode(), _SHA256: digest})
        self._sync_names()

    def read(self, step: int, broker: Broker, name: str) -> Share | None:
        """The file's tree as a share of this name; None: another process has published it.

        Raises:
            FileNotFoundError: there is no such file. DamagedFile: it is not what was written.
        """
        try:
            writer = self._filled(str(self.path(step)), broker, name)
        except (InvalidRequest, UnsupportedDtype) as error:
            raise DamagedFile(error.message) from error
        try:
            return writer.publish()
        except ShareExists:
            return None

    def _filled(self, path: str, broker: Broker, name: str) -> BundleWriter:
        with SafetensorsFile(path) as file:
            metadata = file.metadata()
            structure = metadata.get(_TREE, "").encode()
            if not structure:
                raise file.malformed(f"it has no {_TREE} in its metadata, so it is no checkpoint")
            writer = broker.bundle(name, file.contents(), metadata=METADATA + structure)
            file.read_into(writer, lambda done: None)
            digest = _digest(structure, (part for _, part in sorted(writer.bytes_of(file.contents()).items())))
            if digest != metadata.get(_SHA256):
                raise file.malformed("its content has not the SHA-256 that was written with it")
            return writer

    def set_aside(self, step: int) -> Path:
        """Gives a damaged file another name, under which it is no checkpoint."""
        path = self.path(step)
        aside = path.with_name(f"{path.name}.damaged")
        with contextlib.suppress(FileNotFoundError):  # another process has done so
            path.rename(aside)
        return aside

    def remove(self, steps: Sequence[int]) -> None:
        """Removes their files, which do not come back with a host that loses its power."""
        for step in steps:
            self.path(step).unlink(missing_ok=True)
        if steps:
            self._sync_names()

    def _sync_names(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _id_file(self) -> Path:
        return self._folder / f".{self._name}.id"

    def _own_id(self) -> str:
        """Made with the folder: what the broker keeps belongs to it, not to another folder of this path."""
        file = self._id_file()
        made = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
        if not file.exists():
            made.write_text(secrets.token_hex(8))
            with contextlib.suppress(FileExistsError):
                os.link(made, file)
            made.unlink()
        return file.read_text()


def check_step(step: int) -> None:
    """Raises:
    InvalidRequest: a step cannot have this number.
    """
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= STEP_MAX:
        raise InvalidRequest(f"a step must be a whole number from 0 to {STEP_MAX:,}, not {step!r}")


def check_storable(share: Share) -> None:
    """Raises:
    InvalidRequest: a file cannot have such arrays.
    """
    for spec in share.specs:
        if spec.dtype not in _STORABLE:
            raise InvalidRequest(
                f"a checkpoint cannot have an array of {spec.dtype}, which safetensors files lack: save it as another dtype"
            )


def named_leaves(structure: bytes) -> tuple[bytes, list[str]]:
    """The structure of a tree with its arrays numbered by the order of their names, and the names by their old numbers.

    A name is the path of its array ("optimizer.state.0.step"), with a number after it if another array has this path.

    Raises:
        InvalidRequest: the tree contains a table.
    """
    names: dict[int, str] = {}
    taken: set[str] = set()

    def named(index: int, path: tuple[str, ...]) -> int:
        name = plain = ".".join(path)[-200:] or "array"
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}~{number}"
        taken.add(name)
        names[index] = name
        return index

    root = _with_arrays(json.loads(structure), (), named)
    rank = {index: position for position, index in enumerate(sorted(names, key=lambda index: names[index]))}
    ranked = _with_arrays(root, (), lambda index, path: rank[index])
    # A tree without arrays has one that it does not name.
    return json.dumps(ranked, separators=(",", ":")).encode(), [names[index] for index in range(len(names))] or ["nothing"]


def _with_arrays(node: Any, path: tuple[str, ...], numbered: Callable[[int, tuple[str, ...]], int]) -> Any:
    """The node of a structure with `numbered(index, path)` instead of the index of each array."""
    if isinstance(node, int):
        return numbered(node, path)
    [(kind, body)] = node.items()

    def below(step: Any, child: Any) -> Any:
        return _with_arrays(child, (*path, str(step)), numbered)

    if kind == "table":
        raise InvalidRequest(f"a checkpoint cannot have a table, at {'.'.join(path)!r}: save its columns as arrays")
    if kind in ("l", "t"):
        return {kind: [below(step, child) for step, child in enumerate(body)]}
    if kind == "d":
        return {kind: [[key, below(key, child)] for key, child in body]}
    if kind == "record":
        return {kind: [body[0], [[name, below(name, child)] for name, child in body[1]]]}
    if kind == "sparse":
        return {kind: [body[0], [below(step, part) for step, part in enumerate(body[1])]]}
    return node  # a plain value


def _digest(structure: bytes, arrays: Iterable[Any]) -> str:
    """Of the structure, and the bytes of the arrays in the order of their names."""
    found = hashlib.sha256(structure)
    for each in arrays:
        found.update(each)
    return found.hexdigest()


autograph.mark_module(__name__)
