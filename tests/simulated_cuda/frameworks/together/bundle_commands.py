# SPDX-License-Identifier: Apache-2.0
"""Bundles in memory of simulated GPUs, which real PyTorch and CuPy write and read."""

import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from counted import counted, refused
from real_packages import calls, current, package

import arraybridge
from arraybridge import BundleSpec, _core
from arraybridge.files import reading
from arraybridge.integrations.torch import attach, publish

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
MIXED = {"w": VALUES, "t": VALUES.T, "swapped": VALUES.astype(">f4"), "scalar": np.array(7), "empty": np.zeros((0, 3), "f4")}
FRAMEWORKS = ("torch", "cupy")


def same(bundle: Any, arrays: Any, number: int = 0, frameworks: Sequence[str] = FRAMEWORKS) -> None:
    """The arrays of each framework are those of the bundle, on this GPU."""
    assert bundle.share.device == (2, number)
    assert sorted(bundle) == sorted(arrays)
    for framework in frameworks:
        own = package(framework)
        for name, array in bundle.arrays(framework).items():
            assert own.gpu(array) == number
            assert not arrays[name].size or own.address(array) == bundle[name].address, name
            values = own.values(array)
            assert values.shape == arrays[name].shape
            assert (values == arrays[name]).all(), name
    for name, array in bundle.numpy().items():
        assert type(array) is np.ndarray
        assert (array == arrays[name]).all(), name


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    def bundle_of_host_arrays() -> str:
        before = current()
        for number, device in ((0, "cuda"), (1, "cuda:1"), (1, _core.gpus()[1]), (0, 0)):
            broker.bundle("of host", MIXED, device=device, fingerprint=b"f", metadata=b"m", replace=True).fill().publish()
            bundle = broker.open("of host")
            same(bundle, MIXED, number)
            assert (bundle.fingerprint, bundle.metadata, current()) == (b"f", b"m", before)
        refused(lambda: broker.bundle("of host", MIXED, device="cuda:2"), arraybridge.DeviceUnavailable, "cuda:2")
        refused(lambda: broker.bundle("of host", MIXED, device="gpu"), arraybridge.InvalidDevice, "gpu")
        return "right"

    def bundle_of_arrays_on_gpus() -> str:
        torch, cupy = package("torch"), package("cupy")
        doubled = np.repeat(VALUES, 2, axis=0)
        arrays = {"torch": torch.made(VALUES, 0), "cupy": cupy.made(VALUES, 0), "apart": cupy.made(doubled, 0)[::2]}
        broker.bundle("there", arrays).fill().publish()
        same(broker.open("there"), dict.fromkeys(arrays, VALUES))
        mixed = {**arrays, "host": VALUES, "other": torch.made(VALUES, 1), "other apart": cupy.made(doubled, 1)[::2]}
        refused(lambda: broker.bundle("mixed", mixed), arraybridge.InvalidRequest, "cpu", "cuda:0", "cuda:1", "device=")
        for number in (0, 1):
            broker.bundle("mixed", mixed, device=number, replace=True).fill().publish()
            same(broker.open("mixed"), dict.fromkeys(mixed, VALUES), number)
        broker.bundle("on host", mixed, device="cpu").fill().publish()
        host = broker.open("on host")
        assert host.share.device == (1, 0)
        assert all((array == VALUES).all() for array in host.numpy().values())
        tied = broker.bundle("tied", {"a": arrays["torch"], "b": arrays["torch"]}).fill().publish()
        separate = broker.bundle("separate", {"a": arrays["torch"], "b": arrays["cupy"]}).fill().publish()
        assert tied.nbytes < separate.nbytes
        read = broker.open("tied").torch()
        assert read["a"] is read["b"]
        broker.bundle("again", broker.open("there"), replace=True).fill().publish()
        same(broker.open("again"), dict.fromkeys(arrays, VALUES))
        return "right"

    def bundle_of_xla_arrays() -> str:
        names = ("jax", "tensorflow")
        arrays = {f"{name} {number}": package(name).made(VALUES, number) for name in names for number in (0, 1)}
        arrays["host"] = VALUES
        refused(lambda: broker.bundle("of xla", arrays), arraybridge.InvalidRequest, "cpu", "cuda:1", "device=")
        for number in (0, 1):
            broker.bundle("of xla", arrays, device=number, replace=True).fill().publish()
            same(broker.open("of xla"), dict.fromkeys(arrays, VALUES), number, names)
        return "right"

    def bundle_written_in_place() -> str:
        torch, cupy = package("torch"), package("cupy")
        specs = {"w": BundleSpec((3, 4), "float32"), "c": BundleSpec((3, 4), "float32"), "b": BundleSpec((5,), "int64")}
        writer = broker.bundle("in place", specs, device="cuda:1")
        refused(lambda: writer["w"], arraybridge.UnsupportedArray, "cuda:1", "torch", "cupy")
        room = writer.array("w", "torch")
        assert torch.gpu(room) == 1
        room.copy_(torch.torch.from_numpy(VALUES))
        other = writer.array("c", "cupy")
        with cupy.cupy.cuda.Device(1):
            cupy.cupy.add(cupy.made(VALUES, 1), cupy.cupy.float32(1), out=other)
        seen: list[tuple[int, int]] = []
        writer.fill({"b": np.arange(5)}, lambda done, total: seen.append((done, total)))
        assert seen == [(0, 40), (40, 40)], seen
        refused(lambda: writer.fill({"b": np.arange(6)}), arraybridge.InvalidRequest, "differs from the bundle's")
        writer.publish()
        same(broker.open("in place"), {"w": VALUES, "c": VALUES + 1, "b": np.arange(5)}, 1)
        return "right"

    def bundle_after_queued_work() -> str:
        """publish() waits for the work of the frameworks' current streams, here streams that wait for no other."""
        torch, cupy = package("torch"), package("cupy")
        source = torch.made(VALUES, 0)
        for number in range(10):
            arrays = {"t": np.zeros_like(VALUES), "c": np.zeros_like(VALUES)}
            writer = broker.bundle("queued", arrays, device=0, replace=True).fill()
            ones = cupy.made(np.full((3, 4), number, "f4"), 0)
            with torch.torch.cuda.stream(torch.torch.cuda.Stream()), cupy.cupy.cuda.Stream(non_blocking=True):
                rooms = writer.array("t", "torch"), writer.array("c", "cupy")
                done = calls("kernels_done")
                rooms[0].copy_(source, non_blocking=True)
                cupy.cupy.add(ones, cupy.cupy.float32(1), out=rooms[1])
                assert calls("kernels_done") == done, "it is queued"
                writer.publish()
                assert calls("kernels_done") == done + 1
            same(broker.open("queued"), {"t": VALUES, "c": np.full((3, 4), number + 1, "f4")})
        return "right"

    def bundle_of_many_small_arrays() -> str:
        arrays = {f"{i}": np.full(100, i, "i4") for i in range(500)}
        writer = broker.bundle("many", arrays, device=0)
        _, [waits] = counted(writer.fill, ["cuStreamSynchronize"])
        assert waits == 1, waits
        writer.publish()
        bundle, [copies] = counted(lambda: broker.open("many"), ["cuMemcpyDtoHAsync"])
        assert copies == 1, "the manifest, once"
        _, [copies] = counted(lambda: (list(bundle), bundle.torch()), ["cuMemcpyDtoHAsync"])
        assert copies == 0, copies
        assert (package("torch").values(bundle.torch("123")["123"]) == 123).all()
        return "right"

    def bundle_put(name: str, number: str) -> str:
        broker.bundle(name, MIXED, device=int(number)).fill().publish()
        return _core.gpus()[int(number)]

    def bundle_read(name: str, uuid: str) -> str:
        """And publishes its next generation."""
        number = _core.gpus().index(uuid)
        first = broker.open(name)
        same(first, MIXED, number)
        broker.bundle(name, {"w": VALUES + 1}, device=uuid, replace=True).fill().publish()
        same(first.wait_newer(5), {"w": VALUES + 1}, number)
        same(first, MIXED, number)
        return f"right on {number}"

    def bundle_of_files() -> str:
        folder = Path(tempfile.mkdtemp())
        large = np.arange(3 * reading.PIECE // 4 + 5, dtype="i4")
        arrays = {**{f"l{i}": np.full((i % 3, 5), i, "f4") for i in range(40)}, "large": large, "scalar": np.array(3.5)}
        net = folder / "files.safetensors"
        arraybridge.save(arrays, net, metadata={"by": "hand"})
        total = sum(array.nbytes for array in arrays.values())
        for device, number in (("cuda", 0), (1, 1)):
            seen: list[tuple[int, int]] = []
            bundle = arraybridge.load(net, broker=broker, device=device, progress=lambda *of, seen=seen: seen.append(of))
            same(bundle, arrays, number)
            assert len(seen) > 3
            assert (seen[0], seen[-1]) == ((0, total), (total, total)), seen
            for wish in (device, None):  # it is there: also without a wish, wherever it lies
                again = arraybridge.load(net, broker=broker, device=wish)
                assert again.share.generation == bundle.share.generation
        on_host = arraybridge.load(net, broker=broker, device="cpu")
        assert on_host.share.device == (1, 0)
        assert on_host.share.generation > bundle.share.generation
        refused(lambda: arraybridge.load(net, broker=broker, device=7), arraybridge.DeviceUnavailable, "7")
        odd = {"w": VALUES, "t": np.asfortranarray(VALUES), "swapped": VALUES.astype(">f4"), "large": large, "e": np.zeros((0, 2))}
        np.savez(folder / "odd.npz", **odd)  # type: ignore[arg-type]
        same(arraybridge.load(folder / "odd.npz", broker=broker, device="cuda:1"), odd, 1)
        arraybridge.save(broker.open("odd"), folder / "back.safetensors")  # by a copy
        same(arraybridge.load(folder / "back.safetensors", broker=broker, name="back", device=0), odd, 0)
        with zipfile.ZipFile(folder / "odd.npz", "a") as file:
            file.writestr("cut.npy", b"no array")
        refused(lambda: arraybridge.load(folder / "odd.npz", broker=broker, device=0), arraybridge.InvalidRequest, "odd.npz")
        return "right"

    def bundle_of_a_module() -> str:
        torch = package("torch").torch
        module = torch.nn.Linear(4, 3)
        weights = {name: array.detach().numpy() for name, array in module.state_dict().items()}
        module.to("cuda:1")
        for device, number in ((None, 1), (0, 0)):
            publish(module, "module", broker=broker, replace=True, device=device)
            same(broker.open("module"), weights, number)
        refused(lambda: attach(module, broker.open("module")), arraybridge.InvalidRequest, 'access="shared"', "load_state_dict")
        assert publish(module, "module", broker=broker, replace=True, device="cpu").device == (1, 0)
        assert (broker.open("module").numpy()["weight"] == weights["weight"]).all()
        assert broker.open("module").kind("weight") == "parameter"
        return "right"

    return {
        each.__name__: each
        for each in (
            bundle_of_host_arrays, bundle_of_arrays_on_gpus, bundle_of_xla_arrays, bundle_written_in_place,
            bundle_after_queued_work, bundle_of_many_small_arrays, bundle_put, bundle_read, bundle_of_files, bundle_of_a_module,
        )
    }  # fmt: skip
