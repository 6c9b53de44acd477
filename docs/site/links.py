# SPDX-License-Identifier: Apache-2.0
"""Links that lead out of the site: pages are read in the repository, too, where they link to sources."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parents[1]
LINK: Final = re.compile(r"(?<!!)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)\s]+)\)")


def of_the_repository(app: Any, page: str, content: list[str]) -> None:
    """On the site a link to a file that is no page becomes its name, and one to an example's folder leads to its README."""
    folder = (Path(app.srcdir) / page).parent

    def on_the_site(match: re.Match[str]) -> str:
        text, target = match.groups()
        name, mark, anchor = target.partition("#")
        if re.match(r"\w+:", target) or not name:
            return match[0]
        there = Path(os.path.normpath(folder / name))
        if (there / "README.md").exists() and there.is_relative_to(DOCS):
            return f"[{text}]({name.rstrip('/')}/README.md{mark}{anchor})"
        if there.suffix == ".md" and there.is_relative_to(DOCS):
            return match[0]
        path = there.relative_to(DOCS.parent).as_posix()
        plain = text.strip("`")
        return f"`{path}`" if plain in path else f"{text} (`{path}`)"

    blocks = re.split(r"(^```.*?^```$)", content[0], flags=re.DOTALL | re.MULTILINE)
    blocks[::2] = [LINK.sub(on_the_site, prose) for prose in blocks[::2]]
    content[0] = "".join(blocks)
