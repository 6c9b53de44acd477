# SPDX-License-Identifier: Apache-2.0
"""One case each on the simulated GPU with fakes of the frameworks: ``gpu_cases_program.py ADDRESS NAME``."""

import ctypes
import gc
import multiprocessing
import sys
import warnings
import weakref
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies

import arraybridge
import arraybridge.multiprocessing
from arraybridge import _core, adapters, asdlpack
from arraybridge.errors import DeviceUnavailable, UnsupportedArray, UnsupportedDtype, ZeroCopyUnavailable

VALUES = np.arange(12, dtype="f4").reshape(3, 4)


def plan_of(broker: arraybridge.Broker, source: Any, target: str, **wishes: Any) -> Any:
    got, plan = broker.convert(source, target, explain=True, **wishes)
    assert (got.values() == source.values()).all(), (target, got.values())
    assert (got.address == source.address) == plan.zero_copy
    return plan


def layouts_of_a_gpu(broker: arraybridge.Broker) -> None:
    fortran = frameworks.CupyArray.of(VALUES, strides=(4, 12))
    ways = {target: plan_of(broker, fortran, target).route for target in ("torch", "jax", "tensorflow", "pyclesperanto")}
    assert ways == {"torch": "hand_over", "jax": "hand_over", "tensorflow": "place", "pyclesperanto": "place"}, ways
    backwards = frameworks.CupyArray.of(VALUES, strides=(16, -4), offset=12)
    for target in ways:
        plan = plan_of(broker, backwards, target)
        assert plan.copies == 1 and plan.reasons[0].startswith("layout: strided"), plan
    for source, target in (("cupy", "torch"), ("torch", "cupy"), ("numba", "torch"), ("numba", "cupy"), ("torch", "jax")):
        repeated = frameworks.ARRAYS[source].of(VALUES, strides=(0, 4))
        plan = plan_of(broker, repeated, target)
        assert plan.copies == 1 and plan.via == "d2d-copy" and plan.reasons[0].startswith("layout: "), (source, plan)
        got = arraybridge.convert_memory(repeated, None, target, 0)
        assert got.on_gpu and got.address != repeated.address and (got.values() == repeated.values()).all()
    stepped = frameworks.DeviceNDArrayBase.of(VALUES, strides=(32, 8))
    assert plan_of(broker, stepped, "torch").zero_copy and plan_of(broker, stepped, "tensorflow").copies == 1
    stepped = frameworks.TorchTensor.of(VALUES, strides=(32, 8))
    assert plan_of(broker, stepped, "cupy").zero_copy and plan_of(broker, stepped, "jax").copies == 1


def immutables_are_shared_with_a_note(broker: arraybridge.Broker) -> None:
    plan = plan_of(broker, frameworks.TorchTensor.of(VALUES), "jax")
    assert plan.notes[0].startswith("immutable_alias_of_writable")
    plan = plan_of(broker, frameworks.JaxArray.of(VALUES), "torch")
    assert plan.notes[0].startswith("writable_alias_of_immutable")
    assert plan_of(broker, frameworks.JaxArray.of(VALUES), "torch", copy=True).copies == 1


def tensorflow_gets_what_is_complete(broker: arraybridge.Broker) -> None:
    """It cannot be told a stream: what its producer has queued has ended before it is asked."""
    driver = ctypes.CDLL("libcuda.so.1")
    stream, block = ctypes.c_void_p(), gpu.Block(48)
    gpu.checked(driver.cuStreamCreate(ctypes.byref(stream), 1))
    interface = {"shape": (12,), "typestr": "<i4", "data": (block.address, False), "version": 3, "stream": stream.value}
    for target in ("tensorflow", "pyclesperanto"):
        for byte in (3, 5):
            gpu.checked(driver.cuMemsetD8Async(ctypes.c_uint64(block.address), ctypes.c_ubyte(byte), ctypes.c_size_t(48), stream))
            late = _core.wrap_cuda_array_interface(interface, block)
            got = adapters.named(target).view(late)
            # Read past every View, which would wait.
            room = ctypes.create_string_buffer(48)
            other = ctypes.c_void_p()
            gpu.checked(driver.cuStreamCreate(ctypes.byref(other), 1))
            gpu.checked(driver.cuMemcpyDtoHAsync_v2(room, ctypes.c_uint64(got.address), ctypes.c_size_t(48), other))
            gpu.checked(driver.cuStreamSynchronize(other))
            assert room.raw == bytes([byte]) * 48, (target, byte, room.raw)


