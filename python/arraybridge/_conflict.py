"""Another distribution that installs a package `arraybridge`: the files of one overwrite the other's.

There is one, whose distribution has the package's own name; it is looked for at every import, by one look into the folder
where the package lies. `python -m arraybridge doctor` asks for any other.
"""

from __future__ import annotations

import os
import sys
from typing import Final

DISTRIBUTION: Final = "arraybridged"
_PACKAGE: Final = "arraybridge"


def finding(others: list[str]) -> str:
    return f"{', '.join(others)} brings a package {_PACKAGE}, too: one overwrites the other"


def mend(others: list[str]) -> str:
    return f"pip uninstall {' '.join(others)} && pip install --force-reinstall {DISTRIBUTION}"


def warn() -> None:
    """Says to whoever imports the package that another is here, whose removal would take files of ours with it."""
    others = _beside()
    if others:
        import warnings

        warnings.warn(_told(others), stacklevel=3)


def refuse_mixed() -> None:
    """Raises:
    ImportError: the package is another's, and the caller is a file of ours that was left beside it.
    """
    if getattr(sys.modules[_PACKAGE], "_DISTRIBUTION", None) != DISTRIBUTION:
        raise ImportError(_told(_beside() or [f"{_PACKAGE} (unknown version)"]))


def _told(others: list[str]) -> str:
    return f"{finding(others)}. {mend([each.partition(' ')[0] for each in others])}"


def _beside() -> list[str]:
    """Names and versions of those that are installed where this package is and have its name."""
    site = os.path.dirname(os.path.dirname(__file__))
    try:
        odd = [each for each in os.listdir(site) if each.startswith(f"{_PACKAGE}-") and each.endswith((".dist-info", ".egg-info"))]
    except OSError:  # a package in an archive
        return []
    return [told for each in odd if (told := _owner(os.path.join(site, each)))]


def _owner(described: str) -> str | None:
    """What a distribution is called that owns files of the package, or does not say what it owns."""
    from importlib.metadata import Distribution
    from pathlib import Path

    try:
        other = Distribution.at(Path(described))
        if other.metadata["Name"] is None:
            return None  # what an uninstall left
        files = other.files
        version = str(other.version)
    except Exception:  # what is broken there is not for an import of ours to say
        return None
    if files is not None and not any(each.parts[0] == _PACKAGE for each in files if each.parts):
        return None
    return f"{_PACKAGE} {version}"
