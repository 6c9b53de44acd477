# SPDX-License-Identifier: Apache-2.0
"""Recipes of the guides, with real packages on a machine with two simulated GPUs."""

import contextlib
import io
import itertools
import os
import re
import runpy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from counted import refused
from programs import ROOT
from real_packages import package

import arraybridge
from arraybridge import asdlpack, convert_memory, detect_memory_type, get_device_id

GUIDES = ROOT / "docs" / "guides"
VALUES = np.arange(12, dtype="f4").reshape(3, 4)
WIDE = np.array([[1, -2, 3], [2**31 + 1, 0, -1]])


def block_of(page: str, words: str) -> str:
    """The block of a page that has these words."""
    (found,) = [text for text in re.findall(r"^```(?:python)?\n(.*?)^```", (GUIDES / page).read_text(), re.M | re.S) if words in text]
    return str(found)


def executed(block: str, **names: Any) -> dict[str, Any]:
    """The names that the block defines."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("error")
        program = Path(folder) / "recipe.py"
        program.write_text(block)
        return runpy.run_path(str(program), names)


@contextlib.contextmanager
def inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    yield
    os.chdir(before)


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    def recipe_safe_convert() -> str:
        safe_convert = executed(block_of("recipes.md", "def safe_convert"))["safe_convert"]
        for target in ("torch", "cupy"):
            array = safe_convert(VALUES, target)
            assert get_device_id(array, target) == 0, "with a GPU nothing falls back"
            assert (package(target).values(array) == VALUES).all()
        executed(block_of("recipes.md", '"gpu_id": 99'))
        return "right"

    def recipe_cupy_and_torch_are_one_memory() -> str:
        array = package("cupy").cupy.arange(10, dtype="float32")
        tensor = convert_memory(array, "cupy", "torch", gpu_id=0)
        assert tensor.data_ptr() == array.data.ptr
        back = convert_memory(tensor, "torch", "cupy", gpu_id=0)
        assert back.data.ptr == array.data.ptr
        array += 1  # a write on either side is seen on the other
        assert tensor.cpu().tolist() == list(range(1, 11))
        private = convert_memory(array, "cupy", "torch", gpu_id=0, copy=True)
        assert private.data_ptr() != array.data.ptr
        for dtype in ("float32", "int64"):
            tensor = convert_memory(np.ones(3, dtype), "numpy", "torch")
            assert (str(tensor.dtype), tensor.is_cuda) == (f"torch.{dtype}", True)
        assert convert_memory(array, "cupy", "torch", gpu_id=None).device.type == "cpu"
        return "right"

    def recipe_from_gpu_to_gpu_to_numpy(*names: str) -> str:
        for source, target in [(one, other) for one in names for other in names]:
            first = package(source).made(VALUES, 0)
            second = convert_memory(first, source, target, gpu_id=1)
            assert get_device_id(second, target) == 1
            third = convert_memory(second, target, "numpy", gpu_id=1)
            assert type(third) is np.ndarray
            assert (third == VALUES).all()
            assert (package(source).values(first) == VALUES).all()
            assert convert_memory(second, target, target, gpu_id=1) is second
            back = convert_memory(second, target, source, gpu_id=0)
            assert get_device_id(back, source) == 0
            assert (package(source).values(back) == VALUES).all()
        return "right"

    def recipe_in_order_to_another_gpu(side: str, *targets: str) -> str:
        """A copy for another GPU comes after the kernel that writes its source, and before the next one."""
        cupy = package("cupy").cupy
        for target in targets:
            with cupy.cuda.Device(0) as gpu, cupy.cuda.Stream(non_blocking=True) if side == "side" else cupy.cuda.Stream.null:
                source = cupy.zeros(VALUES.shape, "f4")
                cupy.add(source, cupy.float32(1), out=source)
                copy = convert_memory(source, "cupy", target, gpu_id=1)
                gpu.use()  # XLA leaves the GPU of its last work current
                cupy.add(source, cupy.float32(1), out=source)
                assert (package(target).values(copy) == 1).all(), target
                gpu.use()
                assert (cupy.asnumpy(source) == 2).all(), target
        return "right"

    def recipe_numba_by_asdlpack() -> str:
        numba, torch, cupy = package("numba"), package("torch"), package("cupy")
        for dtype in ("float32", "int64"):
            values = WIDE.astype(dtype)
            array = numba.cuda.to_device(values)
            for own, taken in ((torch, torch.torch.from_dlpack), (cupy, cupy.cupy.from_dlpack)):
                got = taken(asdlpack(array))
                assert own.address(got) == numba.address(array)
                assert own.values(got).dtype == dtype
                assert (own.values(got) == values).all()
            assert detect_memory_type(array) is None
            assert torch.address(convert_memory(array, None, "torch", 0)) == numba.address(array)
        return "right"

    def recipe_numba_by_asdlpack_to_jax() -> str:
        numba, jax = package("numba"), package("jax").jax
        for dtype in ("float32", "int64"):
            array = numba.cuda.to_device(WIDE.astype(dtype))
            with jax.enable_x64(True):
                for got in (jax.dlpack.from_dlpack(asdlpack(array)), convert_memory(asdlpack(array), None, "jax", 0)):
                    assert package("jax").address(got) == numba.address(array)
                    assert got.dtype == dtype
                    assert (np.asarray(got) == WIDE.astype(dtype)).all()
        array = numba.cuda.to_device(np.arange(3))
        for wish in ({}, {"copy": False}):
            refused(
                lambda w=wish: convert_memory(array, None, "jax", 0, **w), arraybridge.UnsupportedDtype, "jax_enable_x64", "allow_downcast"
            )
        narrow = convert_memory(array, None, "jax", 0, allow_downcast=True)
        assert (narrow.dtype, narrow.tolist()) == ("int32", [0, 1, 2])
        return "right"

    def recipe_cupy_to_tensorflow() -> str:
        """The guide's lines as they are."""
        os.environ["ARRAYBRIDGE_ADDRESS"] = broker.address
        names = executed(block_of("recipes.md", "import cupy\nimport tensorflow"))
        tensorflow, frame = package("tensorflow"), names["frame"]
        first, second, third, fourth = (names[each] for each in ("first", "second", "third", "fourth"))
        for each in (first, second, third, fourth):
            assert tensorflow.gpu(each) == 0
            assert (tensorflow.values(each) == np.arange(frame.size, dtype="f4")).all()
        assert tensorflow.address(first) == tensorflow.address(second) == frame.data.ptr
        assert len({frame.data.ptr, tensorflow.address(third), tensorflow.address(fourth)}) == 3
        return "right"

    def recipe_pinned() -> str:
        torch = package("torch").torch
        frame = broker.empty((4, 5), "float32", "torch", pinned=True)
        assert frame.is_pinned()
        frame.fill_(7)
        there = frame.to("cuda", non_blocking=True)
        torch.cuda.current_stream().synchronize()
        assert (there.cpu() == 7).all()
        broker.put(frame, "pinned")
        assert (broker.get("pinned") == 7).all()
        return "right"

    def recipe_change_a_copy() -> str:
        """What the guide says instead of a write into an array that was got."""
        torch, cupy = package("torch"), package("cupy")
        broker.put(torch.made(VALUES, 0), "unchanged")
        frame = broker.get("unchanged", "torch").clone()
        torch.write(frame)
        own = broker.convert(broker.get("unchanged", "cupy"), "cupy", copy=True)
        cupy.write(own)
        assert (torch.values(frame) == VALUES + 1).all()
        assert (cupy.values(own) == VALUES + 1).all()
        assert (broker.get("unchanged") == VALUES).all()
        return "right"

    def recipe_bundle() -> str:
        """The guide's lines as they are."""
        torch = package("torch").torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 2))
        block = block_of("models.md", 'broker.bundle("net", model.state_dict(), device="cuda:1")')
        with tempfile.TemporaryDirectory() as folder, inside(folder):
            Path("llama").mkdir()
            arraybridge.save({"w": VALUES}, "llama/model.safetensors")
            os.environ["ARRAYBRIDGE_ADDRESS"] = broker.address
            bundle = executed(block, broker=broker, model=model, arraybridge=arraybridge)["bundle"]
        weight = bundle.torch()["0.weight"]
        assert weight.device == torch.device("cuda:1")
        assert torch.equal(weight.cpu(), model.state_dict()["0.weight"])
        loaded = broker.open("llama on cuda:1").torch()["w"]
        assert loaded.device == torch.device("cuda:1")
        return "right"

    def recipe_capture() -> str:
        """What is released in a capture, or refused, leaves it intact."""
        cupy, torch = package("cupy").cupy, package("torch").torch
        tensor, array, runtime = package("torch").made(VALUES, 0), package("cupy").made(VALUES, 0), cupy.cuda.runtime
        share = broker.put(array, "in capture")
        for release, blocking in itertools.product(("array", "View"), (True, False)):
            stream = cupy.cuda.Stream(non_blocking=not blocking)
            held = broker.get(share, "torch") if release == "array" else asdlpack(share)
            torch.cuda.synchronize()
            # One that the default stream would wait for can be seen; other captures are announced.
            with contextlib.nullcontext() if blocking else arraybridge.capturing():
                runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeGlobal)
                with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)), stream:
                    for each in (tensor, array):
                        error = refused(lambda e=each: broker.put(e, "captured"), arraybridge.BrokerError)
                        assert error.reason == "STREAM_CAPTURING", error
                    for each in (tensor.T, array.T):  # their framework would copy them
                        refused(lambda e=each: broker.put(e, "captured"), arraybridge.BrokerError, "graph is being captured")
                del held
                broker.flush()
                leases = broker.stats()["leases"]
                runtime.streamEndCapture(stream.ptr)  # an error if the capture is no longer valid
            torch.cuda.synchronize()
            broker.flush()
            assert broker.stats()["leases"] < leases, "what was dropped in the capture is given back after it"
        assert (broker.get("in capture") == VALUES).all()
        return "right"

    return {
        each.__name__: each
        for each in (
            recipe_safe_convert, recipe_cupy_and_torch_are_one_memory, recipe_from_gpu_to_gpu_to_numpy,
            recipe_in_order_to_another_gpu, recipe_numba_by_asdlpack, recipe_numba_by_asdlpack_to_jax, recipe_cupy_to_tensorflow, recipe_pinned, recipe_change_a_copy, recipe_bundle, recipe_capture,
        )
    }  # fmt: skip
