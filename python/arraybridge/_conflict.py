# SPDX-License-Identifier: Apache-2.0
"""Detects another distribution that installs a package `arraybridge`: the files of one overwrite those of the other.

One such distribution exists, and it has the package's own name. Every import looks for it with one look into the folder
of the package. `python -m arraybridge doctor` looks for any other.
"""

from __future__ import annotations

import os
import sys
from typing import Final

DISTRIBUTION: Final = "arraybridged"
_PACKAGE: Final = "arraybridge"


def finding(others: list[str]) -> str:
    return f"{', '.join(others)} also installs a package {_PACKAGE}: one overwrites the other"


def mend(others: list[str]) -> str:
    return f"pip uninstall -y {' '.join(others)} && {reinstall()}"


def reinstall() -> str:
    """The command that installs this distribution again from where it came: pip records a folder, a file or an address,
    and nothing for an index.
    """
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    command = "pip install --force-reinstall --no-deps"
    in_a_clone = f"{command} . (in a clone of {DISTRIBUTION})"
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
        if text is None:
            return f"{command} {DISTRIBUTION}"
        origin = json.loads(text)
        url, editable, vcs = str(origin["url"]), origin.get("dir_info", {}).get("editable"), origin.get("vcs_info")
    except (PackageNotFoundError, OSError, ValueError, KeyError, TypeError, AttributeError):  # a tree in the path, or damaged
        return in_a_clone
    if vcs is not None:
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    if not url.startswith("file:"):
        return f"{command} {shlex.quote(url)}"
    path = unquote(urlsplit(url).path)
    return f"{command} {'-e ' if editable else ''}{shlex.quote(path)}" if os.path.exists(path) else in_a_clone


def warn() -> None:
    """Warns that another distribution is installed here, whose removal would remove files of this package."""
    others = _beside()
    if others:
        import warnings

        warnings.warn(_warning(others), stacklevel=3)


def refuse_mixed() -> None:
    """Raises:
    ImportError: the package is another distribution's, and the caller is a file of this one that was left beside it.
    """
    if getattr(sys.modules[_PACKAGE], "_DISTRIBUTION", None) != DISTRIBUTION:
        raise ImportError(_warning(_beside() or [f"{_PACKAGE} (unknown version)"]))


def _warning(others: list[str]) -> str:
    return f"{finding(others)}. {mend([each.partition(' ')[0] for each in others])}"


def _beside() -> list[str]:
    """Names and versions of the distributions of this name that are installed in the folder of this package."""
    site = os.path.dirname(os.path.dirname(__file__))
    try:
        odd = [each for each in os.listdir(site) if each.startswith(f"{_PACKAGE}-") and each.endswith((".dist-info", ".egg-info"))]
    except OSError:  # a package in an archive
        return []
    return [owner for each in odd if (owner := _owner(os.path.join(site, each)))]


def _owner(described: str) -> str | None:
    """The name of a distribution that owns files of the package, or whose files are unknown."""
    from importlib.metadata import Distribution
    from pathlib import Path

    try:
        other = Distribution.at(Path(described))
        if other.metadata["Name"] is None:
            return None  # a remnant of an uninstall
        files = other.files
        version = str(other.version)
    except Exception:  # errors of other distributions are not reported by this import
        return None
    if files is not None and not any(each.parts[0] == _PACKAGE for each in files if each.parts):
        return None
    return f"{_PACKAGE} {version}"
