# SPDX-License-Identifier: Apache-2.0
"""Comments and docstrings of a source, and the sentences in them that do not name their subject."""

import ast
import re
from collections.abc import Iterator

from graph import Source

_COMMENT = re.compile(r"^\s*(?://+|#)\s?(.*)$|^(?!\s*(?://|#)).*?\S\s+//\s?(.*)$")
# A sentence names its subject: "the daemon", "the session", not "who asks".
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
