# SPDX-License-Identifier: Apache-2.0
"""Modules of torch whose weights are a bundle: written by one process, used by all."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.arguments import Access
from arraybridge.arrays import devices
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle, Kind
from arraybridge.broker.progress import Progress
from arraybridge.broker.share import Share
from arraybridge.errors import InvalidRequest

_Module = TypeVar("_Module")
_SAME: Final = "make the module as it was published, or pass prefix=, with which the bundle's names begin"


def publish(
    module: Any,
    name: str,
    *,
    broker: Broker | None = None,
    fingerprint: bytes = b"",
    metadata: bytes | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    device: object = None,
) -> Share:
    """Copies parameters and persistent buffers of a module, its state_dict, into the bundle `name`.

    Parameters that are one tensor under several names stay one.

    Args:
        module: a torch.nn.Module, on the CPU or on GPUs.
        broker: None: `Broker()`.
        fingerprint, metadata, replace: as in `Broker.bundle`. progress: as in `BundleWriter.fill`.
        device: as in `Broker.bundle`: where the weights are to lie; None: where the module lies.

    Raises:
        BrokerError: as `Broker.bundle`.
    """
    kinds: dict[str, Kind] = dict.fromkeys((name for name, _ in module.named_parameters(remove_duplicate=False)), "parameter")
    kinds.update(dict.fromkeys((name for name, _ in module.named_buffers(remove_duplicate=False)), "buffer"))
    weights = {name: tensor for name, tensor in module.state_dict().items() if isinstance(tensor, ensure_module("torch").Tensor)}
    where = broker or Broker()
    writer = where.bundle(name, weights, kinds=kinds, fingerprint=fingerprint, metadata=metadata, replace=replace, device=device)
    return writer.fill(progress=progress).publish()


def attach(module: _Module, bundle: Bundle, *, prefix: str = "", access: Access = "safe") -> _Module:
    """Makes the bundle's arrays the parameters and buffers of a module, without a copy. Returns the module.

    A module that was made under `torch.device("meta")` allocates nothing before.

    Args:
        module: a torch.nn.Module; it may be attached again, to another generation.
        prefix: of the names in the bundle.
        access: "safe": the module may be trained; its writes reach nobody. "shared": for inference; parameters require
            no grad, all processes read the same memory, and a write ends the process. A bundle on a GPU needs "shared".

    Raises:
        InvalidRequest: names, shapes or dtypes of module and bundle differ, or a tensor that the bundle lacks would stay
            without values, or the bundle lies on a GPU and access is "safe". Nothing is changed then.

    Example:
        >>> with torch.device("meta"):
        ...     model = Model()
        >>> attach(model, broker.open("model"), access="shared").eval()
    """
    check_access(bundle, access)
    target: Any = module
    weights = _tied(target, bundle.state_dict(prefix, access))
    expected = {name: tensor for name, tensor in target.state_dict().items() if hasattr(tensor, "shape")}
    if different := sorted(expected.keys() ^ weights.keys()):
        where = "the module" if different[0] in expected else "the bundle"
        raise InvalidRequest(f"module and bundle differ in {len(different)} names: only {where} has {different[0]!r}; {_SAME}")
    for name, tensor in weights.items():
        if (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            shown = [f"{each.dtype}{list(each.shape)}" for each in (expected[name], tensor)]
            what = "dtype" if tensor.shape == expected[name].shape else "shape"
            raise InvalidRequest(f"{name!r} is {shown[0]} in the module and {shown[1]} in the bundle: make the module with that {what}")
    others = [name for name, buffer in target.named_buffers() if buffer.is_meta and name not in expected]
    if others:
        raise InvalidRequest(f"buffer {others[0]!r} has no values, and no state_dict has it: do not make the module on 'meta'")
    if access == "shared":
        target.requires_grad_(False)
    target.load_state_dict(_parameters(target, weights), assign=True)
    return module


def _tied(module: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """The weights, also under the other names of parameters that are one tensor: files have it under one name."""
    own = dict(module.named_parameters(remove_duplicate=False))
    known = {id(own[name]): tensor for name, tensor in weights.items() if name in own}
    return {name: known[id(each)] for name, each in own.items() if name not in weights and id(each) in known} | weights


def check_access(bundle: Bundle, access: Access) -> None:
    """Raises:
    InvalidRequest: a model over these weights could not be trained, and access is "safe".
    """
    if access == "safe" and bundle.share.device[0] == devices.CUDA:
        where = f"bundle {bundle.share.name!r} lies on {devices.named(bundle.share.device)}, where no memory is copy-on-write"
        raise InvalidRequest(f'{where}: pass access="shared" for inference, or copy with module.load_state_dict(bundle.state_dict())')


def _parameters(module: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """The same weights, those of parameters as Parameters: one for each tensor, so that tied parameters stay one."""
    torch: Any = ensure_module("torch")
    own = dict(module.named_parameters(remove_duplicate=False))
    made: dict[int, Any] = {}
    for name, tensor in weights.items():
        if name in own and id(tensor) not in made:
            made[id(tensor)] = torch.nn.Parameter(tensor, requires_grad=own[name].requires_grad)
    return {name: made[id(tensor)] if name in own else tensor for name, tensor in weights.items()}


autograph.mark_module(__name__)
