# SPDX-License-Identifier: Apache-2.0
"""A share knows who made it and who read it, by which route and why it was copied; arraybridgectl tells."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import arraybridge

CTL = Path(os.environ["ARRAYBRIDGE_DAEMON"]).parents[1] / "client/ctl/arraybridgectl"


def inspected(broker, name):
    answer = subprocess.run(
        [CTL, "-H", broker.address, "-n", broker.namespace, "-o", "json", "trace", name], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_how_it_was_made(broker):
    broker.put(np.ones(4), "copied")
    born = broker.empty(4, "f4")
    born[:] = 0
    broker.put(born, "born")
    broker.put(np.ones(4), "sealed", sealed=True)
    broker.put(np.ones(4), "entered", wait=False)
    notes = {name: inspected(broker, name)["maker"]["note"] for name in ("copied", "born", "sealed", "entered")}
    assert notes == {
        "copied": "numpy place: not in memory of this namespace",
        "born": "numpy identity: born in broker memory",
        "sealed": "numpy place: sealed",
        "entered": "numpy place: not in memory of this namespace",
    }
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    broker.put(sparse.csr_array((np.ones(2), np.array([1, 0]), np.array([0, 2])), shape=(1, 2)), "unsorted")
    assert inspected(broker, "unsorted")["maker"]["note"].startswith("numpy place: layout: the indices were not sorted")
    maker = inspected(broker, "copied")["maker"]
    assert (int(maker["process_id"]), maker["uid"]) == (os.getpid(), os.getuid())


READER = """
import sys, warnings, arraybridge
warnings.simplefilter("ignore")
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
wishes = {"copy": True} if sys.argv[4] == "copy" else {}
if sys.argv[4] == "downcast":
    wishes = {"allow_downcast": True}
broker.get(sys.argv[5], sys.argv[3], **wishes)
broker.flush()
"""


@pytest.mark.parametrize(
    ("framework", "how", "note"),
    [
        ("numpy", "", "numpy hand_over"),
        ("torch", "", "torch hand_over"),
        ("numpy", "copy", "numpy place: copy_requested: copy=True"),
        ("jax", "downcast", "jax place: dtype: narrowed from float64 to float32 (allow_downca"),
    ],
)
def test_how_it_was_read(broker, client, framework, how, note):
    name = f"{framework} {how}"
    broker.put(np.arange(6.0), name)
    client(READER, broker.namespace, framework, how, name)
    (reader,) = inspected(broker, name)["readers"]
    assert (reader["note"], reader["count"]) == (note, "1")
    assert len(note.encode()) <= 64


def test_many_at_once_are_noted_each(broker, client):
    broker.put_many({name: np.ones(3) for name in "ab"})
    client(
        "import sys, arraybridge\n"
        "broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
        "broker.get_many(['a', 'b'], 'numpy', copy=True)\n",
        broker.namespace,
    )
    for name in "ab":
        (reader,) = inspected(broker, name)["readers"]
        assert reader["note"] == "numpy place: copy_requested: copy=True"


def test_what_is_held_without_a_call_is_not_told(broker):
    """The first gets ask the broker; those after them write into this session's own page, of which nobody else knows."""
    broker.put(np.ones(4), "frame")
    with arraybridge.Broker(broker.address, namespace=broker.namespace, start="never") as reader:
        asked = [reader.get("frame", "numpy") for _ in range(2)]
        (told,) = inspected(broker, "frame")["readers"]
        before = reader.stats()["client_catalogue_acquires"]
        held = [reader.get("frame", "numpy", copy=False) for _ in range(5)]
        assert [float(each.sum()) for each in [*asked, *held]] == [4.0] * 7
        assert reader.stats()["client_catalogue_acquires"] - before == 5
        reader.flush()
        (after,) = inspected(broker, "frame")["readers"]
        assert (after["count"], after["session"], after["last_ns"]) == (told["count"], told["session"], told["last_ns"])
        assert 1 <= int(told["count"]) <= len(asked)
