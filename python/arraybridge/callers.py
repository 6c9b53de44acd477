"""Whose line a warning names: the nearest one outside this package, whatever called what inside it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Final

_PACKAGE: Final = str(Path(__file__).parent) + "/"


def warn(text: str, category: type[Warning]) -> None:
    """warnings.warn, on the line of the user's that led here."""
    # `skip_file_prefixes` does it from Python 3.12 on.
    level, frame = 2, sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
