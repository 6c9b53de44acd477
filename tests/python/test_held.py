"""The short way of `get`: a share that is found without a call, alike to one that took the careful way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import arraybridge
from arraybridge import _core

ASCENDING = np.arange(64, dtype=np.float32)


@pytest.fixture
def reader(address: str, broker: arraybridge.Broker, pytestconfig: pytest.Config) -> Iterator[arraybridge.Broker]:
    if pytestconfig.getoption("--calls"):
        pytest.skip("nothing is held without a call here")
    with arraybridge.Broker(address, namespace=broker.namespace, start="never") as made:
        yield made


@pytest.fixture
def held(reader: arraybridge.Broker, broker: arraybridge.Broker, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Answers of the short way: the reader knows the catalogue, and a plan for arrays like ASCENDING."""
    broker.put(ASCENDING, "first")
    while reader.stats()["client_catalogue_acquires"] == 0:
        reader.get("first")
    answers: list[object] = []
    short = _core.try_acquire

    def noted(*arguments: object) -> object:
        answers.append(short(*arguments))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(_core, "try_acquire", noted)
    return answers


def test_a_share_that_is_alike_takes_the_short_way(reader, broker, held):
    broker.put(ASCENDING * 2, "second")
    reader.get("second")  # its address may be aligned in another way than the first one's
    held.clear()
    before = sum(row.conversions for row in arraybridge.conversion_counts())
    got = reader.get("second", wait=1)
    assert np.array_equal(got, ASCENDING * 2) and not got.flags.writeable
    assert [answer[1] for answer in held] == [reader.last_plan] and reader.last_plan.zero_copy
    assert sum(row.conversions for row in arraybridge.conversion_counts()) == before + 1


def test_what_it_shows_is_the_newest_and_what_has_gone_is_not_there(reader, broker, held):
    broker.put(ASCENDING + 1, "first", replace=True)
    assert reader.get("first")[0] == 1
    broker.withdraw("first")
    with pytest.raises(arraybridge.ShareNotFound):
        reader.get("first")
    assert held[-1] is None


def test_a_share_without_a_plan_goes_on_as_it_was_found(reader, broker, held):
    broker.put([ASCENDING], "tree")
    broker.put(ASCENDING.astype("c16"), "other")
    asked = reader.stats()["acquires_total"]
    (leaf,) = reader.get("tree")
    assert np.array_equal(leaf, ASCENDING) and reader.get("other").dtype == np.complex128
    assert [answer[1] for answer in held] == [None, None]
    assert reader.stats()["acquires_total"] == asked, "it was found twice"
    reader.get("other")
    assert held[-1][1] is not None


def test_a_framework_that_refuses_is_asked_again_by_the_careful_way(reader, broker, held):
    decided = next(iter(reader._delivery._decided.values()))

    def refused(view: object) -> None:
        raise ValueError("not today")

    for form, (plan, _, count) in list(decided.items()):
        decided[form] = plan, refused, count
    assert np.array_equal(reader.get("first"), ASCENDING)
    assert held == [None]


def test_a_wait_that_is_none_is_refused_also_where_nobody_would_wait(reader, held):
    with pytest.raises(arraybridge.InvalidRequest, match="wait must be 0 or more seconds"):
        reader.get("first", wait=-1)
    assert held == []


def test_held_takes_a_core_and_finds_no_foreign_names(reader, held):
    core = reader._connection.core()
    assert _core.try_acquire(core, "fürst", False, {}) is None and _core.try_acquire(core, "", False, {}) is None
    with pytest.raises(TypeError, match="try_acquire takes a Core, a name, private, and plans"):
        _core.try_acquire(core)  # type: ignore[call-arg]
    with pytest.raises(RuntimeError):
        _core.try_acquire(object(), "first", False, {})  # type: ignore[arg-type]
