# SPDX-License-Identifier: Apache-2.0
"""Trees beyond the limits of a share's description: stored as bundles, and read as the trees that they were."""

from __future__ import annotations

import collections
import enum

import numpy as np
import pytest
from internals import raw_core

from arraybridge import _core
from arraybridge.errors import InvalidRequest

Layer = collections.namedtuple("Layer", "w b")
Mode = enum.Enum("Mode", "TRAIN SERVE")
ARRAYS = 3000


def tree():
    layers = [Layer(np.full((2, 3), number, "f4"), np.full(number % 3, number, "i4")) for number in range(ARRAYS // 2)]
    return {"layers": layers, "mode": Mode.SERVE, "note": "x" * 50_000, "step": 7, 3: (None, b"bytes")}


def check(got, framework):
    assert list(got) == ["layers", "mode", "note", "step", 3] and got["mode"] is Mode.SERVE and got[3] == (None, b"bytes")
    assert got["note"] == "x" * 50_000 and got["step"] == 7 and len(got["layers"]) == ARRAYS // 2
    for number, layer in enumerate(got["layers"]):
        assert type(layer) is Layer and type(layer.w).__module__.partition(".")[0].startswith(framework)
        assert layer.w.shape == (2, 3) and (layer.w == number).all() and layer.b.shape == (number % 3,) and (layer.b == number).all()


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_put_and_get(broker, framework):
    pytest.importorskip(framework)
    share = broker.put(tree(), "large", metadata=b"mine")
    assert share.metadata == b"mine" and broker.get("large", info=True).share.metadata == b"mine"
    check(broker.get("large", framework, types=[Layer, Mode]), framework)
    assert len(broker.list()) == 1 and broker.put(tree(), "large", replace=True).generation > share.generation


def test_send_and_receive(broker):
    with broker.channel("trees") as sender, broker.channel("trees") as end:
        for _ in range(2):
            sender.send(tree(), metadata=b"mine")
            got = end.receive("numpy", info=True, types=[Layer, Mode])
            check(got.array, "numpy")
            assert got.metadata == b"mine"


def test_it_is_read_only_for_numpy_and_private_for_torch(broker):
    torch = pytest.importorskip("torch")
    broker.put([np.zeros(4)] * 2000, "zeros")
    assert not broker.get("zeros")[1999].flags.writeable
    mine = broker.get("zeros", "torch")
    mine[5][:] = 1
    assert torch.equal(mine[5], torch.ones(4, dtype=torch.float64)) and (broker.get("zeros")[5] == 0).all()


def test_sparse_arrays_in_it(broker):
    scipy = pytest.importorskip("scipy.sparse")
    broker.put([scipy.csr_matrix(np.eye(3)) for _ in range(500)], "sparse")
    assert all((each.toarray() == np.eye(3)).all() for each in broker.get("sparse"))


def test_progress_and_lifetime_hold_for_it(broker):
    told = []
    broker.put([np.zeros(1024)] * 1100, "large", progress=lambda done, total: told.append((done, total)), sealed=True)
    assert told[0][0] == 0 and told[-1] == (1100 * 8192,) * 2 and broker.get("large", info=True).share.sealed


def test_a_bundle_of_the_user_is_no_tree(broker):
    broker.bundle("own", {"w": np.ones(3)}, metadata=b"arraybridge.tree").fill().publish()
    assert sorted(broker.get("own")) == ["arraybridge.bytes", "arraybridge.manifest"]


def test_a_tree_with_the_keys_of_a_bundle(broker):
    broker.put({"arraybridge.manifest": np.zeros(3, "u1"), "arraybridge.bytes": np.ones(2, "u1")}, "keys")
    assert broker.get("keys")["arraybridge.bytes"].tolist() == [1, 1]


def test_a_structure_without_arrays(broker):
    info, _ = raw_core(broker).put("empty", [_core.wrap(np.zeros(3))], _core.PutOptions(structure=b'{"d":[]}'))
    assert broker.get("empty") == {}


def test_keys_with_equal_hashes_are_refused(broker):
    """A dict of them is built in quadratic time."""
    keys = ",".join(f"[{number * (2**61 - 1)},0]" for number in range(1, 200_000))
    hostile(broker, ('{"d":[' + keys + "]}").encode())
    with pytest.raises(InvalidRequest, match="equal hashes"):
        broker.get("hostile")
    broker.put({number: np.zeros(0) for number in range(3000)}, "numbers")
    assert list(broker.get("numbers")) == list(range(3000))


def test_more_arrays_than_the_structure_can_name(broker):
    hostile(broker, b'{"l":[0]}', 5000)
    with pytest.raises(InvalidRequest, match="5000 arrays, more than its structure"):
        broker.get("hostile")


def hostile(broker, structure, count=2):
    plan = _core.BundlePlan([(f"{number:09}", (0, 8, 1), (1,), 2, "") for number in range(count)], b"", b"arraybridge.tree\n" + structure)
    options = _core.PutOptions(structure=_core.BUNDLE_STRUCTURE)
    core = raw_core(broker)
    placement = core.empty(plan.specs(), "hostile", options)
    plan.write_to(placement)
    core.publish(placement, "hostile", options)


@pytest.mark.parametrize("structure", [b'{"l":[0,0]}', b'{"l":[2]}', b'{"x":[0]}', b"[", b'{"l":[' + b"[" * 2000])
def test_a_hostile_structure_is_refused(broker, structure):
    hostile(broker, structure)
    with pytest.raises(InvalidRequest, match="structure"):
        broker.get("hostile")


def test_a_structure_that_is_too_long_is_not_read(broker):
    hostile(broker, b" " * (9 << 20))
    assert sorted(broker.get("hostile")) == ["arraybridge.bytes", "arraybridge.manifest"]
