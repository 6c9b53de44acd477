# SPDX-License-Identifier: Apache-2.0
"""Devices of arrays: the host, a CUDA GPU by this process's ordinal, or a device that only one framework can use. Pure
functions: they do not look for devices.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from arraybridge.errors import DeviceUnavailable, InvalidDevice

Device = tuple[int, int]  # DLPack's device type, and the ordinal in this process
CPU: Final = 1
CUDA: Final = 2
OPENCL: Final = 4
METAL: Final = 8
HOST: Final[Device] = (CPU, 0)
UNKNOWN: Final[Device] = (0, 0)  # of arrays without memory; no device argument means it
LEGACY_STREAM: Final = 1  # DLPack's number of the default stream that comes after those which threads may have of their own
_WORDS: Final = {CUDA: "cuda", OPENCL: "opencl", METAL: "metal"}
_TYPES: Final = {word: type_ for type_, word in _WORDS.items()}


class OwnDevices(NamedTuple):
    """Devices whose memory only one framework can address, with its own ordinals."""

    type: int  # DLPack's
    number: int
    current: int = 0


def named(device: Device) -> str:
    """ "cpu", "cuda:0" or "opencl:0"; "unknown"."""
    if device == UNKNOWN:
        return "unknown"
    return "cpu" if device[0] == CPU else f"{_WORDS.get(device[0], f'DLPack device {device[0]}')}:{device[1]}"


def of(name: str) -> Device:
    """The device of a name from `named`."""
    kind, _, number = name.partition(":")
    return (_TYPES[kind], int(number)) if kind in _TYPES else HOST


def wished(device: object, gpus: Sequence[str], source: str, target: str, own: OwnDevices | None = None) -> Device | None:
    """The device that a user's `device` means: None (no preference), "cpu", "cuda", "cuda:1", a GPU's ordinal or its
    UUID. If the target has devices of its own, an ordinal is one of theirs, and so is "opencl:1".

    Args:
        gpus: the UUIDs of the GPUs that this process sees, by ordinal.

    Raises:
        InvalidDevice: it is not a device.
        DeviceUnavailable: it is a device and does not exist here; the message lists those that do.
    """
    if device is None:
        return None
    if isinstance(device, str) and device == "cpu":
        return HOST
    if own is not None and (found := _own(device, own)) is not None:
        if found < own.number:
            return own.type, found
        raise _absent(device, gpus, source, target, own)
    number = device
    if isinstance(device, str):
        kind, _, text = device.partition(":")
        if device in gpus:
            number = gpus.index(device)
        elif kind == "GPU" or device.startswith(("GPU-", "MIG-")):
            raise _absent(device, gpus, source, target)
        else:
            number = int(text) if kind == "cuda" and text.isdecimal() else 0 if device == "cuda" else None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        words = '"cpu", "cuda", "cuda:1", the number or the UUID of a GPU, or None'
        reason = f"device={reprlib.repr(device)} is not a device: use {words}; arraybridge sees {_seen(gpus)} here"
        raise InvalidDevice(source, target, "device", reason)
    if number >= len(gpus):
        raise _absent(device, gpus, source, target)
    return CUDA, number


def _own(device: object, own: OwnDevices) -> int | None:
    """The ordinal among the target's own devices, if the argument means one."""
    if isinstance(device, str):
        kind, colon, text = device.partition(":")
        if kind != _WORDS[own.type]:
            return None
        return own.current if not colon else int(text) if text.isdecimal() else None
    return device if isinstance(device, int) and not isinstance(device, bool) and device >= 0 else None


def _absent(device: object, gpus: Sequence[str], source: str, target: str, own: OwnDevices | None = None) -> DeviceUnavailable:
    if own is not None:
        there = [named((own.type, number)) for number in range(own.number)]
        return DeviceUnavailable(source, target, "device", f"no device {device!r}: {target} has {there} here, and no CUDA")
    reason = f"no CUDA device {device!r}: arraybridge sees the devices {_seen(gpus)} here"
    return DeviceUnavailable(source, target, "device", reason)


def _seen(gpus: Sequence[str]) -> list[str]:
    return ["cpu", *(f"cuda:{number}" for number in range(len(gpus)))]
