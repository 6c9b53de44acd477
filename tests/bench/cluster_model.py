# SPDX-License-Identifier: Apache-2.0
"""A simulation of clusters larger than these machines: nodes with a broker each, tasks that read shares of one another.

    tests/bench/cluster_model.py [--nodes N] [--tasks N] [--seed N]

prints what it assumes and finds, as a table for docs/guides/clusters.md. Nothing here is measured on a cluster. The constants are
assumed; the next read and an empty call are near what these machines take. The protocol is that
of arraybridge.integrations.ray: a node moves a share once, from its source or from a node that has a replica and sends it to
less than two others; its tasks wait for the same move; nodes that die take their shares with them.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MIB = 1 << 20
CALL_S = 0.75e-3  # an empty actor call of Ray
HERE_S = 2.2e-3  # the next read of a share on a node that has it, with its task
COPY_BYTES_S = 4e9  # one copy of memory: broker to store at the source, store to broker at the reader
SENDS_MAX = 2  # of one share at a time, for each node that has it
NETWORK_BYTES_S = 25e9 / 8
FAILURES = 10  # nodes that die in a run


@dataclass
class Node:
    number: int
    alive: bool = True
    has: set[int] = field(default_factory=set)  # shares: its own, and replicas
    moves: dict[int, list[Callable[[bool], None]]] = field(default_factory=dict)  # by share: tasks that wait for it
    sends_until: float = 0.0
    receives_until: float = 0.0


class Share(NamedTuple):
    number: int
    source: int
    size: int


class Found(NamedTuple):
    waits: list[float]  # of tasks, until they have their array
    moved: int  # bytes between nodes
    transfers: dict[tuple[int, int], int]  # by share and node
    lost: int  # tasks whose share was on a node that died


class Cluster:
    """A discrete simulation: events in the order of their times."""

    def __init__(self, nodes: int) -> None:
        self.nodes = [Node(number) for number in range(nodes)]
        self.now = 0.0
        self.moved = 0
        self.transfers: dict[tuple[int, int], int] = {}
        self._sends: dict[int, dict[int, int]] = {}  # by share and node that has it: the moves from there now
        self._waiting: dict[int, list[tuple[Share, Node]]] = {}  # by share: for a node that may send it
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act))

    def run(self) -> None:
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def read(self, share: Share, node: Node, done: Callable[[bool], None]) -> None:
        """Calls done(True) when a task of this node has the array, done(False) if it is lost."""
        if share.number in node.has:
            self.at(self.now + HERE_S, lambda: done(True))
            return
        waiting = node.moves.setdefault(share.number, [])
        waiting.append(done)
        if len(waiting) == 1:
            self.at(self.now + 2 * CALL_S, lambda: self._move(share, node))

    def kill(self, number: int) -> None:
        self.nodes[number].alive = False

    def _move(self, share: Share, node: Node) -> None:
        source = self.nodes[share.source]
        if not source.alive:
            self._arrived(share, node, False)
            return
        sends = self._sends.setdefault(share.number, {share.source: 0})
        sender = min(reversed(sends), key=lambda number: sends[number])
        if sends[sender] >= SENDS_MAX:
            self._waiting.setdefault(share.number, []).append((share, node))
            return
        sends[sender] += 1
        # A link carries one move after another: the sum is that of moves that share it.
        took = share.size / NETWORK_BYTES_S
        begun = max(self.now, self.nodes[sender].sends_until, node.receives_until)
        self.nodes[sender].sends_until = node.receives_until = begun + took
        # Pieces are copied while others are on their way: only the first and the last are not.
        ends = begun + max(took, share.size / COPY_BYTES_S) + 2 * min(share.size, 32 * MIB) / COPY_BYTES_S

        def moved() -> None:
            sends[sender] -= 1
            whole = source.alive and self.nodes[sender].alive
            if whole:
                sends[node.number] = 0
                self.moved += share.size
                key = share.number, node.number
                self.transfers[key] = self.transfers.get(key, 0) + 1
            elif not self.nodes[sender].alive:
                sends.pop(sender, None)
            for waiting in self._waiting.pop(share.number, []):
                self._move(*waiting)
            if whole or not source.alive:
                self._arrived(share, node, whole)
            else:
                self._move(share, node)

        self.at(ends, moved)

    def _arrived(self, share: Share, node: Node, whole: bool) -> None:
        if whole:
            node.has.add(share.number)
        for done in node.moves.pop(share.number, []):
            if whole:
                self.at(self.now + HERE_S, lambda done=done: done(True))  # type: ignore[misc]
            else:
                done(False)


def tasks_read(nodes: int, tasks: int, near: float, seed: int) -> Found:
    """Tasks at random times read shares of 64 MiB, few of them often (Zipf); near: the part of tasks that run where it is."""
    chance = random.Random(seed)
    cluster = Cluster(nodes)
    shares = [Share(number, chance.randrange(nodes), 64 * MIB) for number in range(nodes)]
    for share in shares:
        cluster.nodes[share.source].has.add(share.number)
    weights = [1 / rank for rank in range(1, nodes + 1)]
    waits: list[float] = []
    lost = 0

    def begin(share: Share, node: Node) -> None:
        begun = cluster.now

        def done(whole: bool) -> None:
            nonlocal lost
            lost += not whole
            if whole:
                waits.append(cluster.now - begun)

        if node.alive:
            cluster.read(share, node, done)

    for share in chance.choices(shares, weights, k=tasks):
        where = share.source if chance.random() < near else chance.randrange(nodes)
        cluster.at(chance.random() * 60, lambda share=share, node=cluster.nodes[where]: begin(share, node))  # type: ignore[misc]
    for number in chance.sample(range(nodes), min(FAILURES, nodes - 1)):
        cluster.at(chance.random() * 60, lambda number=number: cluster.kill(number))  # type: ignore[misc]
    cluster.run()
    return Found(waits, cluster.moved, cluster.transfers, lost)


def one_model(nodes: int, readers: int) -> float:
    """Seconds until eight tasks of each of these nodes have a model of 16 GiB that one node published."""
    cluster = Cluster(nodes)
    model = Share(0, 0, 16 << 30)
    cluster.nodes[0].has.add(0)
    last = 0.0

    def done(whole: bool) -> None:
        nonlocal last
        last = cluster.now

    for node in cluster.nodes[1 : readers + 1]:
        for _ in range(8):
            cluster.read(model, node, done)
    cluster.run()
    assert set(cluster.transfers.values()) == {1}
    return last


def rows(nodes: int, tasks: int, seed: int) -> Iterator[str]:
    yield f"{nodes} nodes, {tasks} tasks in 60 s that read shares of 64 MiB, {FAILURES} nodes die (simulated):"
    yield ""
    yield "| Tasks that run near their share | Bytes moved | Most moves of a share to one node | Wait, median | 99 % | Lost |"
    yield "|---|---|---|---|---|---|"
    for near in (0.0, 0.5, 0.9):
        found = tasks_read(nodes, tasks, near, seed)
        waits = sorted(found.waits)
        most = max(found.transfers.values(), default=0)
        p99 = waits[len(waits) * 99 // 100] * 1e3
        yield (
            f"| {near:.0%} | {found.moved / 2**40:.2f} TiB | {most} | {statistics.median(waits) * 1e3:.1f} ms | {p99:,.0f} ms "
            f"| {found.lost} of {tasks} |"
        )
    yield ""
    yield "A model of 16 GiB that one node publishes and eight tasks on each of N nodes read (simulated):"
    yield ""
    yield "| Nodes that read | Until all have it |"
    yield "|---|---|"
    for readers in (1, 10, 100, nodes - 1):
        yield f"| {readers} | {one_model(nodes, readers):,.0f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    print("\n".join(rows(wanted.nodes, wanted.tasks, wanted.seed)))


if __name__ == "__main__":
    main()
