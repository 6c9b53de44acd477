# SPDX-License-Identifier: Apache-2.0
"""The manual pages describe the same options as the programs' help texts."""

from __future__ import annotations

import gzip
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from foreign_client import CTL, DAEMON, ROOT

PAGES = ROOT / "deploy/man"


def helped(*command: object) -> str:
    return subprocess.run([*map(str, command), "--help"], capture_output=True, text=True, check=True).stdout


def options_in(text: str) -> set[str]:
    """All options of a --help text, long and short forms."""
    return {name for line in re.findall(r"^  (-[^ ]+)", text, re.MULTILINE) for name in line.split(",")}


def subcommands_in(text: str) -> list[str]:
    return re.findall(r"^  (\w+)(?:, \w+)* ", text[text.index("Subcommands:") :], re.MULTILINE)


def plain(text: str) -> str:
    """The text without font markup and escapes."""
    return re.sub(r"\\(.)|\*|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", lambda found: found[1] or "", text)


def tagged(page: Path) -> list[tuple[str, str]]:
    """The lines above more deeply indented lines, each with the first of these."""
    lines = page.read_text().splitlines()
    return [(line, below) for line, below in itertools.pairwise(lines) if re.match(r"\t*", below)[0] == re.match(r"\t*", line)[0] + "\t"]  # type: ignore[index]


def options_of(page: Path) -> set[str]:
    tags = [plain(tag.strip()) for tag, _ in tagged(page)]
    return {word for tag in tags if tag.startswith("-") for word in re.findall(r"(?<![\w-])--?\w[\w-]*", tag)}


def test_the_daemons_page_has_every_option_and_no_other() -> None:
    assert options_of(PAGES / "arraybridged.8.scd") == options_in(helped(DAEMON))


def test_the_tools_page_has_every_option_and_command_and_no_other() -> None:
    page, top = PAGES / "arraybridgectl.1.scd", helped(CTL)
    commands = subcommands_in(top)
    helps = {command: helped(CTL, command) for command in commands}
    said = options_in(top).union(*map(options_in, helps.values()))
    for command, text in helps.items():
        inner = subcommands_in(text) if "Subcommands:" in text else []
        said = said.union(*(options_in(helped(CTL, command, each)) for each in inner))
    assert options_of(page) == said
    assert sorted(tag.split()[0].strip("*") for tag, _ in tagged(page) if re.match(r"\*[a-z]", tag)) == sorted(commands)


def printed(form: str) -> str:
    return subprocess.run([DAEMON, "--print-reference", form], capture_output=True, text=True, check=True).stdout


def test_the_files_page_has_the_keys_that_the_daemon_prints() -> None:
    """After a change of a setting, put the output of ``arraybridged --print-reference man`` between the two marks."""
    page = (PAGES / "arraybridged.toml.5.scd").read_text()
    before, keys, after = re.split(r"^; (?:Begin|End) of the keys that .*\n", page, flags=re.MULTILINE)
    assert keys == printed("man")
    assert "# KEYS" in before and "# FILES" in after


def test_the_example_file_equals_the_daemons_output() -> None:
    """After a change of a setting, run ``arraybridged --print-reference toml > deploy/config/arraybridged.toml``."""
    assert (ROOT / "deploy/config/arraybridged.toml").read_text() == printed("toml")


@pytest.mark.parametrize("page", sorted(PAGES.iterdir()), ids=lambda page: page.name)
def test_the_page_is_well_formed(page: Path) -> None:
    made = subprocess.run([program("scdoc")], input=page.read_text(), capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    formatter = [program("groff"), "-man", "-ww", "-z", "-Tutf8"]
    done = subprocess.run(formatter, input=made.stdout, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def program(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("there", [True, False], ids=["scdoc", "no scdoc"])
def test_the_pages_are_installed_if_scdoc_is_available(tmp_path: Path, there: bool) -> None:
    folder = Path(program("scdoc")).parent
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(pages NONE)", "set(CMAKE_INSTALL_MANDIR share/man)"]
    (tmp_path / "CMakeLists.txt").write_text("\n".join([*lines, f"include({ROOT}/deploy/cmake/ArraybridgeManuals.cmake)\n"]))
    words = ["cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={program('ninja')}", "-S", tmp_path, "-B", tmp_path / "build"]
    without = [] if there else [f"-DCMAKE_IGNORE_PATH={folder};/usr/bin;/bin"]
    made = subprocess.run([*words, *without], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert ("scdoc is not installed: no manual pages" in made.stdout) == (not there)
    subprocess.run(["cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "out"], check=True, capture_output=True)
    pages = {path.name: gzip.decompress(path.read_bytes()).decode() for path in (tmp_path / "out").rglob("*.gz")}
    assert set(pages) == ({path.stem + ".gz" for path in PAGES.iterdir()} if there else set())
    for name, text in pages.items():
        page, section = name.removesuffix(".gz").rsplit(".", 1)
        assert f'.TH "{page}" "{section}"' in text
        assert (tmp_path / f"out/share/man/man{section}/{name}").exists()
