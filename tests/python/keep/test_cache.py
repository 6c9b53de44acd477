# SPDX-License-Identifier: Apache-2.0
"""cache: results of functions, by code and arguments."""

import dataclasses
import enum
import functools
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from processes import Client

import arraybridge
from arraybridge import Broker, CachedFunction, InvalidRequest


def counted(broker: Broker, **options):
    """A function that is cached, and the list of the arguments that it was called with."""
    calls: list[tuple] = []

    def function(*args, **kwargs):
        calls.append((args, kwargs))
        return np.full(3, float(len(calls)))

    # `calls` is a variable of the function around it, and changes.
    return arraybridge.cache(function, broker=broker, key=lambda *args, **kwargs: [args, kwargs], **options), calls


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


@dataclasses.dataclass
class Settings:
    gain: float
    mode: Mode


def test_a_result_is_computed_once_for_equal_arguments(broker: Broker) -> None:
    cached, calls = counted(broker)
    assert cached(1, b="x").tolist() == [1, 1, 1] == cached(1, b="x").tolist() and len(calls) == 1
    assert cached(2, b="x").tolist() == [2, 2, 2] and len(calls) == 2


VALUES = [
    0, 1, True, 1.0, -0.0, 0.0, 1j, "1", b"1", None, (1,), [1], {"a": 1}, {"a": 2}, {"b": 1}, "", (), [], {}, ((1,), 2), ((1, 2),),
    np.int64(1), np.float64(1), np.ones(1), np.ones(1, "f4"), np.ones((1, 1)), np.zeros(1), Path("1"), Mode.FAST, Mode.EXACT,
    Settings(1.0, Mode.FAST), Settings(1.0, Mode.EXACT), np.array([1 + 0j]), float("nan"), np.arange(6).reshape(2, 3),
    np.arange(6).reshape(3, 2),
]  # fmt: skip


def test_different_values_have_different_names(broker: Broker) -> None:
    @arraybridge.cache(broker=broker)
    def function(value):
        return np.ones(1)

    names = [function.name(value) for value in VALUES]
    assert len(set(names)) == len(VALUES)
    assert names == [function.name(value) for value in VALUES]


def test_layout_does_not_tell_arrays_apart_but_their_framework_does(broker: Broker) -> None:
    torch = pytest.importorskip("torch")

    @arraybridge.cache(broker=broker)
    def function(value):
        return np.ones(1)

    rows = np.arange(6.0).reshape(2, 3)
    assert function.name(rows) == function.name(np.asfortranarray(rows)) == function.name(np.arange(12.0)[::2].reshape(2, 3) / 2)
    assert function.name(rows) != function.name(torch.tensor(rows))
    assert function.name(torch.tensor(rows)) == function.name(torch.tensor(rows.T.copy()).T)


def test_arguments_are_told_apart_by_their_parameters(broker: Broker) -> None:
    @arraybridge.cache(broker=broker)
    def function(a, b=2, *rest, c=3):
        return np.ones(1)

    assert function.name(1) == function.name(a=1) == function.name(1, 2) == function.name(1, b=2, c=3)
    assert len({function.name(1), function.name(2), function.name(1, 2, 3), function.name(1, c=4)}) == 4
    with pytest.raises(TypeError, match="missing a required argument"):
        function()


def variants():
    """Functions that differ in their code alone."""
    yield lambda x: x + 1
    yield lambda x: x + 2
    yield lambda x: x - 1
    yield lambda x: [x + y for y in (1, 2)]
    yield lambda x: [x + y for y in (1, 3)]
    yield lambda x: x in {"a", "b", "c"}


def test_other_code_is_another_function(broker: Broker) -> None:
    names = [arraybridge.cache(function, broker=broker).name(1) for function in variants()]
    assert len(set(names)) == 6
    assert names == [arraybridge.cache(function, broker=broker).name(1) for function in variants()]
    assert arraybridge.cache(next(variants()), broker=broker, version="2").name(1) not in names


def test_what_a_function_closes_over_counts(broker: Broker) -> None:
    def scaled(factor, helper):
        @arraybridge.cache(broker=broker)
        def function(x):
            return x * factor * helper()

        return function

    def one():
        return 1

    def two():
        return 2

    names = {scaled(factor, helper).name(1) for factor in (2, 3, np.ones(2)) for helper in (one, two)}
    assert len(names) == 6
    with pytest.raises(InvalidRequest, match="uses 'factor' of the function around it: .*pass key="):
        scaled(object(), one).name(1)


