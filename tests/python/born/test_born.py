# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays that are born in broker memory: which are, which are not and why, and that what was put stays as it was."""

import importlib.util
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_place import is_put_in_place
from processes import start_daemon, stop_daemon

import arraybridge
from arraybridge import Broker, DeviceUnavailable, InvalidRequest, _core

N = 1 << 18  # float64: 2 MiB
SOURCE = np.random.default_rng(0).random(N)
Made = Callable[[], Any]


def saved() -> io.BytesIO:
    file = io.BytesIO()
    np.savez(file, a=SOURCE)
    file.seek(0)
    return file


MAKERS: dict[str, Made] = {
    "empty": lambda: np.empty(N),
    "zeros": lambda: np.zeros(N),
    "full": lambda: np.full(N, 3.0),
    "ufunc": lambda: SOURCE + 1,
    "temporaries": lambda: SOURCE * 2 + 1,
    "concatenate": lambda: np.concatenate([SOURCE, SOURCE]),
    "stack": lambda: np.stack([SOURCE, SOURCE]),
    "load": lambda: np.load(saved())["a"],
    "astype": lambda: SOURCE.astype("float32"),
    "indexing": lambda: SOURCE[np.arange(N)],
    "sort": lambda: np.sort(SOURCE),
    "matmul": lambda: SOURCE[:250000].reshape(500, 500) @ SOURCE[:250000].reshape(500, 500),
    "random": lambda: np.random.default_rng(1).random(N),
    "fft": lambda: np.fft.fft(SOURCE),
    "list": lambda: np.array(list(range(N))),
    "iterator": lambda: np.fromiter(range(N), float),
}


@pytest.mark.parametrize("made", MAKERS)
def test_what_numpy_makes_is_put_in_place(broker: Broker, made: str) -> None:
    with broker.born("numpy") as born:
        array = MAKERS[made]()
    assert born.arrays >= 1 and born.missed == {}
    assert is_put_in_place(broker, array)


@pytest.mark.skipif(not importlib.util.find_spec("scipy"), reason="SciPy is not installed")
def test_what_scipy_makes(broker: Broker) -> None:
    import scipy.linalg
    import scipy.ndimage

    with broker.born("numpy"):
        blurred = scipy.ndimage.gaussian_filter(SOURCE.reshape(512, 512), 2)
        inverse = scipy.linalg.inv(SOURCE[:40000].reshape(200, 200))
    assert is_put_in_place(broker, blurred)
    assert inverse.tobytes() == scipy.linalg.inv(SOURCE[:40000].reshape(200, 200)).tobytes()


@pytest.mark.skipif(not importlib.util.find_spec("cv2"), reason="OpenCV is not installed")
def test_what_opencv_makes(broker: Broker, tmp_path: Path) -> None:
    import cv2

    image = (SOURCE.reshape(512, 512) * 255).astype("uint8")
    ordinary = cv2.cvtColor(cv2.resize(cv2.GaussianBlur(image, (5, 5), 1), (1024, 1024)), cv2.COLOR_GRAY2BGR)
    cv2.imwrite(str(tmp_path / "image.png"), image)
    with broker.born("numpy"):
        made = cv2.cvtColor(cv2.resize(cv2.GaussianBlur(image, (5, 5), 1), (1024, 1024)), cv2.COLOR_GRAY2BGR)
        read = cv2.imread(str(tmp_path / "image.png"))
    assert np.array_equal(made, ordinary)
    assert is_put_in_place(broker, made) and is_put_in_place(broker, read)


@pytest.mark.skipif(not importlib.util.find_spec("PIL"), reason="Pillow is not installed")
def test_what_pillow_makes(broker: Broker) -> None:
    from PIL import Image

    image = Image.fromarray((SOURCE.reshape(512, 512) * 255).astype("uint8")).convert("RGB")
    with broker.born("numpy"):
        array = np.array(image)
    assert is_put_in_place(broker, array)


def test_an_array_that_was_made_before_is_copied(broker: Broker) -> None:
    before = SOURCE * 2
    with broker.born("numpy"):
        assert not is_put_in_place(broker, before)


def test_small_arrays_are_copied(broker: Broker) -> None:
    with broker.born("numpy", min_bytes=1 << 20) as born:
        small, large = np.ones(1000), SOURCE + 1
    assert born.arrays == 1 and born.missed == {}
    assert not is_put_in_place(broker, small) and is_put_in_place(broker, large)


def test_a_part_takes_the_whole_memory_and_another_part_is_copied(broker: Broker) -> None:
    with broker.born("numpy"):
        rows = np.arange(2 * N, dtype="float64").reshape(2, N)
    assert is_put_in_place(broker, rows[0])
    assert not is_put_in_place(broker, rows[1])
    assert not is_put_in_place(broker, rows[:, ::2])


