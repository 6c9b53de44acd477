# SPDX-License-Identifier: Apache-2.0
"""Warnings name the nearest line outside of this package."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Final

from arraybridge.errors import printable

_PACKAGE: Final = str(Path(__file__).parent) + "/"


def warn(text: str, category: type[Warning]) -> None:
    """warnings.warn, at the user's line that led here."""
    # Python 3.12 has `skip_file_prefixes` for this.
    level, frame = 2, sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(text), category, stacklevel=level)