def test_another_process_finds_it_whatever_its_hashes(broker: Broker, client: Client, tmp_path: Path) -> None:
    module = tmp_path / "features.py"
    module.write_text(
        "import os, sys\nimport numpy as np\nimport arraybridge\n"
        "broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
        "@arraybridge.cache(broker=broker)\ndef features(path, size, kinds=frozenset(['a', 'b', 'c']) and ('a', 'b')):\n"
        "    known = size in {'x', 'y', 'z', 3}\n    return np.array([os.getpid(), size, known])\n"
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import features; print(features.features('a.png', 3).tolist())"
    found = [client(program, broker.namespace, PYTHONHASHSEED=seed) for seed in ("0", "1", "2")]
    assert len(set(found)) == 1 and len(broker.list("cache/features.features-")) == 1


def test_what_cannot_be_told_is_refused_with_the_way_out(broker: Broker) -> None:
    cached, calls = arraybridge.cache(lambda x: np.ones(1), broker=broker), []
    for value in (object(), {1, 2}, print, np.array(["1"]), [1, {"a": lambda: 0}]):
        with pytest.raises(InvalidRequest, match=r"a call of .*: the content of a value cannot be told: .*pass key="):
            cached(value)
    by_key = arraybridge.cache(lambda x: calls.append(x) or np.ones(1), broker=broker, key=lambda x: sorted(x))
    by_key({2, 1})
    by_key({1, 2})
    assert calls == [{1, 2}]


def test_methods_tell_their_objects_apart_by_key(broker: Broker) -> None:
    class Model:
        def __init__(self, size):
            self.size = size

        @functools.partial(arraybridge.cache, broker=broker, key=lambda self, x: [self.size, x])
        def run(self, x):
            return np.full(self.size, x)

    assert Model(2).run(5).tolist() == [5, 5] and Model(3).run(5).tolist() == [5, 5, 5]
    assert len(broker.list("cache/")) == 2 and isinstance(Model.run, CachedFunction)


def test_the_framework_is_that_of_the_results(broker: Broker) -> None:
    @arraybridge.cache(broker=broker, framework="torch")
    def function(size):
        return np.ones(size, "f4")

    for _ in range(2):
        assert arraybridge.detect_memory_type(function(4)) == "torch"
    assert function.__name__ == "function" and function.__wrapped__(2).tolist() == [1, 1] and "function" in repr(function)


def test_results_are_forgotten_one_or_all(broker: Broker) -> None:
    cached, calls = counted(broker)
    cached(1), cached(2)
    assert cached.forget(1) and not cached.forget(1)
    cached(2)
    assert len(calls) == 2
    cached(1)
    assert len(calls) == 3 and cached.clear() == 2 and broker.list() == [] and cached.clear() == 0


def test_a_budget_withdraws_the_oldest_that_nobody_holds(broker: Broker) -> None:
    @arraybridge.cache(broker=broker, budget=1 << 20)
    def function(number):
        return np.full(300_000, number, "u1")

    held = function(0)
    broker.put(np.ones(10), "other")
    for number in range(1, 6):
        function(number)
    broker.flush()
    kept = {listed.share.name for listed in broker.list("cache/")}
    assert function.name(0) in kept and function.name(5) in kept and function.name(1) not in kept
    assert sum(listed.share.nbytes for listed in broker.list("cache/")) <= 1 << 20
    assert held[0] == 0 and broker.get("other").sum() == 10


def test_no_room_for_a_result_is_a_warning_and_the_result(tmp_path: Path) -> None:
    from processes import start_daemon, stop_daemon

    daemon = start_daemon(str(tmp_path), "--log-level", "error", "--host-capacity", "64MiB", "--cache", "0")
    with Broker(tmp_path, start="never", timeout_s=1) as broker:

        @arraybridge.cache(broker=broker)
        def function(number, size):
            return np.full(size, number, "u1")

        for number in range(4):  # the fifth needs the room of the others
            function(number, 12 << 20)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert function(4, 40 << 20)[-1] == 4
        with pytest.warns(RuntimeWarning, match=r"result of .*function is not kept"):
            assert function(5, 80 << 20)[-1] == 5
    assert stop_daemon(daemon) == 0


def test_exceptions_are_not_kept(broker: Broker) -> None:
    calls: list[int] = []

    @arraybridge.cache(broker=broker, key=lambda: 0)
    def function():
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError("mine")
        return np.ones(1)

    with pytest.raises(MemoryError, match="mine"):
        function()
    assert function().tolist() == [1] and len(calls) == 2


@arraybridge.cache
def at_module_level(x):
    return np.ones(x)


def test_a_decorated_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level


async def coroutine():
    return np.ones(1)


def generator():
    yield np.ones(1)


@pytest.mark.parametrize("function", [coroutine, generator, 5, dict])
def test_what_is_no_plain_function_is_refused(function) -> None:
    with pytest.raises(InvalidRequest, match="cache"):
        arraybridge.cache(function)


@pytest.mark.parametrize("option", [{"budget": 0}, {"budget": True}, {"budget": "1GiB"}, {"version": 3}, {"key": "x"}, {"lifetime": 0}])
def test_wrong_options_are_refused(option) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(option))):
        arraybridge.cache(lambda: np.ones(1), **option)


def test_what_wraps_a_function_and_the_defaults_of_its_helpers_count(broker: Broker) -> None:
    def scaled(factor):
        def wrap(function):
            @functools.wraps(function)
            def run(x):
                return function(x) * factor

            return run

        return wrap

    def made(factor):
        @arraybridge.cache(broker=broker)
        @scaled(factor)
        def function(x):
            return np.full(2, float(x))

        return function

    def helped(factor):
        def helper(x, by=factor):
            return x * by

        @arraybridge.cache(broker=broker)
        def function(x):
            return np.full(2, float(helper(x)))

        return function

    assert made(2)(1)[0] == 2 and made(3)(1)[0] == 3 and made(2)(1)[0] == 2
    assert helped(2)(1)[0] == 2 and helped(3)(1)[0] == 3
    assert made(object()).name(1), "a wrapper may close over what no digest tells"


def test_a_set_in_a_constant_has_one_name_in_all_processes(client: Client) -> None:
    code = (
        "import arraybridge\nfrom arraybridge.keep import digests\n"
        "def function(x):\n    return x in ({'a', 'b', 'c', 'd'}, 1) or x in {'a', 'b', 'c', 'd'}\n"
        "function.__code__ = function.__code__.replace(co_consts=(None, (frozenset('abcdef'), 1)))\n"
        "print(digests.of_function(function, closure=False).hex())"
    )
    assert len({client(code, PYTHONHASHSEED=str(seed)) for seed in range(4)}) == 1
