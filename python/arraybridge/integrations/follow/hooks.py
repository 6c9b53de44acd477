# SPDX-License-Identifier: Apache-2.0
"""Hooks by which the calls of a module enter and leave a Gate."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from arraybridge.integrations.follow import compiled
from arraybridge.integrations.follow.gate import Gate


def _nothing(*_arguments: Any) -> None:
    """The hook of a copied or pickled module, whose weights are its own."""


def _hook_of_a_copy() -> Callable[..., None]:
    return _nothing


class _Hook:
    """In a forked child it does nothing: other threads of the parent may have held the locks."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.process = os.getpid()

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _hook_of_a_copy, ()


class _Before(_Hook):
    def __call__(self, _module: Any, _arguments: Any) -> None:
        _enter(self)


class _After(_Hook):
    def __call__(self, _module: Any, _arguments: Any, _output: Any) -> None:
        _leave(self)


def _enter(hook: _Hook) -> None:
    if os.getpid() == hook.process:
        hook.gate.enter(sys._getframe(2))  # of torch: it runs for as long as the call


def _leave(hook: _Hook) -> None:
    if os.getpid() == hook.process:
        hook.gate.leave(threading.get_ident())


for _function in (_enter, _leave):
    # torch.compiler.disable sets the same mark, and would import the compiler. Compiled code then calls these functions.
    setattr(_function, "_torchdynamo_disable", True)


def added(module: Any, gate: Gate) -> list[Any]:
    """Adds the hooks to a module of torch. The results have `remove()`."""
    compiled.call_hooks()
    before, after = _Before(gate), _After(gate)
    return [module.register_forward_pre_hook(before, prepend=True), module.register_forward_hook(after, always_call=True)]
