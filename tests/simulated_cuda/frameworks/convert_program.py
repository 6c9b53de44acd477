# SPDX-License-Identifier: Apache-2.0
"""convert_memory and cleanup with real PyTorch on the simulated GPU: ``convert_program.py NAME...`` runs these functions."""

import sys
import warnings

import numpy as np
import torch

import arraybridge
from arraybridge import DeviceUnavailable, convert_memory, get_device_id

VALUES = np.arange(6, dtype="f4").reshape(2, 3)


def to_the_gpu_and_back() -> None:
    warnings.simplefilter("error")  # no conversion falls back
    tensor = convert_memory(VALUES, "numpy", "torch")
    assert tensor.device == torch.device("cuda:0") and get_device_id(tensor, "torch") == 0
    assert convert_memory(tensor, "torch", "torch", 0) is tensor
    for copy in (None, True):
        assert (convert_memory(tensor, "torch", "numpy", copy=copy) == VALUES).all()
        on_cpu = convert_memory(tensor, "torch", "torch", None, copy=copy)
        assert on_cpu.device.type == "cpu" and (on_cpu.numpy() == VALUES).all()
    again = convert_memory(tensor, "torch", "torch", 0, copy=True)
    assert again.data_ptr() != tensor.data_ptr() and torch.equal(again.cpu(), on_cpu)
    assert (convert_memory(VALUES[:, ::-1], "numpy", "torch").cpu().numpy() == VALUES[:, ::-1]).all()


def numbers_beyond_the_last_are_refused() -> None:
    count = torch.cuda.device_count()
    try:
        convert_memory(VALUES, "numpy", "torch", count)
    except DeviceUnavailable as error:
        assert f"cuda:{count - 1}" in str(error) and "CUDA" in str(error)
    else:
        raise AssertionError(count)
    before = torch.cuda.current_device()
    last = convert_memory(VALUES, "numpy", "torch", count - 1)
    assert last.device.index == count - 1 and torch.cuda.current_device() == before
    moved = convert_memory(last, "torch", "torch", 0)
    assert moved.device.index == 0 and (convert_memory(moved, "torch", "numpy") == VALUES).all()


def cleanup_gives_memory_back() -> None:
    big = convert_memory(np.zeros(1 << 22, "u1"), "numpy", "torch")
    small = convert_memory(VALUES, "numpy", "torch")
    full = torch.cuda.memory_reserved()
    arraybridge.cleanup_torch_gpu()
    assert torch.cuda.memory_reserved() == full, "a live array is not touched"
    del big
    arraybridge.cleanup_torch_gpu(0)
    assert torch.cuda.memory_reserved() < full and (small.cpu().numpy() == VALUES).all()


def out_of_memory_is_known() -> None:
    try:
        torch.empty(1 << 60, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        assert arraybridge.is_oom_error(error, "torch"), error
    else:
        raise AssertionError


for name in sys.argv[1:]:
    globals()[name]()
    print(name, flush=True)
