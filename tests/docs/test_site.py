# SPDX-License-Identifier: Apache-2.0
"""A reader finds every public name on the site, which deploy/docs has built."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

import arraybridge

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/docs/html"


@pytest.fixture(scope="module")
def names() -> set[str]:
    """What the site's index has: domain and name."""
    if not (SITE / "objects.inv").exists():
        pytest.skip("the site is not built: deploy/docs")
    head, packed = (SITE / "objects.inv").read_bytes().split(b"using zlib.\n")
    assert b"Project: arraybridge" in head
    lines = re.findall(r"^(.+?) (\w+):\S+ -?\d+ ", zlib.decompress(packed).decode(), re.MULTILINE)
    return {f"{domain}:{name}" for name, domain in lines}


def test_every_public_name_of_the_package_is_there(names: set[str]) -> None:
    assert {f"py:arraybridge.{name}" for name in arraybridge.__all__} - names == set()


def test_every_public_method_is_there(names: set[str]) -> None:
    for name in ("Broker", "Channel", "Share", "Bundle", "Watch"):
        methods = {
            each for each, of in vars(getattr(arraybridge, name)).items() if not each.startswith("_") and getattr(of, "__doc__", None)
        }
        assert {f"py:arraybridge.{name}.{each}" for each in methods} - names == set()


def test_every_function_and_struct_of_c_is_there(names: set[str]) -> None:
    folder = ROOT / "client/include/arraybridge"
    header = "".join(path.read_text() for path in (folder / "arraybridge.h", *(folder / "c").glob("*.h")))
    declared = {*re.findall(r"^AB_API .*?\b(ab_\w+)\(", header, re.MULTILINE), *re.findall(r"^} (ab_\w+);", header, re.MULTILINE)}
    assert len(declared) >= 30 and {f"c:{name}" for name in declared} - names == set()


def test_every_public_header_is_on_a_page() -> None:
    shown = {file for page in ("c", "cpp") for file in re.findall(r"doxygenfile:: (\S+)", (ROOT / f"docs/reference/{page}.md").read_text())}
    assert {header.name for header in (ROOT / "client/include/arraybridge").rglob("*.h")} - shown == set()


def test_the_classes_of_cpp_are_there(names: set[str]) -> None:
    methods = {"Broker::Put", "Broker::Acquire", "Channel::Send", "Bundle", "Watch", "View", "ArraySpec"}
    methods |= {"GpuViewOf", "HostReach", "BornHeap", "KeptArrays"}
    assert {f"cpp:arraybridge::{name}" for name in methods} - names == set()


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("reference/commands", ["channel", "--group-by", "Exit status"]),
        ("reference/configuration", ["orphan_grace", "[namespace.default]"]),
        ("reference/metrics", ["arraybridge_queued_shares", "arraybridge_request_duration_seconds"]),
        ("reference/protocol", ["OpenChannelRequest", "ArraySpec", "GetServerInfo"]),
    ],
)
def test_a_reference_has_what_its_source_says(names: set[str], page: str, texts: list[str]) -> None:
    text = re.sub(r"<[^>]+>", "", (SITE / f"{page}.html").read_text(encoding="utf-8"))
    assert [each for each in texts if each not in text] == []
