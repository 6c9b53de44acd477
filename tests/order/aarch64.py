# SPDX-License-Identifier: Apache-2.0
"""Litmus tests in C as programs of AArch64, with the instructions that g++ 12 chooses for each memory order."""

from __future__ import annotations

import re

FENCES = {"seq_cst": "DMB ISH", "acq_rel": "DMB ISH", "release": "DMB ISH", "acquire": "DMB ISHLD"}
# Read-modify-write: the instruction with acquire, release, both, or neither.
SUFFIX = {"relaxed": "", "acquire": "A", "release": "L", "acq_rel": "AL", "seq_cst": "AL"}
CHANGES = {"exchange": "SWP", "fetch_xor": "LDEOR", "fetch_add": "LDADD", "fetch_sub": "LDADD"}


class Thread:
    """One thread: the registers of its words and values, and its instructions."""

    def __init__(self, number: int, words: list[str]) -> None:
        self._number = number
        self.words = {word: f"X{number}" for number, word in enumerate(words, 1)}
        self.values: dict[str, int] = {}
        self.lines: list[str] = []
        self._ends: list[str] = []  # the labels behind the blocks that are open
        self._labels = 0

    def step(self, line: str) -> None:
        for form, take in FORMS:
            if match := re.fullmatch(form, line):
                take(self, *match.groups())
                return
        raise ValueError(f"no instruction for: {line}")

    def value(self, name: str) -> str:
        return f"W{self.values.setdefault(name, 10 + len(self.values))}"

    def load(self, into: str, word: str, order: str) -> None:
        self.lines.append(f"{'LDR' if order == 'relaxed' else 'LDAR'} {self.value(into)},[{self.words[word]}]")

    def plain_load(self, into: str, word: str) -> None:
        self.load(into, word, "relaxed")

    def store(self, word: str, value: str, order: str) -> None:
        self.lines.append(f"MOV W0,#{value}")
        self.lines.append(f"{'STR' if order == 'relaxed' else 'STLR'} W0,[{self.words[word]}]")

    def plain_store(self, word: str, value: str) -> None:
        self.store(word, value, "relaxed")

    def change(self, into: str, how: str, word: str, value: str, order: str) -> None:
        self.lines.append(f"MOV W0,#{'-' if how == 'fetch_sub' else ''}{value}")
        self.lines.append(f"{CHANGES[how]}{SUFFIX[order]} W0,{self.value(into)},[{self.words[word]}]")

    def fence(self, order: str) -> None:
        self.lines.append(FENCES[order])

    def begin(self, name: str, value: str) -> None:
        self._labels += 1
        self._ends.append(f"L{self._number}{self._labels}")
        self.lines += [f"CMP {self.value(name)},#{value}", f"B.NE {self._ends[-1]}"]

    def end(self) -> None:
        self.lines.append(f"{self._ends.pop()}:")


ATOMIC = r"atomic_{}_explicit\((\w+), (\d+), memory_order_(\w+)\);"
FORMS = [
    (r"int (\w+) = atomic_load_explicit\((\w+), memory_order_(\w+)\);", Thread.load),
    (r"int (\w+) = \*(\w+);", Thread.plain_load),
    (ATOMIC.format("store"), Thread.store),
    (r"\*(\w+) = (\d+);", Thread.plain_store),
    ("int (\\w+) = " + ATOMIC.format("(exchange|fetch_\\w+)"), Thread.change),
    (r"atomic_thread_fence\(memory_order_(\w+)\);", Thread.fence),
    (r"if \((\w+) == (\d+)\) \{", Thread.begin),
    (r"\}", Thread.end),
]


def translate(name: str, program: str) -> str:
    """The litmus test for AArch64 of one in C without remarks."""
    body = re.sub(r"\(\*.*?\*\)", "", program, flags=re.DOTALL)
    start = re.search(r"^\{(.*?)\}", body, re.MULTILINE | re.DOTALL)
    outcome = re.search(r"^exists .*", body, re.MULTILINE | re.DOTALL)
    assert start and outcome
    threads = []
    for number, words, steps in re.findall(r"^P(\d+) \((.*?)\) \{\n(.*?)^\}", body, re.MULTILINE | re.DOTALL):
        thread = Thread(int(number), [word.split()[-1] for word in words.split(",")])
        for line in filter(None, map(str.strip, steps.splitlines())):
            thread.step(line)
        threads.append(thread)
    places = [f"{n}:{register}={word};" for n, thread in enumerate(threads) for word, register in thread.words.items()]
    return "\n".join(
        [
            f"AArch64 {name}",
            f"{{ {start[1].strip()} {' '.join(places)} }}",
            *_columns([thread.lines for thread in threads]),
            re.sub(r"(\d+):(\w+)", lambda at: f"{at[1]}:X{threads[int(at[1])].value(at[2])[1:]}", outcome[0]),
        ]
    )


def _columns(threads: list[list[str]]) -> list[str]:
    rows = [[f"P{n}" for n in range(len(threads))]]
    rows += [[lines[row] if row < len(lines) else "" for lines in threads] for row in range(max(map(len, threads)))]
    widths = [max(len(row[n]) for row in rows) for n in range(len(threads))]
    return [" " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " ;" for row in rows]
