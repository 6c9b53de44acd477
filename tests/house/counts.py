"""Counts that say how much of the house a reader has to hold in the head: ``counts.py [ROOT]`` prints one row a count.

A unit is a C++ header with its source file, or a Python module. A cycle is a set of units that reach each other by
includes or imports, those inside functions counted, those for type checkers alone not.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from check_house import Source, sources_of, type_checkers_only

PRODUCTION = ("daemon/", "client/", "proto/", "python/")
CLASS = re.compile(
    r"^\s*(?:template <[^;{]*>\s*)?(?:class|struct|union)"
    r"(?:\s+(?:alignas\([^)]*\)|[A-Z][A-Z_]+(?:\([^)]*\))?))*\s+(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{",
    re.MULTILINE,
)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
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


def unit_of(path: str) -> str:
    return re.sub(r"\.(h|cc|pyi?)$", "", path)


def imports(source: Source, modules: Mapping[str, str]) -> Iterator[str]:
    """Units of the package that this module imports; `modules`: unit by dotted name."""
    package = source.path.removeprefix("python/").removesuffix(".py").split("/")
    hidden = set(type_checkers_only(source.tree))
    for node in ast.walk(source.tree):
        if node in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (modules[alias.name] for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            dotted = ".".join([*base, *([node.module] if node.module else [])])
            named = [f"{dotted}.{alias.name}" for alias in node.names]
            yield from (modules.get(name, modules.get(dotted, "")) for name in named)


def edges(sources: Iterable[Source]) -> dict[str, set[str]]:
    sources = list(sources)
    units = {unit_of(source.path) for source in sources}
    modules = {}
    for source in sources:
        if source.path.endswith(".py"):
            dotted = unit_of(source.path).removeprefix("python/").replace("/", ".").removesuffix(".__init__")
            modules[dotted] = unit_of(source.path)
    graph: dict[str, set[str]] = {unit: set() for unit in units}
    for source in sources:
        unit = unit_of(source.path)
        if source.cpp:
            graph[unit] |= {unit_of(target) for target in INCLUDE.findall(source.text)} & units
        elif source.path.endswith(".py"):
            graph[unit] |= set(imports(source, modules)) & units
    return {unit: targets - {unit} for unit, targets in graph.items()}


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Sets of units that reach each other, the largest first (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for start in sorted(graph):
        if start in order:
            continue
        order[start] = low[start] = len(order)
        stack.append(start)
        path = [(start, iter(sorted(graph[start])))]
        while path:
            unit, targets = path[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    path.append((target, iter(sorted(graph[target]))))
                    break
                if target in stack:
                    low[unit] = min(low[unit], order[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[unit])
                if low[unit] == order[unit]:
                    component = [stack.pop()]
                    while component[-1] != unit:
                        component.append(stack.pop())
                    if len(component) > 1:
                        found.append(sorted(component))
    return sorted(found, key=len, reverse=True)


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
