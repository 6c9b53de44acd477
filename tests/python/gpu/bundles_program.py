# SPDX-License-Identifier: Apache-2.0
"""Bundles on two simulated GPUs, with fakes of the frameworks: ``bundles_program.py ADDRESS NAME [ARGUMENT]``."""

import ctypes
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies
from gpu_programs import refused

import arraybridge
from arraybridge import Broker, BundleSpec, _core
from arraybridge.files import reading
from arraybridge.integrations.torch import attach, publish

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
MIXED = {"w": VALUES, "t": VALUES.T, "swapped": VALUES.astype(">f4"), "scalar": np.array(7), "empty": np.zeros((0, 3), "f4")}


def on_gpu(number: int, framework: str, values: Any = VALUES, **layout: Any) -> Any:
    gpu.enter(number)
    made = frameworks.ARRAYS[framework].of(values, **layout)
    gpu.enter(0)
    return made


def counted(way: Callable[[], Any], call: str) -> tuple[Any, int]:
    """The result, and how often the driver was called for it."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.simulated_cuda_counter.restype = ctypes.c_long
    before = driver.simulated_cuda_counter(call.encode())
    return way(), driver.simulated_cuda_counter(call.encode()) - before


def same(bundle: Any, arrays: Any, number: int = 0) -> None:
    assert bundle.share.device == (2, number) and sorted(bundle) == sorted(arrays)
    for framework in ("torch", "cupy"):
        for name, array in bundle.arrays(framework).items():
            assert not array.address or array.held.device == (2, number), (name, array.held.device)
            assert array.address == bundle[name].address
            assert (array.values() == arrays[name]).all() and array.shape == arrays[name].shape, name
    for name, array in bundle.numpy().items():
        assert type(array) is np.ndarray and (array == arrays[name]).all(), name


def arrays_of_the_host_lie_on_the_gpu(broker: Broker, _: str) -> None:
    for number, device in ((0, "cuda"), (1, "cuda:1"), (1, _core.gpus()[1]), (0, 0)):
        broker.bundle("m", MIXED, device=device, fingerprint=b"f", metadata=b"m", replace=True).fill().publish()
        bundle = broker.open("m")
        same(bundle, MIXED, number)
        assert (bundle.fingerprint, bundle.metadata, gpu.current()) == (b"f", b"m", 0)
    refused(lambda: broker.bundle("m", MIXED, device="cuda:2"), arraybridge.DeviceUnavailable, "cuda:2")
    refused(lambda: broker.bundle("m", MIXED, device="gpu"), arraybridge.InvalidDevice, "gpu")


def arrays_of_gpus_are_copied_where_the_bundle_lies(broker: Broker, _: str) -> None:
    apart = on_gpu(0, "torch", VALUES, strides=(32, 8))
    arrays = {"torch": on_gpu(0, "torch"), "apart": apart, "cupy": on_gpu(0, "cupy"), "jax": on_gpu(0, "jax")}
    expected = dict.fromkeys(arrays, VALUES)
    broker.bundle("there", arrays).fill().publish()
    same(broker.open("there"), expected)
    sys.modules["pyclesperanto_prototype"] = frameworks.LikePrototype()
    mixed = {
        **arrays, "host": VALUES, "opencl": frameworks.OCLArray(VALUES), "other": on_gpu(1, "torch"),
        "other apart": on_gpu(1, "torch", VALUES, strides=(32, 8)),
    }  # fmt: skip
    refused(lambda: broker.bundle("mixed", mixed), arraybridge.InvalidRequest, "cpu", "cuda:0", "cuda:1", "device=")
    for number in (0, 1):
        broker.bundle("mixed", mixed, device=number, replace=True).fill().publish()
        same(broker.open("mixed"), dict.fromkeys(mixed, VALUES), number)
    broker.bundle("host", mixed, device="cpu").fill().publish()
    host = broker.open("host")
    assert host.share.device == (1, 0) and all((array == VALUES).all() for array in host.numpy().values())
    tied = broker.bundle("tied", {"a": arrays["torch"], "b": arrays["torch"]}).fill().publish()
    assert tied.nbytes < 2 * VALUES.nbytes + 512
    read = broker.open("tied").torch()
    assert read["a"] is read["b"]
    broker.bundle("again", broker.open("there"), replace=True).fill().publish()
    same(broker.open("again"), expected)


def it_is_written_in_place(broker: Broker, _: str) -> None:
    writer = broker.bundle("m", {"w": BundleSpec((3, 4), "float32"), "b": BundleSpec((5,), "int64")}, device="cuda:1")
    refused(lambda: writer["w"], arraybridge.UnsupportedArray, "cuda:1", "torch", "cupy")
    refused(lambda: writer.array("w", "jax"), arraybridge.UnsupportedArray, "jax")
    room = writer.array("w", "torch")
    assert room.held.device == (2, 1) and not room.held.read_only
    gpu.enter(1)
    gpu.write(room.address, VALUES)
    gpu.enter(0)
    seen: list[tuple[int, int]] = []
    writer.fill({"b": np.arange(5)}, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 40), (40, 40)], seen
    refused(lambda: writer.fill({"b": np.arange(6)}), arraybridge.InvalidRequest, "differs from the bundle's")
    writer.publish()
    same(broker.open("m"), {"w": VALUES, "b": np.arange(5)}, 1)


def what_a_framework_has_queued_is_done_before_it_is_published(broker: Broker, _: str) -> None:
    driver, other = ctypes.CDLL("libcuda.so.1"), gpu.stream()
    for framework in ("torch", "cupy"):
        for number in range(20):
            writer = broker.bundle("m", {"w": BundleSpec((48,), "uint8")}, device=0, replace=True)
            room = writer.array("w", framework)
            address, size = ctypes.c_uint64(room.address), ctypes.c_size_t(48)
            # The legacy stream, which the fakes' arrays are exported for.
            gpu.checked(driver.cuMemsetD8Async(address, ctypes.c_ubyte(number + 1), size, ctypes.c_void_p(1)))
            writer.publish()
            read = ctypes.create_string_buffer(48)
            gpu.checked(driver.cuMemcpyDtoHAsync_v2(read, address, size, ctypes.c_void_p(other)))
            gpu.checked(driver.cuStreamSynchronize(ctypes.c_void_p(other)))
            assert read.raw == bytes([number + 1]) * 48, (framework, number, read.raw)


def many_small_arrays_need_few_waits(broker: Broker, _: str) -> None:
    arrays = {f"{i}": np.full(100, i, "i4") for i in range(500)}
    writer = broker.bundle("m", arrays, device=0)
    _, waits = counted(writer.fill, "cuStreamSynchronize")
    assert waits == 1, waits
    writer.publish()
    bundle, copies = counted(lambda: broker.open("m"), "cuMemcpyDtoHAsync")
    assert copies == 1, "the manifest, once"
    _, copies = counted(lambda: (list(bundle), bundle.torch()), "cuMemcpyDtoHAsync")
    assert copies == 0, copies
    assert (bundle.torch("123")["123"].values() == 123).all()


def another_process_writes(broker: Broker, _: str) -> None:
    broker.bundle("m", MIXED, device=1).fill().publish()
    print(_core.gpus()[1], flush=True)
    sys.stdin.read()


def another_process_reads(broker: Broker, uuid: str) -> None:
    number = _core.gpus().index(uuid)
    same(broker.open("m"), MIXED, number)
    first = broker.open("m")
    broker.bundle("m", {"w": VALUES + 1}, device=uuid, replace=True).fill().publish()
    same(first.wait_newer(5), {"w": VALUES + 1}, number)
    same(first, MIXED, number)


def files_are_loaded_onto_the_gpu(broker: Broker, _: str) -> None:
    folder = Path(tempfile.mkdtemp())
    large = np.arange(3 * reading.PIECE // 4 + 5, dtype="i4")
    arrays = {**{f"l{i}": np.full((i % 3, 5), i, "f4") for i in range(40)}, "large": large, "scalar": np.array(3.5)}
    arraybridge.save(arrays, folder / "net.safetensors", metadata={"by": "hand"})
    seen: list[tuple[int, int]] = []
    for device, number in (("cuda", 0), (1, 1)):
        seen.clear()
        bundle = arraybridge.load(
            folder / "net.safetensors", broker=broker, device=device, progress=lambda done, total: seen.append((done, total))
        )
        same(bundle, arrays, number)
        total = sum(array.nbytes for array in arrays.values())
        assert seen[0] == (0, total) and seen[-1] == (total, total) and len(seen) > 3, seen
        # It is there: also without a wish, wherever it lies.
        for wish in (device, None):
            again = arraybridge.load(folder / "net.safetensors", broker=broker, device=wish)
            assert again.share.generation == bundle.share.generation
    on_host = arraybridge.load(folder / "net.safetensors", broker=broker, device="cpu")
    assert on_host.share.device == (1, 0) and on_host.share.generation > bundle.share.generation
    refused(lambda: arraybridge.load(folder / "net.safetensors", broker=broker, device=7), arraybridge.DeviceUnavailable, "7")
    odd = {"w": VALUES, "t": np.asfortranarray(VALUES), "swapped": VALUES.astype(">f4"), "large": large, "e": np.zeros((0, 2))}
    np.savez(folder / "odd.npz", **odd)  # type: ignore[arg-type]
    same(arraybridge.load(folder / "odd.npz", broker=broker, device="cuda:1"), odd, 1)
    arraybridge.save(broker.open("odd"), folder / "back.safetensors")  # by a copy
    same(arraybridge.load(folder / "back.safetensors", broker=broker, name="back", device=0), odd, 0)
    with zipfile.ZipFile(folder / "odd.npz", "a") as file:
        file.writestr("cut.npy", b"no array")
    refused(lambda: arraybridge.load(folder / "odd.npz", broker=broker, device=0), arraybridge.InvalidRequest, "odd.npz")


def a_module_on_a_gpu_is_published(broker: Broker, _: str) -> None:
    weights = [("w", on_gpu(1, "torch")), ("b", on_gpu(1, "torch"))]
    module: Any = SimpleNamespace(
        state_dict=lambda: dict(weights), named_parameters=lambda remove_duplicate: weights, named_buffers=lambda remove_duplicate: [],
    )  # fmt: skip
    for device, number in ((None, 1), (0, 0)):
        publish(module, "m", broker=broker, replace=True, device=device)
        same(broker.open("m"), {"w": VALUES, "b": VALUES}, number)
    assert publish(module, "m", broker=broker, replace=True, device="cpu").device == (1, 0)
    assert (broker.open("m").numpy()["w"] == VALUES).all() and broker.open("m").kind("w") == "parameter"


def a_module_that_is_trained_is_refused(broker: Broker, _: str) -> None:
    broker.bundle("m", {"w": VALUES}, device=0).fill().publish()
    module: Any = SimpleNamespace(state_dict=dict, named_buffers=list)
    refused(lambda: attach(module, broker.open("m")), arraybridge.InvalidRequest, 'access="shared"', "load_state_dict")


def a_driver_that_refuses_is_told(broker: Broker, _: str) -> None:
    refused(lambda: broker.bundle("m", MIXED, device=0), arraybridge.BrokerError, "cuMemcpyHtoDAsync")
    refused(lambda: broker.open("m"), arraybridge.ShareNotFound)


gpu.start()
frameworks.install()
own_copies.install(gpus=len(_core.gpus()))
with Broker(sys.argv[1], start="never") as made:
    globals()[sys.argv[2]](made, sys.argv[-1])
print("done")
