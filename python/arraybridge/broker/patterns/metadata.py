# SPDX-License-Identifier: Apache-2.0
"""Metadata is what a sender passes on beside its arrays: bytes of its own, or a tree of plain values. The protocol knows
bytes alone: those of a tree are its structure, of the grammar of `conversion.tree`, after MARK.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final

from arraybridge.conversion import plain, tree
from arraybridge.errors import InvalidRequest

MARK: Final = b"arraybridge.metadata\n"


def encoded(metadata: Any) -> bytes:
    """The bytes that the broker passes on; None: no bytes.

    Raises:
        InvalidRequest: it is no tree of plain values, or bytes of the user that begin with MARK.
    """
    if metadata is None:
        return b""
    if isinstance(metadata, bytes):
        if metadata.startswith(MARK):
            raise InvalidRequest(f"metadata of bytes must not begin with {MARK!r}, which marks a tree: pass the tree, or other bytes")
        return metadata
    if plain.is_plain(metadata) and not isinstance(metadata, Enum):
        return MARK + json.dumps(plain.encoded(metadata), separators=(",", ":")).encode()
    return MARK + tree.flatten(metadata, _no_array)[0]


def decoded(metadata: bytes) -> Any:
    """The metadata that the sender passed; the bytes themselves if they are no tree that this process can read."""
    if not metadata.startswith(MARK) or metadata == MARK:
        return metadata
    try:
        return tree.unflatten(metadata[len(MARK) :], ())
    except InvalidRequest:
        return metadata


def _no_array(leaf: Any) -> None:
    if leaf is tree.NOTHING:
        return
    kind = type(leaf).__name__
    raise InvalidRequest(f"metadata holds plain values and containers of them, not {kind}: put arrays into the tree itself")
