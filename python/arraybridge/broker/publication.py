"""A Publication is a put before its execution: the arrays, their name and description."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from arraybridge import _core
from arraybridge.arguments import check_seconds, check_text, checked_metadata
from arraybridge.broker import notes
from arraybridge.broker.connection import Connection
from arraybridge.broker.placing import Purpose, freeze, placed, placement_of, source_of_share
from arraybridge.broker.progress import Progress
from arraybridge.convert import shortcut, tree
from arraybridge.convert.source import Source
from arraybridge.errors import InvalidRequest


_PUT_ALIKE: Final = notes.of_put("array", False, False)


class Publication(NamedTuple):
    """A value: sends no request before `entered`."""

    sources: list[Source]
    purpose: Purpose
    replace: bool
    waits: bool = True
    lifetime_s: float = 0.0

    @classmethod
    def of(
        cls,
        array: Any,
        name: str | None,
        replace: bool = False,
        sealed: bool = False,
        metadata: bytes | None = None,
        waits: bool = True,
        lifetime: float | None = None,
    ) -> Publication:
        """The arguments of Broker.put.

        Raises:
            UnsupportedArray, UnsupportedDtype: no framework could read it.
            InvalidRequest: an invalid name, tree or metadata.
        """
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidRequest("a name must be a non-empty str; None lets the broker choose one")
        check_text(name or "", "a name")
        for word, wish in (("replace", replace), ("sealed", sealed), ("wait", waits)):
            if not isinstance(wish, bool):
                raise InvalidRequest(f"{word} must be True or False, not {wish!r}")
        said = checked_metadata(metadata)
        if not waits and name is None:
            raise InvalidRequest("wait=False needs a name: no process could find the share without one")
        lifetime_s = 0.0 if lifetime is None else check_seconds(lifetime, "lifetime")
        if lifetime is not None and lifetime_s < 0.001:
            raise InvalidRequest(f"a lifetime must be at least 0.001 seconds, not {lifetime!r}")
        structure, sources = tree.flatten(array, source_of_share)
        purpose = Purpose(sealed, name or "", structure, said)
        return cls(sources, purpose, replace, waits, lifetime_s)

    def entered(self, connection: Connection, progress: Progress | None = None) -> _core.ShareInfo | None:
        """Places the arrays, unless they were born in broker memory, and enters them under their name. Returns None if
        it did not wait for the broker.

        Raises:
            ShareExists, OutOfMemory, BrokerUnavailable, PermissionDenied, InvalidRequest: as Broker.put.
        """
        try:
            return connection.ask(lambda core: self._entered(core, progress))
        except InvalidRequest as refusal:
            raise tree.with_way_out(refusal, self.purpose.structure) from None

    def _entered(self, core: _core.Core, progress: Progress | None) -> _core.ShareInfo | None:
        # Both steps in one call: if the broker has restarted, the bytes must be placed again, too.
        sealed, name, structure, metadata = self.purpose
        born_there = None if sealed else placement_of(core, self.sources)
        placement = born_there or placed(core, self.sources, self.purpose, progress=progress)
        publish = core.publish if self.waits else core.enter
        note = notes.of_put(self.sources[0].description.framework, born_there is not None, sealed)
        info = publish(placement, name, self.replace, sealed, structure, metadata, self.lifetime_s, note)
        if born_there is not None:
            freeze(self.sources)
        return info


def entered_alike(connection: Connection, array: Any, name: str | None) -> bool:
    """The fast path of a put without waiting of an ordinary array. False: take the full path, which reports errors.
    """
    if not isinstance(name, str) or not name:
        return False
    check_text(name, "a name")
    view = shortcut.ordinary(array)
    if view is None or view.traits is None:
        return False
    return connection.put(view, name, _PUT_ALIKE)
