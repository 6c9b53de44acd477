# SPDX-License-Identifier: Apache-2.0
"""The program of an attacker's process: one attack of neighbour.ATTACKS, hand-written on lifelines, as fast as possible.

neighbour.py starts it as another user: attacker.py DIRECTORY ATTACK [NUMBER=VALUE ...]. After its preparation it prints
one line of JSON with the objects that it got and the refusals, and waits for a line on its standard input; then it
attacks until it is killed. It never cleans up, because that is the daemon's task.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import json
import mmap
import os
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ["ARRAYBRIDGE_FOREIGN_STUBS"])
from foreign_v1 import broker_pb2 as wire

HEADER = struct.Struct("<HHIQ")
OPEN_SESSION, ALLOCATE, MAPPED, PUBLISH, ACQUIRE, RELEASE, WITHDRAW, LIST = 1, 3, 4, 5, 6, 8, 9, 10
GET_STATS, BROWSE, OPEN_CHANNEL, CLOSE_CHANNEL = 11, 13, 14, 15
NO_REPLY = 1
PAGE, HEADER_BYTES, RECORD_BYTES, SLOTS = 4096, 4096, 128, 504  # proto/boundary/layouts/{catalogue,hazard}.h
GENERATION_BITS, LIVE = 38, 2
ALIGNMENT = 256
NAMES_PER_REQUEST = 256


class Refused(Exception):
    pass


class Line:
    """A lifeline with a session."""

    def __init__(self, directory: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(f"{directory}/lifeline.sock")
        self.number = 0
        self.refused: Counter[str] = Counter()
        hello = wire.OpenSessionRequest(protocol_min=1, protocol_max=1, client="neighbour")
        self.token = self.call(OPEN_SESSION, hello, wire.OpenSessionResponse)[0].token

    def send(self, verb: int, payload: bytes, flags: int = 0) -> None:
        self.number += 1
        self.socket.send(HEADER.pack(verb, flags, 0, self.number) + payload)

    def receive(self) -> tuple[int, bytes, list[int]]:
        """Status, payload, descriptors."""
        data, control, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(16))
        if not data:
            raise EOFError("the lifeline has ended")
        found = array.array("i")
        for _, _, value in control:
            found.frombytes(value[: len(value) // found.itemsize * found.itemsize])
        _, _, status, _ = HEADER.unpack_from(data)
        return status, data[HEADER.size :], list(found)

    def call(self, verb: int, request: Any, answer: Any = None) -> tuple[Any, list[int]]:
        self.send(verb, request.SerializeToString())
        status, payload, descriptors = self.receive()
        if status != 0:
            error = wire.Error.FromString(payload)
            self.refused[error.reason] += 1
            raise Refused(f"{error.reason} {error.message}")
        return (answer.FromString(payload) if answer else None), descriptors

    def settled(self) -> None:
        """Waits until all earlier requests have been served."""
        self.call(GET_STATS, wire.GetStatsRequest())

    def arena(self, ns: str, size: int) -> tuple[int, int]:
        """An arena that is mapped and closed: its number and generation."""
        request = wire.AllocateRequest(namespace=ns, device={"type": 1}, size=size, timeout_ms=5000)
        answer, descriptors = self.call(ALLOCATE, request, wire.AllocateResponse)
        for descriptor in descriptors:
            os.close(descriptor)
        self.call(MAPPED, wire.MappedRequest(arena=answer.handle.arena))
        return answer.handle.arena, answer.handle.generation

    def browse(self, ns: str, part: int) -> int:
        return self.call(BROWSE, wire.BrowseRequest(namespace=ns, part=part), wire.BrowseResponse)[1][0]


def spec(size: int) -> Any:
    return {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [size], "size": size}


def publish(line: Line, ns: str, count: int, **fields: Any) -> tuple[int, int]:
    """Publishes shares of 256 bytes without waiting for answers: "s0" to "s<count - 1>", or without names. A value in `fields`
    may be a function of the index."""
    arena, generation = line.arena(ns, max(count, 1) * ALIGNMENT)
    for index in range(count):
        own = {key: value(index) if callable(value) else value for key, value in fields.items()}
        own.setdefault("name", f"s{index}")
        request = wire.PublishRequest(
            namespace=ns, arena=arena, arena_generation=generation, offset=index * ALIGNMENT, size=ALIGNMENT,
            **{"specs": {"arrays": [spec(ALIGNMENT)]}, **own},
        )  # fmt: skip
        line.send(PUBLISH, request.SerializeToString(), NO_REPLY)
    line.settled()
    return arena, generation


class Page:
    """A session's hazard page in a namespace, and its catalogue."""

    def __init__(self, line: Line, ns: str) -> None:
        catalogue, page = line.browse(ns, 0), line.browse(ns, 1)
        self.table = mmap.mmap(catalogue, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        self.page = mmap.mmap(page, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(catalogue)
        os.close(page)
        line.call(MAPPED, wire.MappedRequest(hazard_page_of=ns))

    def live(self, most: int = SLOTS) -> list[int]:
        """Holds on this many live records."""
        capacity = struct.unpack_from("<Q", self.table, 32)[0]
        words = []
        for slot in range(capacity):
            state = struct.unpack_from("<Q", self.table, HEADER_BYTES + slot * RECORD_BYTES)[0]
            if state & 3 == LIVE:
                words.append((slot + 1) << GENERATION_BITS | state >> 2)
            if len(words) == most or slot > 2 * most:
                break
        return words

    def write(self, words: list[int]) -> None:
        struct.pack_into("<I", self.page, 0, SLOTS)
        for index, word in enumerate(words):
            struct.pack_into("<Q", self.page, 64 + 8 * index, word)


def withdraw(line: Line, ns: str, count: int) -> None:
    for begin in range(0, count, NAMES_PER_REQUEST):
        names = [{"name": f"s{index}"} for index in range(begin, min(begin + NAMES_PER_REQUEST, count))]
        line.call(WITHDRAW, wire.WithdrawRequest(namespace=ns, shares=names))


Attack = Callable[[], None]
# A stage: the objects that it got, and the attack, which begins on command.
Stage = Callable[["Wish"], tuple[dict[str, Any], Attack]]


class Wish:
    """The parameters of the attack."""

    def __init__(self, directory: str, words: list[str]) -> None:
        self.directory = directory
        self.numbers = {key: int(value) for key, value in (word.split("=") for word in words)}
        self.kept: list[Any] = []

    def __getitem__(self, key: str) -> int:
        return self.numbers[key]

    def line(self) -> Line:
        line = Line(self.directory)
        self.kept.append(line)
        return line

    def lines(self, count: int) -> list[Line]:
        return [self.line() for _ in range(count)]

    def namespaces(self) -> list[str]:
        return [f"n{index}" for index in range(self["namespaces"])]


def tolerate() -> contextlib.AbstractContextManager[None]:
    return contextlib.suppress(Refused)


def end_and_begin(wish: Wish) -> None:
    """Opens and ends sessions: each end requests a sweep."""
    while True:
        with contextlib.suppress(Refused, EOFError, OSError):
            Line(wish.directory).socket.close()


def orphans(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 1: unnamed shares without a producer in many namespaces, in which many sessions have full hazard pages."""
    maker = Line(wish.directory)
    for ns in wish.namespaces():
        publish(maker, ns, wish["shares"], name="")
    # A page for each session in as many namespaces as allowed.
    pages = 0
    words = [(index + 1) << GENERATION_BITS | 1 for index in range(SLOTS)]
    for line in wish.lines(wish["sessions"]):
        with tolerate():
            for ns in wish.namespaces():
                page = Page(line, ns)
                page.write(words)
                wish.kept.append(page)
                pages += 1
    maker.socket.close()
    return {"pages": pages}, lambda: end_and_begin(wish)


def waiting_hazards(wish: Wish) -> dict[str, Any]:
    """Withdrawn shares in every namespace, which every session's page holds."""
    maker = wish.line()
    lines = wish.lines(wish["sessions"])
    pages = shares = 0
    for ns in wish.namespaces():
        own: list[Page] = []
        with tolerate():
            maker.arena(ns, ALIGNMENT)
            Page(maker, ns)  # from now on shares are entered into the catalogue
            publish(maker, ns, wish["shares"])
            words: list[int] | None = None
            for line in lines:
                with tolerate():
                    own.append(Page(line, ns))
                    words = words if words is not None else own[0].live(wish["shares"])
                    own[-1].write(words)
            withdraw(maker, ns, wish["shares"])
            shares += len(words or [])
        wish.kept += own
        pages += len(own)
    return {"pages": pages, "held": shares}


def hints(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 2: reports continuously that a hold has ended."""
    got = waiting_hazards(wish)
    hint = wire.ReleaseRequest(hazards_cleared=True).SerializeToString()
    line = wish.line()

    def attack() -> None:
        while True:
            line.send(RELEASE, hint, NO_REPLY)

    return got, attack


def holders_end(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 3: ends sessions at once that hold shares that wait for them."""
    got = waiting_hazards(wish)
    return got, lambda: os._exit(0)


def expire(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 4: many shares that expire at the same time."""
    at = time.monotonic() + wish["within_ms"] / 1000
    line = wish.line()
    for ns in wish.namespaces():
        publish(line, ns, wish["shares"], lifetime_ms=lambda _: max(1, int((at - time.monotonic()) * 1000)))

    def attack() -> None:
        while True:
            time.sleep(1)

    return {"late_s": max(0.0, time.monotonic() - at)}, attack


def described(wish: Wish) -> Line:
    """Publishes shares with the longest descriptions."""
    maker = wish.line()
    arrays = [spec(ALIGNMENT)] * 400
    publish(maker, "fat", wish["shares"], specs={"arrays": arrays}, structure=b"s" * 32768, metadata=b"m" * 14000)
    return maker


def ask_all(lines: list[Line], verb: int, payload: bytes) -> None:
    """Keeps a request of every session in flight."""
    poll = select.epoll()
    by_descriptor = {line.socket.fileno(): line for line in lines}
    for line in lines:
        line.send(verb, payload)
        poll.register(line.socket.fileno(), select.EPOLLIN)
    while by_descriptor:
        for descriptor, _ in poll.poll():
            line = by_descriptor[descriptor]
            try:
                line.receive()
                line.send(verb, payload)
            except (EOFError, OSError):
                poll.unregister(descriptor)
                del by_descriptor[descriptor]


def lists(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 5: lists pages of shares with long descriptions."""
    described(wish)
    lines = wish.lines(wish["sessions"])
    return {"sessions": len(lines)}, lambda: ask_all(lines, LIST, b"")


def acquires(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 6: small requests whose answers cannot be sent."""
    described(wish)
    lines = wish.lines(wish["sessions"])
    names = [{"name": f"s{index}"} for index in range(min(wish["shares"], NAMES_PER_REQUEST))]
    request = wire.AcquireRequest(namespace="fat", shares=names).SerializeToString()
    return {"request_bytes": len(request)}, lambda: ask_all(lines, ACQUIRE, request)


def refusals(lines: list[Line]) -> Counter[str]:
    """The refusals of these sessions' requests, by reason, after all have been served. REQUIRES: none is granted."""
    refused: Counter[str] = Counter()
    for line in lines:
        line.send(GET_STATS, b"")
        while (answer := line.receive())[0] != 0:
            refused[wire.Error.FromString(answer[1]).reason] += 1
    return refused


def waits(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 7: large waiting requests. After they wait, the attack is idle."""
    maker = wish.line()
    publish(maker, "waits", 1)
    lines = wish.lines(wish["sessions"])
    number = itertools.count()
    for line in lines:
        for _ in range(wish["requests"]):
            names = [{"name": f"{next(number):0240d}"} for _ in range(NAMES_PER_REQUEST)]
            request = wire.AcquireRequest(namespace="waits", shares=names, timeout_ms=60_000)
            line.send(ACQUIRE, request.SerializeToString())
    refused = refusals(lines)
    answer, _ = maker.call(GET_STATS, wire.GetStatsRequest(), wire.GetStatsResponse)

    def attack() -> None:
        while True:
            time.sleep(1)

    return {"waiting": answer.waiting, "refused": refused}, attack


def pages(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 8: as many unmapped hazard pages and small arenas as possible."""
    maker = wish.line()
    got: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for ns in wish.namespaces():
        with tolerate():
            publish(maker, ns, 1)
            os.close(maker.browse(ns, 0))
    lines = wish.lines(wish["sessions"])
    for line in lines:
        with tolerate():
            for ns in wish.namespaces():
                os.close(line.browse(ns, 1))
                got["pages"] += 1
    with tolerate():  # the first refused request has waited, and all others would too
        for line in lines:
            for _ in range(wish["arenas"]):
                line.arena("n0", 4096)
                got["arenas"] += 1
    for line in lines:
        refused += line.refused

    def attack() -> None:
        while True:
            for line in lines:
                with tolerate():
                    line.arena("n0", 4096)

    return {**got, "refused": refused}, attack


def ends(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 9: many ends of channels in one session."""
    maker = wish.line()
    line = wish.line()
    for ns in wish.namespaces():
        publish(maker, ns, 1)
        for channel in range(wish["channels"]):
            for member in range(wish["members"]):
                request = wire.OpenChannelRequest(namespace=ns, name=f"c{channel}", role=1 + member % 2)
                line.send(OPEN_CHANNEL, request.SerializeToString(), NO_REPLY)
    line.settled()
    refused: Counter[str] = Counter()

    def attack() -> None:
        request = wire.OpenChannelRequest(namespace="n0", name="more", role=2)
        while True:
            try:
                opened, _ = line.call(OPEN_CHANNEL, request, wire.OpenChannelResponse)
                line.call(CLOSE_CHANNEL, wire.CloseChannelRequest(channel=opened.channel))
            except Refused:
                pass

    with tolerate():
        line.call(OPEN_CHANNEL, wire.OpenChannelRequest(namespace="n0", name="more", role=1))
    refused += line.refused
    return {"refused": refused}, attack


def waiters(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 12: many requests wait for two names; one is published again and again, the other never."""
    maker = wish.line()
    count = NAMES_PER_REQUEST - 1
    arena, generation = publish(maker, "crowd", count)
    names = [{"name": f"s{index}"} for index in range(count)] + [{"name": "never"}]
    request = wire.AcquireRequest(namespace="crowd", shares=names, timeout_ms=60_000).SerializeToString()
    lines = wish.lines(wish["sessions"])
    for line in lines:
        for _ in range(wish["requests"]):
            line.send(ACQUIRE, request)
    refused = refusals(lines)
    again = wire.PublishRequest(
        namespace="crowd", name="s0", arena=arena, arena_generation=generation, size=ALIGNMENT, replace=True,
        specs={"arrays": [spec(ALIGNMENT)]},
    ).SerializeToString()  # fmt: skip
    answer, _ = maker.call(GET_STATS, wire.GetStatsRequest(), wire.GetStatsResponse)

    def attack() -> None:
        while True:
            maker.send(PUBLISH, again, NO_REPLY)

    return {"waiting": answer.waiting, "refused": refused}, attack


def minimal(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 13: as many of the smallest shares as allowed."""
    line = wish.line()
    for ns in wish.namespaces():
        with tolerate():
            publish(line, ns, wish["shares"])
    answer, _ = line.call(GET_STATS, wire.GetStatsRequest(), wire.GetStatsResponse)

    def attack() -> None:
        while True:
            time.sleep(1)

    return {"shares": answer.shares}, attack


def misdescribed(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """Attack 10: arrays of types that no reader can represent."""
    line = wish.line()
    refused: Counter[str] = Counter()
    for index, own in enumerate(({"bits": 264}, {"code": 300}, {"bits": 264, "code": 300})):
        arena, generation = line.arena("default", ALIGNMENT)
        request = wire.PublishRequest(
            namespace="default", name=f"bad{index}", arena=arena, arena_generation=generation, size=ALIGNMENT,
            specs={"arrays": [{**spec(ALIGNMENT), "shape": [1], **own}]},
        )  # fmt: skip
        with tolerate():
            line.call(PUBLISH, request)
    refused += line.refused
    return {"refused": refused}, lambda: time.sleep(3600)


def tidy(wish: Wish) -> tuple[dict[str, Any], Attack]:
    """No attack: withdraws the shares that other processes of this user have left."""
    line = wish.line()
    request, gone = wire.ListRequest(), 0
    found: dict[str, list[int]] = {}
    while True:
        page, _ = line.call(LIST, request, wire.ListResponse)
        for row in page.shares:
            found.setdefault(row.share.namespace, []).append(row.share.id)
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    for ns, ids in found.items():
        for begin in range(0, len(ids), NAMES_PER_REQUEST):
            own = [{"id": each} for each in ids[begin : begin + NAMES_PER_REQUEST]]
            with tolerate():  # a share may have expired meanwhile
                line.call(WITHDRAW, wire.WithdrawRequest(namespace=ns, shares=own))
        gone += len(ids)
    return {"withdrawn": gone}, lambda: None


STAGES: dict[str, Stage] = {
    stage.__name__: stage
    for stage in (orphans, hints, holders_end, expire, lists, acquires, waits, pages, ends, waiters, minimal, misdescribed, tidy)
}


def told() -> Iterator[str]:
    yield from iter(sys.stdin.readline, "")


def main() -> None:
    directory, name, *words = sys.argv[1:]
    wish = Wish(str(Path(directory)), words)
    got, attack = STAGES[name](wish)
    print(json.dumps(got), flush=True)
    next(told(), None)
    with contextlib.suppress(EOFError, OSError):
        attack()
    for _ in told():  # its sessions remain until it is killed
        continue


if __name__ == "__main__":
    main()
