# SPDX-License-Identifier: Apache-2.0
"""A law: a write through any route never reaches an immutable array, another consumer of it, or the end of the process.

The routes are those of `writes_program.py`, which runs apart: what ends it fails the case that it was at, and the rest is
run by the next one.
"""

import array
import ctypes
import mmap
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow
import pytest
import tensorflow as tf
import torch
from arrays import address_of, aligned
from processes import environment
from writes_program import PRODUCERS, constant as frozen, consumers

import arraybridge
from arraybridge import CopyWarning, UnsupportedArray, ZeroCopyUnavailable, asdlpack, convert_memory, exports
from arraybridge.arrays.owners import owner_of

PROGRAM = Path(__file__).with_name("writes_program.py")
ROUTES = list(consumers(None))  # type: ignore[arg-type]
ENDS_MAX = 40
CONSTANT = ("jax", "tensorflow")


@pytest.fixture(scope="module")
def outcomes(address: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(ENDS_MAX):
        command = [sys.executable, "-W", "ignore", str(PROGRAM), address, str(len(found))]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tempfile.gettempdir(), check=False)
        *lines, last = done.stdout.splitlines() or [""]
        for line in lines:
            name, _, outcome = line.partition("\t")
            found[name] = outcome
        if done.returncode == 0 and last == "end":
            return found
        assert "\t" in last, done.stderr
        found[last.partition("\t")[0]] = f"the process ended with {done.returncode}"
    return found


@pytest.mark.parametrize("consumer", ROUTES)
@pytest.mark.parametrize("producer", list(PRODUCERS))
def test_no_write_reaches_what_is_immutable(outcomes: dict[str, str], producer: str, consumer: str) -> None:
    assert outcomes[f"{producer} to {consumer}"] == "kept"


class Described:
    """Has the array interface alone."""

    def __init__(self, values: Any, read_only: bool = True) -> None:
        self.values = values
        address = values.__array_interface__["data"][0]
        self.__array_interface__ = {**values.__array_interface__, "data": (address, read_only)}


def view_of(values: Any) -> Any:
    made = values.view()
    made.flags.writeable = False
    return made


def over_bytes(owner: Any) -> Any:
    """A read-only ndarray at an address that is a multiple of 64, in the memory of `owner`."""
    memory = np.frombuffer(memoryview(owner).toreadonly(), "u1")
    start = -memory.ctypes.data % 64
    return memory[start : start + 256].view("f4")


def in_file(access: int) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        return mmap.mmap(file.fileno(), 0, access=access)


MAY_CHANGE: dict[str, Callable[[], Any]] = {
    "a view": lambda: view_of(aligned((64,))),
    "a view of a view": lambda: view_of(view_of(aligned((64,)).reshape(8, 8))),
    "broadcast": lambda: np.broadcast_to(aligned((1, 64)), (1, 64)),
    "a memoryview": lambda: over_bytes(aligned((128,))),
    "a bytearray": lambda: over_bytes(bytearray(1024)),
    "an array.array": lambda: over_bytes(array.array("d", bytes(1024))),
    "a ctypes array": lambda: over_bytes((ctypes.c_double * 128)()),
    "a mapped file": lambda: over_bytes(in_file(mmap.ACCESS_READ)),
    "a private map": lambda: over_bytes(in_file(mmap.ACCESS_COPY)),
    "an array interface": lambda: np.asarray(Described(aligned((64,)))),
    "a tensor": lambda: view_of(torch.from_numpy(aligned((64,))).numpy()),
    "a capsule": lambda: view_of(np.from_dlpack(torch.from_numpy(aligned((64,))))),
    "a View": lambda: asdlpack(view_of(aligned((64,)))),
    "pyarrow": lambda: pyarrow.array(aligned((64,))),
}


@pytest.mark.parametrize("target", CONSTANT)
@pytest.mark.parametrize("kind", list(MAY_CHANGE))
def test_what_may_change_is_copied_for_who_takes_it_for_constant(broker: arraybridge.Broker, kind: str, target: str) -> None:
    source = MAY_CHANGE[kind]()
    plan = broker.plan(source, target)
    assert plan.copies == 1 and plan.reasons[0].startswith("immutable_target: the source is read-only, but "), plan
    assert address_of(convert_memory(source, None, target, None)) != address(source)
    assert broker.plan(source, target, copy=False).zero_copy  # asked for


def address(source: Any) -> int:
    return source.address if isinstance(source, arraybridge.View) else int(address_of(source) or 0)


