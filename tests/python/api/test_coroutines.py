# SPDX-License-Identifier: Apache-2.0
"""Decorators of coroutine functions: what is awaited is converted, kept and recovered as any result."""

import asyncio
import functools
import inspect
import weakref

import numpy as np
import pytest

import arraybridge
from arraybridge import decorators, memory_types

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::arraybridge.DeviceFallbackWarning")


@decorators.torch(output_type="numpy", gpu_id=None)
async def doubled(array, *, by=2):
    """Doc."""
    assert isinstance(array, torch.Tensor)
    await asyncio.sleep(0)
    return array * by


class Called:
    async def __call__(self, array):
        return array * 2


def test_what_is_awaited_is_converted():
    assert inspect.iscoroutinefunction(doubled) and doubled.__name__ == "doubled" and doubled.__doc__.startswith("Doc.")
    assert list(inspect.signature(doubled).parameters) == ["array", "by", "dtype_conversion", "slice_by_slice"]
    got = asyncio.run(doubled(np.ones(2, "u1"), by=3))
    assert type(got) is np.ndarray and got.dtype == np.uint8 and got.tolist() == [3, 3]
    assert asyncio.run(doubled(np.ones(2, "u1"), dtype_conversion="float64")).dtype == np.float64
    for other in (Called(), functools.partial(doubled.__wrapped__, by=2)):
        wrapped = decorators.torch(output_type="jax", gpu_id=None)(other)
        assert arraybridge.detect_memory_type(asyncio.run(wrapped(np.ones(2, "f4")))) == "jax"


def test_slices_are_awaited_one_by_one_and_tuples_keep_their_rest():
    seen = []

    @decorators.torch(output_type="numpy", gpu_id=None)
    async def work(plane):
        seen.append(tuple(plane.shape))
        await asyncio.sleep(0)
        seen.append("ends")
        return plane + 1, "more"

    stack, more = asyncio.run(work(np.zeros((4, 2, 3), "f4"), slice_by_slice=True))
    assert seen == [(2, 3), "ends"] * 4, "one after the other"
    assert type(stack) is np.ndarray and stack.tolist() == np.ones((4, 2, 3)).tolist()
    assert more == ["more"] * 4


def test_contracts_see_what_was_awaited():
    for decorator in (decorators.numpy(contract=np.any), memory_types("numpy", "numpy", contract=np.any)):

        @decorator
        async def same(array):
            return array

        assert inspect.iscoroutinefunction(same) and (same.input_memory_type, same.output_memory_type) == ("numpy",) * 2
        assert asyncio.run(same(np.ones(1))).tolist() == [1]
        with pytest.raises(ValueError, match="same violated its output contract"):
            asyncio.run(same(np.zeros(1)))


def test_out_of_memory_awaits_the_body_again(monkeypatch):
    from arraybridge.compat import cleanup

    cleared, runs = [], []
    monkeypatch.setattr(cleanup, "clear_cache", cleared.append)

    async def work(array):
        runs.append(1)
        await asyncio.sleep(0)
        if len(runs) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return array

    assert asyncio.run(decorators.torch(work)(np.ones(1, "f4"))).tolist() == [1] and len(runs) == 3
    assert cleared == ["torch"] * 2
    runs.clear()
    with pytest.raises(torch.OutOfMemoryError):
        asyncio.run(decorators.torch(oom_recovery=False)(work)(np.ones(1)))
    assert len(runs) == 1


@pytest.mark.parametrize(("error", "times"), [(torch.OutOfMemoryError, 3), (MemoryError, 3), (RuntimeError, 1), (LookupError, 1)])
def test_what_fails_every_time_raises_its_first_error(error, times):
    runs = []

    @decorators.torch
    async def work(array):
        runs.append(1)
        await asyncio.sleep(0)
        raise error(f"run {len(runs)}")

    with pytest.raises(error, match="run 1"):
        asyncio.run(work(np.ones(1)))
    assert len(runs) == times


def test_what_a_failed_run_held_is_gone_when_it_runs_again():
    held = []

    @decorators.torch
    async def work(array):
        assert not held or held[0]() is None
        room = torch.zeros(100)
        held.append(weakref.ref(room))
        await asyncio.sleep(0)
        if len(held) == 1:
            raise MemoryError
        return room

    assert len(asyncio.run(work(np.ones(1)))) == 100 and len(held) == 2


def test_caches_are_cleared_after_the_body_has_ended(monkeypatch):
    from arraybridge.compat import cleanup

    events = []
    monkeypatch.setattr(cleanup, "clear_cache", events.append)

    @decorators.torch(clear_cuda_cache=True)
    async def work(array, fails=False):
        events.append("begins")
        await asyncio.sleep(0)
        events.append("ends")
        if fails:
            raise LookupError
        return array

    waiting = work(np.ones(1))
    assert not events, "nothing runs when the coroutine is made"
    asyncio.run(waiting)
    assert events == ["begins", "ends", "torch"]
    events.clear()
    with pytest.raises(LookupError):
        asyncio.run(work(np.ones(1), fails=True))
    assert events == ["begins", "ends", "torch"], "also of one that failed, which ran once"


def test_cancellation_is_not_out_of_memory():
    runs = []

    @decorators.torch
    async def work(array):
        runs.append(1)
        assert len(runs) == 1, "it ran again, and would wait for ever"
        await asyncio.Event().wait()

    async def main():
        task = asyncio.ensure_future(work(np.ones(1)))
        while not runs:
            await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert len(runs) == 1


def test_generators_are_refused_when_decorating():
    async def asynchronous(array):
        yield array

    def plain(array):
        yield array

    for generator in (asynchronous, plain):
        with pytest.raises(TypeError, match=f"{generator.__name__} is a generator, whose items would not be converted"):
            decorators.numpy(generator)
