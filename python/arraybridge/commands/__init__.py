# SPDX-License-Identifier: Apache-2.0
"""`python -m arraybridge`: one module per command, each with `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import arraybridge
from arraybridge import _bin
from arraybridge.commands import bench, explain, findings, load, selftest
from arraybridge.errors import BrokerError
from arraybridge.recording import COMMANDS as RECORDING

_COMMANDS = {"selftest": selftest, "bench": bench, "explain": explain, "findings": findings, "load": load, **RECORDING}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if a check failed; 2 for invalid arguments or a failed write; as in shells 130 if
    interrupted, 141 if the reader closed the output.
    """
    if arguments is None and sys.argv[1:2] == ["doctor"]:
        _bin.arraybridgectl()  # does not return
    about = "Arrays from every framework to every framework. `doctor` is that of arraybridgectl: it examines this Python, too."
    parser = argparse.ArgumentParser("python -m arraybridge", description=about)
    parser.add_argument("--version", action="version", version=f"arraybridge {_version()}")
    chosen = parser.add_subparsers(dest="command", required=True)
    for name, command in _COMMANDS.items():
        text = (command.__doc__ or "").partition("\n")[0]
        command.add_arguments(chosen.add_parser(name, help=text, description=command.__doc__))
    try:
        return _done(parser, arguments)
    except BrokerError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        _drop_what_nobody_takes()
        if isinstance(error, BrokenPipeError):
            return 141  # the reader has closed the output
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


def _done(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    try:
        wishes = parser.parse_args(arguments)
        parser.prog = f"{parser.prog} {wishes.command}"  # the name in later errors
        status: int = _COMMANDS[wishes.command].run(wishes)
        return status
    finally:
        if sys.stdout is not None:  # it is None if descriptor 1 is closed
            sys.stdout.flush()  # an error can be reported here


def _drop_what_nobody_takes() -> None:
    """Discards unwritten output, so that the exit of the interpreter does not fail again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> str:
    try:
        return str(arraybridge.__version__)
    except ImportError as error:  # doctor says what to do about it
        return f"(its version is unknown: {error})"
