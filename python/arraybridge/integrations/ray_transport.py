# SPDX-License-Identifier: Apache-2.0
"""Ray Direct Transport by the brokers: tensors that an actor returns are published, and mapped where they are read.

Importing this module registers the transport, so that an actor that Ray restarts has it when the first description
arrives there. `arraybridge.integrations.ray.register` imports it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Final

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.broker.replica import broker_of
from arraybridge.broker.share import Share as LocalShare, record_of
from arraybridge.errors import BrokerError, UnsupportedArray
from arraybridge.integrations.ray import Share
from arraybridge.integrations.ray_node import this_node

NAME: Final = "arraybridge"
_rdt: Any = ensure_module("ray.experimental.rdt.tensor_transport_manager")
_torch: Any = ensure_module("torch")


@dataclasses.dataclass
class Shared(_rdt.TensorTransportMetadata):  # type: ignore[misc]
    """The description of a result's tensors: their shares, which Ray's own count of the result keeps."""

    shares: tuple[Share, ...] = ()


class Transport(_rdt.TensorTransportManager):  # type: ignore[misc]
    """Reads one-sidedly: the receiver maps the memory, or pulls it to its node once."""

    def __init__(self) -> None:
        self._published: dict[str, list[LocalShare]] = {}

    def tensor_transport_backend(self) -> str:
        return NAME.upper()

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Shared:
        for tensor in rdt_object:
            if tensor.device.type != "cpu":
                reason = f"it lies on {tensor.device}: this transport passes tensors of host memory"
                raise UnsupportedArray("torch", "ray", "place", reason)
        broker = broker_of("default")
        published = self._published.setdefault(obj_id, [])
        try:
            for tensor in rdt_object:
                published.append(broker.put(tensor))
        except BrokerError:
            self.garbage_collect(obj_id, None, [])
            raise
        shares = tuple(Share(record_of(each), this_node(), None) for each in published)
        return Shared([(tensor.shape, tensor.dtype) for tensor in rdt_object], "cpu", shares)

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
        return _rdt.CommunicatorMetadata()

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Shared, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Any]:
        tensors = [share.get("torch") for share in tensor_transport_metadata.shares]
        if not target_buffers:
            return tensors
        for buffer, tensor in zip(target_buffers, tensors, strict=True):
            buffer.copy_(tensor)
        return list(target_buffers)

    def send_multiple_tensors(self, tensors: list[Any], tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        raise NotImplementedError("receivers read the shares themselves")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[Any]) -> None:
        for share in self._published.pop(obj_id, ()):
            with contextlib.suppress(BrokerError):  # it has ended, or its broker
                share.withdraw()

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Nothing waits for another process."""


ensure_module("ray.experimental").register_tensor_transport(NAME, ["cpu"], Transport, _torch.Tensor)
autograph.mark_module(__name__)
