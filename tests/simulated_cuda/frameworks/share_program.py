# SPDX-License-Identifier: Apache-2.0
"""A process with arrays on the simulated GPU and a Broker: ``share_program.py ADDRESS [MODULE]``.

Each line of standard input names a function and its arguments; the answer is one line: its result or its exception. A module
adds functions.
"""

import asyncio
import ctypes
import importlib
import sys
import time
import traceback
from collections.abc import Callable

import numpy as np
import torch

import arraybridge
from arraybridge import _core

COUNT = 1000
broker = arraybridge.Broker(sys.argv[1], start="never")
kept: list[object] = []


def expected(start: str) -> torch.Tensor:
    return torch.arange(float(start), float(start) + COUNT)


def on_gpu(start: str) -> torch.Tensor:
    array = expected(start).to("cuda")
    torch.cuda.synchronize()
    return array


def right(array: torch.Tensor, start: str) -> str:
    return "right" if torch.equal(array, expected(start)) else f"wrong: {array[:3].tolist()}"


def put(name: str, start: str) -> str:
    share = broker.put(on_gpu(start), name)
    return f"{share.device} {share.kind}"


def put_from_side_stream(name: str, start: str) -> str:
    """The put is ordered after the current stream's work; no call synchronises."""
    source = on_gpu(start)
    array = torch.empty_like(source)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        array.copy_(source, non_blocking=True)
        broker.put(array, name)
    return "ok"


def from_side_stream(name: str, start: str, verb: str) -> str:
    """As above, by a verb that exports the array in another thread."""
    source = on_gpu(start)
    array = torch.empty_like(source)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    channel = broker.channel(name)
    with torch.cuda.stream(side):
        array.copy_(source, non_blocking=True)
        asyncio.run(channel.asend({"tree": array} if verb == "tree" else array))
    return "ok"


def received(name: str, start: str) -> str:
    got = broker.channel(name).receive("torch", timeout=60)
    return right((got["tree"] if isinstance(got, dict) else got).cpu(), start)


def put_numba(name: str, start: str, stream: str) -> str:
    """Work on this stream of Numba writes the array that is put. Kernels are tried by numba_commands.py."""
    from numba import cuda

    source = cuda.to_device(expected(start).numpy())
    where = {"none": 0, "default": cuda.default_stream(), "own": cuda.stream()}[stream]
    array = cuda.device_array(COUNT, np.float32, stream=where)
    cuda.synchronize()
    driver = ctypes.CDLL("libcuda.so.1")
    pointers = [ctypes.c_uint64(each.__cuda_array_interface__["data"][0]) for each in (array, source)]
    handle = ctypes.c_void_p(int(where.handle) if stream == "own" else None)
    assert driver.cuMemcpyDtoDAsync_v2(*pointers, ctypes.c_size_t(4 * COUNT), handle) == 0
    broker.put(array, name)
    return "ok"


def put_in_place(name: str, start: str) -> str:
    array = broker.empty(COUNT, "float32", "torch", device="cuda")
    assert array.device == torch.device("cuda:0")
    assert array.data_ptr() % 256 == 0
    array.copy_(on_gpu(start), non_blocking=True)
    before = broker.stats()["client_arena_bytes"]
    broker.put(array, name)
    assert broker.stats()["client_arena_bytes"] == before
    kept.append(array)
    return "ok"


def put_later(name: str, start: str) -> str:
    """The broker's stream orders the copy: no call waits, and the source may be freed at once."""
    while broker.stats()["pending_fences"]:  # of an earlier share, whose reader has waited: the broker learns of it soon
        time.sleep(0.005)
    source, other = on_gpu(start), on_gpu("0")
    array = torch.empty_like(source)
    array.copy_(source, non_blocking=True)
    synchronised = calls("cuStreamSynchronize")
    broker.put(array, name)
    assert calls("cuStreamSynchronize") == synchronised
    array.copy_(other, non_blocking=True)  # on the same stream: after the copy
    return str(broker.stats()["pending_fences"])


def calls(symbol: str) -> int:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.simulated_cuda_counter.restype = ctypes.c_long
    return int(driver.simulated_cuda_counter(symbol.encode()))


def get(name: str, start: str) -> str:
    array, plan = broker.get(name, "torch", explain=True)
    kept.append(array)
    return f"{array.device} {plan.via} {plan.copies} {right(array.cpu(), start)}"


def get_numpy(name: str, start: str) -> str:
    array, plan = broker.get(name, "numpy", explain=True)
    assert isinstance(array, np.ndarray)
    return f"{plan.via} {plan.copies} {right(torch.from_numpy(array), start)}"


def get_on(name: str, start: str, device: str) -> str:
    array, plan = broker.get(name, "torch", device=device, explain=True)
    return f"{array.device} {plan.via} {plan.copies} {right(array.cpu(), start)}"


def put_host(name: str, start: str) -> str:
    return str(broker.put(expected(start), name).device)


def convert(start: str) -> str:
    to_gpu = broker.convert(expected(start), "torch", device="cuda:0", explain=True)
    assert to_gpu.plan.via == "h2d", to_gpu.plan
    assert to_gpu.array.is_cuda
    back = broker.convert(to_gpu.array, "numpy", explain=True)
    assert back.plan.via == "d2h", back.plan
    same = broker.convert(to_gpu.array, "torch", explain=True)
    assert same.plan.route == "identity", same.plan
    assert same.array is to_gpu.array
    private = broker.convert(to_gpu.array, "torch", copy=True, explain=True)
    assert private.plan.via == "d2d-copy", private.plan
    assert private.array.data_ptr() != to_gpu.array.data_ptr()
    assert right(private.array.cpu(), start) == "right"
    return right(torch.from_numpy(back.array), start)


