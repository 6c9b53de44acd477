# SPDX-License-Identifier: Apache-2.0
"""The picture of what arraybridge does: a producer, the broker with the bytes, and consumers of other frameworks."""

from __future__ import annotations

from typing import Final, NamedTuple

from svg import Drawing


class Process(NamedTuple):
    name: str
    call: str
    says: str
    writes: bool


PROCESSES: Final = [
    Process("producer: NumPy", 'broker.put(image, name="frame")', "writes the bytes once", True),
    Process("consumer: PyTorch", 'broker.get("frame", "torch")', "maps them, copies nothing", False),
    Process("consumer: JAX", 'broker.get("frame", "jax")', "maps the same bytes", False),
]
WIDTH: Final = 860.0
LEFT: Final = 20.0
GAP: Final = 20.0
PROCESS: Final = 74.0
ARROW: Final = 56.0
BROKER: Final = 116.0


def picture() -> str:
    drawing = Drawing(
        WIDTH, 2 * LEFT + PROCESS + ARROW + BROKER, "A producer puts an array into the broker's memory; consumers map the same bytes"
    )
    each = (WIDTH - 2 * LEFT - GAP * (len(PROCESSES) - 1)) / len(PROCESSES)
    below = LEFT + PROCESS
    for number, process in enumerate(PROCESSES):
        left = LEFT + number * (each + GAP)
        middle = left + each / 2
        drawing.box(left, LEFT, each, PROCESS, "panel", "line", rounded=6)
        drawing.text(middle, LEFT + 26, process.name, size=14, bold=True, anchor="middle", room=each)
        drawing.text(middle, LEFT + 50, process.call, "soft", 12, "middle", room=each)
        ends = (below + 4, below + ARROW - 4) if process.writes else (below + ARROW - 4, below + 4)
        drawing.arrow(middle, *ends)
        drawing.text(middle + 12, below + ARROW / 2 + 4, process.says, "soft", 12)
    top = below + ARROW
    drawing.box(LEFT, top, WIDTH - 2 * LEFT, BROKER, "panel", "line", rounded=6)
    drawing.text(LEFT + 16, top + 26, "arraybridged", "ours", 14, bold=True)
    drawing.text(LEFT + 130, top + 26, "owns host and GPU memory, names, channels, quotas; survives the death of any process", "soft", 12)
    drawing.box(LEFT + 16, top + 42, WIDTH - 2 * LEFT - 32, 58, "room", "ours", rounded=4)
    drawing.text(WIDTH / 2, top + 66, "frame: float32, 1080 × 1920, 8.3 MB, once", bold=True, anchor="middle")
    drawing.text(WIDTH / 2, top + 86, "freed when it has no name and no reader any more, whoever dies", "soft", 12, "middle")
    return str(drawing)
