# SPDX-License-Identifier: Apache-2.0
"""Pins and priorities: which shares leave memory first, and which never."""

from __future__ import annotations

from pathlib import Path

import pytest
from tier_cases import Tier, pattern

from arraybridge import BrokerError, InvalidRequest, Share


def filled(tier: Tier, ranks: dict[str, tuple[str | None, int]]) -> dict[str, Share]:
    """Shares of 8 MiB with these pins and priorities, in this order."""
    shares = {}
    for number, (name, (pin, priority)) in enumerate(ranks.items()):
        shares[name] = tier.broker.put(pattern(number, 2 << 20), name).pin(pin, priority=priority)  # type: ignore[arg-type]
    return shares


def away(tier: Tier) -> set[str]:
    return {row.name for row in tier.broker.stored() if not row.in_memory}


def test_the_lowest_priority_leaves_first_and_soft_pins_last(tmp_path: Path) -> None:
    tier = Tier(tmp_path, flags=("--host-capacity", "40MiB"))
    filled(tier, {"soft": ("soft", -5), "high": (None, 7), "low": (None, -7), "hard": ("hard", -1000), "usual": (None, 0)})
    order = ["low", "usual", "high", "soft"]
    for number in range(4):
        tier.broker.put(pattern(20 + number, 2 << 20), f"new{number}").pin("hard")
        left = away(tier)
        # On a busy machine one more leaves while the memory of the one before is on its way.
        assert len(left) > number and left == set(order[: len(left)])
    with pytest.raises(BrokerError, match="no room"):
        tier.broker.put(pattern(30, 2 << 20), "one more")
    assert "hard" not in away(tier), "it never leaves"
    tier.stop()


def test_of_alike_idle_times_the_larger_share_leaves_first(tmp_path: Path) -> None:
    tier = Tier(tmp_path, flags=("--host-capacity", "32MiB"))
    tier.broker.put(pattern(1, 1 << 20), "small")
    tier.broker.put(pattern(2, 4 << 20), "large")
    tier.broker.put(pattern(3, 4 << 20), "new")
    assert away(tier) == {"large"}
    tier.stop()


def test_a_hard_pin_is_refused_by_name_until_it_ends(tier: Tier) -> None:
    share = tier.broker.put(pattern(1), "a").pin("hard")
    with pytest.raises(BrokerError, match=r"share 'a' of namespace 'default' stays in memory: it has a hard pin") as refused:
        share.demote()
    assert refused.value.reason == "PINNED"
    assert share.pin(None) is share
    assert share.demote().residency == "disk"
    assert share.pin("hard").residency == "disk", "it stays where it is until somebody reads it"
    assert (tier.broker.get("a") == pattern(1)).all()
    with pytest.raises(BrokerError, match="hard pin"):
        share.demote()


def test_words_and_numbers_are_checked(tier: Tier) -> None:
    share = tier.broker.put(pattern(1), "a")
    with pytest.raises(InvalidRequest, match=r'pin must be "soft", "hard" or None'):
        share.pin("firm")  # type: ignore[arg-type]
    for priority in (1001, -1001, 0.5):
        with pytest.raises(InvalidRequest, match="from -1000 to 1000"):
            share.pin("soft", priority=priority)  # type: ignore[arg-type]
    share.pin("soft", priority=1000).pin(None, priority=-1000)


@pytest.mark.parametrize("kept_first", [True, False])
def test_a_kept_share_comes_back_with_its_pin(tmp_path: Path, kept_first: bool) -> None:
    tier = Tier(tmp_path)
    share = tier.broker.put(pattern(1), "a")
    share = share.keep().pin("hard", priority=3) if kept_first else share.pin("hard", priority=3).keep()
    assert len(tier.names()) == 1 or kept_first
    tier.stop()
    tier.start()
    assert (tier.broker.get("a") == pattern(1)).all()
    with pytest.raises(BrokerError) as refused:
        tier.broker.get("a", info=True).share.demote()
    assert refused.value.reason == "PINNED"
    tier.broker.withdraw("a")
    tier.stop()
