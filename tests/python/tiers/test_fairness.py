# SPDX-License-Identifier: Apache-2.0
"""A long move of one kind does not delay another kind: real processes that verify, demote and read at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from processes import environment
from tier_cases import Tier, pattern

BESIDE = """
import sys
from arraybridge import Broker, BrokerError

with Broker(sys.argv[1], start="never") as broker:
    share = broker.get("large", info=True).share
    for turn in range(1 << 30):
        share.verify()
        if turn == 0:
            print("begun", flush=True)
"""


@contextmanager
def beside(tier: Tier, count: int = 4) -> Iterator[Callable[[], bool]]:
    """Processes that verify a large file without a pause; yields whether all of them go on."""
    command = [sys.executable, "-c", BESIDE, str(tier.folder / "broker")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(count)]
    try:
        for each in running:
            assert each.stdout is not None
            assert each.stdout.readline().strip() == "begun"
        yield lambda: all(each.poll() is None for each in running)
    finally:
        for each in running:
            each.kill()
            each.communicate()


def test_a_read_does_not_wait_for_those_who_verify(tier: Tier) -> None:
    """Four processes keep the line of verifications full. A read that waited for its end would time out."""
    tier.broker.put(np.zeros(64 << 20, "uint8"), "large").keep()
    share = tier.broker.put(pattern(1), "a").demote()
    with beside(tier) as go_on:
        for _ in range(5):
            got = tier.broker.get("a")
            assert (got == pattern(1)).all()
            del got
            share.demote().prefetch().demote()
            assert go_on()


def test_room_for_a_put_does_not_wait_for_those_who_verify(tmp_path: Path) -> None:
    tier = Tier(tmp_path, flags=("--host-capacity", "160MiB"))
    tier.broker.put(np.zeros(64 << 20, "uint8"), "large").keep()
    with beside(tier) as go_on:
        for number in range(8):  # of 32 MiB
            tier.broker.put(pattern(number, 8 << 20), f"s{number}")
        assert go_on()
    assert sum(not row.in_memory for row in tier.broker.stored()) >= 4
    assert (tier.broker.get("s0", wait=60) == pattern(0, 8 << 20)).all()
    tier.stop()


def test_many_reads_that_wait_for_memory_are_tried_in_turn(tmp_path: Path) -> None:
    """More shares than one round tries want memory that there is only for a few of them."""
    tier = Tier(tmp_path, flags=("--host-capacity", "8MiB"))
    for number in range(100):
        tier.broker.put(pattern(number, 1 << 16), f"s{number}").demote()
    for number in range(100):
        got = tier.broker.get(f"s{number}", wait=60)
        assert (got == pattern(number, 1 << 16)).all()
        del got
        tier.broker.flush()
    tier.stop()
