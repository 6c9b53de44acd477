# SPDX-License-Identifier: Apache-2.0
"""The fast ways of Channel.send and receive, and NumPy's arrays as they read and make them."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import math
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from internals import delivery_of, lock_of, plans_of, prepare

import arraybridge
from arraybridge import BrokerTimeout, Channel, ChannelClosed, InvalidRequest, PeerGone, _core
from arraybridge.planner import COMMON


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of a Channel that entered Python."""
    calls: list[str] = []

    def noting(name: str) -> Any:
        full = getattr(Channel, name).__wrapped__

        def noted(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return full(*arguments, **options)

        return _core.FastMethod(noted, name)

    for name in "send", "receive":
        monkeypatch.setattr(Channel, name, noting(name))
    return calls


@pytest.fixture
def exits() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def ends(broker: arraybridge.Broker, entered: list[str]) -> Iterator[tuple[Channel, Channel]]:
    """A sender and a receiver that know a plan for arrays of two float32."""
    with broker.channel("c").open("receiver") as receiver, broker.channel("c").open("sender") as sender:
        for _ in range(2):  # with both alignments that NumPy's arrays have here
            sender.send(np.zeros(2, np.float32))
            receiver.receive()
        entered.clear()
        yield sender, receiver


def test_an_ordinary_array_enters_no_method_of_a_channel(ends, entered, broker):
    sender, receiver = ends
    sent = np.array([1, 2], np.float32)
    before = sum(row.conversions for row in arraybridge.conversion_counts())
    for timeout in (None, 5, 5.0):
        sender.send(sent, timeout=timeout)
        got = receiver.receive("numpy", timeout=timeout)
        assert np.array_equal(got, sent) and not got.flags.writeable and isinstance(got.base, _core.View)
    sender.send(sent)
    assert np.array_equal(receiver.receive(), sent) and broker.last_plan.zero_copy
    assert entered == []
    assert sum(row.conversions for row in arraybridge.conversion_counts()) == before + 4


@pytest.mark.parametrize("timeout", [-1, -0.5, math.nan, "5", True, b"", [1]])
def test_a_timeout_that_needs_a_check_is_passed_on(ends, entered, timeout):
    sender, receiver = ends
    if timeout is True:  # a number for Python
        sender.send(np.zeros(1), timeout=timeout)
        receiver.receive(timeout=timeout)
    else:
        with pytest.raises(InvalidRequest, match="timeout must be 0 or more seconds"):
            sender.send(np.zeros(1), timeout=timeout)
        with pytest.raises(InvalidRequest, match="timeout must be 0 or more seconds"):
            receiver.receive(timeout=timeout)
    assert entered == ["send", "receive"]


def test_other_arguments_are_passed_on(ends, entered):
    sender, receiver = ends
    sender.send(np.zeros(2, np.float32), metadata=b"own", timeout=9)
    assert receiver.receive("numpy", info=True, timeout=9).metadata == b"own"
    sender.send(np.zeros(2, np.float32))
    assert receiver.receive(framework="numpy", access="shared").tolist() == [0, 0]
    for call in (
        lambda: sender.send(),
        lambda: sender.send(1, 2),
        lambda: sender.send(np.zeros(1), timeot=1),
        lambda: receiver.receive("numpy", 1),
        lambda: Channel.send(),
        lambda: Channel.receive(),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(arraybridge.InvalidMemoryType):
        receiver.receive("nompy")
    assert entered[:4] == ["send", "receive", "receive", "send"]


def test_arrays_that_differ_from_the_one_before_are_delivered_as_they_are(ends, broker):
    sender, receiver = ends
    kinds = np.float32, np.int64, np.bool_, np.complex128
    arrays = [np.ones(shape, kind) for kind in kinds for shape in ((2,), (1, 2), (40,), (70_000,), (0,), ())]
    arrays += [arrays[0], arrays[0][::-1], np.ones((4, 6), np.float32)[:, ::2], np.asfortranarray(np.ones((3, 4)))]
    for framework in "numpy", "torch", "numpy", "".join(["num", "py"]):
        for index, array in enumerate(arrays * 2):
            sender.send(array * index)
            if index % 3 == 2:
                sender.send(array)  # twice the same
                assert np.array_equal(receiver.receive("numpy"), array * index)
                assert np.array_equal(receiver.receive("numpy"), array)
                assert broker.last_plan.target == "numpy"
                continue
            got = receiver.receive(framework)
            assert type(got).__module__ == framework and tuple(got.shape) == array.shape
            assert np.asarray(got).dtype == (array * index).dtype and np.array_equal(np.asarray(got), array * index)
            assert broker.last_plan.target == framework


def test_what_needs_more_than_the_plan_of_the_one_before_gets_it(ends):
    sender, receiver = ends
    array = np.ones(2, np.float32)
    days = np.array(["2026-11-27", "NaT"], "datetime64[D]")
    for _ in range(3):
        sender.send(array)
        assert np.array_equal(receiver.receive(), array)
        sender.send({"only": array})
        assert receiver.receive().keys() == {"only"}
        sender.send(days)
        assert np.array_equal(receiver.receive(), days, equal_nan=True)


def test_plans_that_were_forgotten_are_learnt_anew(ends, entered, broker, monkeypatch):
    sender, receiver = ends
    delivery = delivery_of(broker)
    for _ in range(2):
        sender.send(np.zeros(2, np.float32))
        receiver.receive()
        plans_of(broker).clear()  # as with the 257th kind of array
        delivery.short.clear()
        for _ in range(3):
            sender.send(np.zeros((2, 2), np.int16))
            receiver.receive()
        asked = []
        full = delivery.granted
        with monkeypatch.context() as patched:
            patched.setattr(delivery, "granted", lambda *arguments: asked.append(arguments) or full(*arguments))
            sender.send(np.ones((2, 2), np.int16))
            assert receiver.receive().tolist() == [[1, 1], [1, 1]]
        assert asked == []


def test_what_was_sent_is_what_the_array_held_then(ends):
    sender, receiver = ends
    for length in 1000, 16_384, 16_385, 1_000_000:  # on both sides of what is copied under the interpreter's lock
        for start in 1, 2:
            array = np.full(length, start, np.float32)
            sender.send(array)
            array[:] = 9
            assert (receiver.receive() == start).all()


@pytest.mark.parametrize("dtype", sorted(COMMON))
def test_every_dtype_is_the_same_by_the_fast_way(ends, entered, dtype):
    sender, receiver = ends
    values = np.arange(6).reshape(2, 3).astype(dtype)
    for _ in range(3):
        sender.send(values)
        got = receiver.receive()
        assert got.dtype == values.dtype and got.shape == (2, 3) and got.flags.c_contiguous
        assert got.tobytes() == values.tobytes()
    assert "send" not in entered and entered.count("receive") <= 2


class Own(np.ndarray):
    pass


READ_ONLY = np.arange(4.0)
READ_ONLY.flags.writeable = False
ODD = {
    "strided": np.arange(12.0)[::3],
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "backwards": np.arange(4.0)[::-1],
    "swapped": np.arange(4, dtype=">f8"),
    "empty": np.zeros((0, 3)),
    "scalar": np.array(7.0),
    "unaligned": np.frombuffer(b"\0" + np.arange(4.0).tobytes(), np.float64, offset=1),
    "read-only": READ_ONLY,
    "subclass": np.arange(4.0).view(Own),
    "broadcast": np.broadcast_to(np.arange(3.0), (2, 3)),
    "rank 9": np.arange(512.0).reshape((2,) * 9),
    "longlong": np.arange(4, dtype=np.longlong),
    "ulong": np.arange(4, dtype=np.uint),
    "time": np.arange(4).astype("datetime64[s]"),
    "record": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("what", ODD)
def test_arrays_that_are_not_ordinary_have_the_same_values(ends, what):
    sender, receiver = ends
    for _ in range(2):
        sender.send(ODD[what])
        got = receiver.receive()
        assert np.array_equal(got, ODD[what]) and got.shape == ODD[what].shape and got.dtype.kind == ODD[what].dtype.kind
        assert not got.flags.writeable or not got.size


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble, object, "U3", "S3"])
def test_dtypes_that_cannot_travel_are_refused_as_before(ends, entered, dtype):
    sender, _ = ends
    with pytest.raises(arraybridge.UnsupportedDtype):
        sender.send(np.zeros(2, dtype))
    assert entered == ["send"]


def test_refusals_are_those_of_the_full_way(ends, entered, broker):
    sender, receiver = ends
    with pytest.raises(BrokerTimeout, match=r"no array arrived in channel 'c' .* within 0\.01 s") as nothing:
        receiver.receive(timeout=0.01)
    assert nothing.value.__context__ is None
    for _ in range(16):
        sender.send(np.zeros(2, np.float32))
    with pytest.raises(BrokerTimeout):
        while True:
            sender.send(np.zeros(2, np.float32), timeout=0.01)
    receiver.abandon()
    with pytest.raises(PeerGone):
        while True:
            sender.send(np.zeros(2, np.float32), timeout=5)
    broker.channel("c").drain()  # a lost receiver leaves them for a minute
    sender.close()
    assert entered == []
    with pytest.raises(ChannelClosed):
        sender.send(np.zeros(2, np.float32))
    with pytest.raises(ChannelClosed):
        receiver.receive()


def test_a_refusal_keeps_neither_its_channel_nor_its_array_and_has_no_context(ends, entered, broker, exits):
    sender, _ = ends
    array = np.zeros(2, np.float32)
    with contextlib.suppress(BrokerTimeout):
        while True:
            sender.send(array, timeout=0)
    receivers = exits.enter_context(broker.channel("empty").open("receiver"))
    for refused, about in (lambda: sender.send(array, timeout=0), sender), (lambda: receivers.receive(timeout=0), receivers):
        entered.clear()
        gc.disable()
        try:
            before = sys.getrefcount(about), sys.getrefcount(array)
            for _ in range(100):
                try:
                    raise ZeroDivisionError
                except ZeroDivisionError:
                    with pytest.raises(BrokerTimeout) as raised:
                        refused()
                    assert raised.value.__suppress_context__ and raised.value.__cause__ is None
                    del raised
            assert (sys.getrefcount(about), sys.getrefcount(array)) == before
        finally:
            gc.enable()
        assert entered == []


def test_an_open_end_is_used_without_the_lock_that_a_signal_handler_would_close_the_channel_with(ends):
    sender, receiver = ends
    with lock_of(sender), lock_of(receiver):
        for call in (lambda: sender.send([np.zeros(1)]), lambda: receiver.receive(info=True)):
            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            thread.join(10)
            assert not thread.is_alive()


def test_an_interrupt_ends_the_wait_and_loses_nothing(ends, entered, exits):
    sender, receiver = ends
    # A process in the background may have inherited the signal as ignored.
    exits.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        receiver.receive(timeout=30)
    assert time.monotonic() - begun < 10 and entered == []
    sender.send(np.array([5, 6], np.float32))
    assert receiver.receive(timeout=5).tolist() == [5, 6]


def test_an_array_that_is_sent_is_released_and_one_that_is_received_keeps_its_bytes(ends, broker):
    sender, receiver = ends
    array = np.array([3, 4], np.float32)
    before = sys.getrefcount(array)
    for _ in range(200):
        sender.send(array)
        got = receiver.receive()
    assert sys.getrefcount(array) == before
    base = weakref.ref(got.base)
    part = got[1:]
    del got
    gc.collect()
    assert base() is not None and part.tolist() == [4]
    del part
    assert base() is None


def test_a_view_becomes_an_ndarray_with_its_strides_and_its_flag():
    source = np.arange(24, dtype=np.int16).reshape(4, 6)
    for part in (source, source[::2, 1:], source[:, ::-1], source.T, source[1:2, :, None], source[0, 0, ...], source[0:0]):
        made = _core.ndarray(_core.wrap(part))
        assert made.flags.c_contiguous == part.flags.c_contiguous and made.flags.aligned
        assert np.array_equal(made, part) and made.dtype == part.dtype
        assert made.flags.writeable
        assert not part.size or made.__array_interface__["data"] == part.__array_interface__["data"]
    frozen = source.view()
    frozen.flags.writeable = False
    made = _core.ndarray(_core.wrap(frozen))
    assert not made.flags.writeable
    with pytest.raises(ValueError):
        made.flags.writeable = True
    with pytest.raises(TypeError):
        _core.ndarray(source)  # type: ignore[arg-type]
    with pytest.raises(BufferError, match="no dtype"):
        _core.ndarray(_core.wrap(np.zeros(2, np.uint8)).named("float8_e5m2", (12, 8, 1)))
    frozen = source[0:0]
    frozen.flags.writeable = False
    assert not _core.ndarray(_core.wrap(frozen)).flags.writeable
    with pytest.raises(BufferError):
        _core.ndarray(_core.wrap(np.zeros(2, np.int32)).named("float32"))


def test_only_methods_that_have_a_fast_way_can_be_made():
    with pytest.raises(ValueError, match="no method 'put' has a fast way"):
        _core.FastMethod(print, "put")
    method: Any = _core.FastMethod(lambda *arguments, **options: (arguments, options), "receive")
    sends: Any = _core.FastMethod(lambda *arguments, **options: (arguments, options), "send")
    odd: Any = _core.ChannelBase(1, any=2)
    ends = {"sender": 5, "receiver": 5}
    inner = 1, {"numpy": (False, {})}, 2, 3
    for prepared in (
        None,
        (inner, {}, [], {int: 5}, 7, True),
        (inner, ends, 5, {int: 5}, 7, True),
        (inner, ends, [], {int: 5}, 7, True),
        ((1,), ends, [], {int: 5}, 7, False),
        ((1, 2, 3, 4), ends, [], {}, 7, False),
    ):
        if prepared is not None:
            prepare(odd, *prepared)
        for channel in odd, 5, method:
            assert method(channel) == ((channel,), {}) and method(channel, timeout=1) == ((channel,), {"timeout": 1})
            assert sends(channel, 3) == ((channel, 3), {})
    for wrong in ([], ends, [], {}, 7, False), (inner, [], [], {}, 7, False), (inner, ends, [], [], 7, False), (inner,):
        with pytest.raises(TypeError):
            prepare(odd, *wrong)
    with pytest.raises(TypeError, match="no keyword arguments"):
        _core.FastMethod(print, method="get")  # type: ignore[call-arg]


def test_a_channel_that_was_not_made_is_no_crash():
    with pytest.raises(AttributeError):
        Channel.__new__(Channel).send(np.zeros(2))
    with pytest.raises(AttributeError):
        Channel.__new__(Channel).receive()


def test_a_count_is_exact_in_threads_and_cannot_be_set():
    count = _core.PlanCount()
    threads = [threading.Thread(target=lambda: [count.add() for _ in range(10_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.value == 40_000
    with pytest.raises(AttributeError):
        count.value = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        _core.PlanCount(5)  # type: ignore[call-arg]


def test_a_note_keeps_the_latest_plan_of_each_thread(ends):
    one, other = (_core.PlanNote(threading.local(), logging.getLogger("arraybridge")) for _ in range(2))
    assert one.latest is None
    plans = [object() for _ in range(3)]
    for plan in plans[0], plans[0], plans[1], plans[0]:
        one(plan)
        assert one.latest is plan and (other.latest is None or other.latest is not plan)
        other(plans[2])
        assert one.latest is plan and other.latest is plans[2]
    seen = []

    def elsewhere() -> None:
        seen.append(one.latest)
        one(plans[1])
        seen.append(one.latest)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [None, plans[1]] and one.latest is plans[0]
    kept = weakref.ref(plan := type("Plan", (), {})())
    one(plan)
    one(plans[0])
    del plan
    gc.collect()
    assert kept() is None, "only the latest plan is kept"
    with pytest.raises(TypeError):
        one()


def test_plans_are_logged_from_the_moment_that_the_level_says_so(ends, entered, broker, caplog):
    sender, receiver = ends
    log = logging.getLogger("arraybridge")
    for level, logged in [(logging.INFO, 0), (logging.DEBUG, 1), (logging.INFO, 0), (logging.DEBUG, 1)]:
        with caplog.at_level(level, logger=log.name):
            caplog.clear()
            sender.send(np.ones(2, np.float32))
            receiver.receive()
            assert [record.args[0] for record in caplog.records] == [broker.last_plan] * logged
            log.disabled = True
            sender.send(np.ones(2, np.float32))
            receiver.receive()
            log.disabled = False
            assert len(caplog.records) == logged
    assert entered == []


def test_a_thread_that_is_not_pythons_has_its_plan_at_each_entry():
    """Each entry from such a thread gets a thread state of its own, and with it empty locals."""
    note = _core.PlanNote(threading.local(), logging.getLogger("arraybridge"))
    plan, seen = object(), []
    libc = ctypes.CDLL(None)
    key, thread = ctypes.c_uint(), ctypes.c_ulong()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def at_its_end(_: int) -> None:
        note(plan)
        seen.append(note.latest)

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def in_it(_: int) -> None:
        note(plan)
        seen.append(note.latest)
        libc.pthread_setspecific(key, ctypes.c_void_p(1))

    assert libc.pthread_key_create(ctypes.byref(key), at_its_end) == 0
    assert libc.pthread_create(ctypes.byref(thread), None, in_it, None) == 0
    libc.pthread_join(thread, None)
    assert seen == [plan, plan]


def test_a_plan_that_notes_another_when_it_is_dropped_does_not_confuse():
    note = _core.PlanNote(threading.local(), logging.getLogger("arraybridge"))
    first, second = object(), object()

    class Dropped:
        def __del__(self) -> None:
            note(second)

    note(Dropped())
    note(first)
    assert note.latest is second
    note(first)
    assert note.latest is first


def test_a_note_sets_the_attribute_of_another_kind_of_local_each_time():
    local: Any = type("Local", (), {})()  # of greenlets, for example, several of which share a thread
    note = _core.PlanNote(local, logging.getLogger("arraybridge"))
    note(plan := object())
    del local.plan
    assert note.latest is None
    note(plan)
    assert note.latest is plan


def test_a_logger_of_a_class_of_its_own_is_asked_each_time():
    class Verbose(logging.Logger):
        verbose = False

        def isEnabledFor(self, level: int) -> bool:
            return super().isEnabledFor(level) or self.verbose

    log = Verbose("verbose")
    log.setLevel(logging.INFO)
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    log.addHandler(handler)
    note = _core.PlanNote(threading.local(), log)
    note("a")
    log.verbose = True
    note("a")
    assert [record.args for record in records] == [("a",)]


def test_a_log_that_is_no_logger_is_asked_each_time():
    class Log:
        said: list[Any] = []
        level = 30

        def isEnabledFor(self, level: int) -> bool:
            return level >= self.level

        def debug(self, text: str, plan: object) -> None:
            self.said.append((text, plan))

    log = Log()
    note = _core.PlanNote(threading.local(), log)
    note(1)
    log.level = 10
    note(1)
    assert log.said == [("%s", 1)]
