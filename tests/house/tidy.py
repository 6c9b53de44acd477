# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over our own sources, and remembers clean files.

``tidy.py BUILD_FOLDER...``: reads the files of daemon/, client/, proto/ and python/ from each folder's
compile_commands.json. A file is skipped if its text, our headers in it, the checks and the tool equal those of an
earlier clean run. The memory lies in the user's cache, so that a fresh clone is fast, too. Exits with 1 if there is any
finding.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS_OF_GCC = ("-fno-gnu-unique", "-Wno-subobject-linkage")
ROOMS = ("daemon", "client", "proto", "python")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "arraybridge" / "tidy"


def sources_of(build: Path) -> list[tuple[Path, str]]:
    """Our sources in that folder, with their compile commands; generated code is not ours."""
    commands = build / "compile_commands.json"
    if not commands.exists():
        return []
    found = []
    for entry in json.loads(commands.read_text()):
        compiled = Path(entry["directory"], entry["file"]).resolve()
        for file in files_of_unit(compiled) or [compiled]:
            if file.is_relative_to(ROOT) and top(file) in ROOMS:
                found.append((file, entry["command"].replace(entry["file"], str(file))))
    return found


def files_of_unit(compiled: Path) -> list[Path]:
    """What CMake compiles at once (UNITY_BUILD) is read one by one: so a file that lacks an include is found."""
    if not re.fullmatch(r"unity_\w+_cxx\.cxx", compiled.name):
        return []
    return [Path(file) for file in re.findall(r'^#include "([^"]+)"', compiled.read_text(), re.MULTILINE)]


def top(file: Path) -> str:
    return file.relative_to(ROOT).parts[0]


def with_headers(file: Path, seen: set[Path]) -> set[Path]:
    """The file and every file of this repository that it includes, directly or not."""
    if file in seen or not file.is_file():
        return seen
    seen.add(file)
    for quote, target in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', file.read_text(), re.MULTILINE):
        if quote == '"' and target.startswith("arraybridge/v1/"):  # generated
            with_headers(ROOT / "proto" / re.sub(r"(\.grpc)?\.pb\.h$", ".proto", target), seen)
        elif quote == '"':
            with_headers(ROOT / target, seen)
        elif target.startswith("arraybridge/"):
            with_headers(ROOT / "client/include" / target, seen)
    return seen


def key_of(file: Path, command: str, tool: str) -> str:
    """A hash of everything that a clean result depends on; the same in every checkout."""
    digest = hashlib.sha256(f"{tool}\n{command}".replace(str(ROOT), "").encode() + Path(__file__).read_bytes())
    digest.update((ROOT / ".clang-tidy").read_bytes())
    for part in sorted(with_headers(file, set())):
        digest.update(f"\n{part.relative_to(ROOT)}\n".encode() + part.read_bytes())
    return digest.hexdigest()


def tidy(file: Path, command: str) -> str:
    """The findings, or an empty string."""
    # The commands are g++'s; annotations of locks, which only clang can check, are enabled here.
    flags = [flag for flag in shlex.split(command)[1:] if flag not in FLAGS_OF_GCC]
    command_line = ["clang-tidy", "--quiet", str(file), "--", *flags, "-Wthread-safety"]
    done = subprocess.run(command_line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        return ""
    return done.stdout + (done.stderr if not done.stdout.strip() else "")


def main() -> int:
    tool = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True, check=True).stdout
    CACHE.mkdir(parents=True, exist_ok=True)
    work: dict[Path, tuple[str, str]] = {}
    total = 0
    for name in sys.argv[1:]:
        for file, command in sources_of(Path(name).resolve()):
            if file in work:
                continue
            total += 1
            key = key_of(file, command, tool)
            if not (CACHE / key).exists():
                work[file] = (command, key)
    findings = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = pool.map(lambda item: (item, tidy(item[0], item[1][0])), work.items())
        for (_, (_, key)), said in verdicts:
            if not said:
                (CACHE / key).touch()
                continue
            findings += 1
            print(said)
    print(f"{total} files, {len(work)} looked at, {findings} with findings")
    if total == 0:
        print("no compile_commands.json: configure first")
    return 1 if findings or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
