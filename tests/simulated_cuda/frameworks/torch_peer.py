# SPDX-License-Identifier: Apache-2.0
"""Two processes with real PyTorch share a CUDA block: a descriptor for the memory, an interprocess event for the order.

``torch_peer.py wait|forget`` starts its own reader, which waits for the writer's event or forgets to.
"""

import array
import ctypes
import os
import socket
import struct
import subprocess
import sys

import torch

BYTES = 2 << 20
POSIX_FD = 1
READ_WRITE = 3
u64 = ctypes.c_uint64


class Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint),
        ("handle_types", ctypes.c_uint),
        ("location_type", ctypes.c_uint),
        ("location", ctypes.c_int),
        ("win32", ctypes.c_void_p),
        ("flags", u64),
    )


class Access(ctypes.Structure):
    _fields_ = (("location_type", ctypes.c_uint), ("location", ctypes.c_int), ("flags", ctypes.c_uint))


class Described:
    """An array that PyTorch reads in place."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (1000,), "typestr": "<f4", "data": (address, False), "version": 3, "strides": None
        }  # fmt: skip


driver = ctypes.CDLL("libcuda.so.1")


def checked(result: int) -> None:
    assert result == 0, result


def mapped(handle: u64) -> torch.Tensor:
    address = u64()
    checked(driver.cuMemAddressReserve(ctypes.byref(address), u64(BYTES), u64(0), u64(0), u64(0)))
    checked(driver.cuMemMap(address, u64(BYTES), u64(0), handle, u64(0)))
    checked(driver.cuMemSetAccess(address, u64(BYTES), ctypes.byref(Access(1, 0, READ_WRITE)), u64(1)))
    tensor = torch.as_tensor(Described(address.value), device="cuda")
    assert tensor.data_ptr() == address.value
    return tensor


def write(how: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader = subprocess.Popen([sys.executable, __file__, how, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    properties, handle, descriptor = Properties(1, POSIX_FD, 1, 0, None, 0), u64(), ctypes.c_int()
    checked(driver.cuMemCreate(ctypes.byref(handle), u64(BYTES), ctypes.byref(properties), u64(0)))
    checked(driver.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, POSIX_FD, u64(0)))
    tensor, source = mapped(handle), torch.arange(1000.0).to("cuda")
    side, event = torch.cuda.Stream(), torch.cuda.Event(interprocess=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        tensor.copy_(source, non_blocking=True)
        event.record(side)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor.value]))]
    ours.sendmsg([bytes(event.ipc_handle())], rights)
    assert reader.wait() == 0


def read(how: str, fileno: int) -> None:
    message, ancillary, _, _ = socket.socket(fileno=fileno).recvmsg(100, 100)
    (descriptor,) = struct.unpack("i", ancillary[0][2])
    handle = u64()
    checked(driver.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(descriptor), POSIX_FD))
    tensor, side = mapped(handle), torch.cuda.Stream()
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda:0"), message)
    with torch.cuda.stream(side):
        if how == "wait":
            side.wait_event(event)
        seen = tensor.cpu()
    right = torch.equal(seen, torch.arange(1000.0))
    print("right" if right else hex(seen.view(torch.int32)[0].item() & 0xFFFFFFFF), flush=True)


if __name__ == "__main__":
    torch.cuda.init()
    torch.empty(1, device="cuda")  # a context is current
    if len(sys.argv) == 2:
        write(sys.argv[1])
    else:
        read(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # the block is freed with the process; PyTorch's own clean-up is not tested
