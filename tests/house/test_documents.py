"""The documents' pictures are what their scripts draw, and their links lead to files and headings that are there."""

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

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "tests").glob("*/README.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
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


@pytest.mark.parametrize("name", draw.PICTURES)
def test_a_picture_is_what_its_script_draws(name: str) -> None:
    assert (draw.FOLDER / name).read_text(encoding="utf-8") == draw.PICTURES[name](), "run python docs/pictures/draw.py"


def test_a_chart_shows_what_was_measured_and_no_panel_without_ours() -> None:
    rows = {"channel_4kib": {"value": 1.5, "floor": 1.0}, "iceoryx_4kib": {"value": None}, "plasma_get_1mib": {"value": 20.0}}
    drawn = benchmark.chart(rows, "today")
    assert ">1.5<" in drawn and ">1.0<" in drawn
    assert ">iceoryx<" not in drawn and "Plasma" not in drawn


def test_a_label_that_would_be_cut_is_refused() -> None:
    drawing = svg.Drawing(100, 20, "narrow")
    drawing.text(0, 10, "short")
    with pytest.raises(ValueError, match="needs"):
        drawing.text(0, 10, "longer than the picture is wide")
