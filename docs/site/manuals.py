# SPDX-License-Identifier: Apache-2.0
"""Manual pages, written for scdoc, as Markdown of the site: `*bold*`, `_underlined_`, titles, and terms with their texts."""

from __future__ import annotations

import re
from collections.abc import Iterator


def in_line(text: str) -> str:
    """The marks inside a line. What is bold in a manual is typed as it stands, so it is code here."""
    text = re.sub(r"\\(.)", r"\1", text)
    runs = re.split(r"(?<![A-Za-z0-9*])\*([^*\n]+)\*|(?<!\w)_([^_\n](?:[^\n]*?[^_\n])?)_(?!\w)", text)
    done = ""
    for plain, bold, underlined in zip(runs[::3], [*runs[1::3], None], [*runs[2::3], None], strict=True):
        done += re.sub(r"([<>\[\]*_$`|])", r"\\\1", plain)
        if bold:
            done += f"`{bold}`"
        elif underlined:
            done += "*" + re.sub(r"([<>_$])", r"\\\1", underlined) + "*"
    return done.replace("``", "").replace("`*", "` *")


def paragraphs(source: str) -> Iterator[tuple[int, list[str]]]:
    """Depth in tabs and lines of each paragraph. A term and its text are two, although no empty line is between them."""
    depth, lines = 0, list[str]()
    for line in [*source.splitlines(), ""]:
        if line.startswith(";"):
            continue
        tabs = len(line) - len(line.lstrip("\t"))
        if lines and (not line.strip() or tabs != depth):
            yield depth, lines
            lines = []
        if line.strip():
            depth = tabs
            lines.append(line.strip())


def markdown(source: str, level: int = 1) -> str:
    """A page's source in Markdown; its titles are `level` below a first one. The line with the page's name is left out."""
    pages = list(paragraphs(re.sub(r"^[\w.]+\(\d\).*\n", "", source)))
    out = []
    for number, (depth, lines) in enumerate(pages):
        if depth == 0 and lines[0].startswith("#"):
            marks, title = lines[0].split(" ", 1)
            title = title if title.startswith("[") else title.capitalize()
            out.append("#" * (len(marks) + level) + " " + re.sub(r"([\[\]])", r"\\\1", title))
            continue
        text = in_line("\n".join(lines)).splitlines()
        has_text = number + 1 < len(pages) and pages[number + 1][0] == depth + 1
        margin = "  " * depth
        if depth and pages[number - 1][0] == depth - 1:
            text = [f"{margin[2:]}: {text[0]}", *(margin + line for line in text[1:])]
        else:
            text = [margin + line for line in text]
        out.append("\n".join(text) + ("" if has_text else "\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join("\n" + part if part.startswith("#") else part for part in out)) + "\n"
