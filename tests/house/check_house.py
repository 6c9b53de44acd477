# SPDX-License-Identifier: Apache-2.0
"""The rules of the repository, checked over the tree: allowed includes and imports, words of one room, plain sentences.

``check_house.py [ROOT]`` prints one line per finding, ``path:line: rule: what``, and exits with 1 if there is any. It
also prints a remark for each long file.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from graph import Source, cycles, edges, type_checkers_only
from sentences import unnamed_subjects

TOP_FOLDERS = {"daemon", "client", "proto", "python", "tests", "deploy", "docs"}
ROOT_FILES = {
    "CMakeLists.txt", "CMakePresets.json", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md",
    "mypy.ini", "SECURITY.md",
}  # fmt: skip
NOT_OURS = {"build", "dist", "__pycache__"}
LINES_MAX = 350
LICENCE = "SPDX-License-Identifier: Apache-2.0"

FRAMEWORKS = {"numpy", "torch", "tensorflow", "keras", "jax", "jaxlib", "cupy", "pyclesperanto", "numba", "pyarrow", "scipy", "cupyx"}
ADAPTER_OF = {"keras": "tensorflow", "jaxlib": "jax", "cupyx": "cupy"}

# Room (path prefix, the longest match counts) → prefixes that its files may include, besides the C++ library and the
# system. Angle brackets and quotes are treated alike.
MAY_INCLUDE = {
    "proto/boundary/": ["proto/boundary/"],
    "proto/wire/": ["proto/wire/", "proto/boundary/"],
    "daemon/config/": [
        "daemon/config/", "daemon/access.h", "daemon/memory/memory_budget.h", "proto/boundary/", "CLI/", "toml++/",
    ],
    "daemon/config/config.h": [
        "daemon/access.h", "daemon/config/reloadable.h", "daemon/config/tiers/tier_terms.h", "proto/boundary/",
    ],
    "daemon/config/files/setting_file": ["daemon/config/files/setting_file.h", "proto/boundary/"],
    "daemon/memory/": ["daemon/memory/", "daemon/config/config.h", "proto/boundary/"],
    "daemon/broker/": ["daemon/broker/", "daemon/at_limit.h", "daemon/memory/", "daemon/config/config.h", "proto/boundary/"],
    "daemon/service/": [
        "daemon/service/", "daemon/at_limit.h", "daemon/broker/", "daemon/config/config.h", "daemon/memory/descriptor_store.h",
        "daemon/mover/", "daemon/moves/", "proto/", "arraybridge/v1/", "google/protobuf/", "grpc", "absl/", "fmt/", "spdlog/", "event2/",
    ],
    "daemon/moves/": ["daemon/moves/", "daemon/mover/", "daemon/broker/", "proto/boundary/"],
    "daemon/mover/": [
        "daemon/mover/", "daemon/broker/", "daemon/config/config.h", "daemon/config/tiers/tier_terms.h",
        "daemon/memory/memory_backend.h", "proto/",
    ],
    "daemon/keeper/": ["daemon/keeper/", "daemon/service/system/notify.h", "proto/boundary/"],
    "daemon/": ["daemon/", "proto/", "google/protobuf/"],
    "client/": ["client/", "proto/boundary/", "proto/wire/", "arraybridge/", "dlpack/"],
    "client/ctl/": ["client/ctl/", "arraybridge/", "proto/", "grpc", "google/protobuf/", "CLI/", "fmt/"],
    "python/bindings/": ["python/bindings/", "arraybridge/", "proto/boundary/", "pybind11/", "Python.h", "dlpack/"],
}  # fmt: skip
# Exceptions inside a room: includes that a prefix above would allow and that are forbidden.
MUST_NOT_INCLUDE = {
    "daemon/broker/": r"daemon/memory/(?!memory_backend\.h)(\w+/)?\w+_backend\.h",
    "client/": r"arraybridge/v1/|client/ctl/",
    "client/ctl/": r"$^",
    "python/bindings/": r"arraybridge/v1/",
}
# Python: a folder, or module, of the package → modules that it must not import, at any depth.
_ABOVE_BROKER = ("arraybridge.compat", "arraybridge.commands", "arraybridge.recording", "arraybridge.decorators")
_ABOVE_CONVERT = ("arraybridge.broker", *_ABOVE_BROKER)
MUST_NOT_IMPORT = {
    "python/arraybridge/arrays/": ("arraybridge.adapters", "arraybridge.conversion", *_ABOVE_CONVERT),
    "python/arraybridge/adapters/": ("arraybridge.conversion", *_ABOVE_CONVERT),
    "python/arraybridge/conversion/": _ABOVE_CONVERT,
    "python/arraybridge/broker/": ("arraybridge.integrations", *_ABOVE_BROKER),
}  # fmt: skip
# Includes of third parties, which a room must be allowed.
THIRD_PARTY = re.compile(
    r"(grpc|google/|absl/|spdlog/|fmt/|CLI/|toml\+\+/|event2/|dlpack/|pybind11/|Python\.h|openssl/|gtest/"
    r"|gmock/|benchmark/|cuda|arraybridge/)"
)

# Production code, without the files whose comments still have sentences that do not name their subject.
NAMES_SUBJECTS = re.compile(r"(?:daemon|client|proto|python)/")

# Words of C++ code (without comments) → the only paths where they may occur.
WORDS = {
    "CUDA's names": (r"\b(cu[A-Z]\w*|CU[a-z]\w*|CU_\w+|cuda[A-Z]\w*)\b", r"(^|/)(driver|cuda_)|^tests/(simulated_cuda|gpu)/"),
    "grpc::": (r"\bgrpc::|#include <grpc", r"^daemon/service/grpc/|^client/ctl/|^tests/"),
    "descriptors and credentials of sockets": (
        r"\b(SCM_RIGHTS|SO_PEERCRED|SO_PEERPIDFD)\b", r"^proto/boundary/frame|^daemon/(service|keeper)/|^tests/",
    ),
    "is_gpu": (r"\bis_gpu\w*", r"$^"),
    "CUDA as a build option": (r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*CUDA", r"$^"),
}  # fmt: skip


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.what}"


Rule = Callable[[Source], Iterator[Finding]]


def room_of(path: str) -> str:
    return max((room for room in MAY_INCLUDE if path.startswith(room)), key=len, default="")


def includes(source: Source) -> Iterator[Finding]:
    """Layers: a room includes only what the table allows; quoted includes start at the repository's root."""
    room = room_of(source.path)
    for number, line in source.lines():
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        quoted, target = match[1] == '"', match[2]
        generated = target.startswith("arraybridge/v1/")
        if quoted and not generated and target.split("/")[0] not in TOP_FOLDERS:
            yield Finding(source.path, number, "include", f'"{target}" is not written from the repository root')
        if target.startswith("tests/") and not source.path.startswith("tests/"):
            yield Finding(source.path, number, "layer", f"{target}: only tests include tests")
        if not room or not (quoted or THIRD_PARTY.match(target)):
            continue
        allowed = any(target.startswith(prefix) for prefix in MAY_INCLUDE[room])
        if not allowed or re.match(MUST_NOT_INCLUDE.get(room, r"$^"), target):
            yield Finding(source.path, number, "layer", f"{room} must not include {target}")


