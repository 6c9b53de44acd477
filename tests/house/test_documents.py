# SPDX-License-Identifier: Apache-2.0
"""The documents' pictures are up to date with their scripts; their links, and the files that they name, exist."""

import fnmatch
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "pictures"))
import benchmark
import draw
import svg
import tables
from check_house import TOP_FOLDERS, files_of
from sentences import long_sentences

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "tests").glob("*/README.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(rf"`((?:{'|'.join(sorted(TOP_FOLDERS))})/[\w{{}},./*-]+)`")


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> Iterator[str]:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[here](#a-title) [there](other.md) [nowhere](#no-title) [outside](https://example.org/)\n")
    assert list(broken(page)) == ["other.md", "#no-title"]


def places(root: Path) -> set[str]:
    """Files without their endings, files as they are, and folders."""
    files = [path.relative_to(root) for path in files_of(root)]
    folders = {folder for file in files for folder in file.parents}
    return {path.as_posix() for path in [*files, *(file.with_suffix("") for file in files), *folders]}


def missing(text: str, there: set[str]) -> Iterator[str]:
    """Names of files and folders that do not exist. A file may lie deeper in the named folder."""
    for name in NAMED.findall(text):
        before, brace, rest = name.partition("{")
        inside, _, after = rest.partition("}")
        for each in [before + part + after for part in inside.split(",")] if brace else [name]:
            folder, _, last = each.rstrip("/").rpartition("/")
            if not (fnmatch.filter(there, f"{folder}/{last}") or fnmatch.filter(there, f"{folder}/*/{last}")):
                yield each


def test_files_that_the_documents_name_are_there() -> None:
    there = places(ROOT)
    pages = [ROOT / "README.md", *(ROOT / "docs/explanation" / f"{page}.md" for page in ("architecture", "fast-path", "security"))]
    assert {page.name: found for page in pages if (found := list(missing(page.read_text(encoding="utf-8"), there)))} == {}


def test_a_name_without_a_file_is_found() -> None:
    there = {"client/shares/put", "client/shares", "client"}
    assert list(missing("`client/shares/put`, `client/shares/`, `client/p*`, `client/{put,gone}`, `a/b`", there)) == ["client/gone"]


@pytest.mark.parametrize("name", draw.PICTURES)
def test_a_picture_is_what_its_script_draws(name: str) -> None:
    assert (draw.FOLDER / name).read_text(encoding="utf-8") == draw.PICTURES[name](), "run python docs/pictures/draw.py"


@pytest.mark.parametrize("file", draw.TABLES, ids=lambda file: file.name)
def test_a_table_has_the_newest_figures(file: Path) -> None:
    page = file.read_text(encoding="utf-8")
    assert tables.written(page, draw.TABLES[file]) == page, "run python docs/pictures/draw.py"


def test_a_chart_shows_what_was_measured_and_no_panel_without_ours() -> None:
    rows = {"channel_4kib": {"value": 1.5, "floor": 1.0}, "iceoryx_4kib": {"value": None}, "plasma_get_1mib": {"value": 20.0}}
    drawn = benchmark.chart("The benchmark", benchmark.PANELS, rows, "today")
    assert ">1.5<" in drawn and ">1.0<" in drawn
    assert ">iceoryx<" not in drawn and "Plasma" not in drawn


def test_a_label_that_would_be_cut_is_refused() -> None:
    drawing = svg.Drawing(100, 20, "narrow")
    drawing.text(0, 10, "short")
    with pytest.raises(ValueError, match="needs"):
        drawing.text(0, 10, "longer than the picture is wide")


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_sentences_are_short(page: Path) -> None:
    assert list(long_sentences(page.read_text(encoding="utf-8"))) == [], "make two sentences of each"


@pytest.mark.parametrize("name", ["explanation/fast-path", "explanation/reliability", "explanation/security", "guides/operations"])
def test_reference_pages_do_not_chain_thoughts_by_colons(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert list(long_sentences(page, colon_ends=False)) == [], "make two sentences of each, or a list"


def test_a_long_sentence_is_found() -> None:
    thirty = " ".join(["word"] * 30)
    page = (
        f"# Title\n\n{thirty}: {thirty}; {thirty}.\n- {thirty}\n  more\n\n| {thirty} | {thirty} `some code` |\n\n```\n{thirty} more\n```\n"
    )
    assert [number for number, _ in long_sentences(page)] == [4, 7]
    assert [number for number, _ in long_sentences(page, colon_ends=False)] == [3, 4, 7]
