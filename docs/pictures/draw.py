# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the documents, and writes the tables of figures: ``python docs/pictures/draw.py``. A test
compares them with the committed files.

The charts and the tables have the figures of the newest files in tests/bench/results: draw again after a new one is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import benchmark
import flow
import house
import tables

FOLDER: Final = Path(__file__).resolve().parent
README: Final = FOLDER.parents[1] / "README.md"
PERFORMANCE: Final = FOLDER.parent / "explanation" / "performance.md"
TABLES: Final = {README: tables.SHORT, PERFORMANCE: tables.ROWS}
PICTURES: Final = {"flow.svg": flow.picture, "house.svg": house.picture, "benchmark.svg": benchmark.picture, "models.svg": benchmark.models}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FOLDER / name).write_text(picture(), encoding="utf-8")
    for page, rows in TABLES.items():
        page.write_text(tables.written(page.read_text(encoding="utf-8"), rows), encoding="utf-8")
