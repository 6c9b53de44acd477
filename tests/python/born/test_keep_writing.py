# SPDX-License-Identifier: Apache-2.0
"""put(keep_writing=True): the writer goes on writing its array, and readers never see it, whether it was copied or not.

Memory that is mapped by huge pages is not copied: its pages become copy-on-write for the writer.
"""

import asyncio
import ctypes
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import Client

from arraybridge import Broker, InvalidRequest, ShareExists

HUGE = 2 << 20
N = 6 * HUGE // 8  # float64

_libc = ctypes.CDLL(None, use_errno=True)


def by_huge_pages(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same array, whose memory the kernel now maps by huge pages (MADV_COLLAPSE); skips the test if it does not."""
    start, end = array.ctypes.data, array.ctypes.data + array.nbytes
    start, end = start // HUGE * HUGE, (end + HUGE - 1) // HUGE * HUGE
    # The first and the last huge page may have other arrays in them, or lie outside of the arena.
    for at in range(start, end, HUGE):
        done = _libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(HUGE), 25)
        if done != 0 and at >= array.ctypes.data and at + HUGE <= array.ctypes.data + array.nbytes:
            pytest.skip(f"the kernel makes no huge pages here: errno {ctypes.get_errno()}")
    return array


def mapped_at(address: int, field: str) -> str:
    """A field of the kernel's description of the mapping at this address (/proc/self/smaps), or "inode"."""
    inside = False
    with open("/proc/self/smaps") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                start, end = (int(each, 16) for each in words[0].split("-"))
                inside = start <= address < end
                if inside and field == "inode":
                    return words[4]
            elif inside and words[0] == f"{field}:":
                return words[1]
    raise AssertionError(f"no {field} at {address:#x}")


def is_same_memory(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether both lie in one file of the broker."""
    return mapped_at(one.ctypes.data, "inode") == mapped_at(other.ctypes.data, "inode") != "0"


def is_copied(broker: Broker, array: np.ndarray[Any, Any], name: str, **wishes: Any) -> bool:
    """Puts it, and writes it afterwards; both must be seen by the right ones alone."""
    values = array.copy()
    broker.put(array, name, keep_writing=True, **wishes)
    assert array.flags.writeable
    got = broker.get(name)
    copied = not is_same_memory(array, got)
    array += 1
    assert np.array_equal(got, values) and np.array_equal(broker.get(name), values)
    assert np.array_equal(array, values + 1)
    return copied


def test_memory_of_huge_pages_is_not_copied(broker: Broker) -> None:
    with broker.born("numpy", reserve_bytes=64 << 20):
        array = by_huge_pages(np.arange(N, dtype=float))
    assert not is_copied(broker, array, "first")
    assert is_copied(broker, array, "second"), "its pages are the writer's own"
    assert np.array_equal(broker.get("first"), np.arange(N))


def by_small_pages(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same array: the kernel maps no huge page over the end of a mapping, and one page of each is write-protected."""
    page = 4096
    for protection in (1, 3):  # PROT_READ, and PROT_WRITE
        for at in range(array.ctypes.data // page * page, array.ctypes.data + array.nbytes - page, HUGE // 2):
            assert _libc.mprotect(ctypes.c_void_p(at + page), ctypes.c_size_t(page), protection) == 0
        assert array[:: page // 8].sum() >= 0
    return array


def test_memory_of_small_pages_is_copied(broker: Broker) -> None:
    with broker.born("numpy", reserve_bytes=64 << 20):
        array = by_small_pages(np.arange(N, dtype=float))
    assert is_copied(broker, array, "small")


@pytest.mark.parametrize("made", ["empty", "own", "part", "got", "list"])
def test_other_arrays(broker: Broker, made: str) -> None:
    """Those whose put copies anyway, those of `empty`, and those that are a part of a born array."""
    broker.put(np.arange(N, dtype=float), "source")
    if made == "empty":
        array: Any = broker.empty((N,), "float64")
        array[:] = 3
    elif made == "part":
        with broker.born("numpy"):
            array = by_huge_pages(np.ones((2, N)))[1]
    elif made == "list":
        array = np.arange(100, dtype=float)[::2]
    else:
        array = np.arange(N, dtype=float) if made == "own" else broker.get("source").copy()
    is_copied(broker, array, "array")


def test_views_from_before_do_not_reach_readers(broker: Broker) -> None:
    with broker.born("numpy"):
        array = by_huge_pages(np.ones(N))
        view = array[10:]
        broker.put(array, "array", keep_writing=True)
        view[:] = 2
        ctypes.memset(array.ctypes.data, 0xFF, 80)
        assert (broker.get("array") == 1).all() and (array[10:] == 2).all()


def test_a_name_that_is_taken(broker: Broker) -> None:
    broker.put(np.zeros(3), "taken")
    with broker.born("numpy"):
        array = by_huge_pages(np.ones(N))
        with pytest.raises(ShareExists):
            broker.put(array, "taken", keep_writing=True)
        array += 1
        broker.put(array, "free")
        assert (broker.get("free") == 2).all()
        array.flags.writeable = True
        array += 1
        broker.put(array, "kept", keep_writing=True)
        array += 1
        assert (broker.get("free") == 2).all() and (broker.get("kept") == 3).all()


def test_its_memory_is_used_again(broker: Broker) -> None:
    """What is made where such an array was is published like any other."""
    with broker.born("numpy", reserve_bytes=32 << 20):
        array = by_huge_pages(np.ones(N))
        assert not is_copied(broker, array, "of it")
        address = array.ctypes.data
        del array
        broker.withdraw("of it")
        until = time.monotonic() + 60
        again: list[np.ndarray[Any, Any]] = []
        while not any(each.ctypes.data == address for each in again) and time.monotonic() < until:
            again = [*again[-3:], np.full(N, -1.0)]
            broker.flush()
        found = next(each for each in again if each.ctypes.data == address)
        broker.put(found, "again")
        assert (broker.get("again") == -1).all() and is_same_memory(found, broker.get("again"))
        assert not found.flags.writeable


FORKS = """
import ctypes, os, sys
import numpy as np
from arraybridge import Broker
from born.test_keep_writing import N, by_huge_pages

broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
with broker.born("numpy", reserve_bytes=64 << 20):
    array, other = by_huge_pages(np.full(N, 1.0)), np.full(N, 10.0)
    broker.put(array, "array", keep_writing=True)
    array[:] = 2
    for turn in range(3):
        read, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(read, 1)
            ok = (array == 2 + turn).all() and (other == 10 + turn).all()
            array[:], other[:] = 70, 71
            os._exit(0 if ok else 1)
        array += 1
        other += 1
        os.write(go, b"x")
        assert os.waitpid(child, 0)[1] == 0
        assert (array == 3 + turn).all() and (other == 11 + turn).all()
    assert (broker.get("array") == 1).all()
    broker.put(array, "later", keep_writing=True)
    array += 1
    assert (broker.get("later") == 5).all()
    del array, other
    fresh = np.full(N, 5.0)
    broker.put(fresh, "fresh")
    assert (broker.get("fresh") == 5).all()
print("ok")
"""


def test_forks(client: Client) -> None:
    said = client(FORKS, f"keep-forks-{time.time_ns()}")
    assert said.endswith("ok\n")


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_tensors(broker: Broker) -> None:
    import torch

    with broker.born("torch", reserve_bytes=64 << 20) as born:
        tensor = torch.full((N,), 1.0, dtype=torch.float64)
        assert born.arrays == 1
        by_huge_pages(tensor.numpy())
        shown = tensor.numpy()
        broker.put(tensor, "tensor", keep_writing=True)
        assert is_same_memory(shown, broker.get("tensor", "numpy"))
        address = tensor.data_ptr()
        tensor.add_(1)
        assert tensor.data_ptr() == address, "no copy on write by torch"
        assert (shown == 2).all() and (broker.get("tensor", "numpy") == 1).all()


def test_a_tree_and_options(broker: Broker) -> None:
    with broker.born("numpy"):
        tree = {"a": by_huge_pages(np.ones(N)), "b": np.arange(5)}
    share = broker.put(tree, "tree", keep_writing=True, metadata={"step": 1}, lifetime=60)
    tree["a"] += 1
    tree["b"] += 1
    got = broker.get("tree")
    assert (got["a"] == 1).all() and got["b"].tolist() == [0, 1, 2, 3, 4] and share.metadata is not None
    asyncio.run(broker.aput(tree["a"], "later", keep_writing=True))
    tree["a"] += 1
    assert (broker.get("later") == 2).all()
    done: list[tuple[int, int]] = []
    broker.put(tree["a"], "told", keep_writing=True, progress=lambda at, of: done.append((at, of)))
    tree["a"] += 1
    assert done and done[-1][0] == done[-1][1] and (broker.get("told") == 3).all()
    broker.put(tree["a"], "sealed", keep_writing=True, sealed=True)
    tree["a"] += 1
    assert (broker.get("sealed") == 4).all()


def test_the_option_is_true_or_false(broker: Broker) -> None:
    with pytest.raises(InvalidRequest, match="keep_writing must be True or False, not 1"):
        broker.put(np.ones(3), "x", keep_writing=1)  # type: ignore[call-overload]


def test_the_guide(client: Client, address: str) -> None:
    page = (Path(__file__).parents[3] / "docs/guides/publish-without-a-copy.md").read_text()
    block = page.partition("## To go on writing")[2].partition("```python\n")[2].partition("```")[0]
    assert client(block, ARRAYBRIDGE_ADDRESS=address) == "0.0 1.0\n"
