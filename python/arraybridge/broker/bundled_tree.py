# SPDX-License-Identifier: Apache-2.0
"""A tree whose description exceeds the broker's limits is stored as a bundle: its arrays under their numbers, and its
structure in the manifest. Readers get the same tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arraybridge import _core, planner
from arraybridge.arrays import devices
from arraybridge.broker.placing import device_of, fill
from arraybridge.broker.progress import Progress
from arraybridge.conversion.source import Source
from arraybridge.errors import InvalidRequest, from_status

METADATA: Final = b"arraybridge.tree\n"  # then the structure, of the grammar of `convert.tree`
_STRUCTURE_BYTES_MAX: Final = 8 << 20  # readers parse it


def fits(refusal: InvalidRequest, structure: bytes, sources: Sequence[Source]) -> bool:
    """Whether a tree that the broker refused for its size can be a bundle: in host memory, of DLPack's dtypes."""
    return (
        bool(structure)
        and refusal.reason in ("TOO_LARGE", "TOO_MANY")
        and len(structure) <= _STRUCTURE_BYTES_MAX
        and device_of(sources) == devices.HOST
        and all(source.description.dtype in planner.CODES for source in sources)
    )


def placed(
    core: _core.Core, structure: bytes, sources: Sequence[Source], name: str, options: _core.PutOptions, progress: Progress | None
) -> _core.Placement:
    """The arrays and the manifest in broker memory. options: with _core.BUNDLE_STRUCTURE as the structure."""
    digits = len(str(len(sources)))
    arrays = [(f"{number:0{digits}}", each.description.code, each.description.shape, 2, "") for number, each in enumerate(sources)]
    plan = _core.BundlePlan(arrays, b"", METADATA + structure)
    placement = core.empty(plan.specs(), name, options)
    bundle = plan.write_to(placement)
    fill([view for *_, view in bundle.arrays(0, len(sources))], sources, progress)
    return placement


def unpacked(structure: bytes, views: Sequence[_core.View]) -> tuple[bytes, Sequence[_core.View]]:
    """The structure and arrays of a share: those of its tree, if it is a bundle that has one.

    Raises:
        InvalidRequest: the manifest is malformed.
    """
    if structure != _core.BUNDLE_STRUCTURE or views[0].device != devices.HOST:
        return structure, views
    try:
        bundle = _core.Bundle(views)
    except _core.StatusError as status:
        if status.reason == "MALFORMED_BUNDLE":
            raise from_status(status) from None
        return structure, views  # a tree with these two keys, or a bundle of a later version
    if bundle.metadata_bytes > len(METADATA) + _STRUCTURE_BYTES_MAX or not (metadata := bundle.metadata).startswith(METADATA):
        return structure, views
    if len(bundle) > len(metadata):
        raise InvalidRequest(f"the share's tree has {len(bundle)} arrays, more than its structure of {len(metadata)} bytes can name")
    try:
        return metadata[len(METADATA) :], [view for *_, view in bundle.arrays(0, len(bundle))]
    except _core.StatusError as status:
        raise from_status(status) from None
