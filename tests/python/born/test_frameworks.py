# SPDX-License-Identifier: Apache-2.0
"""Arrays of torch, JAX and pyarrow that are born in broker memory: which are, and that what was put stays as it was."""

import copy
import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from in_place import is_memory_put_in_place, is_put_in_place

import arraybridge
from arraybridge import Broker

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
jax = pytest.importorskip("jax", reason="JAX is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pc = pytest.importorskip("pyarrow.compute")

SIDE = 1024
N = SIDE * SIDE
RESERVE = 64 << 20
VALUES = np.random.default_rng(0).random((SIDE, SIDE), "float32")
Made = Callable[[], Any]


def resized() -> Any:
    tensor = torch.empty(N).fill_(1)
    return tensor.resize_(2 * N).fill_(2)


def gradient() -> Any:
    weights = torch.from_numpy(VALUES).clone().requires_grad_()
    (weights @ weights).sum().backward()
    return weights.grad


TORCH: dict[str, Made] = {
    "empty": lambda: torch.empty(N).fill_(1),
    "zeros": lambda: torch.zeros(N),
    "operation": lambda: torch.from_numpy(VALUES) + 1,
    "matmul": lambda: torch.from_numpy(VALUES) @ torch.from_numpy(VALUES),
    "convolution": lambda: torch.nn.functional.conv2d(torch.rand(1, 3, 512, 512), torch.rand(8, 3, 3, 3)).contiguous(),
    "deepcopy": lambda: copy.deepcopy(torch.ones(N)),
    "backward": gradient,
    "resize": resized,
    "parameter": lambda: torch.nn.Linear(SIDE, SIDE).weight,
    "bfloat16": lambda: torch.ones(N, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("made", TORCH)
def test_what_torch_makes_is_put_in_place(broker: Broker, made: str) -> None:
    with broker.born("torch", reserve_bytes=RESERVE) as born:
        tensor = TORCH[made]()
    assert born.arrays >= 1 and born.missed == {} and born.skipped == {}
    assert is_memory_put_in_place(broker, tensor, tensor.data_ptr())


def donated() -> Any:
    return jax.jit(lambda array: array * 2, donate_argnums=0)(jax.numpy.ones((SIDE, SIDE)) + 1)


JAX: dict[str, Made] = {
    "operation": lambda: jax.numpy.asarray(VALUES) + 1,
    "jit": lambda: jax.jit(lambda array: jax.numpy.sin(array) * 2 + array)(VALUES),
    "several results": lambda: jax.jit(lambda array: (array + 1, array * 2))(VALUES)[1],
    "matmul": lambda: jax.numpy.dot(VALUES, VALUES),
    "device_put": lambda: jax.device_put(np.frombuffer(b"?" + VALUES.tobytes(), "uint8", offset=1)),
    "random": lambda: jax.random.normal(jax.random.key(0), (SIDE, SIDE)),
    "gradient": lambda: jax.grad(lambda array: (array * array).sum())(jax.numpy.asarray(VALUES)),
    "vmap": lambda: jax.vmap(lambda row: row * 2)(jax.numpy.asarray(VALUES)),
    "donated": donated,
    "bfloat16": lambda: jax.numpy.ones((SIDE, SIDE), "bfloat16") * 2,
}


@pytest.mark.parametrize("made", JAX)
def test_what_jax_makes_is_put_in_place(broker: Broker, made: str) -> None:
    with broker.born("jax", reserve_bytes=RESERVE) as born:
        array = JAX[made]().block_until_ready()
    assert born.arrays >= 1 and born.missed == {} and born.skipped == {}
    assert is_memory_put_in_place(broker, array, array.unsafe_buffer_pointer())


ARROW: dict[str, Made] = {
    "compute": lambda: pc.add(pyarrow.array(VALUES.ravel()), 1),
    "cast": lambda: pyarrow.array(VALUES.ravel()).cast(pyarrow.float64()),
    "concatenate": lambda: pyarrow.concat_arrays([pyarrow.array(VALUES.ravel())] * 2),
}


@pytest.mark.parametrize("made", ARROW)
def test_what_pyarrow_makes_is_put_in_place(broker: Broker, made: str) -> None:
    pool = pyarrow.default_memory_pool().backend_name
    with broker.born("pyarrow", reserve_bytes=RESERVE) as born:
        array = ARROW[made]()
    assert born.arrays >= 1 and born.missed == {} and born.skipped == {}
    assert pyarrow.default_memory_pool().backend_name == pool
    assert is_memory_put_in_place(broker, array, array.buffers()[1].address)


def address_of(array: Any) -> int:
    """Of its first byte. In contrast to `data_ptr()`, torch copies nothing for it."""
    return int(torch._C._data_address(array) if isinstance(array, torch.Tensor) else array.unsafe_buffer_pointer())


@contextmanager
def unchanged(broker: Broker, array: Any) -> Iterator[None]:
    """Puts the array, which must be in place, and checks that what is done then does not reach the reader."""
    address = address_of(array)
    broker.put(array, "array", replace=True)
    got = broker.get("array", "numpy")
    values = got.copy()
    first = ctypes.string_at(address, 1)
    ctypes.memmove(address, bytes([first[0] ^ 0xFF]), 1)
    assert got.tobytes()[:1] != first, "the put copied"
    ctypes.memmove(address, first, 1)
    yield
    assert np.array_equal(got, values)
    broker.withdraw("array")  # the daemon of all tests has so much memory


def test_a_tensor_that_is_written_after_its_put_is_copied_first(broker: Broker) -> None:
    with broker.born("torch", reserve_bytes=RESERVE):
        tensor = torch.arange(N, dtype=torch.float32)
        row = tensor[:SIDE]
        with unchanged(broker, tensor):
            assert tensor.sum() > 0
            tensor.add_(1)
            assert tensor[5] == 6 and row[5] == 6, "its views stay its views"
        with unchanged(broker, tensor), torch.no_grad():
            row.zero_()
            assert tensor[5] == 0 and tensor[SIDE] == SIDE + 1


def test_a_view_that_outlives_its_tensor_is_copied_too(broker: Broker) -> None:
    with broker.born("torch", reserve_bytes=RESERVE):
        tensor = torch.ones(N)
        row = tensor[:SIDE]
        with unchanged(broker, tensor):
            del tensor
            gc.collect()
            row.mul_(5)
            assert row[0] == 5


def test_an_optimizer_writes_beside_what_was_put(broker: Broker) -> None:
    with broker.born("torch", reserve_bytes=RESERVE) as born:
        model = torch.nn.Linear(SIDE, SIDE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            name = f"weight-{step}"
            address = address_of(model.weight)
            broker.put(model.weight, name)
            got, values = broker.get(name, "numpy"), model.weight.detach().clone().numpy()
            assert got.ctypes.data != address, "the reader's own mapping"
            model(torch.ones(4, SIDE)).sum().backward()
            optimizer.step()
            assert np.array_equal(got, values) and not np.array_equal(model.weight.detach().numpy(), values)
    assert born.missed == {}


def test_torch_refuses_to_resize_what_was_put(broker: Broker) -> None:
    with broker.born("torch", reserve_bytes=RESERVE):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = torch.ones(N, dtype=dtype)
            with unchanged(broker, tensor):
                with pytest.raises(RuntimeError, match="not resizable"):
                    tensor.resize_(2 * N)
                tensor.resize_(10).fill_(8)
                assert (tensor == 8).all()


def test_a_donated_array_is_copied_if_it_was_put(broker: Broker) -> None:
    add = jax.jit(lambda array: array + 1, donate_argnums=0)
    with broker.born("jax", reserve_bytes=RESERVE):
        for dtype in ("float32", "bfloat16", "int16", "bool", "complex64"):
            array = (jax.numpy.ones((SIDE, 2 * SIDE), dtype) * 1).block_until_ready()
            address = array.unsafe_buffer_pointer()
            with unchanged(broker, array):
                result = add(array).block_until_ready()
                assert result.unsafe_buffer_pointer() != address


def test_a_part_of_a_tensor_is_copied(broker: Broker) -> None:
    with broker.born("torch", reserve_bytes=RESERVE):
        rows = torch.ones(4, N)
    assert not is_memory_put_in_place(broker, rows[0], rows[0].data_ptr())
    assert not is_memory_put_in_place(broker, rows[1], rows[1].data_ptr())
    assert not is_memory_put_in_place(broker, rows.t()[0], rows.data_ptr())
    assert is_memory_put_in_place(broker, rows, rows.data_ptr())


def test_what_was_made_before_and_after_is_copied(broker: Broker) -> None:
    before = torch.ones(N)
    with broker.born("torch", "jax", reserve_bytes=RESERVE) as born:
        small = torch.ones(1000)
    after, of_jax = torch.ones(N), jax.numpy.ones(N) + 1
    assert born.by_framework == {"torch": (0, 0), "jax": (0, 0)} and born.missed == {}
    for tensor in (before, small, after):
        assert not is_memory_put_in_place(broker, tensor, tensor.data_ptr())
    assert not is_memory_put_in_place(broker, of_jax, of_jax.unsafe_buffer_pointer())


def test_memory_comes_back_when_a_tensor_ends(broker: Broker) -> None:
    with broker.born("torch", reserve_bytes=16 << 20) as born:
        for turn in range(100):
            tensor = torch.full((N,), float(turn))
            if turn % 10 == 0:
                broker.put(tensor, "kept", replace=True)
            del tensor
        assert born.arrays == 100 and born.missed == {}
    assert (broker.get("kept", "numpy") == 90).all()


def test_min_bytes_holds_for_each_framework(broker: Broker) -> None:
    with broker.born("torch", min_bytes=8192, reserve_bytes=RESERVE) as born:
        tensor = torch.ones(4096)
    assert born.by_framework == {"torch": (1, 16384)}
    assert is_memory_put_in_place(broker, tensor, tensor.data_ptr())


def test_numpy_beside_others(broker: Broker) -> None:
    with broker.born("numpy", "torch", reserve_bytes=RESERVE) as born:
        array, tensor = VALUES + 1, torch.ones(N)
    assert born.by_framework == {"numpy": (1, 4 * N), "torch": (1, 4 * N)} and (born.arrays, born.bytes) == (2, 8 * N)
    assert is_put_in_place(broker, array) and is_memory_put_in_place(broker, tensor, tensor.data_ptr())


def test_all_threads_have_it(broker: Broker) -> None:
    made: list[Any] = []
    with broker.born("torch", reserve_bytes=RESERVE):
        threads = [threading.Thread(target=lambda: made.append(torch.ones(N))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(is_memory_put_in_place(broker, tensor, tensor.data_ptr()) for tensor in made) and len(made) == 4


def test_the_latest_block_of_two_brokers_has_the_tensors(address: str, broker: Broker) -> None:
    with Broker(address, namespace="other-frameworks", start="never") as other:
        with broker.born("torch", reserve_bytes=RESERVE):
            first = torch.ones(N)
            with other.born("torch", reserve_bytes=RESERVE):
                second = torch.ones(N)
            third = torch.ones(N)
        assert is_memory_put_in_place(broker, first, first.data_ptr())
        assert is_memory_put_in_place(other, second, second.data_ptr())
        assert is_memory_put_in_place(broker, third, third.data_ptr())


def test_a_channel_sends_a_tensor_in_place(broker: Broker) -> None:
    with broker.channel("tensors") as channel, broker.born("torch", reserve_bytes=RESERVE):
        for turn in range(10):
            tensor = torch.full((N,), float(turn))
            channel.send(tensor)
            got = channel.receive("numpy")
            tensor.add_(100)
            assert (got == turn).all() and (tensor == turn + 100).all()


def test_tensorflow_is_skipped_with_the_reason(broker: Broker) -> None:
    with broker.born("tensorflow", "torch") as born:
        pass
    assert set(born.skipped) == {"tensorflow"} and "a put copies its tensors" in born.skipped["tensorflow"]
    assert repr(born) == "<Born 0 arrays, 0 bytes; missed none; skipped tensorflow>"
    assert "skipped: tensorflow" in born._repr_html_()


def test_a_framework_that_is_not_installed_is_skipped(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with broker.born("pyarrow", "numpy") as born:
        array = VALUES * 3
    assert "pyarrow" in born.skipped["pyarrow"] and born.by_framework == {"numpy": (1, 4 * N)}
    assert is_put_in_place(broker, array)


def test_a_library_without_slots_is_skipped(broker: Broker) -> None:
    core = broker._connection.core()
    heap = arraybridge._core.born_heap(core, 1 << 20)
    for library, says in (("libno-such-library", "has not loaded libno-such"), ("libm.so", "libm.so does not call posix_memalign")):
        scope = arraybridge._core.born_imports(heap, "torch", [library], 1 << 20)
        assert says in scope.enter()
