# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 frames as an attacker writes them: no library would break the rules of a connection."""

from __future__ import annotations

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
ACK = END_STREAM = 1
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
CANCEL = struct.pack(">I", 8)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name: bytes, value: bytes) -> bytes:
    """A literal without indexing and compression. REQUIRES: name and value have less than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_headers(method: str) -> bytes:
    return b"".join(
        header(name, value)
        for name, value in (
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", method.encode()), (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"),
        )
    )  # fmt: skip


def message(content: bytes = b"") -> bytes:
    return b"\0" + struct.pack(">I", len(content)) + content


def setting(number: int, value: int) -> bytes:
    return struct.pack(">HI", number, value)


def connect(path: str, settings: bytes = b"", acknowledge: bool = True) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    line.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + (frame(SETTINGS, ACK, 0) if acknowledge else b""))
    return line