def test_what_was_put_stays_when_the_array_is_resized_or_dropped(broker: Broker) -> None:
    with broker.born("numpy"):
        array = SOURCE[: N - 8] * 3
        address = array.ctypes.data
        broker.put(array, "triple")
        array.flags.writeable = True  # the owner may
        array.resize(N, refcheck=False)  # as many pages
        assert array.ctypes.data != address
        array[:] = -1
        del array
        other = [np.full(N, -2.0) for _ in range(8)]
        assert all(each.ctypes.data != address for each in other)
    assert np.array_equal(broker.get("triple"), SOURCE[: N - 8] * 3)


def test_resizing_keeps_the_values(broker: Broker) -> None:
    with broker.born("numpy"):
        array = SOURCE * 2
        array.resize(3 * N, refcheck=False)
        assert np.array_equal(array[:N], SOURCE * 2) and is_put_in_place(broker, array[:N])
        shrunk = SOURCE * 2
        shrunk.resize(10, refcheck=False)
        assert np.array_equal(shrunk, (SOURCE * 2)[:10])
    outside = SOURCE[:N].copy()
    outside.resize(2 * N, refcheck=False)
    assert np.array_equal(outside[:N], SOURCE)


def test_memory_is_used_again_at_once(broker: Broker) -> None:
    with broker.born("numpy"):
        array = np.empty(N)
        address = array.ctypes.data
        del array
        assert np.empty(N).ctypes.data == address


def test_large_zeros_are_numpys_own(broker: Broker) -> None:
    with broker.born("numpy") as born:
        zeros, few = np.zeros(3 << 20), np.zeros(1 << 20)
    assert zeros.nbytes == 24 << 20 and dict(born.missed) == {"zeros": (1, 24 << 20)}
    assert not zeros.any() and not few.any() and is_put_in_place(broker, few)


def test_zeros_are_zero_where_other_arrays_were(broker: Broker) -> None:
    with broker.born("numpy"):
        for _ in range(3):
            array = np.full(N, 7.0)
            del array
            assert not np.zeros(N).any()


def test_an_array_larger_than_the_reserve_is_born_from_the_second_on(broker: Broker) -> None:
    with broker.born("numpy", reserve_bytes=4 << 20) as born:
        first = np.full(N * 8, 1.0)
        assert born.missed["no_room"] == (1, 16 << 20) and not is_put_in_place(broker, first)
        until = time.monotonic() + 60
        while born.arrays == 0 and time.monotonic() < until:
            second = np.full(N * 8, 2.0)
        assert is_put_in_place(broker, second)


def test_more_memory_is_fetched_beside(broker: Broker) -> None:
    with broker.born("numpy", reserve_bytes=8 << 20) as born:
        kept = []
        until = time.monotonic() + 60
        while born.bytes < 64 << 20 and time.monotonic() < until:
            kept.append(np.full(N, len(kept), float))
        assert born.bytes >= 64 << 20
    assert all((array == number).all() for number, array in enumerate(kept))


def test_a_broker_without_memory_is_no_error(tmp_path: Path) -> None:
    daemon = start_daemon(str(tmp_path), "--host-capacity", "16MiB", "--log-level", "error")
    try:
        with Broker(str(tmp_path), start="never") as broker, broker.born("numpy", reserve_bytes=64 << 20) as born:
            array = SOURCE * 2
            assert born.missed == {"refused": (1, array.nbytes)}
            assert "bytes" in born.refusal and "MemoryError" not in born.refusal
            broker.put(array, "copied")
            assert np.array_equal(broker.get("copied"), array)
    finally:
        assert stop_daemon(daemon) == 0


def test_memory_that_it_does_not_use_is_given_back(tmp_path: Path) -> None:
    daemon = start_daemon(str(tmp_path), "--arena-idle", "100ms", "--log-level", "error")

    def written_until(most: int) -> int:
        """The bytes of this process's arenas, once they are no more than this, or after a minute."""
        until = time.monotonic() + 60
        while (written := broker.stats()["client_arena_bytes"]) > most and time.monotonic() < until:
            time.sleep(0.05)
        return written

    try:
        with Broker(str(tmp_path), start="never") as broker:
            with broker.born("numpy", reserve_bytes=8 << 20) as born:
                until = time.monotonic() + 60
                kept = []
                while born.bytes < 100 << 20 and time.monotonic() < until:
                    kept.append(np.full(N, 1.0))
                assert broker.stats()["client_arena_bytes"] >= 100 << 20
                one = np.full(N, 2.0)
                del kept
                assert written_until(40 << 20) <= 40 << 20, "two reserves, what was freed lately, and the arena of one array"
            assert 8 << 20 <= written_until(9 << 20) <= 9 << 20, "an array that lives keeps its arena"
            assert (one == 2).all()
            del one
            assert written_until(0) == 0
    finally:
        assert stop_daemon(daemon) == 0


def test_arrays_outlive_the_broker_and_its_daemon(tmp_path: Path) -> None:
    with Broker(start="private") as broker, broker.born("numpy"):
        array = SOURCE * 2
    assert np.array_equal(array, SOURCE * 2)
    array.resize(2 * N, refcheck=False)
    assert np.array_equal(array[:N], SOURCE * 2)


