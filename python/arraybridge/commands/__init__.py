"""What `python -m arraybridge` does: one module a command, each with `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from arraybridge.commands import bench, doctor, explain, selftest
from arraybridge.errors import BrokerError

_COMMANDS = {"selftest": selftest, "bench": bench, "explain": explain, "doctor": doctor}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 if something did not hold, 2 for what cannot be asked or written; as shells have it 130 if it was
    interrupted, 141 if nobody read it to its end."""
    parser = argparse.ArgumentParser("python -m arraybridge", description="Arrays from every framework to every framework.")
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
            return 141  # whoever read it has seen enough
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


def _done(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    try:
        wishes = parser.parse_args(arguments)
        parser.prog = f"{parser.prog} {wishes.command}"  # as errors call it from now on
        status: int = _COMMANDS[wishes.command].run(wishes)
        return status
    finally:
        if sys.stdout is not None:  # as where descriptor 1 is closed
            sys.stdout.flush()  # here it can be said that it failed


def _drop_what_nobody_takes() -> None:
    """So that the end of the process does not try, and fail, once more."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> str:
    try:
        return importlib.metadata.version("arraybridged")
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree"
