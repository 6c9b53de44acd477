# SPDX-License-Identifier: Apache-2.0
"""What a Plan says of a copy of real packages' arrays, beside what the simulated driver was asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
from counted import counted, refused
from real_packages import package

import arraybridge
from arraybridge import _core
from arraybridge.planner import Converted

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
# Calls that copy: on the GPUs, to the host, from it.
ACROSS = ("cuMemcpyAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync")
CROSSINGS = {"d2d-copy": (1, 0, 0), "d2h": (0, 1, 0), "h2d": (0, 0, 1), "d2h+h2d": (0, 1, 1), "zero-copy-vmm": (0, 0, 0)}
COPIES = {"d2d-copy": 1, "d2h": 1, "h2d": 1, "d2h+h2d": 2, "zero-copy-vmm": 0}


def crossed(way: Callable[[], Any]) -> tuple[Any, tuple[int, int, int]]:
    got, (on_gpus, between, to_host, from_host) = counted(way, ACROSS)
    return got, (on_gpus + between, to_host, from_host)


def check(way: Callable[[], Converted], via: str, copies: int | None = None) -> None:
    """The Plan says `via`, and so does the driver."""
    (got, plan), seen = crossed(way)
    assert seen == CROSSINGS[via], (via, seen, plan)
    assert (plan.via, plan.copies) == (via, COPIES[via] if copies is None else copies), plan
    values = got if isinstance(got, np.ndarray) else package(arraybridge.detect_memory_type(got) or "numba").values(got)
    assert (values == VALUES).all(), values


def no_copy(way: Callable[[], Any], why: str) -> None:
    """The copy is refused, and nothing is copied."""
    _, seen = crossed(lambda: refused(way, arraybridge.ZeroCopyUnavailable, why))
    assert seen == (0, 0, 0), seen


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    def vias_between_gpus(via: str) -> str:
        for framework in ("torch", "cupy"):
            array = package(framework).made(VALUES, 0)
            check(lambda a=array, f=framework: broker.convert(a, f, device="cuda:1", explain=True), via)
            broker.put(package(framework).made(VALUES, 1), f"{framework} there", replace=True)
            check(lambda f=framework: broker.get(f"{f} there", f, device="cuda:0", explain=True), via)
        assert _core.gpu_reaches(0, 1) == (via == "d2d-copy")
        assert _core.gpu_reaches(1, 1)
        assert not _core.gpu_reaches(0, 2)
        assert not _core.gpu_reaches(-1, 0)
        return "right"

    def vias_on_one_gpu(framework: str) -> str:
        array = package(framework).made(VALUES, 0)
        share, host = f"via-{framework}", f"via-host-{framework}"
        broker.put(array, share)
        broker.put(VALUES, host)
        check(lambda: broker.convert(array, framework, copy=True, explain=True), "d2d-copy")
        check(lambda: broker.get(share, framework, explain=True), "zero-copy-vmm")
        check(lambda: broker.get(share, framework, require="zero-copy", explain=True), "zero-copy-vmm")
        no_copy(lambda: broker.get(share, "numpy", require="zero-copy"), "different_device: from cuda:0 to cpu")
        no_copy(lambda: broker.get(host, framework, device="cuda:0", require="zero-copy"), "different_device: from cpu to cuda:0")
        check(lambda: broker.get(share, framework, copy=True, explain=True), "d2d-copy")
        check(lambda: broker.get(share, "numpy", explain=True), "d2h")
        check(lambda: broker.get(host, framework, device="cuda:0", explain=True), "h2d")
        return "right"

    def vias_of_what_xla_cannot_take() -> str:
        """A strided array for TensorFlow, and a wide one for JAX."""
        cupy = package("cupy")
        turned = arraybridge.asdlpack(cupy.made(np.ascontiguousarray(VALUES.T), 0).T)
        check(lambda: broker.convert(turned, "tensorflow", explain=True), "d2h+h2d", 3)
        wide = cupy.made(VALUES.astype("f8"), 0)
        check(lambda: broker.convert(wide, "jax", allow_downcast=True, explain=True), "d2h+h2d", 3)
        return "right"

    def vias_of_a_strided_view() -> str:
        turned = arraybridge.asdlpack(package("cupy").made(np.ascontiguousarray(VALUES.T), 0).T)
        check(lambda: broker.convert(turned, "torch", copy=True, explain=True), "d2h+h2d", 3)
        check(lambda: broker.convert(turned, "numpy", explain=True), "d2h", 2)
        return "right"

    made = (vias_between_gpus, vias_on_one_gpu, vias_of_what_xla_cannot_take, vias_of_a_strided_view)
    return {each.__name__: each for each in made}
