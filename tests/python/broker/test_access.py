# SPDX-License-Identifier: Apache-2.0
"""access="shared" and get_many; and that a repeated get into torch faults no page twice."""

import resource
import time

import numpy as np
import pytest
from processes import Client

import arraybridge
from arraybridge.errors import InvalidRequest, ShareNotFound

torch = pytest.importorskip("torch")


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def wait_until_released(broker: arraybridge.Broker) -> None:
    deadline = time.monotonic() + 30
    while broker.stats()["client_pending_releases"] or broker.stats()["leases"]:
        assert time.monotonic() < deadline, "the arrays were never released"
        time.sleep(0.002)


def test_shared_access_is_the_one_read_only_mapping(broker: arraybridge.Broker) -> None:
    broker.put(np.arange(1000.0), "x")
    one, how = broker.get("x", "torch", access="shared", explain=True)
    two = broker.get("x", "torch", access="shared")
    assert one.data_ptr() == two.data_ptr() == broker.get("x").ctypes.data
    assert broker.get("x", "torch").data_ptr() != one.data_ptr()
    assert how.zero_copy and not any("copy_on_write" in note for note in how.notes)
    assert torch.equal(one, torch.arange(1000.0, dtype=torch.float64))


def test_a_write_through_shared_access_ends_the_writer_alone(broker: arraybridge.Broker, client: Client) -> None:
    broker.put(np.zeros(1000), "x")
    code = """if True:
        import sys
        import arraybridge
        broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
        broker.get("x", "torch", access="shared")[0] = 1.0
        """
    with pytest.raises(AssertionError, match="exit status -11"):
        client(code, broker.namespace)
    assert broker.get("x")[0] == 0.0


@pytest.mark.parametrize(("wishes", "says"), [({"access": "mine"}, "'mine'"), ({"access": "shared", "copy": True}, "contradict")])
def test_access_that_makes_no_sense(broker: arraybridge.Broker, wishes: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        broker.get("x", "torch", **wishes)
    with pytest.raises(InvalidRequest, match=says):
        broker.get_many(["x"], "torch", **wishes)


def test_a_clean_private_range_serves_the_next_get(broker: arraybridge.Broker) -> None:
    pages = 4096  # 16 MiB
    broker.put(np.ones(pages * 512), "big")
    tensor = broker.get("big", "torch")
    address = tensor.data_ptr()
    before = faults()
    assert tensor.sum() == pages * 512
    if faults() - before < pages // 64:
        pytest.skip("pages of this kernel are so big that nothing can be saved")
    del tensor
    wait_until_released(broker)
    tensor = broker.get("big", "torch")
    if tensor.data_ptr() != address:
        pytest.skip("this kernel cannot tell whether a range was written (Linux before 6.7)")
    before = faults()
    assert tensor.sum() == pages * 512
    assert faults() - before < pages // 64
    # What was written to is nobody else's.
    tensor[1] = 7
    del tensor
    wait_until_released(broker)
    assert broker.get("big", "torch")[1] == 1


def test_get_many_gives_all_in_order_or_none(broker: arraybridge.Broker) -> None:
    shares = [broker.put(np.full(10, i), f"n{i}") for i in range(50)]
    tree = broker.put({"a": np.zeros(2), "b": [np.ones(3)]}, "tree")
    arrays = broker.get_many([shares[3], "n7", tree, *(f"n{i}" for i in range(50))], "torch")
    assert [int(array[0]) for array in arrays[:2]] == [3, 7]
    assert list(arrays[2]) == ["a", "b"]
    assert [int(array[0]) for array in arrays[3:]] == list(range(50))
    assert broker.last_plan is not None and broker.last_plan.zero_copy
    # Of this namespace's shares: the statistics count what other clients of the daemon still give back, too.
    leases = {row.share.name: row.leases for row in broker.list()}
    with pytest.raises(ShareNotFound, match="nowhere"):
        broker.get_many(["n1", "nowhere", "n2"])
    assert {row.share.name: row.leases for row in broker.list()} == leases
    assert broker.get_many([]) == []
    with pytest.raises(InvalidRequest, match="get takes one"):
        broker.get_many("n1")


def test_a_tree_of_64_arrays_is_one_message_and_then_none(broker: arraybridge.Broker) -> None:
    tree = {f"layer{i}": [np.full(100, 2 * i), np.full(3, 2 * i + 1, "f4")] for i in range(32)}
    before = broker.stats()
    broker.put(tree, "tree")
    assert broker.stats()["publishes_total"] == before["publishes_total"] + 1
    for _ in range(100):  # the catalogue is asked for with the first, and comes while others go on by calls
        asked = broker.stats()["acquires_total"]
        found = broker.get("tree")
        if broker.stats()["hazard_slots"]:
            break
    assert (broker.stats()["hazard_slots"], broker.stats()["acquires_total"]) == (1, asked), "it was held without a call"
    assert [int(found[f"layer{i}"][j][0]) for i in range(32) for j in range(2)] == list(range(64))