def a_gpus_memory_never_reaches_who_has_no_gpu(broker: arraybridge.Broker) -> None:
    sys.modules["tensorflow"].gpus.clear()  # type: ignore[attr-defined]
    array = frameworks.CupyArray.of(VALUES)
    gone = weakref.ref(array.owner)
    for ask in (
        lambda: broker.convert(array, "tensorflow", device=0),
        lambda: adapters.named("tensorflow").view(asdlpack(array)),
        lambda: arraybridge.convert_memory(array, "cupy", "tensorflow", 1),
    ):
        try:
            ask()
        except DeviceUnavailable as error:
            assert "CUDA" in str(error), error
        else:
            raise AssertionError("it has no GPU")
    got = broker.convert(array, "tensorflow")
    assert not got.on_gpu and (got.values() == VALUES).all() and not array.asked[-1].get("copy")
    del array, ask
    gc.collect()
    broker.flush()
    assert gone() is None, "somebody holds what was refused"


class TensorShape(tuple[int, ...]):
    rank = property(len)


class HostNumbers(frameworks.TfTensor, ctypes.c_int32 * 3 * 2):  # type: ignore[misc]
    """int32 of an operation on a GPU: TensorFlow keeps it in host memory, and its `device` names the GPU all the same."""

    device = property(lambda self: f"/job:localhost/replica:0/task:0/device:GPU:{self.number}")  # type: ignore[assignment]
    shape = property(lambda self: TensorShape(self.held.shape))  # type: ignore[assignment]

    def __init__(self, values: np.ndarray[Any, Any], number: int) -> None:
        np.copyto(np.asarray(memoryview(self)), values)
        super().__init__(asdlpack(memoryview(self)))
        self.number = number


def int32_on_a_gpu_is_read_where_it_lies(broker: arraybridge.Broker) -> None:
    values = np.array([[1, -2, 2**31 - 1], [0, 5, -(2**31)]], "i4")
    for number in (0, 1):
        tensor = HostNumbers(values, number)
        assert "GPU" in tensor.device and tensor.__dlpack_device__() == (1, 0)
        assert arraybridge.get_device_id(tensor, "tensorflow") is None, "where its memory is"
        got, plan = broker.convert(tensor, "numpy", explain=True)
        assert plan.zero_copy and plan.device == "cpu" and (got == values).all() and not got.flags.writeable
        for target, device in (("cupy", "cuda:0"), ("torch", "cpu"), ("jax", "cpu")):
            got, plan = broker.convert(tensor, target, explain=True)
            assert plan.device == device and got.on_gpu == (target == "cupy"), (target, plan)
            assert (got.values() == values).all() and got.held.dtype_name == "int32", (target, got.values())
        for target in ("cupy", "torch", "jax", "pyclesperanto"):
            got = arraybridge.convert_memory(tensor, "tensorflow", target, 0)
            assert got.on_gpu and (got.values() == values).all(), target
        broker.put(tensor, "numbers", replace=True)
        assert (broker.get("numbers") == values).all()


def exports_wait_for_their_queue(broker: arraybridge.Broker) -> None:
    image = frameworks.CleArray.of(VALUES)
    broker.convert(image, "torch", device=0)
    assert image.read, "its queue has not been waited for"
    jax = frameworks.JaxArray.of(VALUES)
    broker.convert(jax, "torch", device=0)
    assert {"stream": 1} in jax.asked


def managed_memory_is_relabelled(broker: arraybridge.Broker) -> None:
    class Managed(frameworks.CupyArray):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 13, 0

    array = Managed.of(VALUES)
    for target in ("torch", "jax", "tensorflow"):
        plan = plan_of(broker, array, target)
        assert plan.zero_copy and plan.notes[0].startswith("relabelled"), (target, plan)


