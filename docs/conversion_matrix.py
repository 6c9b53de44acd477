"""Writes docs/conversion-matrix.md from the planner: ``python docs/conversion_matrix.py``. A test compares the two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from arraybridge.commands import matrix
from arraybridge.commands.tables import markdown
from arraybridge.detect import MemoryType
from arraybridge.errors import DeviceUnavailable, MemoryConversionError, UnsupportedDtype
from arraybridge.planner import CODES

PAGE = Path(__file__).with_name("conversion-matrix.md")
NAMES = [str(each) for each in MemoryType]
MORE = ["numba", "pyarrow"]  # known beside the six
Cell = Callable[[str, str], str]

HEAD = """\
# The conversion matrix

Which way an ordinary array goes from one framework to another: compact row-major, aligned, float32, of two dimensions.
Written by `docs/conversion_matrix.py` from the planner, and compared with it by a test; `python -m arraybridge explain
SOURCE TARGET` says the reasons, and `Broker.plan(array, target)` those of an array of yours.

**I** the same object · **H** shared, no copy · **P** one copy in the same kind of memory · **U** one upload · **D** one
download (TensorFlow and JAX want what pyclesperanto pulls aligned, which is a second copy) · **–** no such device.
A letter in parentheses is what `copy=False` gives instead.

Frameworks without a GPU of their own kind are meant where a host is spoken of: pyclesperanto has OpenCL there. Cells of
a GPU are the planner's and have run on fakes of each framework's dialect over a simulated driver, not on a card.
TensorFlow keeps int32 in host memory, also in tensors whose `device` is a GPU: as sources they are the host's, and
`get_device_id` of them is None.
"""


def letters(**wishes: object) -> Cell:
    def cell(source: str, target: str) -> str:
        try:
            plan = matrix.cell(source, target, **wishes)  # type: ignore[arg-type]
        except DeviceUnavailable:
            return "–"
        found = matrix.letter(plan)
        if plan.zero_copy:
            return found
        try:
            return f"{found} ({matrix.letter(matrix.cell(source, target, copy=False, **wishes))})"  # type: ignore[arg-type]
        except MemoryConversionError:
            return found

    return cell


def dtypes(dtype: str, framework: str) -> str:
    """Whether an array of this dtype that nobody owns can be one of the framework's."""
    try:
        other = "torch" if framework == "numpy" else "numpy"  # what is one already stays so
        plan = matrix.cell(other, framework, dtype=dtype, read_only=True, shape=(4,))
    except UnsupportedDtype as refused:
        return "refused ↓" if "allow_downcast" in refused.reason else "refused"
    return "by value" if any(reason.startswith("dtype:") for reason in plan.reasons) else "yes"


def table(corner: str, rows: list[str], columns: list[str], cell: Cell) -> str:
    return markdown([corner, *columns], [[row, *(cell(row, column) for column in columns)] for row in rows])


def page() -> str:
    everybody = NAMES + MORE
    return "\n".join(
        [
            HEAD,
            "## On the host\n",
            table("from \\ to", everybody, everybody, letters()),
            "\n## On one GPU\n",
            table("from \\ to", everybody, everybody, letters(on_gpu=True)),
            "\n## From a GPU to the host\n\nAsked for by `device=\"cpu\"`.\n",
            table("from \\ to", [name for name in everybody if name not in ("numpy", "pyarrow")], everybody,
                  letters(on_gpu=True, device="cpu")),
            "\n## Dtypes\n\nWhat a target takes. ↓: it would narrow, and does with `allow_downcast=True`, where every integer"
            " fits. JAX is meant with\n`jax_enable_x64`; without it int64, uint64, float64 and complex128 are refused ↓ there,"
            " too.\n",
            table("dtype", list(CODES), everybody, dtypes),
            "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
