# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with arrays that real packages make in a broker's memory on simulated GPUs."""

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from real_packages import calls, driver, package

import arraybridge
from arraybridge.errors import printable

COUNT = 20_000  # 80,000 bytes, more than min_bytes
LARGE = 3 << 20  # 12 MiB: PyTorch gives such a tensor a segment of its own
GPU = "cuda:0"


def count_of(of: str) -> int:
    return LARGE if of == "torch" else COUNT


def expected(start: str, count: int) -> np.ndarray:
    return np.arange(float(start), float(start) + count, dtype="f4")


def part_of(of: str, array: Any) -> Any:
    """Its first half, which is contiguous."""
    if of != "cuda.core":
        return array[: len(array) // 2]
    utils = package(of).utils
    buffer = package(of).core.Buffer.from_handle(array.ptr, array.size * 2, owner=array)
    return utils.StridedMemoryView.from_buffer(buffer, (array.size // 2,), dtype=array.dtype)


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    kept: dict[str, Any] = {}

    def born_in(of: str, **wishes: Any) -> Any:
        if of != "numba":  # which chooses its memory manager when it is first used
            package(of)
        return broker.born(of, device=GPU, **wishes)  # type: ignore[arg-type]

    def made(of: str, start: str) -> Any:
        return package(of).made(expected(start, count_of(of)), 0)

    def in_place(of: str, name: str, array: Any) -> str:
        """Puts it, and then writes it, which no program may do: a reader sees that if it is the share."""
        broker.put(array, name)
        package(of).write(array)
        return name

    def born_put(of: str, name: str, start: str) -> str:
        with born_in(of) as born:
            array = made(of, start)
        assert born.missed == {}, born
        assert born.arrays >= 1
        assert born.bytes >= 4 * count_of(of)
        kept[name] = array
        return in_place(of, name, array)

    def part_put(of: str, name: str, start: str) -> str:
        with born_in(of):
            array = made(of, start)
        kept[name] = array
        return in_place(of, name, part_of(of, array))

    def small_put(name: str, start: str) -> str:
        """A tensor that shares PyTorch's segment with others."""
        with born_in("torch"):
            array = package("torch").made(expected(start, COUNT), 0)
        kept[name] = array
        return in_place("torch", name, array)

    def first_of(of: str, name: str) -> str:
        """The first value of a share, and how it was read."""
        array, via = package(of).got(broker, name)
        kept[name] = array
        return f"{package(of).values(array)[0]} {via}"

    def is_right(of: str, name: str, start: str) -> str:
        values = package(of).values(package(of).got(broker, name)[0])
        return "right" if (values == expected(start, len(values))).all() else f"wrong: {values[:3].tolist()}"

    def later_arrays_are_elsewhere(of: str, name: str, start: str) -> str:
        """Arrays of the same size, made when the one that was put is gone: readers still have that one."""
        addresses = set()
        with born_in(of):
            array = made(of, start)
            published = package(of).address(array)
            broker.put(array, name)
            del array
            gc.collect()
            for _ in range(5):
                other = made(of, "-1000000")
                addresses.add(package(of).address(other))
                del other
        return "apart" if published not in addresses else "in the share's memory"

    def replaced(of: str, name: str) -> str:
        """Many generations of a share, each where it was born, in bounded memory."""
        addresses = set()
        with born_in(of):
            for number in range(20):
                array = made(of, str(number))
                addresses.add(package(of).address(array))
                broker.put(array, name, replace=True)
                assert is_right(of, name, str(number)) == "right", number
                del array
                gc.collect()
                broker.flush()
        return "bounded" if len(addresses) <= 12 else f"{len(addresses)} addresses"

    def outside(of: str) -> str:
        """Arrays before and after the block, small ones, and those of other threads are the framework's own."""
        before = made(of, "1")
        with born_in(of, min_bytes=4 * count_of(of) + 4) as born:
            small = made(of, "1")
        assert (born.arrays, born.missed) == (0, {}), born
        others: list[Any] = []
        with born_in(of) as born:
            thread = threading.Thread(target=lambda: others.append(made(of, "1")))
            thread.start()
            thread.join()
        assert (born.arrays, born.missed) == (0, {}), born
        after = made(of, "1")
        assert all((package(of).values(each) == expected("1", count_of(of))).all() for each in (before, small, *others, after))
        return "not born"

    def everywhere(of: str) -> str:
        others: list[Any] = []
        with born_in(of, everywhere=True) as born:
            thread = threading.Thread(target=lambda: others.append(made(of, "1")))
            thread.start()
            thread.join()
        return f"{born.arrays} born"

    def nested(of: str, name: str, start: str) -> str:
        with born_in(of) as outer:
            with born_in(of) as inner:
                first = made(of, "1")
            array = made(of, start)
        assert package(of).address(first) != package(of).address(array)
        # PyTorch may have taken segments that an earlier block has left.
        assert of == "torch" or (inner.arrays, outer.arrays) == (1, 1)
        kept[name] = array
        return in_place(of, name, array)

    def refused(of: str, *words: str) -> str:
        wishes: dict[str, Any] = {word: True for word in words if word == "everywhere"}
        with contextlib.ExitStack() as block:
            block.enter_context(broker.born(*of.split("+"), device=GPU, **wishes))  # type: ignore[arg-type]
        return "entered"

    def without_a_hook(of: str) -> str:
        with broker.born(of, device=GPU) as born:  # type: ignore[arg-type]
            pass
        return f"{born.arrays} {born.skipped[of]}"

    def no_memory(of: str) -> str:
        """The error of the framework for an array that is larger than the GPU, and the broker's words for it."""
        with born_in(of) as born:
            try:
                too_large(of)
            except Exception as error:
                where = f"{type(error).__module__}.{type(error).__name__}"
                assert born.missed["refused"].arrays >= 1
                assert born.refusal  # the numbers, or that a GPU is not ready with memory that was given back
                return f"{where}: {printable(str(error))}".replace("\n", " ")
        return "made"

    def freed_with_work_pending(of: str) -> str:
        """An array is freed while the GPU still writes it. What is made then lies elsewhere, and stays as it is."""
        own = package(of) if of != "numba" else None
        with born_in(of):
            own = own or package(of)
            array, current_stream = own.pending(expected("1", COUNT))
            address = own.address(array)
            with current_stream:
                del array
            gc.collect()
            others = [sized(of, 4 * COUNT) for _ in range(3)]
        later = [own.made(expected(str(number), COUNT), 0) for number in range(5)]
        driver().cuCtxSynchronize()
        assert all((own.values(each) == expected(str(number), COUNT)).all() for number, each in enumerate(later))
        return "elsewhere" if address not in map(address_of, others) else "in the same memory"

    def freed_on_a_stream() -> str:
        """CuPy's stream gets back what was freed on it, before its work has ended; other streams do not."""
        cupy = package("cupy").cupy
        with born_in("cupy"):
            with cupy.cuda.Stream(non_blocking=True):
                first = cupy.empty(COUNT, "f4")
                cupy.add(first, cupy.float32(1), out=first)
                address = int(first.data.ptr)
                done = calls("kernels_done")
                del first
                second = cupy.empty(COUNT, "f4")
                assert int(second.data.ptr) == address
                del second
            third = cupy.empty(COUNT, "f4")
            assert int(third.data.ptr) != address
            assert calls("kernels_done") == done, "nothing has waited for the stream"
        return "in order"

    def waits_for_memory(of: str, nbytes: str) -> str:
        """An allocation waits in the broker's line until another array is gone."""
        package(of)
        broker.put(sized(of, int(nbytes)), "in the way")
        patient = arraybridge.Broker(broker.address, start="never", timeout_s=300)
        got: list[str] = []

        def allocate() -> None:
            with patient.born(of, device=GPU) as born:  # type: ignore[arg-type]
                array = sized(of, int(nbytes))
                got.append(f"{born.arrays} born" if array is not None else "")

        thread = threading.Thread(target=allocate)
        thread.start()
        while broker.stats()["waiting"] == 0 and thread.is_alive():
            time.sleep(0.01)
        assert got == []
        broker.withdraw("in the way")
        thread.join()
        return got[0]

    def forked(of: str) -> str:
        """What an allocation answers in a forked child, inside of its parent's block."""
        with born_in(of):
            alive = made(of, "1")
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    try:
                        empty(of)
                        answer = "made"
                    except Exception as error:
                        answer = f"{type(error).__name__}: {error}"
                    del alive
                    os.write(write, answer.encode())
                os._exit(0)
            os.close(write)
            answer = os.read(read, 10_000).decode()
            os.close(read)
            assert os.waitpid(child, 0)[1] == 0
            assert (package(of).values(alive) == expected("1", count_of(of))).all()
        return answer.replace("\n", " ")

    return {
        each.__name__: each
        for each in (
            born_put, part_put, small_put, first_of, is_right, later_arrays_are_elsewhere, replaced, outside, everywhere, nested,
            refused, without_a_hook, no_memory, freed_with_work_pending, freed_on_a_stream, waits_for_memory, forked,
        )
    }  # fmt: skip


def address_of(array: Any) -> int:
    if hasattr(array, "__cuda_array_interface__"):
        return int(array.__cuda_array_interface__["data"][0])
    return int(array.handle)


def empty(of: str) -> Any:
    return sized(of, 4 * count_of(of))


def too_large(of: str) -> Any:
    return sized(of, 1 << 36)


def sized(of: str, nbytes: int) -> Any:
    """An array of so many bytes, whose content nothing writes."""
    own = package(of)
    if of == "torch":
        return own.torch.empty(nbytes, dtype=own.torch.uint8, device=GPU)
    if of == "cupy":
        return own.cupy.empty(nbytes, "u1")
    if of == "numba":
        return own.cuda.device_array(nbytes, "u1")
    return own.core.Device(0).allocate(nbytes, stream=own.stream(0))
