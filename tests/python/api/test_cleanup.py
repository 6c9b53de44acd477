# SPDX-License-Identifier: Apache-2.0
"""Cleanup of caches, and what is and is not out of memory."""

import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest
from processes import run_client

import arraybridge
from arraybridge import (
    MEMORY_TYPE_CLEANUP_REGISTRY,
    InvalidMemoryType,
    OutOfMemory,
    clear_cache,
    execute_with_oom_recovery,
    is_oom_error,
)

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")
pytestmark = pytest.mark.usefixtures("no_remembered_cupy")


def test_every_memory_type_has_its_cleanup():
    assert set(MEMORY_TYPE_CLEANUP_REGISTRY) == arraybridge.VALID_MEMORY_TYPES
    for name, cleanup in MEMORY_TYPE_CLEANUP_REGISTRY.items():
        assert cleanup is getattr(arraybridge, f"cleanup_{name}_gpu") and cleanup.__name__ == f"cleanup_{name}_gpu"
        assert cleanup() is None and cleanup(0) is None and cleanup(device_id=99) is None
    assert arraybridge.cleanup_all_gpu_frameworks() is None and arraybridge.cleanup_all_gpu_frameworks(0) is None
    with pytest.raises(InvalidMemoryType):
        clear_cache("invalid")


def test_cleaning_imports_nothing():
    code = """
import sys, arraybridge
arraybridge.cleanup_all_gpu_frameworks()
assert arraybridge.is_oom_error(MemoryError(), "torch") and not arraybridge.is_oom_error(ValueError(), "cupy")
assert not {"numpy", "torch", "tensorflow", "jax", "cupy", "pyclesperanto"} & set(sys.modules)
"""
    run_client(code)


class FakeGpus:
    """Two GPUs as torch.cuda and CuPy show them, with caches that can be seen."""

    def __init__(self, initialized=True):
        self.current, self.initialized = 1, initialized
        self.cached = {0: 100, 1: 200, "pinned": 50}

    @contextmanager
    def device(self, number):
        before, self.current = self.current, number
        try:
            yield
        finally:
            self.current = before

    def empty(self):
        self.cached[self.current] = 0

    def empty_pinned(self):
        self.cached["pinned"] = 0


def test_torchs_cached_blocks_are_given_back(monkeypatch):
    gpus = FakeGpus()
    cuda = types.SimpleNamespace(
        is_initialized=lambda: gpus.initialized, device_count=lambda: 2, device=gpus.device, empty_cache=gpus.empty
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    arraybridge.cleanup_torch_gpu(0)
    assert gpus.cached == {0: 0, 1: 200, "pinned": 50} and gpus.current == 1
    arraybridge.cleanup_torch_gpu()
    assert gpus.cached[1] == 0 and gpus.current == 1
    gpus.initialized, gpus.cached[0] = False, 5
    arraybridge.cleanup_torch_gpu()
    assert gpus.cached[0] == 5, "a GPU that was never used has no cache, and is not to be started for it"


class FakeCupy(types.ModuleType):
    """The part of CuPy's interface that cleaning uses."""

    class ndarray:
        pass

    def __init__(self, gpus):
        super().__init__("cupy")
        self.__version__ = "14.0.0"
        runtime = types.SimpleNamespace(getDeviceCount=lambda: 2, CUDARuntimeError=type("CUDARuntimeError", (RuntimeError,), {}))
        memory = types.SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {}))
        self.cuda = types.SimpleNamespace(Device=gpus.device, runtime=runtime, memory=memory)
        self.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=gpus.empty)
        self.get_default_pinned_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=gpus.empty_pinned)


def test_both_of_cupys_pools_are_emptied(monkeypatch):
    gpus = FakeGpus()
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(gpus))
    arraybridge.cleanup_cupy_gpu(1)
    assert gpus.cached == {0: 100, 1: 0, "pinned": 0} and gpus.current == 1
    arraybridge.cleanup_all_gpu_frameworks()
    assert gpus.cached == {0: 0, 1: 0, "pinned": 0}


def test_out_of_memory_in_every_frameworks_words(monkeypatch):
    cupy = FakeCupy(FakeGpus())
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for error, memory_type in (
        (MemoryError("x"), "numpy"),
        (OutOfMemory("quota"), "jax"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "torch"),
        (RuntimeError("CUDA error: out of memory"), "torch"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "torch"),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"), "tensorflow"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), "jax"),
        (cupy.cuda.memory.OutOfMemoryError(), "cupy"),
        (cupy.cuda.runtime.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"), "cupy"),
    ):
        assert is_oom_error(error, memory_type), (error, memory_type)


def test_what_a_real_allocator_raises_is_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_oom_error(caught.value, "torch")
    with pytest.raises(MemoryError) as refused:
        np.empty(2**60, np.uint8)
    assert is_oom_error(refused.value, "numpy")


def test_other_failures_are_not(monkeypatch):
    cupy = FakeCupy(FakeGpus())
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for error, memory_type in (
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "torch"),
        (ValueError("CUDA out of memory"), "torch"),
        (tf.errors.InvalidArgumentError(None, None, "out of memory"), "tensorflow"),
        (jax.errors.JaxRuntimeError("INVALID_ARGUMENT: x"), "jax"),
        (cupy.cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress"), "cupy"),
        (torch.OutOfMemoryError("CUDA out of memory"), "numpy"),
        (KeyError("out of memory"), "numpy"),
    ):
        assert not is_oom_error(error, memory_type), (error, memory_type)
    with pytest.raises(InvalidMemoryType):
        is_oom_error(MemoryError(), "invalid")


def test_a_cause_counts_and_a_ring_of_causes_ends():
    outer = RuntimeError("outer")
    outer.__cause__ = MemoryError()
    assert is_oom_error(outer, "numpy")
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_oom_error(first, "numpy")


def runs_of(errors, **options):
    """How often the function ran that raises these errors one after another, and what came out."""
    runs, cleaned = [], []

    def work():
        runs.append(1)
        if len(runs) <= len(errors):
            raise errors[len(runs) - 1]
        return "done"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arraybridge.compat.cleanup.clear_cache", cleaned.append)
        try:
            outcome = execute_with_oom_recovery(work, "torch", **options)
        except Exception as error:
            outcome = error
    return len(runs), outcome, cleaned


def test_out_of_memory_is_tried_again_at_most_twice_more():
    first, second, third = MemoryError("1"), MemoryError("2"), MemoryError("3")
    assert runs_of([]) == (1, "done", [])
    assert runs_of([first]) == (2, "done", ["torch"])
    assert runs_of([first, second]) == (3, "done", ["torch"] * 2)
    assert runs_of([first, second, third]) == (3, first, ["torch"] * 2)
    assert runs_of([first], max_retries=0) == (1, first, [])
    other = ValueError("mine")
    assert runs_of([other]) == (1, other, [])
    assert runs_of([first, other]) == (2, other, ["torch"])


def test_arrays_of_a_failed_run_are_gone_before_the_next():
    import weakref

    class Big:
        pass

    alive = []

    def work():
        held = Big()
        if alive and alive[0]() is not None:
            raise AssertionError("the first run's array is still there")
        alive.append(weakref.ref(held))
        if len(alive) == 1:
            raise MemoryError
        return "done"

    assert execute_with_oom_recovery(work, "numpy") == "done"