UNCHANGING: dict[str, Callable[[arraybridge.Broker], Any]] = {
    "an ndarray": lambda _: frozen(),
    "views of it": lambda _: frozen().view().reshape(8, 8)[2:],
    "bytes": lambda _: over_bytes(bytes(1024)),
    "a jax array": lambda _: np.asarray(jnp.arange(64)),
    "made of a tensor of tensorflow": lambda _: convert_memory(tf.range(64.0), None, "numpy"),
    "made of a jax array": lambda _: convert_memory(jnp.arange(64.0), None, "numpy"),
    "got": lambda broker: broker.get(broker.put(aligned((64,)), "constant", replace=True)),
    "a share's view": lambda broker: np.asarray(broker.put(aligned((64,)), "constant", replace=True).view()),
    "a View": lambda _: asdlpack(frozen()),
    "a share's View": lambda broker: broker.put(aligned((64,)), "constant", replace=True).view(),
}


@pytest.mark.parametrize("target", CONSTANT)
@pytest.mark.parametrize("kind", list(UNCHANGING))
def test_what_nobody_can_write_is_shared(broker: arraybridge.Broker, kind: str, target: str) -> None:
    source = UNCHANGING[kind](broker)
    for _ in range(2):  # the second takes the short way
        assert address_of(convert_memory(source, None, target, None)) == address(source)
        assert address_of(broker.convert(source, target)) == address(source)


@pytest.mark.parametrize("target", CONSTANT)
def test_what_was_decided_of_a_constant_holds_for_no_view_of_a_writable_array(broker: arraybridge.Broker, target: str) -> None:
    for convert in (lambda a: convert_memory(a, "numpy", target, None), lambda a: broker.convert(a, target)):
        constant = frozen()
        assert address_of(convert(constant)) == address_of(convert(constant)) == address(constant)
        written = aligned((64,))
        made = convert(view_of(written))
        written[:] = 3
        assert np.asarray(made)[1] == 1


def test_an_owner_is_found_whatever_lies_between() -> None:
    ring = Described(aligned((64,)))
    ring.base = ring  # type: ignore[attr-defined]
    assert "does not report" in owner_of(np.asarray(ring)).may_change
    assert owner_of(memoryview(b"abc")).may_change == "" == owner_of(np.float32(1)).may_change
    assert "writable" not in owner_of(memoryview(memoryview(b"abc"))[1:]).may_change


