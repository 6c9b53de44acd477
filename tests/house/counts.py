# SPDX-License-Identifier: Apache-2.0
"""What the house costs its readers, in numbers that may only fall.

``counts.py [ROOT]`` prints the counts beside their ceilings (``ceilings.toml``). ``counts.py --write`` lowers each
ceiling to its count, and writes the table of them into docs/explanation/architecture.md. A change that needs a higher
ceiling first makes room; see CONTRIBUTING.md.

Units and their cycles are those of `graph`; functions are measured by lizard.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from check_house import LINES_MAX, sources_of
from graph import Source, cycles, edges
from sentences import unnamed_subjects

PRODUCTION = ("daemon/", "client/", "proto/", "python/")
# Of the production code, what is not the core: it may grow beside it.
NOT_CORE = (
    "client/ctl/", "python/arraybridge/integrations/", "python/arraybridge/compat/", "python/arraybridge/commands/",
)  # fmt: skip
# Folders of capabilities that came after the ceilings: what they add counts in ceilings of their own, which the commit
# that adds a folder states.
OWN: tuple[str, ...] = (
    "client/born/", "client/include/arraybridge/born/", "python/bindings/born/", "python/arraybridge/broker/born/",
    "python/arraybridge/adapters/born/", "python/arraybridge/tables/", "python/bindings/tables/", "client/windows/",
    "client/include/arraybridge/swap_window.h", "python/bindings/windows/", "python/arraybridge/integrations/follow/",
    "python/arraybridge/broker/keep/", "python/arraybridge/keep/", "python/arraybridge/recording/",
    "client/ctl/python/", "proto/boundary/pages/", "client/device_blocks/",
    "client/include/arraybridge/device_blocks/", "python/bindings/device_blocks/",
    "python/arraybridge/allocators/", "python/arraybridge/array_api/", "python/arraybridge/dcp/", "python/arraybridge/notebook/",
    "python/arraybridge/broker/patterns/", "daemon/broker/objects/runs/", "python/arraybridge/broker/services/",
    "client/ctl/services/", "python/arraybridge/broker/figures/",
    "python/arraybridge/broker/taking/", "python/arraybridge/broker/sequences/", "python/arraybridge/broker/batches/",
    "client/pages/", "client/joints/", "client/one_memory/", "client/arenas/kept/", "proto/boundary/one_memory/",
    "client/include/arraybridge/one_memory/", "python/bindings/one_memory/", "python/arraybridge/broker/one_memory/",
    "proto/arraybridge/v1/tiers.proto", "daemon/config/tiers/", "daemon/mover/", "daemon/broker/objects/tiers/",
    "daemon/broker/tables/tiers/", "daemon/broker/verbs/tiers/", "daemon/service/verbs/tiers/", "client/tiers/",
    "client/select/", "client/include/arraybridge/select/", "client/services/", "client/include/arraybridge/services/", "python/bindings/services/",
    "client/include/arraybridge/tiers/", "client/ctl/tiers/", "python/bindings/tiers/", "python/arraybridge/broker/tiers/",
    "daemon/moves/", "daemon/service/http/tiers/", "daemon/service/http/live/", "client/ctl/residency/", "python/arraybridge/recency/",
    "proto/arraybridge/v1/born.proto", "proto/boundary/layouts/born/", "client/born_tally/",
    "client/include/arraybridge/born_tally.h", "client/ctl/born/", "daemon/service/wire/born/",
    "python/bindings/born_tally/", "python/arraybridge/broker/born_tally/", "client/c_api/", "client/include/arraybridge/c/",
    "client/patterns/", "client/include/arraybridge/patterns/",
)  # fmt: skip
# The rooms whose boxes (their folders, and the units beside these) ought to lie on floors.
FLOORED = ("daemon/broker", "daemon/service", "client", "python/arraybridge")
FILES_MAX = 30
CLASS = re.compile(
    r"^\s*(?:template <[^;{]*>\s*)?(?:class|struct|union)"
    r"(?:\s+(?:alignas\([^)]*\)|[A-Z][A-Z_]+(?:\([^)]*\))?))*\s+(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{",
    re.MULTILINE,
)


class Count(NamedTuple):
    name: str
    value: int
    where: str = ""  # the largest one, or those that count


def production(root: Path) -> list[Source]:
    return [source for source in sources_of(root) if source.path.startswith(PRODUCTION)]


def classes(source: Source) -> set[str]:
    if source.cpp:
        return set(CLASS.findall(source.text))
    if source.python:
        return {node.name for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)}
    return set()


def boxes(graph: Mapping[str, set[str]], room: str) -> dict[str, set[str]]:
    """The graph between the boxes of a room: its folders, and the units beside them."""

    def box(unit: str) -> str:
        return unit.removeprefix(f"{room}/").partition("/")[0]

    inside = [unit for unit in graph if unit.startswith(f"{room}/")]
    arrows: dict[str, set[str]] = {box(unit): set() for unit in inside}
    for unit in inside:
        arrows[box(unit)] |= {box(target) for target in graph[unit] if target.startswith(f"{room}/")} - {box(unit)}
    return arrows


def upward(arrows: Mapping[str, set[str]]) -> int:
    """The arrows that run up in the best order of the boxes that was found: boxes are moved while that helps. Only arrows
    inside of a cycle can run up.
    """
    return sum(_upward({name: arrows[name] & set(knot) for name in knot}) for knot in cycles(arrows))


def _upward(arrows: Mapping[str, set[str]]) -> int:

    def against(order: list[str]) -> int:
        place = {name: number for number, name in enumerate(order)}
        return sum(place[target] < place[name] for name in order for target in arrows[name])

    order = sorted(arrows, key=lambda name: (sum(name in targets for targets in arrows.values()) - len(arrows[name]), name))
    best = against(order)
    improved = True
    while improved:
        improved = False
        for name in sorted(arrows):
            rest = [other for other in order if other != name]
            for at in range(len(order)):
                moved = [*rest[:at], name, *rest[at:]]
                if (count := against(moved)) < best:
                    best, order, improved = count, moved, True
    return best


def _lines(sources: Iterable[Source]) -> int:
    return sum(source.text.count("\n") for source in sources)


def _of_sizes(sources: list[Source], root: Path) -> list[Count]:
    common = [source for source in sources if not source.path.startswith(OWN)]
    core = [source for source in common if not source.path.startswith(NOT_CORE)]
    counts = [Count("lines of the core", _lines(core)), Count("lines of production code", _lines(common))]
    counts += [Count(f"lines of {room}", _lines(s for s in core if s.path.startswith(room))) for room in PRODUCTION]
    for folder in OWN:
        own = [source for source in sources if source.path.startswith(folder)]
        counts += [Count(f"lines of {folder}", _lines(own)), Count(f"class names in {folder}", len(set().union(*map(classes, own))))]
    lengths = {source.path: source.text.count("\n") for source in sources}
    longest = max(lengths, key=lambda path: lengths[path])
    counts.append(Count("lines of the longest file", lengths[longest], longest))
    counts.append(Count(f"files of more than {LINES_MAX} lines", sum(length > LINES_MAX for length in lengths.values())))
    for language, some in (("C++", [s for s in common if s.cpp]), ("Python", [s for s in common if s.python])):
        counts.append(Count(f"class names in {language}", len(set().union(*map(classes, some)))))
    tests = [source for source in sources_of(root) if source.path.startswith("tests/")]
    for what, some in (("production", sources), ("test", tests)):
        folders = Counter(source.path.rpartition("/")[0] for source in some)
        folder, most = folders.most_common(1)[0] if folders else ("", 0)
        counts.append(Count(f"{what} files in the largest folder", most, folder))
        counts.append(Count(f"{what} folders of more than {FILES_MAX} files", sum(n > FILES_MAX for n in folders.values())))
    return counts


def _of_graph(sources: list[Source]) -> list[Count]:
    graph = edges(sources)
    counts = []
    for room in FLOORED:
        arrows = boxes(graph, room)
        knot = max(cycles(arrows), key=len, default=[])
        counts.append(Count(f"boxes of {room} in one cycle", len(knot), " ".join(knot)))
        counts.append(Count(f"arrows up in {room}", upward(arrows)))
    in_cycles = cycles(graph)
    counts.append(Count("units in cycles", sum(map(len, in_cycles)), "; ".join(" ".join(each) for each in in_cycles)))
    return counts


def _of_functions(sources: list[Source]) -> list[Count]:
    import lizard  # the other counts need no package

    functions = [
        (found, source.path)
        for source in sources
        if source.cpp or source.path.endswith(".py")
        for found in lizard.analyze_file.analyze_source_code(source.path, source.text).function_list
    ]
    longest, path = max(functions, key=lambda each: each[0].length)
    return [
        Count("lines of the longest function", longest.length, f"{path}: {longest.name}"),
        Count("functions with a complexity above 10", sum(found.cyclomatic_complexity > 10 for found, _ in functions)),
        Count("functions with more than 6 parameters", sum(len(found.parameters) > 6 for found, _ in functions)),
    ]


def all_counts(root: Path) -> list[Count]:
    sources = production(root)
    unnamed = Count("sentences without a named subject", sum(1 for source in sources for _ in unnamed_subjects(source)))
    return [*_of_sizes(sources, root), *_of_graph(sources), *_of_functions(sources), unnamed]


def ceilings_of(root: Path) -> dict[str, int]:
    return {name: int(value) for name, value in tomllib.loads((root / "tests/house/ceilings.toml").read_text()).items()}


HEAD = (
    "# SPDX-License-Identifier: Apache-2.0\n# The most that counts.py may count. A number may only fall: counts.py --write lowers them.\n"
)
BEGIN, END = "<!-- Written by tests/house/counts.py --write. -->\n", "<!-- End. -->\n"


def table(ceilings: Mapping[str, int]) -> str:
    rows = "".join(f"| {name} | {value:,} |\n" for name, value in ceilings.items())
    return f"| Count | at most |\n|---|---:|\n{rows}"


def write(root: Path, counts: Iterable[Count], ceilings: Mapping[str, int]) -> None:
    fallen = {count.name: min(count.value, ceilings.get(count.name, count.value)) for count in counts}
    (root / "tests/house/ceilings.toml").write_text(HEAD + "".join(f'"{name}" = {value}\n' for name, value in fallen.items()))
    page = root / "docs/explanation/architecture.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(fallen)}\n{END}{after}")


def main() -> int:
    words = sys.argv[1:]
    root = Path(next((word for word in words if word != "--write"), Path(__file__).resolve().parents[2]))
    counts = all_counts(root)
    ceilings = ceilings_of(root) if (root / "tests/house/ceilings.toml").exists() else {}
    if "--write" in words:
        write(root, counts, ceilings)
    for count in counts:
        print(f"{count.name:45} {count.value:>7} of {ceilings.get(count.name, count.value):>7}  {count.where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
