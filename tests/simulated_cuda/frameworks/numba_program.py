# SPDX-License-Identifier: Apache-2.0
"""Uses real numba.cuda on the simulated driver in one process: runs the function named by the first argument."""

import ctypes
import subprocess
import sys

import numpy as np
from cuda.bindings import driver as bindings
from numba import cuda
from numba.cuda.cudadrv.driver import IpcHandle


def copies() -> None:
    source = np.arange(1000, dtype=np.float32)
    array = cuda.to_device(source)
    assert (array.copy_to_host() == source).all()
    again = cuda.from_cuda_array_interface(array.__cuda_array_interface__)
    assert again.__cuda_array_interface__["data"] == array.__cuda_array_interface__["data"]
    assert (again.copy_to_host() == source).all()


def export() -> None:
    """Sends the 64 bytes of an array's handle to a process that reads the array."""
    array = cuda.to_device(np.arange(1000, dtype=np.float32))
    cuda.synchronize()
    handle = array.get_ipc_handle()._ipc_handle  # pickling it would need an attribute that cuda-bindings 13.5 lacks
    sent = ctypes.string_at(handle.handle.getPtr(), 64)
    subprocess.run([sys.executable, __file__, "open_handle", sent.hex(), str(handle.offset)], check=True)


def open_handle(sent: str, offset: str) -> None:
    handle = bindings.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(sent), 64)
    opened = IpcHandle(None, handle, 4000, offset=int(offset))
    array = opened.open_array(cuda.current_context(), shape=(1000,), dtype=np.dtype(np.float32))
    assert (array.copy_to_host() == np.arange(1000, dtype=np.float32)).all()
    opened.close()


if __name__ == "__main__":
    {function.__name__: function for function in [copies, export, open_handle]}[sys.argv[1]](*sys.argv[2:])
    print("done")
