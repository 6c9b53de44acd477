# SPDX-License-Identifier: Apache-2.0
"""The short way of `get`: a share that is found without a call, alike to one that took the careful way."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from internals import plans_of, raw_core

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
def entered(reader: arraybridge.Broker, broker: arraybridge.Broker, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The arguments of calls that the method in C passed on to Python. The reader knows the catalogue, and a plan for arrays
    like ASCENDING."""
    broker.put(ASCENDING, "first")
    while reader.stats()["client_catalogue_acquires"] == 0:
        reader.get("first")
    full = arraybridge.Broker.get.__wrapped__  # type: ignore[attr-defined]
    calls: list[tuple[object, ...]] = []

    def noted(self: arraybridge.Broker, *arguments: object, **wishes: object) -> object:
        calls.append(arguments)
        return full(self, *arguments, **wishes)

    monkeypatch.setattr(arraybridge.Broker, "get", _core.FastMethod(noted, "get"))
    return calls


@pytest.fixture
def held(entered: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Answers of the short way within Python's `get`, which calls with options take."""
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


def test_a_name_and_a_framework_enter_no_python_function(reader, broker, entered):
    before = sum(row.conversions for row in arraybridge.conversion_counts())
    plain = reader.last_plan
    for got in (reader.get("first"), reader.get("first", "numpy"), arraybridge.Broker.get(reader, "first")):
        assert np.array_equal(got, ASCENDING) and not got.flags.writeable
    assert entered == [] and reader.last_plan == plain
    assert sum(row.conversions for row in arraybridge.conversion_counts()) == before + 3


@pytest.mark.parametrize("arguments", [("fürst",), ("gone",), ("first", "nothing"), (7,), ("first", b"numpy"), ("first", "numpy", 1)])
def test_what_is_not_held_is_passed_on_and_told_by_the_full_way(reader, entered, arguments):
    with pytest.raises((arraybridge.BrokerError, arraybridge.InvalidMemoryType, TypeError)):
        reader.get(*arguments)
    assert entered == [arguments]


def test_a_closed_broker_connects_again_by_the_full_way(reader, entered):
    reader.close()
    assert np.array_equal(reader.get("first"), ASCENDING)
    assert entered == [("first",)]


def test_an_interrupt_is_not_swallowed_and_enters_nothing_twice(reader, entered):
    decided = next(iter(plans_of(reader).values()))

    def interrupted(view: object) -> None:
        raise KeyboardInterrupt

    for form, (plan, _, count) in list(decided.items()):
        decided[form] = plan, interrupted, count
    with pytest.raises(KeyboardInterrupt):
        reader.get("first")
    assert entered == []


def test_the_method_looks_like_the_function_that_it_wraps():
    method: Any = arraybridge.Broker.get
    assert inspect.signature(method) == inspect.signature(method.__wrapped__)
    assert method.__doc__ == method.__wrapped__.__doc__ and method.__name__ == "get"
    assert method.__qualname__ == "Broker.get" and method.__module__ == "arraybridge.broker.broker"
    assert "get(self, name" in pydoc.plain(pydoc.render_doc(arraybridge.Broker))
    assert pickle.loads(pickle.dumps(method)) is method and copy.deepcopy(method) is method
    assert repr(method).startswith("<function Broker.get at ")
    with pytest.raises(TypeError, match="missing"):
        method()
    with pytest.raises(TypeError):
        _core.FastMethod()  # type: ignore[call-arg]


def test_objects_that_are_no_brokers_reach_the_function():
    method: Any = _core.FastMethod(lambda *arguments: arguments, "get")
    odd = type("Odd", (), {"_fast": (1, {"numpy": (True, {})}, 2, 3)})()
    assert method(1, "a") == (1, "a") and method(odd, "a") == (odd, "a") and method(odd, "a", "numpy") == (odd, "a", "numpy")
    bare = _core.Core.__new__(_core.Core)
    with pytest.raises(RuntimeError, match="without __init__"):
        _core.try_acquire(bare, "a", False, {})
    connection = type("Connection", (), {"known_core": bare})()
    odd = type("Odd", (), {"_fast": (connection, {"numpy": (True, {})}, 2, 3)})()
    assert method(odd, "a") == (odd, "a")


def test_what_it_shows_is_the_newest_and_what_has_gone_is_not_there(reader, broker, held):
    broker.put(ASCENDING + 1, "first", replace=True)
    assert reader.get("first")[0] == 1
    broker.withdraw("first")
    with pytest.raises(arraybridge.ShareNotFound):
        reader.get("first")
    assert held == [None]


def test_a_share_without_a_plan_goes_on_as_it_was_found(reader, broker, entered):
    broker.put([ASCENDING], "tree")
    broker.put(ASCENDING.astype("c16"), "other")
    asked = reader.stats()["acquires_total"]
    (leaf,) = reader.get("tree")
    assert np.array_equal(leaf, ASCENDING) and reader.get("other").dtype == np.complex128
    assert reader.stats()["acquires_total"] == asked, "it was found twice"
    assert entered == []


def test_a_framework_that_refuses_is_asked_again_by_the_careful_way(reader, broker, held):
    decided = next(iter(plans_of(reader).values()))

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
    core = raw_core(reader)
    assert _core.try_acquire(core, "fürst", False, {}) is None and _core.try_acquire(core, "", False, {}) is None
    with pytest.raises(TypeError, match="try_acquire takes a Core, a name, private, and plans"):
        _core.try_acquire(core)  # type: ignore[call-arg]
    with pytest.raises(RuntimeError):
        _core.try_acquire(object(), "first", False, {})  # type: ignore[arg-type]
