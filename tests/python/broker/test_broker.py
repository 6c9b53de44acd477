# SPDX-License-Identifier: Apache-2.0
"""put, get and their kin with NumPy, over a real daemon."""

import logging
import pickle
import threading

import numpy as np
import pytest
from internals import plans_of

import arraybridge
from arraybridge import (
    BrokerUnavailable,
    Converted,
    FrameworkNotAvailable,
    InvalidRequest,
    OutOfMemory,
    ShareExists,
    ShareNotFound,
    UnsupportedArray,
    UnsupportedDtype,
)
from arraybridge.broker.delivery import DECIDED_MAX

NUMBERS = [*"bBhHiIlLqQefdFD?"]


def address_of(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_type_comes_back_bit_for_bit(broker, dtype):
    bits = np.random.default_rng(1).integers(0, 256, 96 * np.dtype(dtype).itemsize, np.uint8)
    array = (bits % 2).astype(bool) if dtype == "?" else bits.view(dtype)
    array = array.reshape(-1, 4)
    broker.put(array, "a")
    got = broker.get("a")
    assert got.dtype == array.dtype and got.shape == array.shape
    assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.float32(2.5).reshape(()),
        np.zeros((0, 3), np.int16),
        np.zeros((3, 0, 2)),
        np.arange(24.0).reshape(2, 3, 4)[:, ::-1, ::2],
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.broadcast_to(np.float32(1), (100, 100)),
        np.zeros((1,) * 64),
        np.array([1, 2, 3], ">f4"),
        np.array([(1, 2.5), (3, 4.5)], [("a", "u1"), ("b", "<f4")])["b"],
        np.frombuffer(b"\0" + np.arange(5.0).tobytes(), np.uint8)[1:].view("f8"),
        np.array(["2026-01-01T00:00", "NaT"], "M8[ns]"),
        np.array([1, -5], "m8[s]"),
        np.array(["2026-01-01"], ">M8[D]"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_shapes_layouts_and_odd_dtypes(broker, array):
    broker.put(array, "a")
    got = broker.get("a")
    assert got.dtype == array.dtype.newbyteorder("=") and got.shape == array.shape
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize(
    "dtype",
    [
        [("a", "u1"), ("b", "<f4")],
        np.dtype([("a", "u1"), ("b", "<f4")], align=True),
        [("a", ">i4"), ("inner", [("x", "f8", (2, 3)), ("when", "M8[us]")])],
        [("text", "S3"), ("", "i2")],
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_structured_arrays_keep_their_fields(broker, dtype, shape):
    array = np.zeros(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = 7
    broker.put(array, "compact")
    broker.put(array[..., ::2] if shape else array, "stepped")
    got = broker.get("compact")
    assert got.dtype.fields.keys() == array.dtype.fields.keys()
    assert got.shape == array.shape and not got.flags.writeable
    for name in array.dtype.names:
        np.testing.assert_array_equal(got[name], array[name])
        np.testing.assert_array_equal(broker.get("stepped")[name], (array[..., ::2] if shape else array)[name])
    with pytest.raises((UnsupportedDtype, FrameworkNotAvailable)):
        broker.get("compact", "torch")


def test_a_get_is_read_only_aligned_and_never_copied(broker):
    broker.put(np.arange(1000), "a")
    first, plan = broker.get("a", explain=True)
    second = broker.get("a")
    assert plan.zero_copy and plan == broker.last_plan and plan.via == "host-shm"
    assert address_of(first) == address_of(second) and address_of(first) % 256 == 0
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.flags.writeable = True


def test_copy_true_is_private_and_writable(broker):
    broker.put(np.arange(10), "a")
    mine, plan = broker.get("a", copy=True, explain=True)
    mine[0] = 99
    assert broker.get("a")[0] == 0
    assert plan.copies == 1 and plan.copied_bytes == 80 and plan.reasons == ("copy_requested: copy=True",)
    assert isinstance(broker.get("a", require="zero-copy", explain=True), Converted)
    with pytest.raises(InvalidRequest, match="contradict"):
        broker.get("a", copy=True, require="zero-copy")
    with pytest.raises(InvalidRequest, match="zero-copy"):
        broker.get("a", require="cheap")


def test_put_takes_the_values_of_this_moment(broker):
    array = np.zeros(4)
    broker.put(array, "a")
    array[:] = 1
    assert broker.get("a").sum() == 0


def test_a_tree_is_one_share(broker):
    tree = {"x": np.arange(3), "deep": [np.float32([1, 2]), (np.zeros((2, 2), bool), {7: np.array(["2026"], "M8[Y]")})]}
    share = broker.put(tree, "tree")
    assert len(share.specs) == 4
    got, plan = broker.get("tree", explain=True)
    assert list(got) == ["x", "deep"] and type(got["deep"][1]) is tuple and plan.copies == 0
    np.testing.assert_array_equal(got["deep"][1][1][7], np.array(["2026"], "M8[Y]"))
    np.testing.assert_array_equal(got["x"], np.arange(3))
    assert len(broker.list("tree")) == 1
    with pytest.raises(UnsupportedArray, match="4 arrays"):
        np.asarray(share)


def test_a_tree_may_mix_what_is_copied_as_it_is_with_what_is_swapped(broker):
    broker.put([np.arange(3), np.array([1, 2], ">i4")], "mixed")
    plain, swapped = broker.get("mixed")
    assert plain.tolist() == [0, 1, 2] and swapped.tolist() == [1, 2] and swapped.dtype == np.dtype("=i4")


def test_a_tree_with_a_swapped_array_keeps_the_bits_of_what_numpy_lacks(broker):
    bits = np.arange(5, dtype=np.uint32)
    half = arraybridge.asdlpack(bits).named("complex32", (5, 32, 1))
    share = broker.put([half, np.array([1, 2], ">i4")], "mixed")
    [got, _] = broker.views(share)
    assert got.dtype == "complex32"
    assert np.from_dlpack(got.named("uint32", (1, 32, 1))).tolist() == bits.tolist()


def test_matrix_and_recarray_leave_as_plain_arrays(broker):
    broker.put(np.zeros((1, 2)).view(np.matrix), "m")
    assert type(broker.get("m")) is np.ndarray


@pytest.mark.parametrize(
    "source",
    [b"abc", bytearray(b"abc"), memoryview(b"abc"), np.uint8([97, 98, 99])],
    ids=lambda source: type(source).__name__,
)
def test_buffers_can_be_put(broker, source):
    broker.put(source, "b")
    assert broker.get("b").tobytes() == b"abc"


def test_a_name_is_taken_once(broker):
    broker.put(np.zeros(1), "a")
    with pytest.raises(ShareExists, match="a"):
        broker.put(np.ones(1), "a")


def test_replace_leaves_holders_of_the_old_one_alone(broker):
    old_share = broker.put(np.zeros(1), "a")
    old = broker.get("a")
    new_share = broker.put(np.ones(1), "a", replace=True)
    assert new_share.generation > old_share.generation
    assert (old[0], broker.get("a")[0]) == (0, 1)
    assert broker.get(new_share)[0] == 1


def test_a_similar_name_is_looked_for_once_and_never_among_thousands(address, monkeypatch):
    with arraybridge.Broker(address, namespace="similar", start="never") as broker:
        broker.put(np.zeros(1), "frame")
        for guess in (True, False, False):
            with pytest.raises(ShareNotFound) as caught:
                broker.get("frme")
            assert ("did you mean 'frame'?" in str(caught.value)) == guess, "a poll costs one call"
        monkeypatch.setattr("arraybridge.broker.connection._NAMES_MAX", 0)
        with pytest.raises(ShareNotFound, match="named 'farme'; Broker.list") as caught:
            broker.get("farme")
        assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message


def test_withdraw(broker):
    share = broker.put(np.zeros(1), "a")
    held = broker.get("a")
    share.withdraw()
    with pytest.raises(ShareNotFound):
        broker.get("a")
    with pytest.raises(ShareNotFound):
        broker.withdraw("a")
    assert held[0] == 0
    broker.put(np.ones(1), "a")
    assert broker.get("a")[0] == 1


def test_unnamed_shares(broker):
    first, second = broker.put(np.zeros(1)), broker.put(np.ones(1))
    assert first.unnamed and first.name != second.name
    assert (broker.get(first)[0], broker.get(second)[0]) == (0, 1)


def test_a_sealed_share_is_enforced(broker):
    assert broker.put(np.zeros(8), "s", sealed=True).sealed
    assert broker.get("s").sum() == 0
    broker.put(np.array([5], ">i8"), "swapped", sealed=True)
    assert broker.get("swapped")[0] == 5


def test_metadata_travels(broker):
    broker.put(np.zeros(1), "a", metadata=b"\x00camera 3")
    [listed] = broker.list("a")
    assert listed.share.metadata == b"\x00camera 3" and listed.leases == 0 and listed.maker_process_id > 0


def test_list_by_prefix(broker):
    for name in ("x1", "x2", "y"):
        broker.put(np.zeros(1), name)
    rows = broker.list("x")
    assert sorted(row.share.name for row in rows) == ["x1", "x2"]
    assert [row.share.to("numpy").tolist() for row in rows] == [[0], [0]]


def test_namespaces_do_not_see_each_other(broker, address):
    share = broker.put(np.zeros(1), "a")
    with arraybridge.Broker(address, namespace="elsewhere", start="never") as other:
        with pytest.raises(ShareNotFound):
            other.get("a")
        with pytest.raises(InvalidRequest, match="elsewhere"):
            other.get(share)


def test_born_in_broker_memory_is_published_in_place(broker):
    array = broker.empty((1 << 20,), "uint8")
    assert array.flags.writeable and address_of(array) % 256 == 0
    array[:] = 3
    alias = array[:]
    before = broker.stats()
    broker.put(array, "born")
    alias[0] = 4  # by contract nobody does this; it shows that the bytes are the very same
    assert broker.get("born")[:2].tolist() == [4, 3]
    after = broker.stats()
    assert after["publishes_total"] == before["publishes_total"] + 1
    assert after["client_arena_bytes"] == before["client_arena_bytes"]


def test_a_convert_result_is_published_in_place(broker):
    made = broker.convert(np.arange(100)[::-2], "numpy", copy=True)
    alias = made[:]
    broker.put(made, "c")
    alias[0] = -1
    assert broker.get("c")[0] == -1


def test_an_array_that_was_published_in_place_is_read_only(broker):
    array = broker.empty((2, 3), "int32")
    array[:] = 1
    part = array.reshape(-1).reshape(2, 3)
    broker.put([part], "born")
    for view in (array, part):
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0] = 2
    copied = np.zeros(3)
    broker.put(copied, "copied")
    copied[0] = 1
    assert broker.get("copied")[0] == 0


def test_many_threads_put_one_array_of_broker_memory(broker):
    wrong = []

    def put(array, barrier, name):
        barrier.wait()
        try:
            broker.put(array, name)
        except Exception as error:
            wrong.append(error)

    for turn in range(20):
        array = broker.empty(8, "float32")
        array[:] = turn
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=put, args=(array, barrier, f"{turn}-{index}")) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row.share.to("numpy")[7] for row in broker.list(f"{turn}-")] == [turn] * 4
    assert not wrong


@pytest.mark.parametrize(
    "array", [np.array(["2026-01-01", "NaT"], "M8[D]"), np.zeros(2, [("a", "u1"), ("b", "<f4")])], ids=["date", "struct"]
)
def test_what_dlpack_cannot_say_leaves_through_numpy_alone(broker, array):
    share = broker.put(array, "opaque")
    np.testing.assert_array_equal(np.asarray(share), array)
    for hand_on in (share.__dlpack__, lambda: np.from_dlpack(share), lambda: share.__buffer__(0)):
        with pytest.raises(BufferError, match="DLPack has no"):
            hand_on()
    torch = pytest.importorskip("torch")
    for ask in (share.view().__dlpack__, lambda: np.from_dlpack(share.view()), lambda: torch.from_dlpack(share.view())):
        with pytest.raises(BufferError, match=r"DLPack has no dtype '(datetime64\[D\]|struct:)"):
            ask()
    for source in (array, share, share.view()):
        with pytest.raises(BufferError, match="DLPack has no"):
            arraybridge.asdlpack(source)


def test_what_was_decided_is_not_remembered_without_end(broker):
    for i in range(DECIDED_MAX + 10):
        broker.put(np.zeros(1, [(f"field{i}", "u1")]), "x", replace=True)
        assert broker.get("x").dtype.names == (f"field{i}",)
    assert sum(map(len, plans_of(broker).values())) <= DECIDED_MAX


def test_a_share_is_an_array(broker):
    share = broker.put(np.arange(6, dtype=np.int32).reshape(2, 3), "a")
    assert np.asarray(share).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.asarray(share, np.float64).dtype == np.float64
    assert np.array(share, copy=True).flags.writeable
    free = np.from_dlpack(share)
    assert free.tolist() == [[0, 1, 2], [3, 4, 5]] and share.__dlpack_device__() == (1, 0)
    assert share.to("numpy").tolist() == free.tolist()
    assert memoryview(share.view()).shape == (2, 3)
    assert (share.nbytes >= 24, share.namespace, share.device) == (True, broker.namespace, (1, 0))
    [spec] = share.specs
    assert (spec.dtype, spec.shape, spec.offset) == ("int32", (2, 3), 0)
    assert "int32 (2, 3)" in repr(share) and "<table>" in share._repr_html_()
    assert dict(item for item in share.__rich_repr__() if isinstance(item, tuple))["generation"] == share.generation


def test_a_share_shows_foreign_names_as_text(broker):
    assert "<script>" not in broker.put(np.zeros(1), "<script>")._repr_html_()


def test_a_share_pickles_as_a_reference(broker):
    share = broker.put(np.zeros(1 << 20), "big", metadata=b"m")
    data = pickle.dumps(share)
    again = pickle.loads(data)
    assert len(data) < 1000
    assert (again, hash(again), again.metadata, again.specs) == (share, hash(share), b"m", share.specs)
    assert again.to("numpy").sum() == 0
    again.withdraw()
    with pytest.raises(ShareNotFound):
        pickle.loads(data).to("numpy")


def test_a_share_of_another_broker_is_not_found_whatever_has_its_id(broker):
    with arraybridge.Broker(start="private") as first, arraybridge.Broker(start="private") as second:
        share, theirs = first.put(np.zeros(1), "mine"), second.put(np.ones(1), "theirs")
        assert (share.id, share.generation) == (theirs.id, theirs.generation)
        for ask in (second.withdraw, second.get):
            with pytest.raises(ShareNotFound):
                ask(share)
        assert second.get(theirs)[0] == 1 == len(second.list())


def test_loading_a_share_touches_no_broker(broker):
    share = broker.put(np.zeros(1), "a")
    remake, (_, fields) = share.__reduce__()
    lost = remake("/nonexistent", fields)
    assert lost.name == "a"
    with pytest.raises(BrokerUnavailable):
        lost.to("numpy")


def test_a_share_can_be_put_again_and_converted(broker):
    share = broker.put(np.arange(3), "a")
    broker.put(share, "copy")
    assert broker.get("copy").tolist() == [0, 1, 2]
    array, plan = broker.convert(share, "numpy", explain=True)
    assert plan.zero_copy and plan.source == "share" and array.tolist() == [0, 1, 2]


def test_out_of_memory_names_the_quota(broker, address):
    with arraybridge.Broker(address, namespace=broker.namespace, start="never", timeout_s=3) as hasty:
        with pytest.raises(OutOfMemory):
            hasty.empty((1 << 50,), "uint8")


def test_a_closed_broker_connects_again_and_arrays_stay(broker):
    broker.put(np.arange(3), "a")
    got = broker.get("a")
    broker.close()
    assert got.tolist() == [0, 1, 2]
    assert broker.get("a").tolist() == [0, 1, 2]


def test_stats(broker):
    broker.put(np.zeros(1), "a")
    got = broker.get("a")
    numbers = broker.stats()
    assert numbers["shares"] >= 1 and numbers["client_live_leases"] == 1
    del got
    broker.flush()
    assert broker.stats()["client_live_leases"] == 0


def test_identity_and_hand_over_need_no_broker():
    nobody = arraybridge.Broker("/nonexistent", start="never")
    array = np.arange(3)
    assert nobody.convert(array, "numpy") is array
    view = nobody.convert(memoryview(array), "numpy")
    assert address_of(view) == address_of(array) and nobody.last_plan.route == "hand_over"
    with pytest.raises(BrokerUnavailable):
        nobody.convert(array, "numpy", copy=True)
    with pytest.raises(BrokerUnavailable):
        nobody.get("a")


def test_convert_of_a_tree(broker):
    tree = {"a": np.arange(3), "b": (bytearray(b"xy"),)}
    got, plan = broker.convert(tree, "numpy", explain=True)
    assert got["a"] is tree["a"] and got["b"][0].tolist() == [120, 121]
    assert plan.route == "hand_over" and plan.copies == 0


def test_every_plan_is_logged(broker, caplog):
    broker.put(np.zeros(1), "a")
    with caplog.at_level(logging.DEBUG, logger="arraybridge"):
        broker.get("a", copy=True)
    assert "copy_requested" in caplog.text


def test_a_share_pickled_by_another_version_is_refused(broker):
    unpickled, _ = broker.put(np.zeros(1), "a").__reduce__()
    with pytest.raises(InvalidRequest, match="another version"):
        unpickled("/x", (1, 2))


def test_a_broker_pickles_as_what_it_was_asked_for(broker):
    broker.put(np.arange(3), "a")
    again = pickle.loads(pickle.dumps(broker))
    assert again.get("a").tolist() == [0, 1, 2] and again.namespace == broker.namespace
    with arraybridge.Broker(start="private", timeout_s=3) as private:
        private.put(np.ones(2), "mine")
        guest = pickle.loads(pickle.dumps(private))
        assert guest.get("mine").tolist() == [1, 1] and (guest.address, guest.timeout_s) == (private.address, 3)


def test_a_broker_and_a_plan_say_what_they_are(broker):
    assert "not connected" in repr(arraybridge.Broker("/nonexistent"))
    assert broker.address in repr(broker)
    plan = broker.plan(np.arange(4, dtype=np.int16)[::-1], "numpy", copy=True)
    assert str(plan) == "numpy to numpy by place: 1 copy, 8 bytes (copy_requested: copy=True)"
    assert str(broker.plan(np.arange(3), "numpy")) == "numpy to numpy by identity: no copy"
