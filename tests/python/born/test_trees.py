# SPDX-License-Identifier: Apache-2.0
"""Trees of born arrays: those that lie one behind the other are published where they lie, others are copied."""

import importlib.util
import time
from typing import Any

import numpy as np
import pytest
from processes import Client

from arraybridge import Broker, ShareExists

N = 1 << 18  # float64: 2 MiB


def in_place(broker: Broker, tree: Any, name: str, **wishes: Any) -> bool:
    """Puts a tree of two arrays, "a" and "b", each of one value. Readers must have it."""
    values = tree["a"][0], tree["b"][0]
    broker.put(tree, name, **wishes)
    got = broker.get(name)
    assert (got["a"] == values[0]).all() and (got["b"] == values[1]).all()
    writable = {tree["a"].flags.writeable, tree["b"].flags.writeable}
    assert len(writable) == 1, "all are a share, or none"
    return writable == {False}


def made(first: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"a": np.full(N, first), "b": np.full(N + 1000, first + 1)}


def test_arrays_one_behind_the_other_are_in_place(broker: Broker) -> None:
    with broker.born("numpy"):
        before = broker.stats()["client_arena_bytes"]
        tree = made(1)
        assert in_place(broker, tree, "tree") and broker.stats()["client_arena_bytes"] == before
        assert not in_place(broker, {"a": tree["b"].copy(), "b": np.ones(3)}, "small"), "one is not born"
    assert not in_place(broker, {"a": tree["a"].copy(), "b": tree["b"].copy()}, "own")


def test_the_order_in_the_tree_does_not_matter(broker: Broker) -> None:
    with broker.born("numpy"):
        tree = made(1)
        assert in_place(broker, {"a": tree["b"], "b": tree["a"], "again": tree["a"][:10]}, "tree")


def test_arrays_apart_are_copied(broker: Broker) -> None:
    with broker.born("numpy"):
        tree = made(1)
        between = np.ones(N)
        assert not in_place(broker, {"a": tree["a"], "b": between}, "apart")
        assert in_place(broker, {"a": between, "b": tree["b"]}, "together"), "a refused one changes nothing"
    assert tree["a"].flags.writeable


def test_a_stream_of_trees_stays_in_place(broker: Broker) -> None:
    """What is freed is used again, also while a reader has an older one."""
    with broker.born("numpy", min_bytes=1 << 20, reserve_bytes=64 << 20) as born:
        kept = []
        places = 0
        for number in range(40):
            tree = made(float(number))
            places += in_place(broker, tree, "tree", replace=True)
            if number % 10 == 0:
                kept.append((number, broker.get("tree")))
            broker.flush()
        assert all((got["a"] == number).all() and (got["b"] == number + 1).all() for number, got in kept)
    assert places >= 20, (places, born)


def test_a_part_that_outlives_the_other(broker: Broker) -> None:
    with broker.born("numpy", min_bytes=1 << 20, reserve_bytes=32 << 20):
        tree = made(1)
        assert in_place(broker, tree, "tree")
        left = tree.pop("a")
        tree.clear()
        broker.withdraw("tree")
        for number in range(20):
            other = np.full(N, float(number))
            assert not np.shares_memory(other, left)
        assert (left == 1).all()
        del left, other
        until = time.monotonic() + 60
        found = False
        while not found and time.monotonic() < until:
            found = in_place(broker, made(5), "later", replace=True)
            broker.flush()
        assert found, "its memory is used again"


def test_a_name_that_is_taken(broker: Broker) -> None:
    broker.put(np.zeros(3), "taken")
    with broker.born("numpy"):
        tree = made(1)
        with pytest.raises(ShareExists):
            broker.put(tree, "taken")
        tree["a"][:] = 3
        assert not in_place(broker, tree, "free")
        tree["a"][:] = 4
        assert (broker.get("free")["a"] == 3).all()


def test_empty_arrays_one_behind_the_other(broker: Broker) -> None:
    tree = {"a": broker.empty((1000,), "float64"), "b": broker.empty((1000,), "float64")}
    tree["a"][:], tree["b"][:] = 1, 2
    assert in_place(broker, tree, "tree")


def test_a_channel(broker: Broker) -> None:
    with broker.channel("trees") as trees, broker.born("numpy"):
        for number in range(20):
            tree = made(float(number))
            trees.send(tree)
            got = trees.receive()
            assert (got["a"] == number).all() and (got["b"] == number + 1).all()
            if tree["a"].flags.writeable:
                tree["a"][:] = -1
                assert (got["a"] == number).all()


def test_with_progress_and_keep_writing_it_is_copied(broker: Broker) -> None:
    with broker.born("numpy"):
        tree = made(1)
        done: list[int] = []
        broker.put(tree, "told", progress=lambda at, of: done.append(at))
        broker.put(tree, "kept", keep_writing=True)
        tree["a"][:] = 7
        assert done[-1] == sum(each.nbytes for each in tree.values())
        assert (broker.get("told")["a"] == 1).all() and (broker.get("kept")["a"] == 1).all()
        assert in_place(broker, tree, "tree")


FORK = """
import os, sys
import numpy as np
from arraybridge import Broker
from born.test_trees import in_place, made

broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
with broker.born("numpy", reserve_bytes=32 << 20):
    put, tree = made(1.0), made(5.0)
    assert in_place(broker, put, "put")
    child = os.fork()
    if child == 0:
        ok = (put["a"] == 1).all() and (tree["b"] == 6).all()
        tree["a"][:] = 9
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    tree["a"] += 1
    assert not in_place(broker, tree, "tree"), "its pages are the parent's own since the fork"
    del put, tree
    assert (broker.get("put")["a"] == 1).all()
print("ok")
"""


def test_a_fork(client: Client) -> None:
    assert client(FORK, f"tree-fork-{time.time_ns()}").endswith("ok\n")


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_weights(broker: Broker) -> None:
    """An optimiser goes on writing weights that were put as one share."""
    import torch

    with broker.born("torch", reserve_bytes=64 << 20):
        weights = {name: torch.full((N,), value, dtype=torch.float64) for name, value in (("a", 1.0), ("b", 2.0))}
        before = broker.stats()["client_arena_bytes"]
        broker.put(weights, "weights")
        assert broker.stats()["client_arena_bytes"] == before
        got = broker.get("weights", "numpy")
        for each in weights.values():
            each.add_(1)
        assert (got["a"] == 1).all() and (got["b"] == 2).all() and (weights["b"] == 3).all()
