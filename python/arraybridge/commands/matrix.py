# SPDX-License-Identifier: Apache-2.0
"""The conversion matrix of the planner: one cell is an ordinary array of one framework, converted to another.

Frameworks need not be installed, because their adapters know what they accept. Broker.plan explains actual arrays of
this process.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from arraybridge import adapters, planner
from arraybridge.arrays import devices
from arraybridge.arrays.devices import Device, OwnDevices
from arraybridge.errors import MemoryConversionError
from arraybridge.planner import CODES, Caps, Description, Plan

# An ordinary array: compact row-major, at an address that suits all frameworks.
SHAPE: Final = (480, 640)
_ADDRESS: Final = 1 << 20
_GPUS: Final = ("GPU-0",)  # the assumed GPU
_FOREIGN: Final = ("no_foreign_memory: no other library can address it",)


def caps_of(framework: str, on_gpu: bool = False) -> Caps:
    """Capabilities of this framework on the assumed devices: with a GPU that it can use, or without.

    Raises:
        InvalidMemoryType: there is no adapter of this name.
    """
    adapters.named(framework)
    found: Caps = importlib.import_module(f"arraybridge.adapters.{framework}").CAPS
    if framework == "pyclesperanto" and not on_gpu:
        return replace(found, devices=frozenset({devices.OPENCL}), own=OwnDevices(devices.OPENCL, 1))
    if on_gpu and framework in ("tensorflow", "jax"):
        return replace(found, devices=found.devices | {devices.CUDA})
    return found


def ordinary(framework: str, on_gpu: bool = False, dtype: str = "float32", shape: Sequence[int] = SHAPE, **changes: Any) -> Description:
    """An ordinary array of this framework: on the first GPU if requested and supported."""
    caps = caps_of(framework, on_gpu)
    own = caps.own
    immutable = caps.read_only == "immutable"
    described = Description(
        framework=framework,
        dtype=dtype,
        code=CODES[dtype],
        shape=tuple(shape),
        strides=None,
        address=_ADDRESS,
        read_only=immutable,
        may_change=getattr(importlib.import_module(f"arraybridge.adapters.{framework}"), "MAY_CHANGE", ""),
        device=_place(caps, on_gpu),
        obstacles=_FOREIGN if own is not None else (),
        pull=_never if own is not None else None,
        fill=_never if own is not None else None,
    )
    return replace(described, **changes)


def cell(source: str, target: str, *, on_gpu: bool = False, **wishes: Any) -> Plan:
    """The plan for an ordinary array of `source` as one of `target`.

    Args:
        on_gpu: array and result lie on a GPU, if the framework supports it.
        wishes: dtype and shape of the array; copy, device, allow_downcast of the plan.

    Raises:
        MemoryConversionError: the errors of plan().
    """
    array = {name: wishes.pop(name) for name in ("dtype", "shape", "read_only", "strides") if name in wishes}
    caps = caps_of(target, on_gpu)
    if on_gpu and "device" not in wishes and devices.CUDA in caps.devices:
        wishes["device"] = "cuda:0"
    return planner.plan(ordinary(source, on_gpu, **array), caps, gpus=_GPUS, **wishes)


def refused_as_it_comes(framework: str, dtype: str) -> str | None:
    """Why a framework refuses this dtype in its default configuration; None: it does not."""
    adapter = importlib.import_module(f"arraybridge.adapters.{framework}")
    caps: Caps | None = getattr(adapter, "CAPS_WITHOUT_X64", None)
    if caps is None:
        return None
    try:
        planner.plan(ordinary("numpy", dtype=dtype), caps)
    except MemoryConversionError as error:
        return error.reason
    return None


def letter(plan: Plan) -> str:
    """I: the same object; H: shared; P: one copy in the same kind of memory; U: an upload; D: a download."""
    if plan.route != "place":
        return "I" if plan.route == "identity" else "H"
    return {"h2d": "U", "d2h": "D", "d2h+h2d": "D+U"}.get(plan.via, "P")


def _place(caps: Caps, on_gpu: bool) -> Device:
    if caps.own is not None:
        return caps.own.type, 0
    return (devices.CUDA, 0) if devices.CUDA in caps.devices and (on_gpu or devices.CPU not in caps.devices) else devices.HOST


def _never(*_: object) -> None:
    raise AssertionError("a description of no real array has no values")
