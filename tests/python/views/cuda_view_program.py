# SPDX-License-Identifier: Apache-2.0
"""Arrays of fake producers on the simulated GPU become Views: the function named by the first argument.

The simulated driver is libcuda.so.1 here, and does what is enqueued only when somebody waits for it.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from dlpack_by_hand import Device, Producer, read

from arraybridge import _core, adapters, asdlpack
from arraybridge.conversion.source import source_of

COUNT = 6  # float32
driver = ctypes.CDLL("libcuda.so.1")
u64 = ctypes.c_uint64


def checked(result: int) -> None:
    assert result == 0, result


def start() -> None:
    context = ctypes.c_void_p()
    checked(driver.cuInit(0))
    checked(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    checked(driver.cuCtxSetCurrent(context))


def stream() -> int:
    made = ctypes.c_void_p()
    checked(driver.cuStreamCreate(ctypes.byref(made), 1))
    return made.value or 0


def memory() -> int:
    address = u64()
    checked(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 << 20)))
    return address.value


def fill(address: int, byte: int, on: int) -> None:
    """Later."""
    checked(driver.cuMemsetD8Async(u64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(4 * COUNT), ctypes.c_void_p(on)))


def first_byte(view: _core.View) -> int:
    return memoryview(_core.copy_to_heap(view)).cast("B")[0]


class Asked:
    """A producer on the GPU that remembers what it was asked, and has what its dialect has."""

    def __init__(self, address: int, takes: set[str], versioned: bool = True, **fields: Any) -> None:
        self.takes, self.asked = takes, list[dict[str, Any]]()
        self.producers: list[Producer] = []
        self.make = lambda: Producer(versioned, shape=(COUNT,), data=address, device=Device(2, 0), **fields)

    def __dlpack__(self, **keywords: Any) -> Any:
        if not set(keywords) <= self.takes:
            raise TypeError(f"unexpected keyword among {sorted(keywords)}")
        self.asked.append(keywords)
        self.producers.append(self.make())
        return self.producers[-1].capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Described:
    def __init__(self, address: int, **more: Any) -> None:
        self.said = {"shape": (COUNT,), "typestr": "<f4", "data": (address, False), "version": 3, **more}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.said


def producers_are_told_the_legacy_stream() -> None:
    address = memory()
    for takes, told in (
        ({"max_version", "stream"}, {"max_version": (1, 3), "stream": 1}),
        ({"stream"}, {"stream": 1}),
        (set[str](), dict[str, Any]()),
    ):
        asked = Asked(address, takes, versioned="max_version" in takes)
        view = _core.wrap(asked)
        assert asked.asked[-1] == told, asked.asked
        assert (view.device, view.address) == ((2, 0), address)
        assert view.__cuda_array_interface__["stream"] == 1
        del view
        assert asked.producers[-1].deletes == 1


def managed_memory_shows_as_the_gpus() -> None:
    assert _core.wrap(Producer(device=Device(13, 0)).capsule()).device == (2, 0)


def an_interface_names_its_gpu_and_its_stream() -> None:
    address, side = memory(), stream()
    fill(address, 7, side)
    late = asdlpack(Described(address, stream=None))
    assert late.device == (2, 0)
    assert late.__cuda_array_interface__["stream"] is None
    assert first_byte(late) != 7, "nobody has asked for that stream"
    view = asdlpack(Described(address, stream=side))
    assert view.__cuda_array_interface__["stream"] == side
    assert first_byte(view) == 7
    assert asdlpack(Described(address, version=2)).__cuda_array_interface__["stream"] == 1
    assert asdlpack(Described(0, shape=(0, 3))).size == 0


def an_interface_that_cannot_be_is_refused() -> None:
    address = memory()
    host = ctypes.create_string_buffer(64)
    for more in (
        {"stream": 0}, {"stream": -1}, {"stream": "1"}, {"version": 1}, {"mask": object()}, {"data": None},
        {"data": (ctypes.addressof(host), False)}, {"typestr": ">f4"}, {"strides": (5,)}, {"shape": (-1,)},
    ):  # fmt: skip
        try:
            _core.wrap_cuda_array_interface(Described(address, **more).__cuda_array_interface__, host)
        except BufferError:
            continue
        raise AssertionError(more)


def a_consumers_stream_comes_after_the_producers() -> None:
    address, producer, consumer = memory(), stream(), stream()
    view = asdlpack(Described(address, stream=producer))
    # None and 1 are the legacy default stream, 2 is this thread's own.
    for number, reader, seen in ((-1, consumer, False), (consumer, consumer, True), (None, 1, True), (1, 1, True), (2, 2, True)):
        fill(address, 9, producer)
        capsule = view.__dlpack__(stream=number, max_version=(1, 0))
        room = ctypes.create_string_buffer(4 * COUNT)
        checked(driver.cuMemcpyDtoHAsync_v2(room, u64(address), ctypes.c_size_t(4 * COUNT), ctypes.c_void_p(reader)))
        checked(driver.cuStreamSynchronize(ctypes.c_void_p(reader)))
        assert (room.raw[0] == 9) == seen, number
        checked(driver.cuStreamSynchronize(ctypes.c_void_p(producer)))
        fill(address, 0, producer)
        checked(driver.cuStreamSynchronize(ctypes.c_void_p(producer)))
        del capsule
    for number in (0, -2, -(2**63), 2**70):
        try:
            view.__dlpack__(stream=number, max_version=(1, 0))
        except ValueError as error:
            assert "-1, 1, 2 or the address of a CUDA stream" in str(error)
        else:
            raise AssertionError(number)


def another_threads_own_stream_is_waited_for() -> None:
    """2 is a name: of the own default stream of each thread that uses it."""
    address = memory()
    view = asdlpack(Described(address, stream=2))
    assert view.__cuda_array_interface__["stream"] == 1, "its reader may be in any thread"
    fill(address, 7, 2)
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(first_byte(view)))
    reader.start()
    reader.join()
    assert found == [7]


def a_host_copy_waits_for_its_producer() -> None:
    address, producer = memory(), stream()
    view = asdlpack(Described(address, stream=producer))
    fill(address, 7, producer)
    copied = _core.wrap(view.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
    assert copied.device == (1, 0) and bytes(memoryview(copied).cast("B")) == bytes([7]) * (4 * COUNT)
    for more in ({}, {"copy": True}):
        capsule = view.__dlpack__(dl_device=(1, 0), max_version=(1, 0), **more)
        assert read(capsule).flags == 2, "IS_COPIED, and nothing else"
        np.from_dlpack(_core.wrap(capsule))[...] = 9
        assert first_byte(view) == 7, "private memory"
    fill(address, 8, producer)
    streamed = _core.wrap(view.__dlpack__(dl_device=(1, 0), max_version=(1, 0), copy=True, stream=stream()))
    assert bytes(memoryview(streamed).cast("B")) == bytes([8]) * (4 * COUNT), "there, whatever the stream"
    try:
        view.__dlpack__(dl_device=(1, 0), max_version=(1, 0), copy=False)
    except BufferError:
        return
    raise AssertionError("no copy")


def byte_at(address: int, reader: int) -> int:
    """What a copy on that stream finds."""
    room = ctypes.create_string_buffer(4 * COUNT)
    checked(driver.cuMemcpyDtoHAsync_v2(room, u64(address), ctypes.c_size_t(4 * COUNT), ctypes.c_void_p(reader)))
    checked(driver.cuStreamSynchronize(ctypes.c_void_p(reader)))
    return room.raw[0]


def a_copy_there_is_queued_on_the_consumers_stream() -> None:
    address, producer, consumer, other = memory(), stream(), stream(), stream()
    view = asdlpack(Described(address, stream=producer))
    for number, reader in ((consumer, consumer), (None, 1), (2, 2), (-1, other)):
        fill(address, 7, producer)
        capsule = view.__dlpack__(max_version=(1, 0), copy=True, stream=number)
        said = read(capsule)
        copied = said.tensor.data
        assert said.flags == 2 and copied not in (0, address) and said.tensor.device.type == 2
        if number == consumer:
            assert byte_at(copied, other) != 7, "nothing has waited for it"
        assert byte_at(copied, reader) == 7, number
        fill(copied, 9, reader)
        assert byte_at(copied, reader) == 9 and first_byte(view) == 7, "private"
        del capsule
    strided = asdlpack(Described(address, stream=producer, shape=(3,), strides=(8,)))
    assert read(strided.__dlpack__(max_version=(1, 0), copy=True, stream=consumer)).tensor.strides[0] == 1
    assert read(asdlpack(Described(0, shape=(0, 3))).__dlpack__(max_version=(1, 0), copy=True)).tensor.data in (0, None)


def what_is_copied_from_stays_until_it_was_read() -> None:
    address, consumer = memory(), stream()
    asked = Asked(address, {"max_version", "stream"})
    fill(address, 7, consumer)
    view = _core.wrap(asked)
    capsule = view.__dlpack__(max_version=(1, 0), copy=True, stream=consumer)
    copied = read(capsule).tensor.data
    del view
    while not asked.producers[-1].deletes:
        time.sleep(0.001)
    fill(address, 0, 1)
    assert byte_at(address, 1) == 0 and byte_at(copied, consumer) == 7, "let go of before it was read"


def who_cannot_be_told_of_read_only_memory_gets_a_copy_there() -> None:
    address, consumer = memory(), stream()
    fill(address, 7, consumer)
    view = asdlpack(Described(address, data=(address, True), stream=consumer))
    old, new = view.__dlpack__(stream=consumer), view.__dlpack__(stream=consumer, max_version=(1, 0))
    assert _core.wrap(old).address != address, "no flag says what it must not do"
    assert read(new).flags == 1 and read(new).tensor.data == address
    assert _core.wrap(view.for_immutable_consumer().__dlpack__(stream=consumer)).address == address


class LikeCupy(ModuleType):
    """The part of CuPy's interface that its adapter uses, over fake producers."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.__version__ = "14.0.0"
        self.current = 0
        self.cuda = SimpleNamespace(Device=self.device, get_current_stream=lambda: SimpleNamespace(ptr=0))
        self.ndarray = type("ndarray", (Asked,), {})

    @contextmanager
    def device(self, number: int) -> Iterator[None]:
        before, self.current = self.current, number
        yield
        self.current = before

    def array(self, address: int, **more: Any) -> Any:
        made = self.ndarray(address, {"max_version", "stream"})
        made.__dict__ |= {
            "dtype": np.dtype("float32"), "shape": (COUNT,), "strides": (4,), "data": SimpleNamespace(ptr=address),
            "device": SimpleNamespace(id=0), "flags": SimpleNamespace(c_contiguous=True), **more,
        }  # fmt: skip
        return made

    def from_dlpack(self, view: _core.View) -> Any:
        assert view.device[1] == self.current, "in its device"
        view.__dlpack__(stream=1, max_version=(1, 0))
        return self.array(view.address)


def a_module_like_cupy_is_read_and_made() -> None:
    cupy = LikeCupy()
    sys.modules["cupy"] = cupy
    array = cupy.array(memory())
    source = source_of(array, "cupy")
    assert (source.description.framework, source.description.device) == ("cupy", (2, 0))
    assert source.description.strides == (1,)
    view = source.view()
    assert view.address == array.data.ptr
    assert array.asked[-1]["stream"] == 1
    assert adapters.named("cupy").view(view).data.ptr == view.address
    del view  # while its producer is there
    strided = source_of(cupy.array(memory(), strides=(8,), flags=SimpleNamespace(c_contiguous=False)), "cupy")
    assert not strided.description.obstacles
    assert strided.description.fill is not None, "only CuPy itself can copy it"


def gpus_are_listed_by_number() -> None:
    assert [gpu[-2:] for gpu in _core.gpus()] == ["01", "00"]
    assert {len(gpu) for gpu in _core.gpus()} == {40}


start()
globals()[sys.argv[1]]()
print("done")
