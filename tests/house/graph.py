# SPDX-License-Identifier: Apache-2.0
"""The graph of the tree's units, and its cycles.

A unit is a C++ header with its source file, or a Python module. Its edges lead to the units that it includes or
imports, also inside functions, but not for type checkers only. A cycle is a set of units that reach each other.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
PUBLIC = "client/include/"  # the folder of the headers that programs include as arraybridge/…


@dataclass(frozen=True)
class Source:
    path: str
    text: str

    @property
    def cpp(self) -> bool:
        return self.path.endswith((".h", ".cc"))

    @property
    def proto(self) -> bool:
        return self.path.endswith(".proto")

    @property
    def python(self) -> bool:
        return self.path.endswith((".py", ".pyi"))

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def lines(self) -> Iterator[tuple[int, str]]:
        yield from enumerate(self.text.splitlines(), 1)


def type_checkers_only(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that are never executed: signatures may name a framework's classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from ast.walk(child)


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
        if source.python:  # also a stub: the extension is a module
            dotted = unit_of(source.path).removeprefix("python/").replace("/", ".").removesuffix(".__init__")
            modules[dotted] = unit_of(source.path)
    graph: dict[str, set[str]] = {unit: set() for unit in units}
    for source in sources:
        unit = unit_of(source.path)
        if source.cpp:
            included = {unit_of(target) for target in INCLUDE.findall(source.text)}
            graph[unit] |= (included | {PUBLIC + target for target in included}) & units
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
