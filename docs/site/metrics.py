# SPDX-License-Identifier: Apache-2.0
"""The metrics of a daemon as Markdown: what the page /metrics of one that serves says of each."""

from __future__ import annotations

import re
import subprocess
import tempfile
import urllib.request
from collections import defaultdict

import numpy

import arraybridge
from arraybridge import _bin


def served() -> str:
    """The page of a daemon that has done something."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        words = [_bin.path("arraybridged"), "--directory", directory, "--http", "127.0.0.1:0", "--log-format", "text"]
        daemon = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        try:
            assert daemon.stderr is not None
            port = next(found[1] for line in daemon.stderr if (found := re.search(r"http port (\d+)", line)))
            with arraybridge.Broker(directory) as broker:
                broker.put(numpy.zeros(4), "frame")
                with broker.channel("frames") as frames:
                    frames.send(numpy.zeros(4))
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    return str(answer.read().decode())
        finally:
            daemon.terminate()
            daemon.communicate()


def markdown(page: str) -> str:
    labels = defaultdict[str, dict[str, None]](dict)
    for name, inside in re.findall(r"^(\w+)\{(.*)\} ", page, re.MULTILINE):
        labels[name] |= dict.fromkeys(re.findall(r'(\w+)="', inside))
    rows = ["| Metric | Type | Labels | |", "|---|---|---|---|"]
    for name, text, kind in re.findall(r"^# HELP (\S+) (.*)\n# TYPE \1 (\w+)", page, re.MULTILINE):
        found = labels[name] | labels[f"{name}_bucket"]
        words = ", ".join(f"`{label}`" for label in found)
        plain = re.sub(r"([|<>_*$])", r"\\\1", text)
        rows.append(f"| `{name}` | {kind} | {words} | {plain} |")
    return "\n".join(rows) + "\n"
