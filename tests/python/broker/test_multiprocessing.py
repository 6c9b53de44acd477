# SPDX-License-Identifier: Apache-2.0
"""arraybridge.multiprocessing: arrays as references in what multiprocessing, concurrent.futures and joblib send."""

import contextlib
import copyreg
import multiprocessing
import pickle
import subprocess
import sys
import time
import warnings
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from internals import arrays_given, reducers
from processes import environment, run_together, start_daemon, stop_daemon

import arraybridge
import arraybridge.multiprocessing as passing
from arraybridge import CopyWarning, InvalidRequest, ShareNotFound

SCRIPT = Path(__file__).with_name("reducers_client.py")
METHODS = ["fork", "spawn", "forkserver"]
CASES = [(case, method) for case in ("pools", "queues", "loader", "storages") for method in METHODS]
CASES += [("killed", ""), ("joblib", ""), ("frameworks", "")]


@pytest.fixture
def installed(broker):
    passing.install(broker)
    yield broker
    passing.uninstall()


def passed(array):
    return ForkingPickler.loads(ForkingPickler.dumps(array))


def ran(case, method):
    command = [sys.executable, "-X", "faulthandler", str(SCRIPT), case, *([method] if method else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def runs():
    return run_together({case: lambda case=case: ran(*case) for case in CASES})


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_processes(runs, case):
    out, err = runs[case].result()
    assert out == "ok\n"
    if case[0] != "frameworks":
        assert err == ""  # the resource tracker has nothing to say, for example


ARRAYS = {
    "float": np.arange(1 << 14, dtype="f8"),
    "bool": np.ones(1 << 17, "?"),
    "complex": np.full((64, 64, 4), 1 + 2j),
    "half": np.arange(1 << 16, dtype="f2"),
    "rank 0 rows": np.zeros((1 << 20, 0)),
    "strided": np.arange(1 << 16, dtype="i4")[::2],
    "transposed": np.arange(1 << 16, dtype="i4").reshape(256, 256).T,
    "read-only": np.broadcast_to(np.float32(3), (1 << 16,)),
    "dates": np.arange("2020-01-01", "2050-01-01", dtype="M8[h]"),
    "text": np.full(1 << 14, "abcd"),
    "structured": np.zeros(1 << 14, [("a", "i4"), ("b", "f8")]),
    "structured, padded": np.zeros(1 << 14, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "titles": np.zeros(1 << 14, [(("A", "a"), "i4"), (("B", "b"), "f8")]),
    "other byte order": np.arange(1 << 14, dtype=">f8"),
    "objects": np.array([None] * (1 << 14)),
}  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_an_array_arrives_as_it_would_from_a_pickle(installed, array):
    read = passed(array)
    expected = pickle.loads(pickle.dumps(array))
    assert type(read) is np.ndarray and read.dtype == expected.dtype and read.dtype.byteorder == expected.dtype.byteorder
    assert read.dtype.fields == expected.dtype.fields
    assert read.shape == expected.shape and (read == expected).all()
    assert read.flags.writeable == expected.flags.writeable
    if read.size:
        before = array.flat[0]
        read.flat[0] = read.flat[-1]
        assert array.flat[0] == before


def test_small_and_special_arrays_go_as_before(installed):
    before = installed.stats()["publishes_total"]
    for array in np.arange(10), np.zeros(1 << 20).view(np.matrix), np.ma.zeros(1 << 14), np.zeros(1 << 14, "O"):
        assert type(passed(array)) is type(array)
    assert installed.stats()["publishes_total"] == before


def test_what_was_read_is_withdrawn_and_freed_with_the_array(installed):
    array = passed(np.ones(1 << 14))
    listed = installed.stats()
    assert listed["withdrawn_shares"] >= 1 and array.sum() == 1 << 14
    pickled = ForkingPickler.dumps(np.ones(1 << 14))
    ForkingPickler.loads(pickled)
    with pytest.raises(ShareNotFound, match="read before, or not within 300 s; pass a longer lifetime"):
        ForkingPickler.loads(pickled)


def test_what_was_received_is_passed_on_without_a_copy(installed):
    received = passed(np.ones(1 << 20))
    allocated = installed.stats()["host_used_bytes"] if "host_used_bytes" in installed.stats() else None
    again = passed(received)
    assert again.sum() == 1 << 20
    if allocated is not None:
        assert installed.stats()["host_used_bytes"] == allocated


def test_the_threshold(broker):
    passing.install(broker, threshold=100)
    try:
        before = broker.stats()["publishes_total"]
        passed(np.zeros(99, "u1"))
        assert broker.stats()["publishes_total"] == before
        passed(np.zeros(100, "u1"))
        assert broker.stats()["publishes_total"] == before + 1
    finally:
        passing.uninstall()


def test_installing_twice_and_uninstalling_leave_what_was(broker):
    table = reducers()
    before = dict(table)
    passing.install(broker)
    passing.install(broker, threshold=1)
    assert np.ndarray in table
    passing.uninstall()
    passing.uninstall()
    assert table == before
    # A reducer that somebody registered meanwhile is theirs.
    passing.install(broker)
    ForkingPickler.register(np.ndarray, own := lambda array: (list, ()))
    passing.uninstall()
    assert table.pop(np.ndarray) is own


def test_numpy_may_be_imported_after_install(address):
    program = """if True:
        from multiprocessing.reduction import ForkingPickler
        import arraybridge.multiprocessing
        arraybridge.multiprocessing.install()
        import numpy
        print(len(bytes(ForkingPickler.dumps(numpy.ones(1 << 20)))))
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment(ARRAYBRIDGE_ADDRESS=address)
    )  # fmt: skip
    assert int(done.stdout) < 10_000


def test_a_framework_may_be_imported_after_install(address):
    pytest.importorskip("torch")
    pytest.importorskip("joblib")
    program = """if True:
        import io
        from multiprocessing.reduction import ForkingPickler
        from joblib.externals.loky.backend import reduction
        import arraybridge.multiprocessing as passing
        before = ForkingPickler.__init__, reduction.dump
        passing.install()
        passing.install()
        import torch
        tensor, file = torch.ones(1 << 20), io.BytesIO()
        reduction.dump(tensor, file)
        print(file.tell(), len(reduction.dumps(tensor)))
        assert b"arraybridge" in bytes(ForkingPickler.dumps(tensor))  # torch's own reference has no bytes either
        assert torch.equal(ForkingPickler.loads(ForkingPickler.dumps(tensor)), tensor)
        passing.uninstall()
        assert (ForkingPickler.__init__, reduction.dump) == before
        file.seek(0)
        reduction.dump(tensor, file)
        print(file.tell())
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment(ARRAYBRIDGE_ADDRESS=address)
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *by_reference, by_value = map(int, done.stdout.split())
    assert max(by_reference) < 10_000 and by_value > 4 << 20, done.stdout


def test_a_module_without_the_class_of_its_arrays_is_left_alone(installed, monkeypatch):
    for found in (ModuleType("cupy"), None):
        monkeypatch.setitem(sys.modules, "cupy", found)
        np.testing.assert_array_equal(passed(ARRAYS["float"]), ARRAYS["float"])
    made = ModuleType("cupy")
    made.ndarray = type("ndarray", (), {})
    monkeypatch.setitem(sys.modules, "cupy", made)
    ForkingPickler.dumps(3)
    assert made.ndarray in reducers()


def test_what_somebody_wrapped_meanwhile_stays_theirs(broker):
    before = ForkingPickler.__init__
    passing.install(broker)
    ours = ForkingPickler.__init__
    assert ours is not before
    ForkingPickler.__init__ = theirs = lambda self, *args: ours(self, *args)
    try:
        passing.uninstall()
        assert ForkingPickler.__init__ is theirs
        assert pickle.loads(ForkingPickler.dumps(np.ones(1 << 16)))[0] == 1
    finally:
        ForkingPickler.__init__ = before


def test_what_is_under_way_arrives_after_uninstall(broker):
    passing.install(broker)
    pickled = ForkingPickler.dumps(np.ones(1 << 14))
    passing.uninstall()
    assert ForkingPickler.loads(pickled).sum() == 1 << 14
    before = broker.stats()["publishes_total"]
    passed(np.ones(1 << 14))
    assert broker.stats()["publishes_total"] == before  # nothing was installed by it


@pytest.mark.parametrize(
    "wish", [{"threshold": -1}, {"threshold": 1.5}, {"threshold": True}, {"lifetime": 0}, {"lifetime": -1}, {"lifetime": "1"}]
)
def test_arguments(broker, wish):
    with pytest.raises(InvalidRequest, match=next(iter(wish))):
        passing.install(broker, **wish)


def test_without_room_or_broker_arrays_go_by_value_and_say_so(tmp_path):
    """A Queue pickles in a thread of its own, and loses what raises there: its reader would wait for ever."""
    daemon = start_daemon(str(tmp_path), "--host-capacity", str(8 << 20), "--log-level", "off")
    queue = multiprocessing.get_context("fork").Queue()
    with arraybridge.Broker(tmp_path, start="never", timeout_s=10) as small:
        passing.install(small)
        try:
            arrays = [np.ones(4 << 20)]
            with contextlib.suppress(ImportError):
                import tensorflow

                arrays.append(tensorflow.ones(4 << 20))
                passing.ensure_installed(None)
            for text in ("RESOURCE|room|capacity|exceed", "no daemon|answer|connect"):
                for array in arrays:
                    with pytest.warns(CopyWarning, match=text):
                        queue.put(array)
                        assert np.sum(queue.get(timeout=60)) == 4 << 20
                daemon.terminate()
                daemon.wait()
        finally:
            passing.uninstall()
            queue.close()


def test_a_sender_may_be_gone_when_its_array_is_received(tmp_path):
    daemon = start_daemon(str(tmp_path), "--orphan-grace", "100ms", "--log-level", "off")
    queue = multiprocessing.get_context("fork").Queue()
    with arraybridge.Broker(tmp_path, start="never") as broker:
        passing.install(broker)
        try:
            sender = multiprocessing.get_context("fork").Process(target=queue.put, args=(np.ones(1 << 20),))
            sender.start()
            sender.join()
            time.sleep(1)
            assert queue.get(timeout=60).sum() == 1 << 20
        finally:
            passing.uninstall()
            queue.close()
    assert stop_daemon(daemon) == 0


def test_what_was_born_in_the_broker_may_be_written_after_it_was_sent(installed):
    torch = pytest.importorskip("torch")
    for framework, part in (("torch", ...), ("numpy", ...), ("torch", slice(1 << 15)), ("numpy", slice(1 << 15))):
        frame = installed.empty(1 << 16, "float32", framework)
        frame[:] = 1
        pickled = ForkingPickler.dumps(frame[part])
        frame[:] = 2
        read = ForkingPickler.loads(pickled)
        assert read.sum() == read.shape[0], (framework, part)
    frame = installed.empty(1 << 16, "float32", "torch")
    frame.fill_(3)
    passing.give(frame)
    copied = installed.stats()["convert_copies"]
    assert torch.equal(passed(frame), frame) and installed.stats()["convert_copies"] == copied
    assert arrays_given() == 0


def test_dtypes_with_properties_of_their_own_arrive(installed):
    fields = [("a", "f8"), ("b", "i1")]
    for dtype in (np.dtype((np.record, fields)), np.dtype(fields, align=True), np.dtype([("inner", np.dtype(fields, align=True), 3)])):
        array = np.zeros(1 << 14, dtype)
        read = passed(array)
        assert read.dtype.type is dtype.type and read.dtype.isalignedstruct == dtype.isalignedstruct and read.dtype == dtype


def test_the_order_of_dimensions_is_kept(installed):
    columns = np.asfortranarray(np.arange(1 << 16, dtype="f8").reshape(64, 32, 32))
    turned = np.ascontiguousarray(columns).transpose(1, 0, 2)
    for array in columns, turned:
        read = passed(array)
        assert read.strides == array.strides and (read == array).all()
    torch = pytest.importorskip("torch")
    images = torch.arange(1 << 16).reshape(4, 16, 32, 32).contiguous(memory_format=torch.channels_last)
    passing.ensure_installed(None)
    read = passed(images)
    assert read.stride() == images.stride() and torch.equal(read, images)


def base():
    import torch

    return torch.arange(1 << 16, dtype=torch.float32)


def dumped_by_loky(thing):
    from joblib.externals.loky.backend import reduction

    return reduction.dumps(thing)


# Of each message: its tensors over one storage, and the greatest size that the broker then has of it, in bytes.
SHARING = {
    "tied": lambda whole: {"embed": whole, "head": whole.detach()},
    "a view after the whole": lambda whole: [whole, whole[1:], whole[5:7]],
    "a view before the whole": lambda whole: (whole[100:50_000], whole),
    "overlapping": lambda whole: [whole[:50_000], whole[40_000:]],
    "adjacent": lambda whole: [whole[:30_000], whole[30_000:]],
    "with a gap": lambda whole: [whole[:30_000], whole[30_010:]],
    "columns": lambda whole: [whole.view(256, 256)[:, :100], whole.view(256, 256)[:, 90:]],
    "transposed": lambda whole: [whole.view(256, 256).T, whole],
    "expanded": lambda whole: [whole[:, None].expand(-1, 4), whole[:1].expand(1 << 16), whole],
    "other dtypes": lambda whole: [whole.view(whole.dtype.to_complex())[1:], whole[1:], whole.view(sys.modules["torch"].uint8)[3:]],
    "requires grad": lambda whole: [whole, whole.detach().requires_grad_(), sys.modules["torch"].nn.Parameter(whole)],
    "conjugate": lambda whole: [whole, whole.view(whole.dtype.to_complex()).conj(), whole.view(whole.dtype.to_complex()).conj().imag],
}  # fmt: skip


@pytest.mark.parametrize("kind", SHARING)
def test_tensors_of_one_message_share_a_storage_as_before(installed, kind):
    torch = pytest.importorskip("torch")
    passing.ensure_installed(None)
    pytest.importorskip("joblib.externals.loky.backend.reduction")
    for dumps in ForkingPickler.dumps, dumped_by_loky:
        sent = SHARING[kind](base())
        passing.ensure_installed(None)
        before = installed.stats()["publishes_total"]
        pickled = dumps(sent)
        assert installed.stats()["publishes_total"] == before + 1
        assert installed.list(prefix="multiprocessing")[0].share.nbytes <= (1 << 18) + 4096
        read = ForkingPickler.loads(pickled)
        sent, read = (list(each.values() if isinstance(each, dict) else each) for each in (sent, read))
        assert len({each.untyped_storage().data_ptr() for each in read}) == 1
        for before, after in zip(sent, read, strict=True):
            assert type(after) is type(before) and after.dtype == before.dtype and torch.equal(after, before)
            assert after.stride() == before.stride() and after.requires_grad == before.requires_grad
        # The receiver's own, as the sender's is its own.
        first = sent[0].flatten()[0].item()
        with torch.no_grad():
            for each in read:
                each.untyped_storage().fill_(7)
        assert all(
            (each.contiguous().resolve_conj().view(torch.uint8) == 7).all() for each in read if not each.is_conj() and not each.is_neg()
        )
        assert sent[0].flatten()[0].item() == first


def test_many_ranges_of_one_storage_go_by_value(installed):
    torch = pytest.importorskip("torch")
    passing.install(installed, threshold=1 << 12)
    rows = torch.zeros((1500, 1 << 16), dtype=torch.uint8)
    sent = [row[: 1 << 12] for row in rows]
    for number, row in enumerate(sent):
        row[:] = number % 251
    with warnings.catch_warnings(action="error"):
        read = ForkingPickler.loads(ForkingPickler.dumps(sent))
    rows[:] = 255  # the sender's later writes are not the receiver's
    assert all((row == number % 251).all() for number, row in enumerate(read))


def test_a_message_has_only_the_bytes_of_a_storage_that_its_tensors_use(installed):
    torch = pytest.importorskip("torch")
    passing.ensure_installed(None)
    rows = torch.arange(1 << 22, dtype=torch.float32).view(64, 1 << 16)  # 16 MiB
    for sent in [rows[3]], [rows[3], rows[60], rows[60, 9:]], [rows[:, :1024]], [rows[:1].expand(9, -1)]:
        pickled = ForkingPickler.dumps(sent)
        assert installed.list(prefix="multiprocessing")[0].share.nbytes <= 2 << 18
        read = ForkingPickler.loads(pickled)
        assert all(torch.equal(after, before) for before, after in zip(sent, read, strict=True))


def test_a_small_tensor_and_its_storage_are_together_in_either_order(installed):
    pytest.importorskip("torch")
    passing.ensure_installed(None)
    for order in slice(None), slice(None, None, -1):
        sent = [base()[:3], base()]
        sent[0] = sent[1][:3]
        read = passed(sent[order])[order]
        read[1][0] = 9
        assert read[0].tolist() == [9, 1, 2]


class Refusing:
    def __reduce__(self):
        raise ZeroDivisionError


class Pickling:
    """Its pickle has a pickle of its own."""

    def __init__(self, thing):
        self.thing = thing

    def __reduce__(self):
        return ForkingPickler.loads, (bytes(ForkingPickler.dumps(self.thing)),)


def test_a_pickle_within_a_pickle_has_storages_of_its_own(installed):
    torch = pytest.importorskip("torch")
    passing.ensure_installed(None)
    whole = base()
    first, inner, last = passed([whole[1:], Pickling([whole, whole[2:]]), whole])
    for pair in (first, last[1:]), (inner[0][2:], inner[1]):
        assert torch.equal(*pair) and pair[0].data_ptr() == pair[1].data_ptr()
    assert first.untyped_storage().data_ptr() != inner[0].untyped_storage().data_ptr()


def test_a_message_that_is_not_sent_leaves_nothing(installed):
    arrays = [np.ones(1 << 14)]
    with contextlib.suppress(ImportError):
        import torch

        passing.ensure_installed(None)
        arrays.append(torch.ones(1 << 16))
    with pytest.raises(ZeroDivisionError):
        ForkingPickler.dumps([*arrays, Refusing()])
    assert installed.list(prefix="multiprocessing") == []


def test_without_room_tensors_go_in_torchs_own_way_and_leave_nothing(tmp_path):
    torch = pytest.importorskip("torch")
    daemon = start_daemon(str(tmp_path), "--host-capacity", str(8 << 20), "--log-level", "off")
    with arraybridge.Broker(tmp_path, start="never", timeout_s=1) as small:
        passing.install(small)
        try:
            whole = torch.ones(4 << 20)
            with pytest.warns(CopyWarning, match=f"tensors of {16 << 20} bytes.*(RESOURCE|room|capacity|exceed)"):
                pickled = ForkingPickler.dumps([np.ones(1 << 16), whole, whole[5:]])
            read = ForkingPickler.loads(pickled)
            read[1][5] = 7
            assert read[0].sum() == 1 << 16 and read[2][0] == 7
            del read
            assert small.list(prefix="multiprocessing") == []
        finally:
            passing.uninstall()
    assert stop_daemon(daemon) == 0


def test_a_reducer_of_copyreg_is_still_called(installed):
    copyreg.pickle(np.ndarray, lambda array: (list, (array.tolist(),)))
    try:
        assert passed(np.arange(3)) == [0, 1, 2]
    finally:
        del copyreg.dispatch_table[np.ndarray]


def test_another_broker_keeps_threshold_and_lifetime(broker, address, monkeypatch):
    puts = []
    put = arraybridge.Broker.put

    def noted(self, array, name, **wishes):
        puts.append((self, array.nbytes, wishes["lifetime"]))
        return put(self, array, name, **wishes)

    passing.install(broker, threshold=7, lifetime=999)
    try:
        with arraybridge.Broker(address, namespace="other", start="never") as other, monkeypatch.context() as patched:
            assert passing.ensure_installed(other) is other
            patched.setattr(arraybridge.Broker, "put", noted)
            for size in (6, 7):
                passed(np.zeros(size, "u1"))
            assert puts == [(other, 7, 999)]
    finally:
        passing.uninstall()


def test_joblibs_function_works_after_uninstall(broker):
    executor = pytest.importorskip("joblib.executor")
    original = executor.get_memmapping_reducers
    passing.install(broker)
    ours = executor.get_memmapping_reducers
    passing.uninstall()
    assert executor.get_memmapping_reducers is original
    assert np.ndarray in ours(max_nbytes=None)[1]
    passing.install(broker)
    executor.get_memmapping_reducers = theirs = lambda **options: ({}, {})
    passing.uninstall()
    assert executor.get_memmapping_reducers is theirs
    executor.get_memmapping_reducers = original
