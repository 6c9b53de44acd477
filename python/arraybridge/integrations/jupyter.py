# SPDX-License-Identifier: Apache-2.0
"""Magics of IPython: arrays that outlive the kernel. `%load_ext arraybridge` loads them."""

from __future__ import annotations

import time
from typing import Any, Final

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.arrays.devices import named
from arraybridge.broker.broker import Broker
from arraybridge.errors import printable

_HOURS: Final = "168"  # for which %ab_keep keeps an array


def load(shell: Any, broker: Broker | None = None) -> None:
    """Adds %ab_keep, %ab_get, %ab_list and %ab_drop to a shell of IPython.

    Args:
        broker: None: `Broker()`.
    """
    magics = _Magics(shell, broker or Broker())
    for name, magic in {"keep": magics.keep, "get": magics.get, "list": magics.ls, "drop": magics.drop}.items():
        shell.register_magic_function(magic, "line", f"ab_{name}")


class _Magics:
    def __init__(self, shell: Any, broker: Broker) -> None:
        self._shell, self._broker = shell, broker

    def keep(self, line: str) -> None:
        """%ab_keep VARIABLE [NAME [HOURS]]: puts an array, or a tree of arrays, under a name, by default the variable's.

        A restarted kernel, and any other process, gets it again, for a week or so many hours: so long it keeps also a broker
        that this kernel has started. A share of this name is replaced.
        """
        usage = "%ab_keep VARIABLE [NAME [HOURS]]"
        variable, *more = self._words(line, 1, 3, usage)
        if variable not in self._shell.user_ns:
            raise self._usage(f"there is no variable {variable}")
        name, hours = more + [variable, _HOURS][len(more) :]
        try:
            lifetime = float(hours) * 3600
            until = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + lifetime))
        except (ValueError, OverflowError, OSError):  # the last two: it ends after the last date
            raise self._usage(f"{hours!r} is no number of hours: {usage}") from None
        share = self._broker.put(self._shell.user_ns[variable], name, replace=True, lifetime=lifetime)
        text = f"{printable(share.name)}: {share.nbytes:,} bytes, generation {share.generation}"
        print(f"{text}, kept for {_in_words(lifetime)}, until {until}, also without this kernel; %ab_drop {printable(share.name)} ends it")

    def get(self, line: str) -> None:
        """%ab_get NAME [FRAMEWORK]: gets a share into the variable of its name, as arrays of NumPy or another framework."""
        name, *framework = self._words(line, 1, 2, "%ab_get NAME [FRAMEWORK]")
        if not name.isidentifier():
            raise self._usage(f"{name!r} is no name of a variable: Broker().get({name!r}) returns the array")
        self._shell.user_ns[name] = self._broker.get(name, *framework)

    def ls(self, line: str) -> None:
        """%ab_list [PREFIX]: prints the shares whose names begin with the prefix, with their sizes, arrays and devices."""
        shares = [each.share for each in self._broker.list(*self._words(line, 0, 1, "%ab_list [PREFIX]"))]
        width = max((len(share.name) for share in shares), default=0)
        for share in shares:
            arrays = f"{share.arrays_text(3)} on {named(share.device)}"
            print(f"{printable(share.name):{width}}  {share.nbytes:>15,} bytes  generation {share.generation}  {arrays}")

    def drop(self, line: str) -> None:
        """%ab_drop NAME: withdraws a share from its name. Processes that hold it keep it."""
        self._broker.withdraw(*self._words(line, 1, 1, "%ab_drop NAME"))

    def _words(self, line: str, least: int, most: int, usage: str) -> list[str]:
        words = line.split()
        if not least <= len(words) <= most:
            raise self._usage(f"usage: {usage}")
        return words

    def _usage(self, text: str) -> Exception:
        error: Exception = ensure_module("IPython.core.error").UsageError(text)
        return error


def _in_words(seconds: float) -> str:
    """A time as people say it: "7 days", "2.5 hours"."""
    hours = seconds / 3600
    number, unit = (hours / 24, "day") if hours >= 48 else (hours, "hour")
    return f"{number:.3g} {unit}" if number == 1 else f"{number:.3g} {unit}s"


autograph.mark_module(__name__)
