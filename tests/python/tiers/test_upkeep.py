# SPDX-License-Identifier: Apache-2.0
"""Files that nobody asks for: namespaces that are durable by configuration, and memory that gets room before it is full."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from processes import environment
from tier_cases import MIB, Tier, eventually, pattern

from arraybridge import Broker

CAPACITY = ("--host-capacity", "64MiB", "--namespace-quota", "100%")


def in_memory(broker: Broker) -> int:
    return sum(each.share.nbytes for each in broker.list() if each.share.residency == "host")


def test_above_the_mark_shares_leave_memory_until_the_lower_mark(tmp_path: Path) -> None:
    tier = Tier(tmp_path, CAPACITY, high="60%", low="40%")
    try:
        for number in range(8):  # half of the memory
            tier.broker.put(pattern(number), f"n/{number}")
        time.sleep(1.5)
        assert tier.names() == []
        for number in range(8, 12):
            tier.broker.put(pattern(number), f"n/{number}")
        eventually(lambda: in_memory(tier.broker) <= 0.4 * 64 * MIB)
        assert in_memory(tier.broker) > 0.2 * 64 * MIB, "no more than needed"
        for number in range(12):
            assert (tier.broker.get(f"n/{number}") == pattern(number)).all()
    finally:
        tier.stop()


def test_a_hard_pin_stays_above_the_mark(tmp_path: Path) -> None:
    tier = Tier(tmp_path, CAPACITY, high="30%")
    try:
        for number in range(6):
            tier.broker.put(pattern(number), f"n/{number}").pin("hard")
        tier.broker.put(pattern(6), "n/6")
        eventually(lambda: tier.broker.list("n/6")[0].share.residency == "disk")
        assert in_memory(tier.broker) == 6 * 4 * MIB
    finally:
        tier.stop()


def test_a_namespace_that_is_durable_by_configuration(tmp_path: Path) -> None:
    tier = Tier(tmp_path, durable="models,prep")
    try:
        with Broker(tmp_path / "broker", namespace="models", start="never") as models:
            for number in range(40):
                models.put(np.full(1000, number), f"w/{number}")
            models.put(np.zeros(10), "w/0", replace=True)
        tier.broker.put(np.ones(10), "elsewhere")
        eventually(lambda: len(tier.names()) == 40)
        time.sleep(1)
        assert len(tier.names()) == 40, "the other namespace has no files, and a share has one"
        os.kill(tier.daemon.pid, signal.SIGKILL)
        tier.daemon.wait()
        tier.broker.close()
        tier.start()
        with Broker(tmp_path / "broker", namespace="models", start="never") as models:
            assert (models.get("w/0") == np.zeros(10)).all()
            for number in range(1, 40):
                assert (models.get(f"w/{number}") == np.full(1000, number)).all()
        assert tier.broker.list() == []
    finally:
        tier.stop()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"high": "50%", "low": "60%"}, "tiers.low (60%) is more than tiers.high (50%)"),
        ({"low": "60%"}, "tiers.low (60%) is more than tiers.high (off)"),
        ({"high": "1GiB"}, "is neither a percentage from 1% to 100% nor off"),
        ({"high": "0%"}, "is neither a percentage from 1% to 100% nor off"),
        ({"durable": "a,,b"}, "has an empty name"),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, settings: dict[str, str], why: str) -> None:
    changes = {f"ARRAYBRIDGED_TIERS__{key.upper()}": value for key, value in settings.items()}
    done = subprocess.run(
        [os.environ["ARRAYBRIDGE_DAEMON"], "--directory", str(tmp_path)],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and why in done.stderr
