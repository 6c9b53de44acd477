# SPDX-License-Identifier: Apache-2.0
"""A Publication is a put before its execution: the arrays, their name and description."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

from arraybridge import _core
from arraybridge.adapters import born
from arraybridge.arguments import check_seconds, check_text
from arraybridge.arrays.classes import memory_type_of
from arraybridge.broker import bundled_tree, notes, one_memory
from arraybridge.broker.born.notes import of_birth
from arraybridge.broker.connection import Connection
from arraybridge.broker.patterns.metadata import encoded
from arraybridge.broker.placing import device_of, freeze, placed, placement_of, source_of_share
from arraybridge.broker.progress import Progress
from arraybridge.conversion import shortcut, tree
from arraybridge.conversion.source import Source
from arraybridge.errors import InvalidRequest


def check_name(name: object) -> None:
    """Raises:
    InvalidRequest: no share can have this name.
    """
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"a name must be a non-empty str, not {reprlib.repr(name)}; None lets the broker choose one")
    check_text(name, "a name")


def lifetime_of(lifetime: float | None) -> float:
    """The seconds of a lifetime; None: 0, which means that of the namespace.

    Raises:
        InvalidRequest: it is not a number of seconds, or less than a millisecond.
    """
    lifetime_s = 0.0 if lifetime is None else check_seconds(lifetime, "lifetime")
    if lifetime is not None and lifetime_s < 0.001:
        raise InvalidRequest(f"a lifetime must be at least 0.001 seconds, not {lifetime!r}")
    return lifetime_s


@functools.lru_cache(maxsize=64)
def _options_alike(framework: str, replace: bool, waits: bool) -> _core.PutOptions:
    copied, in_place, forward = notes.of_copy(framework, False), of_birth(framework, False), notes.of_forward(framework)
    return _core.PutOptions(replace=replace, note=copied, note_in_place=in_place, note_forward=forward, wait=waits)


class Publication(NamedTuple):
    """A value: no broker is asked before `entered`."""

    sources: list[Source]
    name: str
    structure: bytes
    copied: bool  # wherever it lies
    options_for: Callable[[bytes], _core.PutOptions]  # of a structure
    options: _core.PutOptions

    @classmethod
    def of(
        cls,
        array: Any,
        name: str | None,
        replace: bool = False,
        sealed: bool = False,
        metadata: Any = None,
        waits: bool = True,
        lifetime: float | None = None,
        keep_writing: bool = False,
    ) -> Publication:
        """The arguments of Broker.put.

        Raises:
            UnsupportedArray, UnsupportedDtype: no framework could read it.
            InvalidRequest: an invalid name, tree or metadata.
        """
        if name is not None:
            check_name(name)
        for word, wish in {"replace": replace, "sealed": sealed, "wait": waits, "keep_writing": keep_writing}.items():
            if not isinstance(wish, bool):
                raise InvalidRequest(f"{word} must be True or False, not {wish!r}")
        checked = encoded(metadata)
        if not waits and name is None:
            raise InvalidRequest("wait=False needs a name: no process could find the share without one")
        lifetime_s = lifetime_of(lifetime)
        rearranged: list[str] = []
        structure, sources = tree.flatten(array, source_of_share, rearranged)
        framework = sources[0].description.framework
        written = notes.of_copy(framework, sealed, *rearranged[:1])

        def options_for(structure: bytes) -> _core.PutOptions:
            return _core.PutOptions(
                replace, sealed, structure, checked, lifetime_s,
                written, of_birth(framework, keep_writing), notes.of_forward(framework),
                waits, keep_writing=keep_writing,
            )  # fmt: skip

        return cls(one_memory.together(sources), name or "", structure, sealed or keep_writing, options_for, options_for(structure))

    def entered(self, connection: Connection, progress: Progress | None = None) -> _core.ShareInfo | None:
        """Publishes the arrays under their name: copies of them, or, if they were born in broker memory, the arrays
        themselves. None: the put does not wait for the broker.

        Raises:
            ShareExists, OutOfMemory, BrokerUnavailable, PermissionDenied, InvalidRequest: as Broker.put.
        """
        try:
            return connection.ask(lambda core: self._entered(core, progress))
        except InvalidRequest as refusal:
            if not bundled_tree.fits(refusal, self.structure, self.sources):
                raise tree.with_way_out(refusal, self.structure) from None
        return connection.ask(lambda core: self._entered_as_bundle(core, progress))

    def _entered(self, core: _core.Core, progress: Progress | None) -> _core.ShareInfo | None:
        # After a broker's end all of it is done anew, the copy, too.
        device_of(self.sources)
        fills = any(source.description.fill for source in self.sources)
        if (fills or progress is not None) and (self.copied or placement_of(core, self.sources) is None):
            placement = placed(core, self.sources, self.name, self.options, progress=progress)
            return core.publish(placement, self.name, self.options)
        info, in_place = core.put(self.name, [source.view() for source in self.sources], self.options)
        if in_place:
            freeze(self.sources)
        return info

    def _entered_as_bundle(self, core: _core.Core, progress: Progress | None) -> _core.ShareInfo | None:
        options = self.options_for(_core.BUNDLE_STRUCTURE)
        placement = bundled_tree.placed(core, self.structure, self.sources, self.name, options, progress)
        return core.publish(placement, self.name, options)


def entered_alike(
    connection: Connection, array: Any, name: str | None, replace: bool, waits: bool
) -> tuple[_core.ShareInfo | None, bool] | None:
    """The short way of a put of an ordinary array; `Publication.entered` and whether it was done in place. None: nothing
    was done; the careful way reports what is wrong.
    """
    framework = memory_type_of(type(array))
    maker = None if framework is None else shortcut.maker_of(type(array))
    if framework is None or maker is None or type(replace) is not bool or type(waits) is not bool:
        return None
    if name is None and not waits:
        return None
    put = connection.put(maker, name, array, _options_alike(framework, replace, waits))
    if put is not None and put[1]:
        born.freeze(framework, array)
    return put
