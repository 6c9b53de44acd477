# SPDX-License-Identifier: Apache-2.0
"""docs/explanation/security.md lists all growing resources with their limits: the limits of daemon/config/config.h and their defaults."""

from __future__ import annotations

import re

from foreign_client import ROOT

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 1, "s": 1000}
# The list describes the meaning of 0 in words.
IN_WORDS = {
    "the capacity", "half of the device's", "a quarter of all; in the store no more than it leaves to others",
    "half of the namespace's quota, and of the device",
}  # fmt: skip


def documented() -> dict[str, str]:
    section = (ROOT / "docs/explanation/security.md").read_text().split("## What grows")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| `(\w+)` \| ([^|]+) \|$", section, re.MULTILINE)
    assert len(rows) == len({name for name, _ in rows}), "a limit is listed twice"
    return dict(rows)


def files_of(name: str) -> list[str]:
    """The files with tests that set this limit, or use its value."""
    used = re.compile(rf"imits_?(?:\(\))?\.{name}\b|\b{name}=|\"{name}\": ")
    files = [path for path in (ROOT / "tests").rglob("*_test.cc") if path.parent.name != "config"]
    files += [path for path in (ROOT / "tests").rglob("test_*.py") if path.name != "test_limits_list.py"]
    return [path.name for path in files if used.search(path.read_text())]


def in_code() -> dict[str, int]:
    struct = (ROOT / "daemon/config/config.h").read_text().split("struct Limits {")[1].split("\n};")[0]
    field = re.compile(r"^  (?:Reloadable<)?[\w:]+>? (\w+)(?: = |\{)(.+?)\}?;", re.MULTILINE)
    found = {}
    for name, value in field.findall(struct):
        number = re.search(r"(\d+)(?:ull)?(?: << (\d+))?", value.replace("std::chrono::milliseconds(", ""))
        assert number is not None, (name, value)
        found[name] = int(number[1]) << int(number[2] or 0)
    return found


def test_every_limit_is_in_the_list() -> None:
    listed, limits = documented(), in_code()
    assert len(limits) > 40, "the fields of Limits were not read"
    settings = (ROOT / "deploy/config/arraybridged.toml").read_text().split("[limits]")[1].split("\n[")[0]
    assert len(re.findall(r"^\w+ = ", settings, re.MULTILINE)) == 20
    assert set(listed) == set(limits)


def test_every_limit_has_a_test() -> None:
    assert {name for name in documented() if not files_of(name)} == set()
    assert files_of("no_such_limit") == []


def test_what_a_reader_holds_has_the_tests_that_the_list_names() -> None:
    section = (ROOT / "docs/explanation/security.md").read_text().split("| What grows in a reader |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+\.\w+)` (\w+)", section)
    assert len(named) >= len(section.splitlines()) - 2
    for file, test in named:
        begin = re.compile(rf"^(?:TEST(?:_F)?\(\w+, {test}\)|def {test}\()", re.MULTILINE)
        assert sum(len(begin.findall(path.read_text())) for path in (ROOT / "tests").rglob(file)) == 1, (file, test)


def test_the_list_has_the_defaults() -> None:
    listed, limits = documented(), in_code()
    for name, text in listed.items():
        if text in IN_WORDS:
            assert limits[name] == 0, name
            continue
        number, _, unit = text.partition(" ")
        assert int(number) * UNITS[unit] == limits[name], name
