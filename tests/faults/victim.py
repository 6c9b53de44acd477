# SPDX-License-Identifier: Apache-2.0
"""The program of the victim's process: an ordinary user's calls at a steady pace, each with its latency.

neighbour.py starts it as another user: victim.py SOCKET FILE. At the lifeline one turn replaces a name by 4 KiB, acquires
the share by a call, compares its bytes and releases it; every twentieth turn allocates an arena. At the gRPC door one
turn is a GetServerInfo. It continues until its standard input ends, then writes FILE: one line of JSON per call, [verb, begin_ns, took_ns, refusal], with times of
CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ["ARRAYBRIDGE_FOREIGN_STUBS"])
from attacker import ACQUIRE, ALLOCATE, MAPPED, PUBLISH, RELEASE, Line, Refused, spec, wire

SLOT, SLOTS = 4096, 64
PACE_S = 0.002
TURNS_BETWEEN_ARENAS = 20


Call = tuple[str, int, int, str]


class GrpcVictim:
    def __init__(self, path: str) -> None:
        import grpc
        from foreign_v1 import broker_pb2_grpc

        self.error: type[Exception] = grpc.RpcError
        self.stub = broker_pb2_grpc.BrokerStub(grpc.insecure_channel(f"unix:{path}"))
        self.calls: list[Call] = []

    def turn(self, _: int) -> None:
        refusal = ""
        begin = time.monotonic_ns()
        try:
            self.stub.GetServerInfo(wire.GetServerInfoRequest())
        except self.error as refused:
            refusal = str(refused)
        self.calls.append(("info", begin, time.monotonic_ns() - begin, refusal))


class Victim:
    def __init__(self, directory: str) -> None:
        self.line = Line(directory)
        request = wire.AllocateRequest(namespace="victim", device={"type": 1}, size=SLOT * SLOTS)
        answer, descriptors = self.line.call(ALLOCATE, request, wire.AllocateResponse)
        self.handle = answer.handle
        self.bytes = mmap.mmap(descriptors[0], answer.handle.arena_size)
        os.close(descriptors[0])
        self.line.call(MAPPED, wire.MappedRequest(arena=self.handle.arena))
        self.calls: list[Call] = []

    def timed(self, what: str, verb: int, request: Any, answer: Any) -> Any:
        refusal = ""
        begin = time.monotonic_ns()
        try:
            got, descriptors = self.line.call(verb, request, answer)
        except Refused as refused:
            got, descriptors, refusal = None, [], str(refused)
        self.calls.append((what, begin, time.monotonic_ns() - begin, refusal))
        for descriptor in descriptors:
            os.close(descriptor)
        return got

    def turn(self, index: int) -> None:
        offset = index % SLOTS * SLOT
        content = index.to_bytes(8, "little") * (SLOT // 8)
        self.bytes[offset : offset + SLOT] = content
        put = wire.PublishRequest(
            namespace="victim", name="frame", arena=self.handle.arena, arena_generation=self.handle.generation,
            offset=offset, size=SLOT, replace=True, specs={"arrays": [spec(SLOT)]},
        )  # fmt: skip
        self.timed("put", PUBLISH, put, wire.PublishResponse)
        get = wire.AcquireRequest(namespace="victim", shares=[{"name": "frame"}])
        got = self.timed("acquire", ACQUIRE, get, wire.AcquireResponse)
        if got is not None:
            where = got.shares[0].share.handle.offset
            assert self.bytes[where : where + SLOT] == content, "the bytes of another share"
            release = wire.ReleaseRequest(leases=[got.shares[0].lease])
            self.timed("release", RELEASE, release, wire.ReleaseResponse)
        if index % TURNS_BETWEEN_ARENAS == 0:
            self.allocate()

    def allocate(self) -> None:
        request = wire.AllocateRequest(namespace="victim", device={"type": 1}, size=SLOT)
        got = self.timed("allocate", ALLOCATE, request, wire.AllocateResponse)
        if got is not None:
            self.timed("give back", RELEASE, wire.ReleaseRequest(arenas=[got.handle.arena]), wire.ReleaseResponse)


def main() -> None:
    path, file = sys.argv[1:]
    victim = GrpcVictim(path) if path.endswith("/broker.sock") else Victim(str(Path(path).parent))
    print("ready", flush=True)
    index = 0
    while not select.select([sys.stdin], [], [], PACE_S)[0]:
        index += 1
        victim.turn(index)
    with Path(file).open("w") as lines:
        for call in victim.calls:
            lines.write(json.dumps(call) + "\n")


if __name__ == "__main__":
    main()
