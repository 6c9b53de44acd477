"""What `python -m arraybridge` does: one module a command, each with `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence

from arraybridge.commands import bench, doctor, explain, selftest
from arraybridge.errors import BrokerError

_COMMANDS = {"selftest": selftest, "bench": bench, "explain": explain, "doctor": doctor}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 if something did not hold, 2 for what cannot be asked, 130 if it was interrupted."""
    parser = argparse.ArgumentParser("python -m arraybridge", description="Arrays from every framework to every framework.")
    parser.add_argument("--version", action="version", version=f"arraybridge {_version()}")
    chosen = parser.add_subparsers(dest="command", required=True)
    for name, command in _COMMANDS.items():
        text = (command.__doc__ or "").partition("\n")[0]
        command.add_arguments(chosen.add_parser(name, help=text, description=command.__doc__))
    wishes = parser.parse_args(arguments)
    try:
        status: int = _COMMANDS[wishes.command].run(wishes)
    except BrokerError as error:
        print(f"{parser.prog} {wishes.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _version() -> str:
    try:
        return importlib.metadata.version("arraybridged")
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree"
