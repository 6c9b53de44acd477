"""docs/security.md lists all growing resources with their limits: the limits of daemon/config/config.h and their defaults."""

from __future__ import annotations

import re

from foreign_client import ROOT

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 1, "s": 1000}
# The list describes the meaning of 0 in words.
IN_WORDS = {"the capacity", "half of the device's", "a quarter of all"}


def documented() -> dict[str, str]:
    section = (ROOT / "docs/security.md").read_text().split("## What grows")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| `(\w+)` \| ([^|]+) \|$", section, re.MULTILINE)
    assert len(rows) == len({name for name, _ in rows}), "a limit is listed twice"
    return dict(rows)


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
    assert set(listed) == set(limits)


def test_the_list_has_the_defaults() -> None:
    listed, limits = documented(), in_code()
    for name, text in listed.items():
        if text in IN_WORDS:
            assert limits[name] == 0, name
            continue
        number, _, unit = text.partition(" ")
        assert int(number) * UNITS[unit] == limits[name], name
