# SPDX-License-Identifier: Apache-2.0
"""Litmus tests: what two or three threads do on shared words, and an outcome that must not be.

A file is a litmus test in C as herd7 reads it, with remarks. In its first comment, ``models: FILE: FUNCTION, ...`` names
the functions that it models. A step has the code that it models behind ``//``; behind ``|`` there, how the step is
weakened, and the models in which the bad outcome is then to be seen::

    atomic_store_explicit(head, 1, memory_order_release);  // Store(own_.head, now, ...) | relaxed: rc11 aarch64

The code stands in exactly one of the functions, once; ``Function: code`` says in which one if several have it. A function must show
that a step comes after the one before it, in its own text or by what it calls; ``later: code`` is of a later call. A step without code
is a message, or of a part that is described elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODELS = ("rc11", "aarch64")
STEP = re.compile(r"^(?P<indent>\s*)(?P<code>[^/]*;)\s*(?://\s*(?P<quote>.*?)(?:\s\|\s(?P<change>removed|relaxed): (?P<seen>[\w ]+))?)?$")
PLACE = re.compile(r"(?P<later>later: )?(?:(?P<function>\w+): )?(?P<quote>.*)")
ORDER = re.compile(r"memory_order_(\w+)|\bk(Relaxed|Acquire|Release)\b")


@dataclass(frozen=True)
class Step:
    line: int
    thread: int
    code: str
    quote: str
    function: str  # that has the quote; "": the only one that has it
    later: bool  # it is of a later call than the step before it
    change: str  # "removed", "relaxed", or "": it is never weakened
    seen: frozenset[str]  # the models in which the weaker one shows the bad outcome


@dataclass(frozen=True)
class Litmus:
    name: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Litmus:
        return cls(path.stem, path.read_text())

    @property
    def functions(self) -> dict[str, list[str]]:
        """The names of functions, by file."""
        named: dict[str, list[str]] = {}
        for file, names in re.findall(r"models: (\S+): (.*?)(?: \*\))?$", self.text, re.MULTILINE):
            named.setdefault(file, []).extend(name.strip() for name in names.split(","))
        return named

    @property
    def steps(self) -> Iterator[Step]:
        thread = 0
        for number, line in enumerate(self.text.splitlines()):
            thread += bool(re.match(r"P\d", line))
            if (match := STEP.match(line)) and re.search(r"atomic_\w+\(", match["code"]):
                seen = frozenset((match["seen"] or "").split())
                place = PLACE.fullmatch(match["quote"] or "")
                assert place is not None
                place_of = place["quote"], place["function"] or "", bool(place["later"])
                yield Step(number, thread, match["code"], *place_of, match["change"] or "", seen)

    def program(self) -> str:
        """Without remarks."""
        return re.sub(r"\s*//.*", "", self.text)

    def weakened(self, step: Step) -> Litmus:
        lines = self.text.splitlines()
        lines[step.line] = "" if step.change == "removed" else re.sub(r"memory_order_\w+", "memory_order_relaxed", step.code)
        return Litmus(f"{self.name}_{step.line + 1}", "\n".join(lines).replace(f"C {self.name}", f"C {self.name}_{step.line + 1}", 1))


def order_of(code: str) -> str:
    """The memory order of an operation; of an exchange that may fail, the one of its success."""
    if "volatile" in code:
        return "relaxed"  # LoadPair
    orders = [match[1] or match[2].lower() for match in ORDER.finditer(code)]
    if not orders:
        return "seq_cst"
    return orders[0 if "fetch_" in code or "compare_exchange" in code else -1]
