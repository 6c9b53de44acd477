# SPDX-License-Identifier: Apache-2.0
"""The commands of share_program.py for shares in host memory that a GPU reads where they lie."""

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cell_commands import COUNT, expected, right, with_the_same_gpu
from real_packages import calls, driver, package
from recipe_commands import block_of, executed

import arraybridge
from arraybridge import _core

MAPPED = {"default": {}, "mapped": {"mapped": True}, "copied": {"mapped": False}}


def host_address(address: int) -> int:
    """Where the host has the bytes that a GPU has at this address; 0: it is memory of the GPU."""
    found = ctypes.c_uint64()
    asked = driver().cuPointerGetAttribute(ctypes.byref(found), 4, ctypes.c_uint64(address))
    return found.value if asked == 0 else 0


def devices_of(tree: dict[str, Any]) -> set[str]:
    return {"host" if host_address(array.data.ptr) else "gpu" for array in tree.values()}


def until_none_is_registered(broker: arraybridge.Broker) -> str:
    """After flush(), which gives back what is kept for the next array."""
    gc.collect()
    end = time.monotonic() + 60
    while _core.registrations() and time.monotonic() < end:
        broker.flush()
        time.sleep(0.005)
    return f"{calls('live_pinned') - calls('cuMemHostAlloc')} registered"


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    kept: dict[str, Any] = {}

    def host_put(name: str, start: str) -> str:
        share = broker.put(expected(start), name)
        return f"{share.device} {share.kind}"

    @with_the_same_gpu
    def host_get(of: str, name: str, start: str, how: str = "default") -> str:
        """The share as an array of the GPU, whether its bytes are the host's, and how many calls moved bytes."""
        own = package(of)
        copied, free = calls("copies_done") + calls("cuMemcpyHtoDAsync"), broker.stats()["client_arenas_written"]
        array, plan = broker.get(name, of, device="cuda:0", explain=True, **MAPPED[how])
        moved = calls("copies_done") + calls("cuMemcpyHtoDAsync") - copied + broker.stats()["client_arenas_written"] - free
        assert own.gpu(array) == 0
        assert plan.device == "cuda:0" and plan.zero_copy == (plan.copies == 0) == (plan.copied_bytes == 0)
        assert (moved == 0) == plan.zero_copy == (host_address(own.address(array)) != 0), (moved, plan)
        kept[name] = array
        said = [each.partition(":")[0] for each in plan.notes if each.startswith(("one_memory", "mapped", "not_mapped"))]
        return f"{plan.via} {plan.copies} {' '.join(said)} {right(own.values(array), start)}"

    def host_error(of: str, name: str, how: str, device: str = "cuda:0") -> str:
        with contextlib.suppress(arraybridge.ShareNotFound):
            broker.get(name, of, device=None if device == "None" else device, **MAPPED[how])
            return "no error"
        return "not found"

    @with_the_same_gpu
    def host_kernel(of: str, name: str, start: str) -> str:
        """A kernel of the package reads the array that `host_get` has kept."""
        own = package(of)
        if of == "numba":
            made = own.cuda.device_array(COUNT, np.float32)
            own.add(made, kept[name], 1, 0)
        else:
            made = own.next_one(kept[name]) if of == "jax" else own.cupy.add(kept[name], own.cupy.float32(1))
        return right(own.values(made) - 1, start)

    def host_drop(name: str = "") -> str:
        if name:
            del kept[name]
        else:
            kept.clear()
        return until_none_is_registered(broker)

    @with_the_same_gpu
    def host_camera(of: str, name: str, frames: str) -> str:
        """So many frames under one name, each read and dropped, with time between them; how often the driver registered memory."""
        package(of)
        before, values = calls("cuMemHostRegister"), []
        for frame in range(int(frames)):
            broker.put(expected(str(frame)), name, replace=True)
            array, plan = broker.get(name, of, device="cuda:0", explain=True)
            values.append(plan.zero_copy and right(package(of).values(array), str(frame)) == "right")
            del array
            gc.collect()
            time.sleep(0.02)
        return f"{all(values)} {calls('cuMemHostRegister') - before} registered"

    def host_idle() -> str:
        """Waits until nothing is registered, and asks for nothing."""
        gc.collect()
        kept, end = _core.registrations(), time.monotonic() + 60
        while _core.registrations() and time.monotonic() < end:
            time.sleep(0.05)
        return f"{kept} kept, then {_core.registrations()}"

    def host_registrations() -> str:
        gc.collect()
        return f"{_core.registrations()}"

    def host_leases(name: str, wanted: str) -> str:
        """Waits until so many processes hold the share."""
        end = time.monotonic() + 60
        while True:
            (found,) = (each.leases for each in broker.list(name) if each.share.name == name)
            if found == int(wanted) or time.monotonic() > end:
                return str(found)
            time.sleep(0.005)

    def host_drop_under_a_kernel(name: str, start: str) -> str:
        """The array is dropped while a kernel that reads it is queued; the share is withdrawn, and its memory wanted again."""
        numba = package("numba")
        broker.put(expected(start), name)
        cuda = numba.cuda
        stream = cuda.stream()
        array = broker.get(name, "numba", device="cuda:0")
        made = cuda.device_array(COUNT, np.float32, stream=stream)
        cuda.synchronize()
        done = calls("kernels_done")
        numba.add(made, array, 0, stream)
        del array
        gc.collect()
        broker.withdraw(name)
        for _ in range(20):  # each of them would lie where the withdrawn share lies, if that were free
            broker.put(expected("0"), f"{name}-other", replace=True)
        assert calls("kernels_done") == done, "no call has waited for it"
        alive = _core.registrations()
        values = made.copy_to_host(stream=stream)
        stream.synchronize()
        return f"{alive} {right(values, start)} {until_none_is_registered(broker)}"

    def host_relay(of: str, name: str, other: str) -> str:
        """An array of the GPU that was got is put under another name."""
        forwards, copied = broker.stats()["forwards_total"], calls("copies_done")
        share = broker.put(kept[name], other)
        return f"{share.device} {broker.stats()['forwards_total'] - forwards} forward, {calls('copies_done') - copied} copies"

    def host_put_pinned(name: str, start: str) -> str:
        """CuPy's array over pinned memory, which a queued kernel writes."""
        cupy = package("cupy").cupy
        host = cupy.cuda.alloc_pinned_memory(4 * COUNT)
        memory = cupy.cuda.UnownedMemory(host.ptr, 4 * COUNT, host, 0)
        array = cupy.ndarray(COUNT, "f4", cupy.cuda.MemoryPointer(memory, 0))
        one = cupy.asarray(expected(start) - 1)
        cupy.cuda.runtime.deviceSynchronize()
        with cupy.cuda.Stream(non_blocking=True):
            cupy.add(one, cupy.float32(1), out=array)
            copied = calls("copies_done")
            share = broker.put(array, name)
            assert calls("copies_done") == copied, "the host copies it"
        return f"{share.device} {share.kind}"

    def host_mixed(what: str, way: str, name: str) -> str:
        """Arrays of one share of which the host has some, too, and of which one is ordinary memory of the GPU."""
        cupy, values = package("cupy").cupy, {"at": expected("1"), "own": expected("2")}
        broker.put(values["at"], f"{name} host")
        own, at = cupy.asarray(values["own"]), broker.get(f"{name} host", "cupy", device="cuda:0", mapped=True)
        if what == "torch":
            own, at = broker.convert(own, "torch"), broker.get(f"{name} host", "torch", device="cuda:0", mapped=True)
        elif what == "reversed":
            own, values["own"] = at[::-1], values["at"][::-1]
        elif what == "pinned":
            host = cupy.cuda.alloc_pinned_memory(4 * COUNT)
            np.frombuffer(host, "f4", COUNT)[:] = values["at"]
            at = cupy.ndarray(COUNT, "f4", cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(host.ptr, 4 * COUNT, host, 0), 0))
        arrays = {"at": at, "own": own}
        if way == "send":
            broker.channel(name).send(arrays)
            found = broker.channel(name).receive("cupy", timeout=60)
            where = f"{devices_of(found)}"
        else:
            share = broker.put(arrays, name) if way == "put" else broker.bundle(name, arrays).fill().publish()
            where = f"{share.device}"
            found = broker.get(name, "cupy") if way == "put" else broker.open(name).arrays("cupy")
        return f"{where} {all((found[each].get() == values[each]).all() for each in values)}"

    def host_natural(of: str, name: str, start: str, mapped: str = "default") -> str:
        """Packages that have GPUs alone get the share without the name of a device; so does `convert`."""
        own = package(of)
        array, plan = broker.get(name, of, explain=True, **MAPPED[mapped])
        again, its = broker.get(name, of, explain=True, **MAPPED[mapped])
        converted, third = broker.convert(broker.get(name), of, explain=True)
        seen = {right(own.values(each), start) for each in (array, again, converted)}
        broker.put(package("cupy").cupy.asarray(expected("2")), f"{name} on the GPU", replace=True)
        there, fourth = broker.get(f"{name} on the GPU", of, explain=True)
        return " ".join((*seen, *(f"{each.via} {each.copies}" for each in (plan, its, third, fourth)), right(own.values(there), "2")))

    def host_tree(of: str, name: str) -> str:
        """A tree and a channel: every array of a message is read in place."""
        own, values = package(of), {"one": expected("1"), "more": [expected("2"), np.empty((0, 3), "f4")]}
        broker.put(values, name)
        tree, plan = broker.get(name, of, device="cuda:0", explain=True)
        broker.channel(name).send(values)
        sent = broker.channel(name).receive(of, device="cuda:0", timeout=60)
        seen = [right(own.values(each), str(1 + at)) for got in (tree, sent) for at, each in enumerate((got["one"], got["more"][0]))]
        assert tree["more"][1].shape == (0, 3)
        return f"{plan.via} {plan.copies} {' '.join(seen)}"

    def host_many(name: str) -> str:
        """Arrays of one arena have one registration."""
        registered = calls("cuMemHostRegister")
        for number in range(5):
            broker.put(expected(str(number)), f"{name}-{number}")
        arrays = broker.get_many([f"{name}-{number}" for number in range(5)], "torch", device="cuda:0")
        made = calls("cuMemHostRegister") - registered
        seen = {right(package("torch").values(each), str(number)) for number, each in enumerate(arrays)}
        pinned = package("torch").torch.from_numpy(np.array(broker.get(f"{name}-0"))).is_pinned()
        assert not pinned and not broker.get(f"{name}-0", "torch").is_pinned(), "arrays of the CPU are none of registered memory"
        return f"{made} {' '.join(seen)}"

    def host_recipe() -> str:
        os.environ["ARRAYBRIDGE_ADDRESS"] = broker.address
        names = executed(block_of("recipes.md", "frame on the host"))
        return f"{names['how']} {names['frame'].device} {float(names['frame'].cpu().sum()):.0f}"

    return {
        each.__name__: each
        for each in (
            host_put, host_get, host_error, host_kernel, host_drop, host_camera, host_idle, host_registrations, host_leases, host_drop_under_a_kernel,
            host_relay, host_put_pinned, host_recipe, host_tree, host_many, host_mixed, host_natural,
        )
    }  # fmt: skip
