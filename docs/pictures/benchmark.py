# SPDX-License-Identifier: Apache-2.0
"""The charts of the newest benchmarks: our figures beside those of peers and floors, each panel on a scale of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from svg import Drawing

RESULTS: Final = Path(__file__).resolve().parents[2] / "tests" / "bench" / "results"
Rows = dict[str, dict[str, Any]]  # as `tests/bench/run --json` writes them, by id


class Bar(NamedTuple):
    """`key`: which figure of the row; a row that was not measured has no bar."""

    label: str
    role: str
    row: str
    key: str = "value"


class Panel(NamedTuple):
    title: str
    unit: str
    per_unit: float  # how many of the row's units
    bars: list[Bar]


PANELS: Final = [
    Panel("Read 1 MiB that another process has published, Python", "µs", 1, [
        Bar("arraybridge get, NumPy", "ours", "get_numpy"),
        Bar("arraybridge get, TensorFlow", "ours", "get_tensorflow"),
        Bar("arraybridge get, PyTorch", "ours", "get_torch"),
        Bar("arraybridge get, JAX", "ours", "get_jax"),
        Bar("Plasma get", "peer", "plasma_get_1mib"),
        Bar("torch.multiprocessing, same tensor again", "peer", "get_numpy", "peer_value"),
    ]),
    Panel("Publish 64 MiB, Python", "ms", 1000, [
        Bar("memcpy", "floor", "put_64mib_python", "floor"),
        Bar("arraybridge put", "ours", "put_64mib_python"),
        Bar("Plasma put", "peer", "plasma_put_64mib"),
        Bar("torch.multiprocessing, new tensor", "peer", "put_64mib_python", "peer_value"),
    ]),
    Panel("Hand 4 KiB to a process that waits, C++", "µs", 1, [
        Bar("one SEQPACKET message", "floor", "channel_4kib", "floor"),
        Bar("arraybridge channel", "ours", "channel_4kib"),
        Bar("iceoryx", "peer", "iceoryx_4kib"),
    ]),
    Panel("Hand 4 KiB to another process, Python", "µs", 1, [
        Bar("arraybridge channel", "ours", "hop_4kib_arraybridge"),
        Bar("ring of SharedMemory slots", "peer", "hop_4kib_ring"),
        Bar("SharedArray", "peer", "hop_4kib_sharedarray"),
        Bar("iceoryx2", "peer", "hop_4kib_iceoryx2"),
        Bar("pyzmq", "peer", "hop_4kib_pyzmq"),
    ]),
]  # fmt: skip

MODELS: Final = [
    Panel("Memory of a model of 1 GiB that eight processes read", "GiB", 1024, [
        Bar("arraybridge", "ours", "model_processes_8"),
        Bar("safetensors load_file (maps the file)", "peer", "model_processes_8", "load_file"),
        Bar("torch.multiprocessing, passed on", "peer", "model_processes_8", "passed_on"),
        Bar("torch.load", "peer", "model_processes_8", "peer_value"),
    ]),
    Panel("Time until one of them has its tensors", "ms", 1, [
        Bar("arraybridge", "ours", "model_attach"),
        Bar("safetensors load_file (maps the file)", "peer", "model_processes_8", "load_file_ms"),
        Bar("torch.load", "peer", "model_attach", "floor"),
    ]),
]  # fmt: skip

WIDTH: Final = 860.0
LEFT: Final = 20.0
LABELS: Final = 350.0  # where bars begin
VALUES: Final = 90.0  # at the right, for figures
LINE: Final = 24.0


def _figures(panel: Panel, rows: Rows) -> list[tuple[Bar, float]]:
    found = [(bar, rows.get(bar.row, {}).get(bar.key)) for bar in panel.bars]
    return [(bar, value / panel.per_unit) for bar, value in found if value is not None]


def chart(title: str, chosen: list[Panel], rows: Rows, measured: str) -> str:
    """`measured`: when and where, in one line."""
    panels = [(panel, _figures(panel, rows)) for panel in chosen]
    panels = [(panel, figures) for panel, figures in panels if any(bar.role == "ours" for bar, _ in figures)]
    height = 84 + sum(44 + LINE * len(figures) for _, figures in panels)
    drawing = Drawing(WIDTH, height, f"{title}: arraybridge beside its peers, shorter is better")
    y = 14.0
    for panel, figures in panels:
        drawing.text(LEFT, y + 22, panel.title, size=14, bold=True)
        drawing.text(WIDTH - LEFT, y + 22, f"{panel.unit}, shorter is better", "soft", 12, "end")
        y += 34
        longest = max(value for _, value in figures)
        for bar, value in figures:
            length = max(1.5, value / longest * (WIDTH - LABELS - VALUES))
            drawing.text(LABELS - 10, y + 16, bar.label, "ink" if bar.role == "ours" else "soft", anchor="end")
            drawing.box(LABELS, y + 3, length, LINE - 7, bar.role)
            drawing.text(LABELS + length + 8, y + 16, f"{value:,.1f}")
            y += LINE
        y += 10
    for number, (role, about) in enumerate([("ours", "arraybridge"), ("peer", "peers"), ("floor", "lower bound, same run")]):
        drawing.box(LABELS + 130 * number, y + 10, 12, 12, role)
        drawing.text(LABELS + 18 + 130 * number, y + 21, about, "soft", 12)
    drawing.text(LEFT, y + 48, measured, "soft", 11)
    return str(drawing)


def newest(kind: str) -> Path:
    """The rows of the latest run on a host, or of models: file names begin with the date."""
    return max(path for path in RESULTS.glob(f"*-{kind}.json"))


def _rows(file: Path) -> Rows:
    return {row["id"]: row for row in json.loads(file.read_text(encoding="utf-8"))}


def picture() -> str:
    file = newest("host")
    where = file.with_suffix(".md").read_text(encoding="utf-8").splitlines()[0]
    return chart("The benchmark", PANELS, _rows(file), f"{where} · medians, both sides on one CPU")


def models() -> str:
    file = newest("models")
    date = file.name.removesuffix("-models.json")
    return chart(
        "A model in eight processes", MODELS, _rows(file), f"{date} · tests/bench/models.py full · 2 CPUs · memory: PSS beyond imports"
    )
