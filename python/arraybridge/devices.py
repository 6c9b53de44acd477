"""Where arrays are: the host, or a CUDA GPU by this process's number for it. Pure: it asks nobody what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arraybridge.errors import DeviceUnavailable, InvalidDevice

Device = tuple[int, int]  # DLPack's device type, and this process's number
CPU: Final = 1
CUDA: Final = 2
HOST: Final[Device] = (CPU, 0)


def named(device: Device) -> str:
    """ "cpu" or "cuda:0". """
    return "cpu" if device[0] == CPU else f"cuda:{device[1]}"


def of(name: str) -> Device:
    """What `named` named."""
    kind, _, number = name.partition(":")
    return (CUDA, int(number)) if kind == "cuda" else HOST


def wished(device: object, gpus: Sequence[str], source: str, target: str) -> Device | None:
    """What a user's `device` means: None (no wish), "cpu", "cuda", "cuda:1", a GPU's number or its UUID.

    Args:
        gpus: the UUIDs of the GPUs that this process sees, by number.

    Raises:
        InvalidDevice: that is no device.
        DeviceUnavailable: it is one, and not here; the message lists those that are.
    """
    if device is None:
        return None
    if device == "cpu":
        return HOST
    number = device
    if isinstance(device, str):
        kind, _, text = device.partition(":")
        if device in gpus:
            number = gpus.index(device)
        elif kind == "GPU" or device.startswith("GPU-"):
            raise _absent(device, gpus, source, target)
        else:
            number = int(text) if kind == "cuda" and text.isdecimal() else 0 if device == "cuda" else None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidDevice(source, target, "device", f"Invalid GPU device ID: {device!r}")
    if number >= len(gpus):
        raise _absent(device, gpus, source, target)
    return CUDA, number


def _absent(device: object, gpus: Sequence[str], source: str, target: str) -> DeviceUnavailable:
    here = ["cpu", *(f"cuda:{number}" for number in range(len(gpus)))]
    return DeviceUnavailable(source, target, "device", f"no CUDA device {device!r}: arraybridge sees the devices {here} here")
