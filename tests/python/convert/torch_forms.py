# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch that look like any other and have no memory that could be handed on: name -> (maker, word)."""

import torch
from torch.testing._internal.two_tensor import TwoTensor


class Wrapper(torch.Tensor):
    """Has no storage, and refuses every operation."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"no {func}")


class Refusing(torch.Tensor):
    """Has memory, and refuses every operation."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"no {func}")


class Throwing(torch.Tensor):
    """Refuses even to say what it is."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("thrown")


def freed():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def cut():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(12)
    return tensor


def cut_behind_an_offset():
    tensor = torch.ones(2, 8)[1, ::3]  # the last of its three is element 14
    tensor.untyped_storage().resize_(56)
    return tensor


FORMS = {
    "traceable wrapper": (lambda: TwoTensor(torch.ones(2), torch.ones(2)), r"wrapper subclass \(TwoTensor\)"),
    "refusing wrapper": (Wrapper, r"wrapper subclass \(Wrapper\)"),
    "refusing subclass": (lambda: torch.Tensor._make_subclass(Refusing, torch.ones(2)), "Refusing.*NotImplementedError"),
    "throwing function": (lambda: torch.Tensor._make_subclass(Throwing, torch.ones(2)), "Throwing.*thrown"),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(2)), "functional"),
    "zero": (lambda: torch._efficientzerotensor((3,)), "zero tensor"),
    "freed storage": (freed, "freed storage"),
    "cut storage": (cut, r"cut storage \(12 bytes of the 16"),
    "cut storage behind an offset": (cut_behind_an_offset, r"cut storage \(56 bytes of the 60"),
    "uninitialized parameter": (torch.nn.UninitializedParameter, "uninitialized"),
    "uninitialized buffer": (torch.nn.UninitializedBuffer, "uninitialized"),
}