def view(name: str, start: str) -> str:
    """The attributes of a View of GPU memory, and the requests that it refuses."""
    array = acquired(name)
    assert array.device == array.__dlpack_device__() == (2, 0)
    assert array.read_only
    assert not hasattr(array, "__array_interface__")
    interface = array.__cuda_array_interface__
    assert interface["data"] == (array.address, True)
    assert interface["stream"] is None
    assert interface["version"] == 3
    for stream in (None, -1, 1, 2):
        assert torch.from_dlpack(Streamed(array, stream)).data_ptr() == array.address
    for refused in (lambda: array.__dlpack__(stream=0), lambda: array.__dlpack__(stream=-2)):
        assert isinstance(raised(refused), ValueError)
    assert type(array.__dlpack__(stream=1, dl_device=(1, 0))).__name__ == "PyCapsule"  # a copy, complete on return
    assert isinstance(raised(lambda: array.__dlpack__(dl_device=(1, 0), copy=False)), BufferError)
    assert isinstance(raised(lambda: array.__dlpack__(dl_device=(2, 1))), BufferError)
    assert type(array.__dlpack__()).__name__ == "PyCapsule"  # a copy, because the unversioned form cannot express read-only
    assert isinstance(raised(lambda: memoryview(array)), BufferError)
    assert isinstance(raised(lambda: np.asarray(array)), TypeError)
    on_host = np.from_dlpack(array, device="cpu")
    assert on_host.flags.writeable
    return right(torch.from_numpy(on_host), start)


class Streamed:
    """Reads with a chosen stream."""

    def __init__(self, array: _core.View, stream: int | None) -> None:
        self.array, self.stream = array, stream

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **_: object) -> object:
        return self.array.__dlpack__(stream=self.stream, max_version=(1, 0))


def acquired(name: str) -> _core.View:
    (share,) = (each.share for each in broker.list(name) if each.share.name == name)
    return broker.views(share)[0]


def get_without_a_wait(name: str, start: str) -> str:
    """Reads without ordering on a separate stream, and then with the ordinary ordering."""
    array = acquired(name)
    unordered = torch.from_dlpack(Streamed(array, -1))
    with torch.cuda.stream(torch.cuda.Stream()):
        early = right(unordered.cpu(), start)
    return f"{early}, then {right(torch.from_dlpack(array).cpu(), start)}"


def raised(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def numba(name: str, start: str) -> str:
    from numba import cuda

    array = cuda.as_cuda_array(acquired(name))
    read = right(torch.from_numpy(array.copy_to_host()), start)
    put = broker.put(cuda.to_device(expected(start).numpy()), f"{name}-numba")
    return f"{read} {put.device}"


def put_on(name: str, start: str, number: str) -> str:
    """Runs on this GPU, whichever GPU is current."""
    share = broker.put(expected(start).to(f"cuda:{number}"), name)
    return str(share.device)


def numba_elsewhere(name: str, start: str) -> str:
    """Uses a share on a GPU that is not Numba's current one, in every way of reading and writing Numba's arrays."""
    from numba import cuda

    before = cuda.current_context().device.id
    array = broker.get(name, "numba")
    host = np.empty(COUNT, np.float32)
    array.copy_to_host(host)
    read = [array.copy_to_host(), host, array[10:20].copy_to_host(), array.reshape(10, 100)[1].copy_to_host()]
    right_values = expected(start).numpy()
    wanted = [right_values, right_values, right_values[10:20], right_values[100:200]]
    assert all((one == other).all() for one, other in zip(read, wanted, strict=True)), read
    assert array[7] == right_values[7]
    own, plan = broker.get(name, "numba", copy=True, explain=True)
    own.copy_to_device(right_values + 1)
    own[:500].copy_to_device(right_values[:500] + 2)  # __setitem__ launches a kernel, which Numba links to machine code
    assert (own.copy_to_host() == right_values + 1 + (np.arange(COUNT) < 500)).all()
    assert (array.copy_to_host() == right_values).all(), "the share must not change"
    assert (broker.get(broker.put(own)) == own.copy_to_host()).all()
    assert cuda.current_context().device.id == before, "the caller's current GPU must not change"
    assert (cuda.to_device(right_values).copy_to_host() == right_values).all(), "no context is poisoned"
    return f"{plan.device} from {before}"


def drop() -> str:
    kept.clear()
    broker.flush()
    return str(broker.stats()["client_live_leases"])


FUNCTIONS = {
    function.__name__: function
    for function in (
        put, put_from_side_stream, from_side_stream, received, put_numba, put_later, put_in_place, put_host, get, get_without_a_wait, get_numpy, get_on, convert, view, numba, numba_elsewhere, put_on,
        drop,
    )
}  # fmt: skip

for module in sys.argv[2:]:
    FUNCTIONS |= importlib.import_module(module).functions(broker)

for line in sys.stdin:
    verb, *arguments = line.split()
    try:
        print(FUNCTIONS[verb](*arguments), flush=True)
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