def test_a_broker_that_was_closed_is_used_again() -> None:
    with Broker(start="private") as broker:
        with broker.born("numpy"):
            first = SOURCE * 2
        broker.close()
        with broker.born("numpy"):
            second = SOURCE * 3
            assert not is_put_in_place(broker, first), "its memory ended with the connection"
            assert is_put_in_place(broker, second)


def test_a_daemon_that_is_replaced_in_the_block(tmp_path: Path) -> None:
    daemon = start_daemon(str(tmp_path), "--log-level", "off")
    with Broker(str(tmp_path), start="never") as broker, broker.born("numpy", reserve_bytes=8 << 20):
        old = SOURCE * 2
        assert is_put_in_place(broker, old)
        kept = SOURCE * 3
        daemon.kill()
        daemon.wait()
        unreached = SOURCE * 4
        daemon = start_daemon(str(tmp_path), "--log-level", "error")
        try:
            assert not is_put_in_place(broker, kept) and np.array_equal(kept, SOURCE * 3)
            until = time.monotonic() + 60
            while not is_put_in_place(broker, SOURCE * 5) and time.monotonic() < until:
                time.sleep(0.05)
            assert is_put_in_place(broker, SOURCE * 6)
            assert np.array_equal(unreached, SOURCE * 4) and np.array_equal(old, SOURCE * 2)
        finally:
            daemon.terminate()
            daemon.wait()


def test_two_brokers_have_their_own(address: str, broker: Broker) -> None:
    with Broker(address, namespace="other-born", start="never") as other:
        with broker.born("numpy"):
            first = SOURCE * 2
            with other.born("numpy"):
                second = SOURCE * 3
            third = SOURCE * 4
        assert is_put_in_place(broker, first) and is_put_in_place(broker, third) and is_put_in_place(other, second)
        assert not is_put_in_place(other, SOURCE * 2)


def test_a_sealed_put_is_a_copy(broker: Broker) -> None:
    with broker.born("numpy"):
        array = SOURCE * 2
    broker.put(array, "sealed", sealed=True)
    array[:] = 0
    assert np.array_equal(broker.get("sealed"), SOURCE * 2)


def test_a_channel_sends_it_in_place(broker: Broker) -> None:
    with broker.channel("frames") as frames, broker.born("numpy"):
        for number in range(20):
            frame = np.full(N, number, float)
            frames.send(frame)
            assert not frame.flags.writeable
            assert (frames.receive() == number).all()


def test_a_put_in_place_takes_no_memory_and_a_second_one_copies(broker: Broker) -> None:
    with broker.born("numpy"):
        array = SOURCE * 2
        before = broker.stats()["client_arena_bytes"]
        broker.put(array, "first")
        assert broker.stats()["client_arena_bytes"] == before
        broker.put(array, "second")
        assert broker.stats()["client_arena_bytes"] > before


@pytest.mark.parametrize(
    ("frameworks", "options", "says"),
    [
        (("cupy", "numpy"), {}, 'born takes "numpy", "torch", "jax", "pyarrow", "tensorflow", not \'cupy\''),
        ((), {"min_bytes": 100}, "min_bytes must be a number of bytes from 4096"),
        ((), {"min_bytes": 1e6}, "not 1000000.0"),
        ((), {"reserve_bytes": 0}, "reserve_bytes must be a number of bytes from 1048576"),
        ((), {"everywhere": 1}, "everywhere must be True or False, not 1"),
    ],
)
def test_wrong_arguments_are_refused(broker: Broker, frameworks: Any, options: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        broker.born(*frameworks, **options)


@pytest.mark.parametrize(("frameworks", "device"), [(("cupy",), None), (("torch", "numba"), "cuda:99")])
def test_a_gpu_that_is_not_there(broker: Broker, frameworks: Any, device: Any) -> None:
    if device is None and _core.gpus():
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceUnavailable, match=f"no CUDA device '{device or 'cuda'}'"):
        broker.born(*frameworks, device=device)


def test_a_block_is_entered_once(broker: Broker) -> None:
    block = broker.born()
    assert repr(block) == "<Born not entered>" and (block.arrays, block.bytes, block.missed, block.refusal) == (0, 0, {}, "")
    with block:
        pass
    with pytest.raises(InvalidRequest, match="call broker.born"):
        block.__enter__()
    assert repr(block) == "<Born 0 arrays, 0 bytes; missed none>" and "<table>" in block._repr_html_()


def test_no_daemon_is_an_error_at_the_entry(tmp_path: Path) -> None:
    with pytest.raises(arraybridge.BrokerUnavailable), Broker(str(tmp_path), start="never").born():
        raise AssertionError("not reached")
    assert np.empty(N).flags.writeable


def test_an_exception_ends_the_block(broker: Broker) -> None:
    with pytest.raises(KeyError), broker.born("numpy") as born:
        raise KeyError("mine")
    count = born.arrays
    after = SOURCE * 2
    assert born.arrays == count and not is_put_in_place(broker, after)