def test_a_copy_for_an_unknown_consumer_is_counted_and_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "warned", set())
    source = frozen()
    before = sum(each.copied_bytes for each in arraybridge.conversion_counts() if each.target == "dlpack")
    with pytest.warns(CopyWarning, match="read_only: the consumer may write"):
        assert torch.from_dlpack(asdlpack(source)).data_ptr() != address(source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.from_dlpack(asdlpack(source))
    found = [each for each in arraybridge.conversion_counts() if each.target == "dlpack"]
    assert sum(each.copied_bytes for each in found) == before + 2 * source.nbytes
    assert {each.reasons for each in found} == {("read_only",)}


def test_without_a_copy_foreign_constants_go_to_nobody_that_may_write(broker: arraybridge.Broker) -> None:
    for source in (frozen(), jnp.arange(64), memoryview(bytes(256))):
        with pytest.raises(ZeroCopyUnavailable, match="may write") as caught:
            torch.from_dlpack(asdlpack(source), copy=False)
        assert isinstance(caught.value, (BufferError, ValueError)) and not isinstance(caught.value, TypeError)
        for convert in (
            lambda a: convert_memory(a, None, "torch", None, copy=False),
            lambda a: broker.convert(a, "torch", require="zero-copy"),
        ):
            with pytest.raises(ZeroCopyUnavailable, match="does not support read-only"):
                convert(source)


def test_numpy_heeds_the_flag_and_shares_what_is_foreign() -> None:
    for source in (frozen(), jnp.arange(64), tf.range(64)):
        made = np.from_dlpack(asdlpack(source))
        assert address(made) == asdlpack(source).address and not made.flags.writeable
    # By hand with the same words nothing is known of who asks.
    capsule = asdlpack(frozen()).__dlpack__(dl_device=None, copy=None, max_version=(1, 0))
    assert torch.from_dlpack(capsule).sum() == 2016


def test_each_consumer_of_a_share_has_a_mapping_of_its_own(broker: arraybridge.Broker) -> None:
    share = broker.put(aligned((64,)), "own")
    for view in (share.view(), asdlpack(share), asdlpack(broker.get(share)), asdlpack(broker.get(share)[16:48])):
        one, other, constant = torch.from_dlpack(view), torch.from_dlpack(view), jnp.from_dlpack(view)
        assert len({one.data_ptr(), other.data_ptr(), view.address}) == 3
        one.zero_()
        assert float(other.sum()) == float(constant.sum()) == float(np.asarray(view).sum()) > 0
        assert view.read_only and view.constant


def test_what_came_back_clean_serves_the_next_consumer(broker: arraybridge.Broker) -> None:
    view = broker.put(aligned((1024,)), "clean").view()
    first = torch.from_dlpack(view)
    where = first.data_ptr()
    del first
    broker.flush()
    if torch.from_dlpack(view).data_ptr() != where:
        pytest.skip("this kernel cannot tell whether a range was written (Linux before 6.7)")
    dirty = torch.from_dlpack(view)
    dirty.zero_()
    del dirty
    broker.flush()
    assert torch.from_dlpack(view).sum() > 0


def test_a_mapping_keeps_its_lease_and_gives_it_back(broker: arraybridge.Broker) -> None:
    share = broker.put(aligned((64,)), "held")
    tensor = torch.from_dlpack(share.view())
    share.withdraw()
    broker.flush()
    assert tensor.sum() == 2016 and broker.stats()["client_live_leases"] == 1
    del tensor
    broker.flush()
    assert broker.stats()["client_live_leases"] == 0


def test_shared_access_is_the_shares_own_memory(broker: arraybridge.Broker) -> None:
    share = broker.put(aligned((64,)), "shared")
    view = share.view(access="shared")
    for take in (torch.from_dlpack, jnp.from_dlpack, np.from_dlpack, lambda v: tf.experimental.dlpack.from_dlpack(v.__dlpack__())):
        assert address_of(take(view)) == view.address == address(broker.get(share))
    with pytest.raises(arraybridge.InvalidRequest, match="contradict"):
        share.view(private=True, access="shared")
    with pytest.raises(arraybridge.InvalidRequest, match="access must be one of"):
        share.view(access="mine")  # type: ignore[arg-type]


def test_a_private_view_is_one_mapping_for_all_that_take_it(broker: arraybridge.Broker) -> None:
    view = broker.put(aligned((64,)), "private").view(private=True)
    torch.from_dlpack(view)[0] = 5
    assert np.from_dlpack(view)[0] == 5 and broker.get("private")[0] == 0


LAST = """
import sys, os, numpy as np, torch, arraybridge
from arraybridge import asdlpack
broker = arraybridge.Broker(sys.argv[1], namespace="forked-writes", start="never")
view = broker.put(np.arange(64, dtype="f4"), "a", replace=True).view()
kept = torch.from_dlpack(view)
child = os.fork()
if child == 0:
    made = torch.from_dlpack(view)
    made.zero_()
    kept[1] = 7
    del made
    os._exit(0 if np.asarray(view)[3] == 3 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert kept[1] == 1 and broker.get("a")[1] == 1
"""


def test_a_forked_child_writes_to_pages_of_its_own(client: Any) -> None:
    client(LAST)


def test_borrowed_tensors_are_of_what_may_be_written() -> None:
    table = (ctypes.c_void_p * 7).from_address(arraybridge.View.__c_dlpack_exchange_api__)
    borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(table[5])
    room = ctypes.create_string_buffer(48)
    assert borrow(asdlpack(aligned((64,))), room) == 0
    with pytest.raises(BufferError, match="read-only memory is not lent"):
        borrow(asdlpack(frozen()), room)


def test_gradients_are_named_and_kept(broker: arraybridge.Broker) -> None:
    weight = torch.ones(3, requires_grad=True)
    for ask in (lambda: asdlpack(weight), lambda: asdlpack(weight, copy=True), lambda: asdlpack(torch.nn.Parameter(torch.ones(2)))):
        with pytest.raises(UnsupportedArray, match=r"requires grad, .* tensor.detach\(\)"):
            ask()
    assert asdlpack(weight.detach()).address == weight.data_ptr()
    for copied in (convert_memory(weight, "torch", "torch", None, copy=True), broker.convert(weight, "torch", copy=True)):
        assert copied.requires_grad and copied.data_ptr() != weight.data_ptr()
        (2 * copied).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [4, 4, 4]
    plain = convert_memory(weight.detach(), "torch", "torch", None, copy=True)
    assert not plain.requires_grad
    assert not broker.get(broker.put(weight, "weight"), "torch").requires_grad
