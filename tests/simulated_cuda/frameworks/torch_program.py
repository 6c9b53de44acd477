# SPDX-License-Identifier: Apache-2.0
"""Uses real PyTorch on the simulated driver in one process: runs the functions that its arguments name."""

import sys

import torch
import torch.multiprocessing as multiprocessing


def copies() -> None:
    source = torch.arange(1000.0)
    array = source.to("cuda")
    assert array.device == torch.device("cuda:0")
    assert torch.equal(array.cpu(), source)
    assert torch.equal(array[10:20].clone().cpu(), source[10:20])
    assert torch.equal(array.reshape(10, 100)[3].cpu(), source[300:400])
    array.copy_(source.flip(0))
    assert torch.equal(array.cpu(), source.flip(0))


def pinned() -> None:
    memory = torch.empty(100, pin_memory=True)
    assert memory.is_pinned()
    assert not torch.empty(100).is_pinned()
    memory.fill_(3)
    array = memory.to("cuda", non_blocking=True)
    assert torch.equal(array.cpu(), memory)


def exchange() -> None:
    array = torch.arange(10.0).to("cuda")
    assert torch.from_dlpack(array).data_ptr() == array.data_ptr()
    described = array.__cuda_array_interface__
    assert described["data"][0] == array.data_ptr()
    assert torch.as_tensor(array, device="cuda").data_ptr() == array.data_ptr()


def kernels() -> None:
    array = torch.zeros(10).to("cuda")
    try:
        array + 1
    except RuntimeError as error:
        print(type(error).__name__)
        return
    raise AssertionError("a kernel that cannot run gave a result")


def side_stream_waited_for() -> None:
    side_stream(wait=True)


def side_stream_forgotten() -> None:
    side_stream(wait=False)


def side_stream(wait: bool) -> None:
    """A copy on a side stream, read on the default one with or without waiting for it."""
    array = torch.empty(1000, device="cuda")
    source = torch.arange(1000.0).to("cuda")
    side = torch.cuda.Stream()
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        array.copy_(source, non_blocking=True)
    if wait:
        torch.cuda.current_stream().wait_stream(side)
    seen = array.cpu()
    print("new" if torch.equal(seen, source.cpu()) else hex(seen.view(torch.int32)[0].item() & 0xFFFFFFFF))
    torch.cuda.synchronize()


def read_in_child(arrays: "multiprocessing.Queue[torch.Tensor]", answers: "multiprocessing.Queue[list[float]]") -> None:
    array = arrays.get()
    answers.put(array.cpu().tolist())


def queues() -> None:
    """torch.multiprocessing: PyTorch itself uses legacy handles and interprocess events."""
    context = multiprocessing.get_context("spawn")
    arrays, answers = context.Queue(), context.Queue()
    child = context.Process(target=read_in_child, args=(arrays, answers))
    child.start()
    array = torch.arange(1000.0).to("cuda")
    arrays.put(array)
    assert answers.get() == list(range(1000))
    child.join()
    assert child.exitcode == 0


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
    print("done")
