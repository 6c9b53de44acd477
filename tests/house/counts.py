# SPDX-License-Identifier: Apache-2.0
"""Counts that measure how much of the house a reader must keep in mind: ``counts.py [ROOT]`` prints one row per count.

Units and their cycles are those of `graph`.
"""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

from check_house import sources_of
from graph import Source, cycles, edges
from sentences import comments, unnamed_subjects

PRODUCTION = ("daemon/", "client/", "proto/", "python/")
CLASS = re.compile(
    r"^\s*(?:template <[^;{]*>\s*)?(?:class|struct|union)"
    r"(?:\s+(?:alignas\([^)]*\)|[A-Z][A-Z_]+(?:\([^)]*\))?))*\s+(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{",
    re.MULTILINE,
)


def production(root: Path) -> list[Source]:
    return [source for source in sources_of(root) if source.path.startswith(PRODUCTION)]


def classes(source: Source) -> set[str]:
    if source.cpp:
        return set(CLASS.findall(source.text))
    if source.python:
        return {node.name for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)}
    return set()


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
    print(f"unnamed subjects       {sum(1 for source in sources for _ in unnamed_subjects(source)):>7}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
