# SPDX-License-Identifier: Apache-2.0
"""A broker of another version: a relay between clients and a real daemon that changes frames, in both directions."""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import HEADER

FRAME_BYTES_MAX = 65536
NO_REPLY, QUEUED, DEADLINE = 1, 4, 8  # flags that this version knows: proto/boundary/frame.h
# The messages of each verb: of the request, of the answer.
MESSAGES = {
    1: "OpenSession", 2: "GetServerInfo", 3: "Allocate", 4: "Mapped", 5: "Publish", 6: "Acquire", 7: "Export", 8: "Release",
    9: "Withdraw", 10: "List", 11: "GetStats", 12: "Redeem", 13: "Browse", 14: "OpenChannel", 15: "CloseChannel",
}  # fmt: skip


@dataclass
class Frame:
    verb: int
    flags: int
    status: int  # of a request: 0 or a deadline
    request: int
    payload: bytes
    descriptors: list[int]

    def bytes(self) -> bytes:
        return HEADER.pack(self.verb, self.flags, self.status, self.request) + self.payload


# Changes a frame; returns None if it is not passed on.
Change = Callable[[Frame], Frame | None]


def unchanged(frame: Frame) -> Frame:
    return frame


class Relay:
    """The lifeline of a broker in `directory`. `ask` changes requests, `tell` changes answers.

    `instead` may answer a request itself: then it does not reach the daemon.
    """

    def __init__(
        self, directory: Path, daemon: Path, ask: Change = unchanged, tell: Change = unchanged, instead: Change = lambda _: None
    ) -> None:
        directory.mkdir(mode=0o700)
        self.directory, self.daemon = directory, daemon
        self.ask, self.tell, self.instead = ask, tell, instead
        self.verbs: set[int] = set()  # of all requests
        self.failure: BaseException | None = None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(directory / "lifeline.sock"))
        self.listener.listen(64)
        self.ends, self.end = os.pipe()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def close(self) -> None:
        os.close(self.end)
        self.thread.join()
        os.close(self.ends)
        self.listener.close()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        others: dict[socket.socket, socket.socket] = {}
        clients: set[socket.socket] = set()
        try:
            while True:
                ready, _, _ = select.select([self.listener, self.ends, *others], [], [])
                if self.ends in ready:
                    return
                for end in ready:
                    if end is self.listener:
                        client, daemon = self.listener.accept()[0], socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                        daemon.connect(str(self.daemon / "lifeline.sock"))
                        others |= {client: daemon, daemon: client}
                        clients.add(client)
                    elif end in others and not self._pass_on(end, others[end], end in clients):
                        for each in (end, others[end]):
                            del others[each]
                            clients.discard(each)
                            each.close()
        except BaseException as failure:
            self.failure = failure
        finally:
            for each in others:
                each.close()

    def _pass_on(self, come: socket.socket, go: socket.socket, is_request: bool) -> bool:
        """Passes one frame on; False at the end of the connection."""
        with contextlib.suppress(ConnectionError):
            data, control, _, _ = come.recvmsg(FRAME_BYTES_MAX, socket.CMSG_SPACE(64))
            if not data:
                return False
            found = array.array("i")
            for _, _, value in control:
                found.frombytes(value[: len(value) // found.itemsize * found.itemsize])
            frame = Frame(*HEADER.unpack_from(data), data[HEADER.size :], list(found))
            if is_request:
                self.verbs.add(frame.verb)
                if (answer := self.instead(frame)) is not None:
                    frame, go = answer, come
            changed = (self.ask if is_request else self.tell)(frame) if go is not come else frame
            if changed is not None:
                self._send(go, changed)
            for descriptor in found:
                os.close(descriptor)
            return True
        return False

    @staticmethod
    def _send(end: socket.socket, frame: Frame) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", frame.descriptors))] if frame.descriptors else []
        end.sendmsg([frame.bytes()], rights)


class Messages:
    """Reads and changes the messages in frames."""

    def __init__(self, messages: Any) -> None:
        self.messages = messages

    def of_request(self, frame: Frame) -> Any:
        return self._parse(frame, "Request")

    def of_answer(self, frame: Frame) -> Any:
        """None for an error."""
        return self._parse(frame, "Response") if frame.status == 0 else None

    def _parse(self, frame: Frame, suffix: str) -> Any:
        name = MESSAGES.get(frame.verb)
        return getattr(self.messages, name + suffix).FromString(frame.payload) if name else None


def with_unknown_fields(message: Any, unknown: bytes) -> Any:
    """Adds the fields to a message and to all messages in it, except those in maps."""
    for field, value in message.ListFields():
        if field.message_type is None or isinstance(value, Mapping):
            continue
        for each in [value] if hasattr(value, "ListFields") else value:
            with_unknown_fields(each, unknown)
    message.MergeFromString(unknown)
    return message
