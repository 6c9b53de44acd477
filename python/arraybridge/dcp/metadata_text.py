# SPDX-License-Identifier: Apache-2.0
"""DCP's Metadata of a checkpoint as text: no reader of it unpickles what another process has written."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final, NamedTuple

from arraybridge.adapters import ensure_module
from arraybridge.errors import InvalidRequest

_torch: Any = ensure_module("torch")
_dcp: Any = ensure_module("torch.distributed.checkpoint.metadata")
_HAS_STRIDES: Final = any(field.name == "strides" for field in dataclasses.fields(_dcp.TensorProperties))


class Stored(NamedTuple):
    """Where an item of a checkpoint lies: the rank whose state has it, and its key there."""

    rank: int
    key: str


def to_text(metadata: Any) -> str:
    """The text of a Metadata. Its `storage_data` is a Stored for each index.

    Raises:
        InvalidRequest: the planner has data that text cannot have.
    """
    items = [[*_of_index(index), *stored] for index, stored in metadata.storage_data.items()]
    entries = {name: _of_entry(entry) for name, entry in metadata.state_dict_metadata.items()}
    try:
        return json.dumps({"entries": entries, "items": items, "planner": metadata.planner_data})
    except (TypeError, ValueError) as error:
        text = f"the planner's data cannot be stored ({error}): let it have texts, numbers, lists and dicts only"
        raise InvalidRequest(text) from error


def from_text(text: str) -> Any:
    """The Metadata of a text of `to_text`.

    Raises:
        InvalidRequest: it is something else.
    """
    try:
        found = json.loads(text)
        entries = {str(name): _to_entry(entry) for name, entry in found["entries"].items()}
        items = {_to_index(*item[:3]): Stored(int(item[3]), str(item[4])) for item in found["items"]}
        return _dcp.Metadata(entries, _with_tuples(found["planner"]), items)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InvalidRequest(f"the metadata of this checkpoint is damaged, or not of DCP ({error!r})") from error


def _of_index(index: Any) -> list[Any]:
    return [index.fqn, None if index.offset is None else list(index.offset), index.index]


def _to_index(name: str, offset: list[int] | None, index: int | None) -> Any:
    return _dcp.MetadataIndex(name, offset, index)


def _of_entry(entry: Any) -> dict[str, Any] | None:
    """Of a tensor; None: of an object that DCP has pickled."""
    if isinstance(entry, _dcp.BytesStorageMetadata):
        return None
    strides = getattr(entry.properties, "strides", None)
    return {
        "dtype": str(entry.properties.dtype).removeprefix("torch."),
        "strides": strides and list(strides),
        "size": list(entry.size),
        "chunks": [[list(chunk.offsets), list(chunk.sizes)] for chunk in entry.chunks],
    }


def _to_entry(entry: dict[str, Any] | None) -> Any:
    if entry is None:
        return _dcp.BytesStorageMetadata()
    dtype = getattr(_torch, entry["dtype"])
    if not isinstance(dtype, _torch.dtype):
        raise ValueError(f"torch has no dtype {entry['dtype']!r}")
    properties = _dcp.TensorProperties(dtype=dtype)
    if _HAS_STRIDES and entry["strides"] is not None:
        properties.strides = tuple(entry["strides"])
    chunks = [_dcp.ChunkStorageMetadata(_torch.Size(offsets), _torch.Size(sizes)) for offsets, sizes in entry["chunks"]]
    return _dcp.TensorStorageMetadata(properties, _torch.Size(entry["size"]), chunks)


def _with_tuples(data: Any) -> Any:
    """DCP's planners keep paths as tuples."""
    if isinstance(data, list):
        return tuple(map(_with_tuples, data))
    return {key: _with_tuples(value) for key, value in data.items()} if isinstance(data, dict) else data
