# SPDX-License-Identifier: Apache-2.0
"""A process that shares GPU memory with only grpcio and ctypes: `cuda_client.py DIRECTORY DRIVER put|get|leave NAME`.

`put` allocates on the first GPU, opens the 64 bytes of the answer with cuIpcOpenMemHandle, copies a pattern in and
publishes; it then waits for a line on stdin. `get` leases, opens, copies out and compares. `leave` ends its session while the
memory is still open. All print `ok` or fail, and `leave` waits like `put`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from foreign_client import Address, Session, generate

CUDA_IPC, CUDA = 3, 2
PATTERN = bytes(range(256)) * 4096  # 1 MiB


class IpcMemHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class Driver:
    """The driver calls that such a client needs, in the first device's primary context."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.call("cuInit", 0)
        self.device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, symbol: str, *arguments: Any) -> None:
        result = getattr(self.library, symbol)(*arguments)
        if result != 0:
            raise SystemExit(f"{symbol}: {result}")

    def end(self) -> None:
        self.call("cuCtxSetCurrent", None)
        self.call("cuDevicePrimaryCtxRelease_v2", self.device)

    def open(self, opaque: bytes) -> ctypes.c_uint64:
        assert len(opaque) == 64, len(opaque)
        address, handle = ctypes.c_uint64(), IpcMemHandle()
        ctypes.memmove(ctypes.byref(handle), opaque, 64)
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, 1)
        return address

    def close(self, address: ctypes.c_uint64) -> None:
        self.call("cuIpcCloseMemHandle", address)

    def write(self, address: int, content: bytes) -> None:
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), content, ctypes.c_size_t(len(content)), None)
        self.call("cuStreamSynchronize", None)

    def read(self, address: int, size: int) -> bytes:
        content = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoHAsync_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(size), None)
        self.call("cuStreamSynchronize", None)
        return content.raw


def put(session: Session, driver: Driver, name: str) -> None:
    gpu = next(one.device for one in session.opened.server.devices if one.device.type == CUDA)
    handle = session.call("Allocate", namespace="default", size=len(PATTERN), device=gpu).handle
    assert handle.kind == CUDA_IPC, handle.kind
    address = driver.open(handle.opaque)
    session.call("Mapped", arena=handle.arena)
    driver.write(address.value + 512, PATTERN)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [len(PATTERN)], "size": len(PATTERN)}
    session.call(
        "Publish",
        namespace="default",
        name=name,
        arena=handle.arena,
        arena_generation=handle.generation,
        offset=512,
        size=len(PATTERN),
        specs={"arrays": [spec]},
    )
    print("ok", flush=True)
    sys.stdin.readline()
    driver.close(address)
    session.call("Release", arenas=[handle.arena])


def leave(session: Session, driver: Driver, _: str) -> None:
    gpu = next(one.device for one in session.opened.server.devices if one.device.type == CUDA)
    handle = session.call("Allocate", namespace="default", size=len(PATTERN), device=gpu).handle
    address = driver.open(handle.opaque)
    session.call("Mapped", arena=handle.arena)
    session.close()
    print("ok", flush=True)
    sys.stdin.readline()
    driver.close(address)


def get(session: Session, driver: Driver, name: str) -> None:
    acquired = session.call("Acquire", namespace="default", shares=[{"name": name}])
    leased = acquired.shares[0]
    handle = leased.share.handle
    assert handle.kind == CUDA_IPC, handle.kind
    address = driver.open(handle.opaque)
    assert driver.read(address.value + handle.offset, handle.size) == PATTERN
    driver.close(address)
    session.call("Release", leases=[leased.lease], unmapped=[handle.arena])
    print("ok", flush=True)


def main() -> None:
    directory, driver, role, name = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        messages, service = generate(Path(scratch))
        capabilities = {
            "kinds": [CUDA_IPC],
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
        }
        session = Session(Address(Path(directory)), messages, service, capabilities=capabilities)
        cuda = Driver(driver)
        {"put": put, "get": get, "leave": leave}[role](session, cuda, name)
        cuda.end()
        if role != "leave":
            session.close()


if __name__ == "__main__":
    main()
