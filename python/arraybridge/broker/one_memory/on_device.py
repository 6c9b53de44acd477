# SPDX-License-Identifier: Apache-2.0
"""OnDevice: the device on which frameworks get the arrays of a bundle, if it is another one than that of the bundle's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from arraybridge import _core, autograph
from arraybridge.arrays import devices
from arraybridge.broker.one_memory import check

if TYPE_CHECKING:
    from arraybridge.broker.share import Share


class OnDevice:
    """The part of a Bundle that says where its arrays are read."""

    _share: Share
    _wishes: Mapping[str, Any] = {"device": None, "mapped": None}  # as in Broker.get

    def on(self, device: object, *, mapped: bool | None = None) -> Self:
        """The same bundle, whose arrays frameworks get on this device, as by `Broker.get`.

        Where GPU and host have one memory (GB10, Grace, Jetson), the arrays of a bundle in host memory are those of the GPU,
        without a copy. They must not be written: `attach` takes access="shared". Elsewhere each call copies them to the GPU.

        Args:
            device, mapped: as in `Broker.get`. None: where the bundle lies.

        Raises:
            DeviceUnavailable, InvalidDevice: this process sees no such device. InvalidRequest: mapped=True without a GPU.

        Example:
            >>> share = broker.bundle("net", {"w": np.ones(3)}).fill().publish()
            >>> broker.open("net").on("cpu").torch()["w"].shape    # "cuda:0": on a GPU
            torch.Size([3])
        """
        check(mapped, devices.wished(device, _core.gpus(), "bundle", "any"), None)
        made = object.__new__(type(self))  # a copy would open the share again
        made.__dict__.update(self.__dict__, _wishes={"device": device, "mapped": mapped})
        return made

    @property
    def device(self) -> devices.Device:
        """Where frameworks that have arrays there get the arrays: the device of `on`, else that of the share."""
        return devices.wished(self._wishes["device"], _core.gpus(), "bundle", "any") or self._share.device


autograph.mark_module(__name__)
