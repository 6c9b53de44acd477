# SPDX-License-Identifier: Apache-2.0
"""Follows docs/get-started.md word by word: saves its files, types its commands into two terminals, and compares what it shows.

python tests/docs/tutorial.py            # with the arraybridge and the jax of this Python
python tests/docs/tutorial.py --install REPOSITORY      # from a clone, in an environment that the page makes
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs/get-started.md"
PATIENCE_S = 120.0  # a watchdog against hangs, not a limit on speed
BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)


class Block(NamedTuple):
    """A block of the page: where it belongs, its language, and its text."""

    where: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for where, language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        yield Block(where, language, text)


class Terminal:
    """A shell, and what it and its programs have printed. It takes a line when the one before has ended, as a person's does."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        self._read = 0  # of the log: what was shown before is compared once
        with log.open("w") as output:
            both = {"stdout": output, "stderr": subprocess.STDOUT}
            self._shell = subprocess.Popen(["bash", "--norc"], cwd=log.parent, env=environment, stdin=subprocess.PIPE, text=True, **both)

    def enter(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def shows(self, text: str) -> None:
        """Waits until each line of the text was printed, in this order. An ellipsis is any number of lines."""
        between, pattern = False, ""
        for line in text.splitlines():
            if line.strip() != "…":
                pattern += ("(?:.*\n)*?" if between else "") + f".*{re.escape(line)}.*\n"
            between = line.strip() == "…"
        until = time.monotonic() + PATIENCE_S
        while not (found := re.compile(pattern).search(self.printed, self._read)):
            assert time.monotonic() < until, f"{text!r} was not shown in {self.printed[self._read :]!r}"
            time.sleep(0.02)
        self._read = found.end()

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(PATIENCE_S)


def follow(home: Path, environment: dict[str, str], install: bool) -> str:
    """Follows the page with this home directory; returns what the two terminals have printed."""
    environment = environment | {"HOME": str(home), "PYTHONUNBUFFERED": "1"}
    terminals = {str(number): Terminal(home / f"terminal-{number}", environment) for number in (1, 2)}
    last = terminals["1"]
    for block in blocks():
        kind, _, rest = block.where.partition(": ")
        terminal = re.search(r"terminal (\d)", block.where)
        if kind == "file":
            folder = home / "first-hour"
            folder.mkdir(exist_ok=True)
            (folder / rest).write_text(block.text)
        elif block.language == "text":
            (terminals[terminal[1]] if terminal else last).shows(block.text)
        elif terminal and (install or kind != "install"):
            last = terminals[terminal[1]]
            last.enter(block.text)
            if "python" not in block.text or kind == "install":  # the other terminal may use what this one has made
                last.enter("echo entered\n")
                last.shows("entered\n")
    for each in terminals.values():
        each.end()
    return "".join(f"--- terminal {number}\n{each.printed}" for number, each in terminals.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", metavar="REPOSITORY", help="install it, too, from a clone of this repository")
    wishes = parser.parse_args()
    environment = dict(os.environ)
    if wishes.install:
        global PATIENCE_S
        PATIENCE_S = 3600.0
        environment["REPOSITORY"] = wishes.install
    with tempfile.TemporaryDirectory(prefix="ab-tutorial-") as home:
        print(follow(Path(home), environment, bool(wishes.install)))


if __name__ == "__main__":
    sys.exit(main())