def words(source: Source) -> Iterator[Finding]:
    """Words that belong to one room."""
    for number, line in source.lines():
        code = re.sub(r"//.*", "", line)
        for name, (pattern, home) in WORDS.items():
            match = re.search(pattern, code)
            if match and not re.search(home, source.path):
                yield Finding(source.path, number, "word", f"{match[0].strip()} ({name}) does not belong here")


def headers(source: Source) -> Iterator[Finding]:
    """A header begins with its description, and is included once."""
    if not source.path.endswith(".h"):
        return
    if not source.text.removeprefix(f"// {LICENCE}\n").startswith("//"):
        yield Finding(source.path, 1, "header", "does not start with a comment that says what it is")
    if "#pragma once" not in source.text:
        yield Finding(source.path, 1, "header", "#pragma once is missing")


def unfinished(source: Source) -> Iterator[Finding]:
    """Unfinished work is an issue, not a remark."""
    pattern = r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b"
    for number, line in source.lines():
        match = re.search(pattern, line)
        if match:
            yield Finding(source.path, number, "unfinished", match[0])


def imported(node: ast.AST) -> list[str]:
    """Top names of the modules that a statement or a call imports."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module.split(".")[0]]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            return [node.args[0].value.split(".")[0]]
    return []


def loaded_with_module(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that are executed when the module is imported: not those in functions, nor those for type checkers."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


def frameworks(source: Source) -> Iterator[Finding]:
    """A framework is imported only in its adapter, and there only when it is needed; type checkers may see its classes."""
    if not source.path.startswith("python/arraybridge/"):
        return
    stem = Path(source.path).stem
    in_adapters = source.path.startswith("python/arraybridge/adapters/")
    for_types = set(type_checkers_only(source.tree))
    for node in ast.walk(source.tree):
        for name in imported(node) if node not in for_types else ():
            if name in FRAMEWORKS and not (in_adapters and stem.lstrip("_") == ADAPTER_OF.get(name, name)):
                yield Finding(source.path, node.lineno, "framework", f"{name} is imported outside its adapter")  # type: ignore[attr-defined]
    for node in loaded_with_module(source.tree):
        for name in imported(node):
            if name in FRAMEWORKS:
                yield Finding(source.path, node.lineno, "framework", f"{name} is imported when the module is")  # type: ignore[attr-defined]


def layers(source: Source) -> Iterator[Finding]:
    """A Python folder imports nothing of the layers above it; type checkers may see them."""
    for_types = set(type_checkers_only(source.tree))
    forbidden = next((above for folder, above in MUST_NOT_IMPORT.items() if source.path.startswith(folder)), ())
    for node in ast.walk(source.tree):
        for name in modules_of(node) if node not in for_types else ():
            if name.startswith(forbidden):
                yield Finding(source.path, node.lineno, "layer", f"imports {name}, which is above it")  # type: ignore[attr-defined]


def modules_of(node: ast.AST) -> list[str]:
    """Full names of the modules that a statement may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def evaluation(source: Source) -> Iterator[Finding]:
    """Text is not executed."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            yield Finding(source.path, node.lineno, "evaluation", f"{node.func.id}() is not used here")


def docstring(source: Source) -> Iterator[Finding]:
    """A module begins with its description."""
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield Finding(source.path, 1, "header", "does not start with a docstring that says what it is")


def agreement(source: Source) -> Iterator[Finding]:
    """Every field and every verb of the protocol has a comment, beside it or right above it."""
    if not source.path.startswith("proto/"):
        return
    above = ""
    for number, line in source.lines():
        match = re.match(r"(\s*)(?:rpc (\w+)\(|(?:repeated |optional )?(?:[\w.]+|map<.+>) (\w+) = \d+(?: \[lazy = true\])?;)", line)
        if match and "//" not in line and not above.startswith(f"{match[1]}//"):
            yield Finding(source.path, number, "agreement", f"{match[2] or match[3]} says neither unit nor meaning")
        above = line


def subjects(source: Source) -> Iterator[Finding]:
    """A sentence of a comment or docstring names its subject."""
    if NAMES_SUBJECTS.match(source.path):
        for number, word in unnamed_subjects(source):
            yield Finding(source.path, number, "subject", f"a sentence begins with {word}: name its subject")


CPP_RULES: list[Rule] = [includes, words, headers, unfinished, subjects]
PYTHON_RULES: list[Rule] = [frameworks, layers, evaluation, docstring, unfinished, subjects]
PROTO_RULES: list[Rule] = [agreement, unfinished, subjects]


def files_of(root: Path) -> Iterator[Path]:
    """Files of the tree, without hidden folders and generated files."""
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in NOT_OURS or path.name.endswith(".egg-info"):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from files_of(path)
        elif path.is_file():
            yield path


def layout(root: Path) -> Iterator[Finding]:
    """The root contains only known files and folders."""
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in NOT_OURS:
            continue
        known = TOP_FOLDERS if path.is_dir() else ROOT_FILES
        if path.name not in known:
            yield Finding(path.name, 1, "layout", "is not among the folders and files of the root")


def registration(root: Path) -> Iterator[Finding]:
    """A test or fuzz target must be named by a CMakeLists.txt, otherwise it never runs."""
    for path in files_of(root):
        if not path.name.endswith(("_test.cc", "_fuzz.cc")):
            continue
        # A list may name the files without their ending, in a loop.
        name = rf"\b{re.sub('_(test|fuzz)$', '', path.stem)}(_test|_fuzz)?\b"
        lists = [folder / "CMakeLists.txt" for folder in path.parents if folder != root and root in folder.parents]
        named = any(file.exists() and re.search(name, file.read_text()) for file in lists)
        if not named:
            yield Finding(path.relative_to(root).as_posix(), 1, "registration", "no CMakeLists.txt above names it")


def circles(root: Path) -> Iterator[Finding]:
    """A unit in a cycle cannot be read, or tested, without the other units of the cycle."""
    sources = [source for source in sources_of(root) if not source.path.startswith("tests/")]
    cpp = [source for source in sources if source.cpp]
    package = [source for source in sources if source.path.startswith("python/arraybridge/")]
    for units in (*cycles(edges(cpp)), *cycles(edges(package))):
        yield Finding(units[0], 1, "cycle", f"leads back to itself: {', '.join(units)}")


def limits(root: Path) -> Iterator[Finding]:
    """Every limit is hit by a test. Benchmarks and fuzz targets do not count."""
    config = root / "daemon/config/config.h"
    found = re.search(r"struct Limits \{\n.*?\n\};", config.read_text(), re.DOTALL) if config.exists() else None
    if found is None:
        return
    tests = [path for path in files_of(root / "tests") if path.suffix in (".cc", ".py") and path.parent.name not in ("bench", "fuzz")]
    named = set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in tests)))
    first = config.read_text()[: found.start()].count("\n") + 1
    for number, line in enumerate(found[0].splitlines(), first):
        field = re.match(r"  [\w:<>]+ (\w+)(?: =|\{)", line)
        if field and field[1] not in named:
            yield Finding("daemon/config/config.h", number, "limit", f"no test names {field[1]}")


def sources_of(root: Path) -> Iterator[Source]:
    for path in files_of(root):
        if path.suffix in (".h", ".cc", ".py", ".pyi", ".proto"):
            yield Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def unlicensed(root: Path) -> Iterator[Finding]:
    """Each source file says its licence near its beginning."""
    for source in sources_of(root):
        if source.text.strip() and LICENCE not in source.text[:1000]:
            yield Finding(source.path, 1, "licence", f"has no line with {LICENCE}")


def check(root: Path) -> list[Finding]:
    found = [*layout(root), *registration(root), *limits(root), *circles(root)]
    for source in sources_of(root):
        for rule in CPP_RULES if source.cpp else PROTO_RULES if source.proto else PYTHON_RULES:
            found.extend(rule(source))
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    for source in sources_of(root):
        length = source.text.count("\n")
        if length > LINES_MAX:
            print(f"remark: {source.path} has {length} lines: is a noun missing?")
    found = [*unlicensed(root), *check(root)]
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
