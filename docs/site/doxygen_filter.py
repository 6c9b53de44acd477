# SPDX-License-Identifier: Apache-2.0
"""Reads a public header for Doxygen: our comments are plain ones, and Doxygen takes those that are marked for it.

Doxygen runs it with a header's path and reads what it prints. A comment before a declaration belongs to that; one behind a
declaration, with its lines below, to the declaration before it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def marked(text: str) -> str:
    text = re.sub(r'R"\((.*?)\)"', lambda raw: json.dumps(raw[1]), text)
    text = re.sub(r"/\*(?!\*)(.*?)\*/", in_c, text, flags=re.DOTALL)
    column = -1  # of the comment behind a declaration that the next line may go on with
    example = False
    lines = ["/// \\file"]  # the comment at the beginning is the file's
    for line in text.splitlines():
        found = re.match(r"(\s*)(.*?)(\s*)//(?!/)\s?(.*)$", line)
        margin, code, gap, words = found.groups() if found and '"' not in found[2] else ("", line, "", "")
        is_example = bool(found) and not code and words.startswith("  ")
        if example and not is_example:
            lines.append("/// \\endcode")
        if is_example and not example:
            lines.append("/// \\code{.cpp}")
        example = is_example
        if not found or code == line:
            column = -1
            lines.append(line)
        elif example:
            lines.append(f"/// {words}")
        elif code:
            column = len(margin + code + gap)
            lines.append(f"{margin}{code}{gap}///< {prose(words)}")
        elif len(margin + gap) == column:
            lines.append(f"{margin}///< {prose(words)}")
        else:
            column = -1
            lines.append(f"{margin}/// {prose(words)}")
    return "\n".join(lines) + "\n"


def prose(words: str) -> str:
    """Words of a comment in which Doxygen finds no commands but code in single backticks."""
    words = re.sub(r"([\\<>@#])", r"\\\1", words)
    return re.sub(r"`([^`]+)`", r"<tt>\1</tt>", words)


def in_c(match: re.Match[str]) -> str:
    line = match.string[: match.start()].rpartition("\n")[2]
    return f"/**{'<' if line.strip() else ''}{prose(match[1])}*/"


if __name__ == "__main__":
    sys.stdout.write(marked(Path(sys.argv[1]).read_text(encoding="utf-8").removeprefix("// SPDX-License-Identifier: Apache-2.0\n")))
