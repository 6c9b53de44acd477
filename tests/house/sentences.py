# SPDX-License-Identifier: Apache-2.0
"""Comments and docstrings of a source, and the sentences in them that do not name their subject; long sentences of a page."""

import ast
import re
from collections.abc import Iterator

from graph import Source

_COMMENT = re.compile(r"^\s*(?://+|#)\s?(.*)$|^(?!\s*(?://|#)).*?\S\s+//\s?(.*)$")
# A sentence names its subject: "the daemon", "the session", not "who asks".
WORDS_MAX = 30  # between two of . ? ! : ;
_STOP = re.compile(r"(?<=[.?!:;])[)*]*\s+| · ")
_STOP_BUT_COLON = re.compile(_STOP.pattern.replace(":", ""))
_BLOCK = re.compile(r"^\s*(?:[-*] |\d+\. |#|<!--|$)")
_UNNAMED = re.compile(r"(?:^|(?<=[.:;!?] ))(?:Who|Whoever|Whose|Nobody|Somebody|Those|What)\b")


def comments(source: Source) -> Iterator[tuple[int, str]]:
    """Line number and text of each line of a comment or docstring."""
    if source.python:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = (ast.get_docstring(node, clean=False) or "").rstrip()
                for number, line in enumerate(docstring.splitlines(), node.body[0].lineno if docstring else 0):
                    yield number, line.strip()
    for number, line in source.lines():
        found = _COMMENT.match(line)
        if found and not (source.python and found[2] is not None) and not (source.cpp and line.lstrip().startswith("#")):
            yield number, found[1] if found[1] is not None else found[2]


def unnamed_subjects(source: Source) -> Iterator[tuple[int, str]]:
    """Line number and first word of each sentence that does not name its subject."""
    for number, line in comments(source):
        for word in _UNNAMED.findall(line):
            yield number, word


def long_sentences(page: str, *, colon_ends: bool = True) -> Iterator[tuple[int, str]]:
    """Line number and text of each part of a sentence, in a page of Markdown, that has more than WORDS_MAX words. A piece of
    code counts as one word. `colon_ends`: a colon ends a part.
    """
    stop = _STOP if colon_ends else _STOP_BUT_COLON
    for number, text in _blocks(re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), page, flags=re.DOTALL | re.MULTILINE)):
        plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", text))
        for part in stop.split(plain):
            if sum(any(map(str.isalnum, word)) for word in part.split()) > WORDS_MAX:
                yield number, part


def _blocks(page: str) -> Iterator[tuple[int, str]]:
    """The paragraphs, list items and cells of a page, with the numbers of their first lines."""
    block: list[str] = []
    for number, line in enumerate([*page.splitlines(), ""], 1):
        is_row = line.lstrip().startswith("|")
        if block and (is_row or _BLOCK.match(line)):
            yield number - len(block), " ".join(block)
            block = []
        if is_row:
            yield from ((number, cell) for cell in line.split("|"))
        elif block or line.strip():
            block.append(line)
