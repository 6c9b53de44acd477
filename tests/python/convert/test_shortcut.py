# SPDX-License-Identifier: Apache-2.0
"""Arrays like one before take a short way: what comes out of it is what the careful way makes, and what is not like it goes
the careful way again."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest
from arrays import aligned, values_of
from internals import delivery_of, routes_of

import arraybridge
from arraybridge import _core, adapters, counts
from arraybridge.conversion import shortcut

FRAMEWORKS = ["numpy", "torch", "tensorflow", "jax"]
PAIRS = [(source, target) for source in FRAMEWORKS for target in FRAMEWORKS if source != target]
# Constant arrays go to torch, which would write to them, by a copy alone.
SHARING = [(source, target) for source, target in PAIRS if target != "torch" or source == "numpy"]


@pytest.fixture
def here() -> arraybridge.Broker:
    """Hands over; has nowhere to copy to."""
    return arraybridge.Broker("/nonexistent", start="never")


def address_of(array: Any) -> int:
    return _core.wrap(array.detach()).address if hasattr(array, "detach") else _core.wrap_buffer(array).address


def taken(monkeypatch: pytest.MonkeyPatch, broker: arraybridge.Broker) -> list[bool]:
    """Whether each convert from now on takes the short way."""
    ways: list[bool] = []
    take = delivery_of(broker).alike

    def alike(*wishes: Any) -> Any:
        found = take(*wishes)
        ways.append(found is not None)
        return found

    monkeypatch.setattr(delivery_of(broker), "alike", alike)
    return ways


@pytest.mark.parametrize("shape", [(), (3, 5), (1, 4, 1), (0, 3)], ids=str)
@pytest.mark.parametrize(("source", "target"), SHARING)
def test_the_short_way_makes_what_the_careful_way_makes(
    here: arraybridge.Broker, monkeypatch: pytest.MonkeyPatch, source: str, target: str, shape: tuple[int, ...]
) -> None:
    pytest.importorskip(source)
    pytest.importorskip(target)
    values = aligned(shape)
    array = values if source == "numpy" else here.convert(values, source, copy=False)
    ways = taken(monkeypatch, here)
    careful, plan = here.convert(array, target, copy=False, explain=True)
    short = here.convert(array, target, copy=False)
    assert ways == [False, True]
    assert here.last_plan is plan and plan.route == "hand_over"
    assert type(short) is type(careful) and short.dtype == careful.dtype and tuple(short.shape) == shape
    assert values_of(short).tobytes() == values_of(careful).tobytes() == values.tobytes()
    if values.size:
        assert address_of(short) == address_of(careful) == values.ctypes.data
    if target == "numpy" and values.size:
        assert short.strides == careful.strides
        assert short.flags.writeable == careful.flags.writeable == (source == "torch")
        if source != "torch":
            with pytest.raises(ValueError, match="WRITEABLE|writeable"):
                short.flags.writeable = True
    if target == "torch":
        assert short.stride() == careful.stride()


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_what_is_not_like_it_goes_the_careful_way(here: arraybridge.Broker, monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    pytest.importorskip(framework)
    array = aligned((4, 4))
    for _ in range(2):
        here.convert(array, framework, copy=False)
    ways = taken(monkeypatch, here)
    odd = aligned((33,), "u1")[1:].view("f4")
    strange = [array[::-1], array.T[::2], array.astype(">f4"), np.ma.masked_array(array, array > 3), odd]
    for each in strange:
        try:
            made = here.convert(each, framework, copy=False)
        except arraybridge.MemoryConversionError:
            continue
        assert values_of(made).tolist() == each.tolist()
    assert ways == [False] * len(strange)


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_is_copied_is_copied_every_time(broker: arraybridge.Broker, source: str, target: str) -> None:
    pytest.importorskip(source)
    pytest.importorskip(target)
    values = aligned((64,))
    array = values if source == "numpy" else broker.convert(values, source, copy=False)
    copied = broker.plan(array, target).copies
    constant = source in ("jax", "tensorflow") and target == "torch"  # which goes there by a copy alone
    for _ in range(3):
        for copy, private in ((None, copied == 1), (True, True), *([] if constant else [(False, False)])):
            got = broker.convert(array, target, copy=copy)
            assert broker.last_plan is not None and broker.last_plan.copies == private
            also = arraybridge.convert_memory(array, source, target, None, copy=copy)
            for each in (got, also):
                assert (address_of(each) != values.ctypes.data) == private, copy


@pytest.mark.parametrize("source", ["numpy", "torch", "tensorflow"])
def test_what_jax_may_hold_is_asked_every_time(here: arraybridge.Broker, source: str) -> None:
    """64-bit types are a setting of a process, and of a thread."""
    jax = pytest.importorskip("jax")
    pytest.importorskip(source)
    values = aligned((64,), "i8")
    array = values if source == "numpy" else here.convert(values, source, copy=False)
    for _ in range(2):
        with jax.enable_x64(True):
            for _ in range(3):
                assert here.convert(array, "jax", copy=False).dtype == "int64"
                assert arraybridge.convert_memory(array, source, "jax", None, copy=False).dtype == "int64"
        for ask in (
            lambda: here.convert(array, "jax", copy=False),
            lambda: arraybridge.convert_memory(array, source, "jax", None, copy=False),
        ):
            with pytest.raises(arraybridge.UnsupportedDtype, match="jax_enable_x64"):
                ask()


@pytest.mark.parametrize("target", ["numpy", "tensorflow", "jax"])
def test_pending_bits_and_gradients_of_tensors_go_the_careful_way(here: arraybridge.Broker, target: str) -> None:
    """They lie in memory as ordinary tensors do, and the table that exports them asks about neither."""
    torch = pytest.importorskip("torch")
    pytest.importorskip(target)

    def tensor_of(values: np.ndarray[Any, Any]) -> Any:
        return torch.from_numpy(values)

    for dtype in ("f4", "c8"):
        ordinary = tensor_of(aligned((16,), dtype))
        for _ in range(2):
            here.convert(ordinary, target, copy=False)
            arraybridge.convert_memory(ordinary, "torch", target, None, copy=False)
    for pending in (torch._neg_view(tensor_of(aligned((16,)))), tensor_of(aligned((16,), "c8")).conj()):
        assert (pending.is_neg() or pending.is_conj()) and pending.is_contiguous()
        for ask in (
            lambda each: here.convert(each, target, copy=False),
            lambda each: arraybridge.convert_memory(each, "torch", target, None, copy=False),
        ):
            with pytest.raises(arraybridge.ZeroCopyUnavailable, match="a pending conjugate or negative bit"):
                ask(pending)
    weight = tensor_of(aligned((16,))).requires_grad_()
    assert values_of(here.convert(weight, target, copy=False)).tolist() == list(range(16))
    assert here.last_plan is not None and here.last_plan.notes[0] == "detached: the result has no gradient"


def test_dimensions_of_size_one_keep_the_strides_of_the_careful_way(here: arraybridge.Broker) -> None:
    torch = pytest.importorskip("torch")
    odd = np.lib.stride_tricks.as_strided(aligned((3, 4)), (3, 1, 4), (16, 4096, 4))
    plain = aligned((3, 1, 4))
    for each in (plain, odd, plain, odd):
        made = here.convert(each, "torch", copy=False)
        assert made.stride() == (4, 4, 1) and torch.equal(made, torch.from_numpy(plain))
        assert made.data_ptr() == each.ctypes.data


@pytest.mark.parametrize(("source", "target"), SHARING)
def test_the_short_way_leaks_nothing_and_keeps_what_it_shows(here: arraybridge.Broker, source: str, target: str) -> None:
    pytest.importorskip(source)
    pytest.importorskip(target)
    values = aligned((64, 64))
    array = values if source == "numpy" else here.convert(values, source, copy=False)
    for _ in range(3):
        here.convert(array, target, copy=False)
    gc.collect()
    before = sys.getrefcount(array), sys.getrefcount(values)
    held = [here.convert(array, target, copy=False) for _ in range(200)]
    assert all(values_of(each)[63, 63] == 4095 for each in held)
    del held
    gc.collect()
    assert (sys.getrefcount(array), sys.getrefcount(values)) == before
    result = here.convert(array, target, copy=False)
    del array, values
    gc.collect()
    assert values_of(result).tolist() == np.arange(4096, dtype="f4").reshape(64, 64).tolist()


def test_each_short_way_is_counted(here: arraybridge.Broker) -> None:
    pytest.importorskip("torch")
    array = aligned((4, 4))
    here.convert(array, "torch", copy=False)
    before = counts.totals()["conversions"]
    for _ in range(100):
        here.convert(array, "torch", copy=False)
        arraybridge.convert_memory(array, "numpy", "torch", None)
    assert counts.totals()["conversions"] == before + 200


def test_threads_share_the_tables_while_they_are_cleared(here: arraybridge.Broker) -> None:
    pytest.importorskip("torch")
    routes = routes_of(here)
    array, stop, wrong = aligned((4, 4)), threading.Event(), []

    def converts() -> None:
        while not stop.is_set():
            made = here.convert(array, "torch", copy=False)
            if made.data_ptr() != array.ctypes.data:
                wrong.append(made)

    threads = [threading.Thread(target=converts) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        here.convert(array, "torch", copy=False)
        routes.clear()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("copy", [None, False])
def test_tensorflow_makes_arrays_by_itself_whether_they_must_be_shared_or_may_be(here: arraybridge.Broker, copy: bool | None) -> None:
    pytest.importorskip("tensorflow")
    tensor = here.convert(aligned((4, 4)), "tensorflow", copy=False)
    for _ in range(3):
        made = here.convert(tensor, "numpy", copy=copy)
        assert address_of(made) == address_of(tensor)
        assert not made.flags.writeable
    routes = routes_of(here)
    (road,) = (road for (kind, *_), road in routes.items() if kind is type(tensor))
    assert road[0] is adapters.named("tensorflow").straight("numpy")


def test_a_private_road_that_fails_later_costs_no_conversion(here: arraybridge.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(array: Any) -> Any:
        raise RuntimeError("not any more")

    monkeypatch.setattr(shortcut, "straight_of", lambda kind, target: fails)
    array = aligned()
    for _ in range(3):
        assert here.convert(array, "torch").tolist() == array.tolist()


def test_nothing_that_tables_hold_can_hurt() -> None:
    array = np.zeros(3)
    key, view = (np.ndarray, "x"), _core.wrap(array)
    for routes in (
        {}, {key: None}, {key: (1,)}, {key: (_core.wrap, None, None, None)}, {key: (_core.wrap, None, None, {})},
        {key: (len, None, None, {})}, {key: (_core.wrap, None, None, {view.traits: 3})},
        {key: (_core.wrap, int, None, {})}, {key: (_core.wrap, None, None, {view.traits: (1, len, iter([]))})},
        {key: (_core.wrap, None, None, {view.traits: (1, None, iter([]))})},
        {key: (_core.wrap, None, None, {view.traits: (1, _core.exchanger(int), iter([1]))})},
        {key: (_core.wrap, None, None, {view.traits: (1, None, object())})},
        {key: (lambda _: (1, 2, 3), None, None, {})}, {key: (lambda _: (1, []), None, None, {})},
    ):  # fmt: skip
        assert _core.shortcut(routes, array, "x") is None  # type: ignore[arg-type]
    assert _core.shortcut({(list, "x"): (_core.wrap, None, None, {})}, [], "x") is None
    assert _core.shortcut({}, array, []) is None, "a wish that nothing can look up"
    with pytest.raises(TypeError, match="takes tables"):
        _core.shortcut({})  # type: ignore[call-arg]

    def stops(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _core.shortcut({key: (stops, None, None, {})}, array, "x")
    with pytest.raises(TypeError, match="exchanger takes a type"):
        _core.exchanger(3)  # type: ignore[arg-type]
