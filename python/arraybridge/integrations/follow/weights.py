# SPDX-License-Identifier: Apache-2.0
"""Arrays of a bundle as the parameters and buffers of a torch.nn.Module."""

from __future__ import annotations

from typing import Any, Final

from arraybridge.adapters import ensure_module
from arraybridge.errors import InvalidRequest

_SAME: Final = "make the module as it was published, or pass prefix=, with which the bundle's names begin"


def checked(module: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """The weights by the module's names, also by the other names of parameters that are one tensor.

    Raises:
        InvalidRequest: names, shapes or dtypes of module and weights differ, or a tensor without a weight would stay without
            values.
    """
    weights = _tied(module, weights)
    expected = {name: tensor for name, tensor in module.state_dict().items() if hasattr(tensor, "shape")}
    if different := sorted(expected.keys() ^ weights.keys()):
        where = "the module" if different[0] in expected else "the bundle"
        raise InvalidRequest(f"module and bundle differ in {len(different)} names: only {where} has {different[0]!r}; {_SAME}")
    for name, tensor in weights.items():
        if (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            shown = [f"{each.dtype}{list(each.shape)}" for each in (expected[name], tensor)]
            what = "dtype" if tensor.shape == expected[name].shape else "shape"
            raise InvalidRequest(f"{name!r} is {shown[0]} in the module and {shown[1]} in the bundle: make the module with that {what}")
    others = [name for name, buffer in module.named_buffers() if buffer.is_meta and name not in expected]
    if others:
        raise InvalidRequest(f"buffer {others[0]!r} has no values, and no state_dict has it: do not make the module on 'meta'")
    return weights


def assign(module: Any, weights: dict[str, Any], read_only: bool) -> None:
    """Makes checked weights the module's tensors. Each tensor of a parameter becomes one Parameter, so that tied parameters
    stay one. `read_only`: they require no grad.
    """
    torch: Any = ensure_module("torch")
    if read_only:
        module.requires_grad_(False)
    own = dict(module.named_parameters(remove_duplicate=False))
    made: dict[int, Any] = {}
    for name, tensor in weights.items():
        if name in own and id(tensor) not in made:
            made[id(tensor)] = torch.nn.Parameter(tensor, requires_grad=own[name].requires_grad)
    named = {name: made[id(tensor)] if name in own else tensor for name, tensor in weights.items()}
    module.load_state_dict(named, assign=True)


def _tied(module: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """The weights, also under the other names of parameters that are one tensor: files have it under one name."""
    own = dict(module.named_parameters(remove_duplicate=False))
    known = {id(own[name]): tensor for name, tensor in weights.items() if name in own}
    return {name: known[id(each)] for name, each in own.items() if name not in weights and id(each) in known} | weights
