# SPDX-License-Identifier: Apache-2.0
"""save: named arrays as a safetensors file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.arguments import check_text
from arraybridge.broker.bundle import Bundle
from arraybridge.broker.placing import bytes_of, packed_parts, readable, source_of_share
from arraybridge.broker.progress import Meter, Progress
from arraybridge.conversion.source import Source
from arraybridge.errors import InvalidRequest, UnsupportedDtype
from arraybridge.files.safetensors import DTYPES, LENGTH_BYTES, METADATA
from arraybridge.planner import CODES, PACKED

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNMENT: Final = 8  # of the first array, in the file


def save(
    arrays: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> None:
    """Writes a bundle, or any named arrays, as a safetensors file; a file of this name is replaced, at once, when it is
    complete.

    Arrays that are tied to one another are written for each of their names: the format cannot express it.

    Args:
        arrays: a Bundle, or arrays as in `Broker.put`, in any layout and byte order, and torch's float4_e2m1fn_x2.
        metadata: text for the header; None: what `load` found in a bundle's file.
        progress: called with (bytes done, total bytes); its exceptions end the save.

    Raises:
        UnsupportedDtype: safetensors lacks the dtype. UnsupportedArray: no framework could read the array.
        InvalidRequest: names or metadata are no text. OSError: the file cannot be written.

    Example:
        >>> arraybridge.save({"w": np.ones((2, 3)), "b": np.zeros(3)}, "layer.safetensors")
        >>> list(arraybridge.load("layer.safetensors", broker=broker))
        ['b', 'w']
    """
    entries = {name: _entry_of(name, array) for name, array in arrays.items()}
    # By falling size of their elements, so that each is aligned.
    order = sorted(entries, key=lambda name: (-entries[name].bits, name))
    header: dict[str, Any] = {}
    texts = _metadata_of(arrays) if metadata is None else dict(metadata)
    if not all(isinstance(text, str) for pair in texts.items() for text in pair):
        raise InvalidRequest("metadata must map strings to strings")
    if texts:
        header[METADATA] = texts
    end = 0
    for name in order:
        entry = entries[name]
        nbytes = entry.source.description.nbytes
        header[name] = {"dtype": _NAMES[entry.dtype], "shape": entry.shape, "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % _ALIGNMENT)
    meter = Meter(progress or (lambda done, total: None), end)
    with _replacing(os.fspath(path)) as file:
        file.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
        for name in order:
            meter.moved(file.write(bytes_of(readable(entries[name].source))))


class _Entry(NamedTuple):
    source: Source
    dtype: str
    shape: tuple[int, ...]

    @property
    def bits(self) -> int:
        """Of an element."""
        return (CODES.get(self.dtype) or PACKED[self.dtype])[1]


def _entry_of(name: object, array: Any) -> _Entry:
    if not isinstance(name, str) or name == METADATA:
        raise InvalidRequest(f"an array of a file must have a name, a str, which is not {METADATA!r}: {name!r}")
    check_text(name, "the name of an array")
    parts = packed_parts(array)
    if parts is not None:
        return _Entry(source_of_share(parts[0]), parts[1], parts[2])
    source = source_of_share(array)
    found = source.description
    if found.dtype not in _NAMES or found.code != CODES.get(found.dtype):
        raise UnsupportedDtype(found.framework, "safetensors", "save", f"array {name!r} has dtype {found.dtype}")
    return _Entry(source, found.dtype, found.shape)


def _metadata_of(arrays: Mapping[str, Any]) -> dict[str, str]:
    """The metadata that `load` took from a file; {}: the bundle has none, or its maker's own."""
    if not isinstance(arrays, Bundle):
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        texts = json.loads(arrays.metadata)
        if isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()):
            return texts
    return {}


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[IO[bytes]]:
    """A new file that takes the name when it is complete."""
    folder, name = os.path.split(path)
    made = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        with open(made, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


autograph.mark_module(__name__)