def nothing_wrong_reaches_pyclesperanto(broker: arraybridge.Broker) -> None:
    for wrong, error in (
        (np.zeros((2, 2, 2, 2), "f4"), UnsupportedArray),
        (np.zeros((0, 2), "f4"), UnsupportedArray),
        (np.float32(1).reshape(()), UnsupportedArray),
        (np.zeros(3, "f8"), UnsupportedDtype),
        (np.zeros(3, "c8"), UnsupportedDtype),
        (np.zeros(3, "?"), UnsupportedDtype),
    ):
        try:
            broker.convert(frameworks.TorchTensor.of(wrong), "pyclesperanto")
        except error:
            continue
        raise AssertionError(wrong)
    narrow = broker.convert(frameworks.TorchTensor.of(np.arange(4.0)), "pyclesperanto", allow_downcast=True)
    assert narrow.values().tolist() == [0, 1, 2, 3] and narrow.dtype == np.float32 and narrow.on_gpu
    broker.put(np.arange(4.0), "wide")
    narrow, plan = broker.get("wide", "pyclesperanto", allow_downcast=True, explain=True)
    assert narrow.values().tolist() == [0, 1, 2, 3] and narrow.on_gpu and plan.copies == 2


def the_prototypes_arrays_are_uploaded_as_they_are(broker: arraybridge.Broker) -> None:
    del sys.modules["pyclesperanto"]
    sys.modules["pyclesperanto_prototype"] = frameworks.LikePrototype()
    image = np.arange(6, dtype="u2").reshape(2, 3)
    got, plan = broker.convert(image, "pyclesperanto", explain=True)
    assert type(got) is frameworks.OCLArray and got.dtype == np.uint16 and plan.via == "h2d"
    assert (got.get() == image).all()
    back, plan = broker.convert(got, "numpy", explain=True)
    assert (back == image).all() and back.dtype == np.uint16 and (plan.via, plan.copies) == ("d2h", 1)
    moved, plan = broker.convert(got, "torch", device=0, explain=True)
    assert (moved.values() == image).all() and (plan.via, plan.copies) == ("d2h+h2d", 2)
    again, plan = broker.convert(moved, "pyclesperanto", explain=True)
    assert (again.get() == image).all() and (plan.via, plan.copies) == ("d2h+h2d", 2)
    broker.put(got, "image")
    assert (broker.get("image") == image).all()
    try:
        asdlpack(got)
    except BufferError as error:
        assert "no_foreign_memory" in str(error)
    else:
        raise AssertionError("nobody can address it")


def one_share_lies_on_one_device(broker: arraybridge.Broker) -> None:
    there = frameworks.CupyArray.of(VALUES)
    for arrays in ([there, VALUES], {"a": VALUES, "b": (there, there)}):
        try:
            broker.put(arrays, "both")
        except arraybridge.InvalidRequest as error:
            assert "on one device, not on cpu and cuda:0" in str(error), error
        else:
            raise AssertionError("two devices")
    assert not broker.list("both")
    broker.put([there, frameworks.TorchTensor.of(VALUES)], "both")
    assert all((got.values() == VALUES).all() and got.on_gpu for got in broker.get("both", "torch"))


def numba_speaks_its_interface_alone(broker: arraybridge.Broker) -> None:
    array = frameworks.DeviceNDArrayBase.of(VALUES)
    assert adapters.of(array) is adapters.named("numba")
    assert asdlpack(array).address == array.address
    assert plan_of(broker, array, "cupy").zero_copy
    assert plan_of(broker, frameworks.TfTensor.of(VALUES), "numba").zero_copy
    try:
        broker.convert(array, "numpy", copy=False)
    except ZeroCopyUnavailable as error:
        assert "different_device" in str(error)
    else:
        raise AssertionError("it lies on a GPU")


def a_pickle_comes_after_the_stream_of_the_thread_that_sent_it(broker: arraybridge.Broker) -> None:
    """A Queue pickles in a thread of its own, in which CuPy has another current stream."""
    driver, side = ctypes.CDLL("libcuda.so.1"), gpu.stream()
    array = frameworks.CupyArray.of(np.zeros(1 << 15, np.uint8))
    arraybridge.multiprocessing.install(broker, threshold=1)
    queue: Any = multiprocessing.Queue()
    sys.modules["cupy"].__dict__["streams"].current = side
    gpu.checked(driver.cuMemsetD8Async(ctypes.c_uint64(array.address), ctypes.c_ubyte(7), ctypes.c_size_t(1 << 15), ctypes.c_void_p(side)))
    queue.put(array)
    got = queue.get(timeout=60)  # what raises in that thread is dropped
    arraybridge.multiprocessing.uninstall()
    assert isinstance(got, frameworks.CupyArray)
    assert set(got.values().tolist()) == {7}, set(got.values().tolist())


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install()
with arraybridge.Broker(sys.argv[1], namespace="cases", start="never") as made:
    globals()[sys.argv[2]](made)
print("done")
