# SPDX-License-Identifier: Apache-2.0
"""The name of a client: what `arraybridgectl ls sessions`, errors about peers and events call this process.

`Broker(client=)` states it. Otherwise it is the script and its arguments. Values that look like secrets are replaced, and
workers that have the script and its arguments in common are told apart. It is for display: the broker decides nothing by it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from arraybridge.arguments import check_text
from arraybridge.errors import InvalidRequest, printable

BYTES_MAX: Final = 64  # of UTF-8, as the protocol has it
_WORKER_BYTES_MAX: Final = 32
_CUT: Final = "…"
_HIDDEN: Final = "***"
_SECRET: Final = re.compile(r"token|pass|pwd|secret|key|cred|auth|signature|\bsig\b", re.IGNORECASE)  # in a name
# "token=", "token:", '"token": ', also inside a word; all that follows may be its value.
_ASSIGNED: Final = re.compile(rf"((?:{_SECRET.pattern})[\w.\-\]\"']*\s*[=:]\s*).+", re.IGNORECASE | re.DOTALL)
_USER_IN_URL: Final = re.compile(r"(://)[^/\s]*@")
_LOADED_IN: Final = os.getpid()


def stated(client: str) -> str:
    """The name that the user states.

    Raises:
        InvalidRequest: it cannot be a name.
    """
    check_text(client, "client", empty=False)
    if not client.isprintable():
        raise InvalidRequest(f"client must not contain control characters: {client!r}")
    size = len(client.encode())
    if size > BYTES_MAX:
        raise InvalidRequest(f"client has {size} bytes of UTF-8: pass a name of at most {BYTES_MAX}")
    return client


def of_process() -> str:
    """The name of this process, for a user who states none."""
    worker = _worker()
    return first_bytes(_command(), BYTES_MAX - len(worker.encode())) + worker


def _command() -> str:
    words = [str(each) for each in getattr(sys, "argv", None) or ()]
    return " ".join([_program(words[0] if words else ""), *_without_secrets(words[1 : BYTES_MAX + 1])])


def _program(path: str) -> str:
    """The script's name, or that of the module or the package that `python -m` runs."""
    folder, name = os.path.split(path)
    if name == "__main__.py":
        name = os.path.basename(folder)
    return f"python {name}".strip() if name in ("", "-c", "-m") else name


def _without_secrets(words: Sequence[str]) -> Iterator[str]:
    values = None  # of an option whose name tells of a secret: how many of its values are hidden so far
    for word in words:
        # The first value may begin with a single dash.
        if values is not None and not word.startswith("--" if values == 0 else "-"):
            values += 1
            yield _HIDDEN
            continue
        values = None
        shown = _ASSIGNED.sub(rf"\1{_HIDDEN}", _USER_IN_URL.sub(rf"\1{_HIDDEN}@", word))
        if word.startswith("-") and shown == word and _SECRET.search(word):
            values = 0
        yield shown


def _worker() -> str:
    """The end of a worker's name, which tells it from others of the same command; "" for other processes."""
    processes = sys.modules.get("multiprocessing.process")
    name = "MainProcess" if processes is None else str(processes.current_process().name)
    if name != "MainProcess":
        return f" ({first_bytes(name, _WORKER_BYTES_MAX)})"
    return f" ({os.getpid()})" if _is_forked() else ""


def _is_forked() -> bool:
    """True if the process was forked after this module was loaded, or its parent runs the same command, as the workers of
    gunicorn do that load it after the fork.
    """
    if os.getpid() != _LOADED_IN:
        return True
    own = _command_line(os.getpid())
    return own != b"" and own == _command_line(os.getppid())


def _command_line(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return b""


def first_bytes(text: str, bytes_max: int) -> str:
    """The text on one printable line, or its first whole characters and an ellipsis."""
    line = printable(text.replace("\n", " "))
    encoded = line.encode()
    if len(encoded) <= bytes_max:
        return line
    return encoded[: bytes_max - len(_CUT.encode())].decode(errors="ignore").rstrip() + _CUT
