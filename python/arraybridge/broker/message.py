# SPDX-License-Identifier: Apache-2.0
"""A Message is what one send passes on: the arrays of a tree, its structure, and the sender's bytes.

An ordinary array needs none: the extension sends it in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from arraybridge import _core, adapters
from arraybridge.adapters import born
from arraybridge.arrays import devices
from arraybridge.arrays.classes import memory_type_of
from arraybridge.broker import bundled_tree, one_memory
from arraybridge.broker.connection import Connection
from arraybridge.broker.due import Due
from arraybridge.broker.patterns.metadata import encoded
from arraybridge.broker.placing import device_of, freeze, placed, source_of_share
from arraybridge.conversion import tree
from arraybridge.conversion.source import Source, plain
from arraybridge.errors import BrokerError, InvalidRequest, OutOfMemory

T = TypeVar("T")
On = Callable[[Callable[[_core.ChannelEnd], T]], T]  # calls a function with the sending end, and maps its errors
# Errors that may pass when another process frees memory.
_MAY_BE_FREED: Final = frozenset({"QUOTA_EXCEEDED", "DEVICE_FULL", "SYSTEM_MEMORY", "WAITED_IN_VAIN"})


class Message(NamedTuple):
    """A value: no broker is asked before `sent`."""

    sources: list[Source]
    structure: bytes
    metadata: bytes

    @classmethod
    def of(cls, array: Any, metadata: Any) -> Message:
        """The arguments of Channel.send.

        Raises:
            UnsupportedArray, UnsupportedDtype: no framework could read it. InvalidRequest: an invalid tree or metadata.
        """
        checked = encoded(metadata)
        structure, sources = tree.flatten(array, source_of_share)
        return cls(one_memory.together(sources), structure, checked)

    def exported(self) -> Message:
        """The same message, for another thread: arrays on a GPU follow the stream that is current in this one."""
        return self._replace(sources=[exported(source) for source in self.sources])

    def sent(self, connection: Connection, on: On[Any], due: Due, waits: bool) -> None:
        """Sends copies of the arrays; or, if they were born in broker memory, the arrays themselves.

        Raises:
            Errors of `on` and of Channel.send.
        """
        sources, structure, metadata = self
        device_of(sources)
        try:
            if any(source.description.fill for source in sources):
                return self._copied(connection, on, due, waits)
            views, core = [source.view() for source in sources], connection.core()
            if on(lambda end: end.put(core, views, structure, metadata, due.left(), waits)):
                freeze(sources)
        except InvalidRequest as refused:
            if not bundled_tree.fits(refused, structure, sources):
                raise tree.with_way_out(refused, structure) from None
        else:
            return
        self._copied(connection, on, due, waits, as_bundle=True)

    def _copied(self, connection: Connection, on: On[Any], due: Due, waits: bool, as_bundle: bool = False) -> None:
        """Sends what Python copies."""
        structure = _core.BUNDLE_STRUCTURE if as_bundle else self.structure
        for again in (True, False):
            placement, seen = self._placed(connection, on, due, waits, structure)
            try:
                on(lambda end: end.send(placement, structure, self.metadata, due.left(), waits, seen))
                return
            except BrokerError as lost:
                # As Broker::Send does: the memory of the copy has ended with an earlier daemon.
                if not again or lost.reason != "MEMORY_LOST":
                    raise

    def _placed(self, connection: Connection, on: On[Any], due: Due, waits: bool, structure: bytes) -> tuple[_core.Placement, int]:
        """Also the number of the last notice of the channel that was told before, or is not to be told."""
        seen: int = on(lambda end: end.seen_notice)
        while True:
            options = _core.PutOptions(structure=structure, metadata=self.metadata, timeout_s=due.left())
            try:
                if structure == _core.BUNDLE_STRUCTURE:
                    there = connection.ask(lambda core: bundled_tree.placed(core, self.structure, self.sources, "", options, None))
                else:
                    there = connection.ask(lambda core: placed(core, self.sources, options=options))
                return there, seen
            except OutOfMemory as full:
                if full.reason not in _MAY_BE_FREED or due.over():
                    raise
            before = seen
            seen = on(lambda end: end.check(waits, before))


def exported(source: Source) -> Source:
    """The same array for another thread."""
    if source.description.device == devices.HOST:
        return source
    compact = plain(source)
    return compact._replace(array=compact.view(), adapter=adapters.protocols())


def freeze_alike(array: Any) -> None:
    """Keeps an ordinary array as it is that was sent in place."""
    born.freeze(memory_type_of(type(array)), array)
