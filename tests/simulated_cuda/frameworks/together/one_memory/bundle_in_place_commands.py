# SPDX-License-Identifier: Apache-2.0
"""The commands of share_program.py for bundles and tables in host memory whose arrays a GPU reads where they lie."""

import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from cell_commands import with_the_same_gpu
from counted import refused
from one_memory_commands import MAPPED, host_address, until_none_is_registered
from real_packages import calls, package

import arraybridge
from arraybridge import _core
from arraybridge.integrations.torch import attach, publish
from arraybridge.tables.results import table_of

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
ARRAYS = {"w": VALUES, "b": VALUES[0] + 1, "tied": VALUES, "empty": np.empty((0, 3), "f4"), "scalar": np.array(7, "i4")}


def moved() -> int:
    """Calls of the driver that have moved bytes."""
    return calls("copies_done") + calls("cuMemcpyHtoDAsync")


def said(plan: Any) -> str:
    notes = [each.partition(":")[0] for each in plan.notes if each.startswith(("one_memory", "mapped", "not_mapped"))]
    return f"{plan.via} {plan.copies} {' '.join(notes)}".rstrip()


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    kept: dict[str, Any] = {}

    def place_put(name: str) -> str:
        writer = broker.bundle(name, ARRAYS, replace=True).fill()
        return f"{writer.publish().device}"

    @with_the_same_gpu
    def place_read(of: str, name: str, how: str = "default") -> str:
        """The arrays of a bundle on the GPU; whether the plan and the driver agree about copies."""
        own, before = package(of), moved()
        bundle = broker.open(name).on("cuda:0", **MAPPED[how])
        assert bundle.device == (2, 0) and bundle.share.device == (1, 0)
        arrays = bundle.arrays(of)
        plan = broker.last_plan
        assert plan is not None and plan.zero_copy == (plan.copies == 0) == (plan.copied_bytes == 0)
        assert plan.zero_copy == (moved() == before) == (host_address(own.address(arrays["w"])) != 0), (moved(), before, plan)
        assert arrays["tied"] is arrays["w"]
        for each, array in arrays.items():
            assert own.gpu(array) == 0 and tuple(array.shape) == ARRAYS[each].shape
            assert (own.values(array) == ARRAYS[each]).all(), each
        kept[name] = arrays
        return f"{said(plan)} {_core.registrations()}"

    def place_drop() -> str:
        kept.clear()
        return until_none_is_registered(broker)

    def place_outlives(name: str) -> str:
        """The arrays keep the bytes after the bundle was withdrawn and its memory is wanted again."""
        place_read("torch", name)
        broker.withdraw(name)
        for _ in range(10):
            broker.put(np.zeros(VALUES.shape, "f4"), f"{name} other", replace=True)
        gc.collect()
        same = (package("torch").values(kept[name]["w"]) == VALUES).all()
        return f"{same} {place_drop()}"

    def place_errors(name: str) -> str:
        bundle = broker.open(name)
        refused(lambda: bundle.on("cuda:7"), arraybridge.DeviceUnavailable, "cuda:7")
        refused(lambda: bundle.on("gpu"), arraybridge.InvalidDevice, "gpu")
        refused(lambda: bundle.on("cpu", mapped=True).arrays("torch"), arraybridge.InvalidRequest, 'device="cuda:0"')
        refused(lambda: bundle.on("cuda:0").arrays("numpy"), arraybridge.DeviceUnavailable, "numpy")
        refused(lambda: bundle.on("cuda:0").arrays("pandas"), arraybridge.InvalidMemoryType, "pandas")
        assert type(bundle.on("cpu").numpy()["w"]) is np.ndarray
        return "refused"

    def place_module(name: str) -> str:
        """A module whose parameters are the host's bytes, in the GPU's addresses."""
        torch = package("torch").torch
        made = torch.nn.Linear(4, 3)
        publish(made, name, replace=True, broker=broker)
        with torch.device("meta"):
            module = torch.nn.Linear(4, 3)
        bundle = broker.open(name).on("cuda:0")
        refused(lambda: attach(module, bundle), arraybridge.InvalidRequest, "cuda:0", 'access="shared"')
        refused(lambda: attach(module, bundle, follow=True), arraybridge.InvalidRequest, "cuda:0", "follow=")
        before = moved()
        attach(module, bundle, access="shared")
        assert moved() == before and module.weight.device.type == "cuda" and not module.weight.requires_grad
        assert host_address(module.weight.data_ptr())
        assert (module.weight.cpu() == made.weight).all()
        publish(made, name, replace=True, broker=broker)
        newer = bundle.wait_newer(timeout=60)
        assert newer.device == (2, 0) == pickle.loads(pickle.dumps(newer)).device
        return "right"

    def place_many(name: str, number: str) -> str:
        """So many arrays have one registration."""
        count = int(number)
        arrays = {f"layer {each}": np.full(16, each, "f4") for each in range(count)}
        broker.bundle(name, arrays).fill().publish()
        until_none_is_registered(broker)
        registered = calls("cuMemHostRegister")
        found = broker.open(name).on("cuda:0").torch()
        values = package("torch").values
        right = all((values(found[f"layer {each}"]) == each).all() for each in (0, count // 2, count - 1))
        made = calls("cuMemHostRegister") - registered
        del found
        return f"{made} {right} {until_none_is_registered(broker)}"

    @with_the_same_gpu
    def place_column(of: str, name: str, how: str = "default") -> str:
        """A column of a table on the GPU; whether the plan and the driver agree about copies."""
        own = package(of)
        table = table_of(broker.put(VALUES.ravel(), f"{name} plain", replace=True).view())  # its one column has no name
        broker.put(table, name, replace=True)
        before, counted = moved(), broker.stats()["convert_copies"]
        column, plan = broker.get(name, of, column="", device="cuda:0", explain=True, **MAPPED[how])
        assert broker.stats()["convert_copies"] == counted + plan.copies
        assert own.gpu(column) == 0 and plan.device == "cuda:0"
        assert plan.zero_copy == (plan.copies == 0) == (moved() == before) == (host_address(own.address(column)) != 0), plan
        assert (own.values(column) == VALUES.ravel()).all()
        return said(plan)

    @with_the_same_gpu
    def place_convert(of: str, name: str, what: str) -> str:
        """A host array of this process on the GPU; whether plan, driver and what was planned before agree."""
        own = package(of)
        broker.put(np.arange(1000, dtype="f4"), name, replace=True)
        got = broker.get(name, "numpy")
        array, expected = {
            "got": lambda: (got, got),
            "part": lambda: (got[100:300], got[100:300]),
            "share": lambda: (broker.list(name)[0].share, got),
            "view": lambda: (broker.list(name)[0].share.view(), got),
            "own": lambda: (np.arange(1000, dtype="f4"), got),
            "private": lambda: (broker.get(name, "torch"), got),
            "narrowed": lambda: (broker.get(broker.put(np.arange(9.0), f"{name} f8", replace=True)), np.arange(9.0)),
        }[what]()
        registered = calls("cuMemHostRegister"), _core.registrations()
        told = broker.plan(array, of, device="cuda:0", allow_downcast=what == "narrowed")
        assert registered == (calls("cuMemHostRegister"), _core.registrations()), "a plan pins nothing"
        before = moved()
        made, plan = broker.convert(array, of, device="cuda:0", explain=True, allow_downcast=what == "narrowed")
        assert (plan.via, plan.copies) == (told.via, told.copies)
        assert own.gpu(made) == 0 and plan.zero_copy == (plan.copies == 0) == (moved() == before), (plan, moved() - before)
        assert plan.zero_copy == (host_address(own.address(made)) != 0), plan
        assert (own.values(made) == expected).all()
        kept[name] = made
        return f"{plan.source} {said(plan)}"

    return {
        each.__name__: each
        for each in (place_put, place_read, place_drop, place_outlives, place_errors, place_module, place_many, place_column, place_convert)
    }
