# SPDX-License-Identifier: Apache-2.0
"""Modules of torch whose weights are a bundle: written by one process, used by all."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, overload

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.arguments import Access
from arraybridge.arrays import devices
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle, Kind
from arraybridge.broker.progress import Progress
from arraybridge.broker.share import Share
from arraybridge.errors import InvalidRequest
from arraybridge.integrations.follow.follower import Follower, FollowerStats as FollowerStats
from arraybridge.integrations.follow.weights import assign, checked

_Module = TypeVar("_Module")


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


@overload
def attach(module: _Module, bundle: Bundle, *, prefix: str = "", access: Access = "safe", follow: Literal[False] = False) -> _Module: ...
@overload
def attach(module: object, bundle: Bundle, *, prefix: str = "", access: Access = "safe", follow: Literal[True, "by hand"]) -> Follower: ...
def attach(
    module: Any, bundle: Bundle, *, prefix: str = "", access: Access = "safe", follow: Literal[True, False, "by hand"] = False
) -> Any:
    """Makes the bundle's arrays the parameters and buffers of a module, without a copy. Returns the module, or its Follower.

    A module that was made under `torch.device("meta")` allocates nothing before.

    Args:
        module: a torch.nn.Module; it may be attached again, to another generation.
        prefix: of the names in the bundle.
        access: "safe": the module may be trained; its writes reach nobody. "shared": for inference; parameters require
            no grad, all processes read the same memory, and a write ends the process. A bundle that is read on a GPU needs it.
        follow: True: the module gets each newer generation of the bundle's name, under the same tensors, between two calls.
            "by hand": where the program calls the Follower. Both imply "shared". False: it keeps this generation.

    Raises:
        InvalidRequest: names, shapes or dtypes of module and bundle differ, or a tensor that the bundle lacks would stay
            without values, or the bundle lies on a GPU and access is "safe". Or this module or bundle cannot be followed:
            quantised or traced modules, compiled code with frozen weights, GPUs. Nothing is changed then.

    Example:
        >>> with torch.device("meta"):
        ...     model = Model()
        >>> attach(model, broker.open("model"), access="shared").eval()
        >>> follower = attach(model, broker.open("model"), follow=True)
    """
    if follow is not True and follow is not False and follow != "by hand":
        raise InvalidRequest(f"follow must be True, False or 'by hand', not {follow!r}")
    if follow:
        return Follower(module, bundle, prefix, follow is True)
    check_access(bundle, access)
    assign(module, checked(module, bundle.state_dict(prefix, access)), access == "shared")
    return module


def check_access(bundle: Bundle, access: Access) -> None:
    """Raises:
    InvalidRequest: a model over these weights could not be trained, and access is "safe".
    """
    if access == "safe" and bundle.device[0] == devices.CUDA:
        where = f"bundle {bundle.share.name!r} is read on {devices.named(bundle.device)}, where no memory is copy-on-write"
        raise InvalidRequest(f'{where}: pass access="shared" for inference, or copy with module.load_state_dict(bundle.state_dict())')


autograph.mark_module(__name__)
