# SPDX-License-Identifier: Apache-2.0
"""PyTorch: all its memory on the host is allocated in one function of libc10. It has no read-only tensors, but tensors that
share memory until one of them is written.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final

from arraybridge.adapters import ensure_module, torch as adapter

LIBRARIES: Final = ("libc10.so",)
REFUSAL: Final = ""


def allocating() -> AbstractContextManager[None]:
    ensure_module("torch")
    return nullcontext()


def freeze(tensor: Any) -> None:
    """An operation that would write the tensor, or a view of it, first copies its memory. torch itself does so while a lazy
    clone of the memory lives. The clone is kept by the storage, and so ends with it; memory that came from elsewhere has none.
    torch refuses to resize such memory, as after `Tensor.numpy()`: torch 2.15 and older would break its storage. Not on a GPU.
    """
    if not tensor.is_cpu:
        return
    torch = ensure_module("torch")
    with adapter.executing(), suppress(AttributeError, RuntimeError):
        adapter.keep(tensor)
        tensor.untyped_storage()._arraybridge_published = torch._lazy_clone(tensor.detach())
