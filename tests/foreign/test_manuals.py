"""The manual pages say what the programs say of themselves, option by option."""

from __future__ import annotations

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
    """Of a --help: all spellings, each with its short form."""
    return {name for line in re.findall(r"^  (-[^ ]+)", text, re.MULTILINE) for name in line.split(",")}


def subcommands_in(text: str) -> list[str]:
    return re.findall(r"^  (\w+) ", text[text.index("Subcommands:") :], re.MULTILINE)


def tagged(page: Path) -> list[str]:
    """What stands behind .TP, as it reads without its fonts."""
    text = re.sub(r"\\f[BIR]", "", page.read_text()).replace("\\-", "-")
    return [re.sub(r'^\.[BIR]+ |"', "", line) for line in re.findall(r"^\.TP\n(.*)$", text, re.MULTILINE)]


def options_of(page: Path) -> set[str]:
    return {word for tag in tagged(page) if tag.startswith("-") for word in re.findall(r"(?<![\w-])--?\w[\w-]*", tag)}


def test_the_daemons_page_has_every_option_and_no_other() -> None:
    assert options_of(PAGES / "arraybridged.8") == options_in(helped(DAEMON))


def test_the_tools_page_has_every_option_and_command_and_no_other() -> None:
    page, top = PAGES / "arraybridgectl.1", helped(CTL)
    commands = subcommands_in(top)
    helps = {command: helped(CTL, command) for command in commands}
    said = options_in(top).union(*map(options_in, helps.values()))
    for command, text in helps.items():
        inner = subcommands_in(text) if "Subcommands:" in text else []
        said = said.union(*(options_in(helped(CTL, command, each)) for each in inner))
    assert options_of(page) == said
    assert sorted(tag.split()[0] for tag in tagged(page) if re.match(r"[a-z]", tag)) == sorted(commands)


def test_the_files_page_has_every_key_with_its_default_and_no_other() -> None:
    text = (PAGES / "arraybridged.toml.5").read_text().replace("\\-", "-")
    tables = dict(re.findall(r"^\.SS \[(\S+)\]\n(.*?)(?=^\.S)", text, re.MULTILINE | re.DOTALL))
    assert re.findall(r"^\.B (\w+)", tables.pop("namespace.NAME"), re.MULTILINE) == ["access"]
    said = {
        f"{table}.{key}": set(re.findall(r"Default: \\fB(.*?)\\fR", rest))
        for table, body in tables.items()
        for key, rest in re.findall(r"^\.TP\n\.B (\w+)\n(.*)$", body, re.MULTILINE)
    }
    defaults: dict[str, str] = {}
    table = ""
    for line in (ROOT / "deploy/config/arraybridged.toml").read_text().splitlines():
        if named := re.match(r"(?:# )?\[([\w.]+)\] ", line + " "):
            table = named[1]
        elif table and (row := re.match(r"(?:# )?(\w+) = (\[.*?\]|\S+) +#", line)):
            defaults[f"{table}.{row[1]}"] = row[2]
    del defaults["namespace.images.access"]  # an example
    assert set(said) == set(defaults)
    worked_out = {"server.listen", "server.lifeline", "server.admin", "server.exit_when_idle", "http.listen"}
    worked_out |= {"server.tls.cert", "server.tls.key", "server.tls.client_ca"}  # there is none
    assert {key for key in said if said[key] != {defaults[key]}} == worked_out


@pytest.mark.parametrize("page", sorted(PAGES.iterdir()), ids=lambda page: page.name)
def test_the_page_is_well_formed(page: Path) -> None:
    formatter = shutil.which("groff") or pytest.skip("groff is not installed")
    done = subprocess.run([formatter, "-man", "-ww", "-z", "-Tutf8", str(page)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
