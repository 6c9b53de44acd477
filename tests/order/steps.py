# SPDX-License-Identifier: Apache-2.0
"""Where the code has the steps of a litmus test: in which function, and that one step comes before another."""

from __future__ import annotations

import re
from pathlib import Path

from litmus import Litmus, Step

ROOT = Path(__file__).resolve().parents[2]
# What may stand between the parameters of a function and its body.
AFTER = re.compile(r"\s*(?:(?:const|noexcept|override|final)\b\s*|AB_\w+(?:\([^()]*\))?\s*|requires\b[^{;]*|:\s*\w+[^;{]*)*\{")


class Code:
    """The bodies of the functions that a test names."""

    def __init__(self, test: Litmus) -> None:
        self.missing: list[str] = []  # functions that the code does not have
        self._bodies: dict[str, str] = {}
        for file, names in test.functions.items():
            text = " ".join((ROOT / file).read_text().split())
            for name in names:
                self._bodies[name] = " ".join(_bodies(text, name))
                if not self._bodies[name]:
                    self.missing.append(f"{file}: {name}")

    def functions(self, step: Step) -> list[str]:
        """The functions that have the step: each one as often as it has it."""
        return [name for name, body in self._bodies.items() if step.function in ("", _short(name)) for _ in range(body.count(step.quote))]

    def shows(self, first: Step, second: Step) -> bool:
        """True if a function has the first step, or calls what has it, before the second one."""
        (a, *_), (b, *_) = self.functions(first), self.functions(second)
        for name in self._bodies:
            before, after = self._positions(name, a, first.quote), self._positions(name, b, second.quote)
            if before and after and min(before) <= max(after):
                return True
        return False

    def _positions(self, name: str, function: str, quote: str) -> list[int]:
        """Where the body of `name` has the step that `function` has: its text, or calls that lead there."""
        body = self._bodies[name]
        if name == function:
            return [match.start() for match in re.finditer(re.escape(quote), body)]
        return [match.start() for called in self._leading_to(function) if called != name for match in _calls(body, called)]

    def _leading_to(self, function: str) -> set[str]:
        leading, grown = {function}, True
        while grown:
            more = {name for name, body in self._bodies.items() if any(_calls(body, called) for called in leading)}
            grown = not more <= leading
            leading |= more
        return leading


def _short(name: str) -> str:
    return name.rpartition("::")[2]


def _calls(body: str, called: str) -> list[re.Match[str]]:
    return [*re.finditer(rf"\b{_short(called)}(?:<[\w:]+>)?\(", body)]


def _bodies(text: str, name: str) -> list[str]:
    """Those of a function, or of a class: of all overloads."""
    of, _, function = name.rpartition("::")
    if of:
        for scope in _braced(text, rf"\b(?:class|struct)\b[^;{{()]*\b{of}\b[^;{{()]*\{{"):
            if found := _defined(scope, rf"(?<![.>:\w]){function}\("):
                return found
        return _defined(text, rf"\b{of}(?:<[^<>]*>)?::{function}\(")
    return _defined(text, rf"(?<![.>:\w]){function}\(") or _braced(text, rf"\b(?:class|struct) {function}\b[^;{{()]*\{{")


def _defined(text: str, pattern: str) -> list[str]:
    found = []
    for match in re.finditer(pattern, text):
        begin = AFTER.match(text, _end(text, match.end() - 1, "()"))
        if begin:
            found.append(text[begin.end() - 1 : _end(text, begin.end() - 1, "{}")])
    return found


def _braced(text: str, pattern: str) -> list[str]:
    return [text[match.start() : _end(text, match.end() - 1, "{}")] for match in re.finditer(pattern, text)]


def _end(text: str, begin: int, pair: str) -> int:
    """After the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] == pair[0]) - (text[at] == pair[1])
        if depth == 0:
            return at + 1
    return len(text)
