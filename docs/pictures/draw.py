"""Draws the pictures of the documents, and writes the table of README: ``python docs/pictures/draw.py``. A test compares
them with the committed files.

The charts and the table have the figures of the newest files in tests/bench/results: draw again after a new one is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import benchmark
import house
import tables

FOLDER: Final = Path(__file__).resolve().parent
README: Final = FOLDER.parents[1] / "README.md"
PICTURES: Final = {"house.svg": house.picture, "benchmark.svg": benchmark.picture, "models.svg": benchmark.models}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FOLDER / name).write_text(picture(), encoding="utf-8")
    README.write_text(tables.written(README.read_text(encoding="utf-8")), encoding="utf-8")
