"""Counts that say how much of the house a reader has to hold in the head: ``counts.py [ROOT]`` prints one row a count.

Units and their cycles are those of `graph`.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from check_house import sources_of
from graph import Source, cycles, edges

PRODUCTION = ("daemon/", "client/", "proto/", "python/")
CLASS = re.compile(
    r"^\s*(?:template <[^;{]*>\s*)?(?:class|struct|union)"
    r"(?:\s+(?:alignas\([^)]*\)|[A-Z][A-Z_]+(?:\([^)]*\))?))*\s+(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{",
    re.MULTILINE,
)
COMMENT = re.compile(r"^\s*(?://+|#)\s?(.*)$|^(?!\s*(?://|#)).*?\S\s+//\s?(.*)$")
# A sentence names its subject: "the daemon", "the session", not "who asks".
UNNAMED = re.compile(r"(?:^|(?<=[.:;!?] ))(?:Who|Whoever|Whose|Nobody|Somebody|Those|What)\b")


def production(root: Path) -> list[Source]:
    return [source for source in sources_of(root) if source.path.startswith(PRODUCTION)]


def classes(source: Source) -> set[str]:
    if source.cpp:
        return set(CLASS.findall(source.text))
    if source.python:
        return {node.name for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)}
    return set()


def comments(source: Source) -> Iterator[str]:
    """Text of each line of a comment; of a docstring too."""
    if source.python:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from (ast.get_docstring(node) or "").splitlines()
    for line in source.text.splitlines():
        found = COMMENT.match(line)
        if found and not (source.python and found[2] is not None) and not (source.cpp and line.lstrip().startswith("#")):
            yield found[1] if found[1] is not None else found[2]


def unnamed_subjects(source: Source) -> int:
    return sum(len(UNNAMED.findall(line)) for line in comments(source))


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    sources = production(root)
    graph = edges(sources)
    lengths = {source.path: source.text.count("\n") for source in sources}
    longest = max(lengths, key=lambda path: lengths[path])
    folders = Counter(path.rpartition("/")[0] for path in lengths)
    print(f"production lines       {sum(lengths.values()):>7}")
    print(f"files                  {len(sources):>7}")
    for language, some in (("C++", [s for s in sources if s.cpp]), ("Python", [s for s in sources if s.python])):
        print(f"class names            {len(set().union(*map(classes, some))):>7}  {language}")
    print(f"longest file           {lengths[longest]:>7}  {longest}")
    for folder, files in folders.most_common(5):
        print(f"files in one folder    {files:>7}  {folder}")
    for component in cycles(graph):
        print(f"units in one cycle     {len(component):>7}  {' '.join(component)}")
    print(f"lines of comments      {sum(1 for source in sources for _ in comments(source)):>7}")
    print(f"unnamed subjects       {sum(map(unnamed_subjects, sources)):>7}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
