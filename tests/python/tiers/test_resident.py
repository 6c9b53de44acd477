# SPDX-License-Identifier: Apache-2.0
"""require="resident": a get that raises instead of reading a file."""

from __future__ import annotations

import asyncio

import pytest
from tier_cases import Tier, eventually, pattern

from arraybridge import BrokerError, InvalidRequest, ShareNotFound


def test_a_share_in_a_file_is_refused_and_stays_there(tier: Tier) -> None:
    share = tier.broker.put(pattern(1), "a")
    assert (tier.broker.get("a", require="resident") == pattern(1)).all()
    share.demote()
    for name in ("a", share):
        with pytest.raises(BrokerError, match=r"the 4194304 bytes of share 'a' of namespace 'default' are in a file: prefetch\(\)") as away:
            tier.broker.get(name, require="resident")
        assert away.value.reason == "NOT_RESIDENT"
    with pytest.raises(BrokerError) as away:
        asyncio.run(tier.broker.aget("a", require="resident"))
    assert away.value.reason == "NOT_RESIDENT"
    assert share.residency == "disk", "nothing was read"
    share.prefetch()
    assert (tier.broker.get("a", "torch", require="resident").numpy() == pattern(1)).all()
    assert (tier.broker.get("a", require="resident", wait=1) == pattern(1)).all()


def test_of_many_each_must_be_in_memory(tier: Tier) -> None:
    tier.broker.put(pattern(1), "a")
    away = tier.broker.put(pattern(2), "b").demote()
    with pytest.raises(BrokerError, match="of share 'b'"):
        tier.broker.get_many(["a", "b"], require="resident")
    away.prefetch()
    eventually(lambda: tier.names() == [])
    one, two = tier.broker.get_many(["a", away], require="resident")
    assert (one == pattern(1)).all() and (two == pattern(2)).all()


def test_names_that_do_not_exist_and_lost_bytes_are_told_as_ever(tier: Tier) -> None:
    with pytest.raises(ShareNotFound):
        tier.broker.get("nothing", require="resident")
    with pytest.raises(InvalidRequest):
        tier.broker.get("", require="resident")
    with pytest.raises(InvalidRequest):
        tier.broker.convert(pattern(1), "torch", require="resident")
    tier.broker.put(pattern(3), "a").demote()
    tier.file().unlink()
    with pytest.raises(BrokerError):
        tier.broker.get("a")
    with pytest.raises(BrokerError, match="its file was damaged") as lost:
        tier.broker.get("a", require="resident")
    assert lost.value.reason == "SHARE_LOST"
