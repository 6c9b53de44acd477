# SPDX-License-Identifier: Apache-2.0
"""A namespace full of tiny shares: fault 34. Its limit answers, and finding one share costs what it costs among few."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path
from typing import Any

import pytest
from harness import ALLOCATE, MAPPED, PUBLISH, WITHDRAW, Client, Daemon, Ledger, RawLifeline, Refused, daemon_in, eventually, raw_lifeline

LONG = bool(os.environ.get("ARRAYBRIDGE_LONG"))
ALIGNMENT = 256
NO_REPLY = 1
NAMES_PER_REQUEST = 256
LOOKUPS = 20_000
SLOWER = 4  # the costs of two measurements on a busy machine differ by less; a search through all names costs 1000 times as much
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BOMBS = [65_536, *([1_000_000] if LONG else [])]


def publish(line: RawLifeline, messages: Any, handle: Any, index: int, flags: int) -> None:
    request = messages.PublishRequest(
        namespace="bomb", name=f"tiny/{index}", arena=handle.arena, arena_generation=handle.generation,
        offset=index % (handle.arena_size // ALIGNMENT) * ALIGNMENT, size=ALIGNMENT,
        specs={"arrays": [{"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [1], "size": 1}]},
    )  # fmt: skip
    line.send(PUBLISH, request.SerializeToString(), flags=flags)


def cpu_seconds(daemon: Daemon) -> float:
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def cost_of_lookups(daemon: Daemon, client: Client) -> float:
    """The daemon's processor time for this many acquires by calls."""
    before = cpu_seconds(daemon)
    client.ask(f"churn 1 8 {LOOKUPS}")
    return cpu_seconds(daemon) - before


@pytest.mark.parametrize("most", BOMBS)
def test_a_bomb_of_names(tmp_path: Path, messages: Any, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 34: the limit of the namespace is named; other namespaces and lookups are not affected; all memory comes back."""
    monkeypatch.setattr("harness.client_flags", ["calls"])
    limits = {"shares_per_namespace": most, "object_bytes_per_uid": 8 << 30}
    flags = [word for name, value in limits.items() for word in ("--limit", f"{name}={value}")]
    with daemon_in(tmp_path / "broker", *flags) as daemon:
        ledger = Ledger(daemon)
        others = daemon.client("others")
        for name in range(8):
            others.ask(f"put churn/{name} 4096 1")
        cost_of_lookups(daemon, others)  # its first calls have one-time costs
        few = cost_of_lookups(daemon, others)
        assert few > 5 * TICK_S, "too few lookups to be measured"

        line = raw_lifeline(daemon, messages)
        request = messages.AllocateRequest(namespace="bomb", device={"type": 1}, size=most * ALIGNMENT)
        allocated, (descriptor,) = line.call(ALLOCATE, request, messages.AllocateResponse)
        memory = mmap.mmap(descriptor, allocated.handle.arena_size)
        os.close(descriptor)
        line.call(MAPPED, messages.MappedRequest(arena=allocated.handle.arena), messages.MappedResponse)
        for index in range(most):
            publish(line, messages, allocated.handle, index, NO_REPLY)
        publish(line, messages, allocated.handle, 0, 0)  # its bytes and its name are used: this is refused in any case
        assert line.receive()[1] != 0
        assert daemon.stats()["shares"] == most + 8

        inside = daemon.client("bomb")
        with pytest.raises(Refused, match=f"RESOURCE_EXHAUSTED.*{most}") as refused:
            inside.ask("put one/more 4096 1")
        assert "shares_per_namespace" in refused.value.message
        many = cost_of_lookups(daemon, others)
        assert many <= SLOWER * few + 10 * TICK_S, f"{LOOKUPS} lookups cost {few:.2f} s among 8 names and {many:.2f} s among {most}"
        others.ask("put still 4096 2")
        others.ask("get still 2")
        others.ask("drop")

        # In a full namespace, too.
        inside.ask("withdraw tiny/0")
        inside.ask("put churn/0 4096 1")
        before = cpu_seconds(daemon)
        inside.ask(f"churn 1 1 {LOOKUPS}")
        assert cpu_seconds(daemon) - before <= SLOWER * few + 10 * TICK_S
        inside.ask("withdraw churn/0")

        memory.close()
        for begin in range(1, most, NAMES_PER_REQUEST):
            names = [{"name": f"tiny/{index}"} for index in range(begin, min(begin + NAMES_PER_REQUEST, most))]
            line.call(WITHDRAW, messages.WithdrawRequest(namespace="bomb", shares=names), messages.WithdrawResponse)
        line.close()
        for name in others.ask("list").split():
            others.ask(f"withdraw {name}")
        inside.leave()
        others.leave()
        eventually("no name is left", lambda: daemon.stats()["shares"] == 0)
        ledger.settle()
        assert not re.search(r"\b(?:error|critical)\b", daemon.log_text())
