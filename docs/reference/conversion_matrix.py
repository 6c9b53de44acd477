# SPDX-License-Identifier: Apache-2.0
"""Writes conversion-matrix.md beside it from the planner: ``python docs/reference/conversion_matrix.py``. A test compares the two."""

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

How an ordinary array (compact row-major, aligned, float32, two dimensions) gets from one framework to another.
`docs/reference/conversion_matrix.py` writes this page from the planner, and a test compares the two. `python -m arraybridge explain
SOURCE TARGET` prints the reasons, and `Broker.plan(array, target)` returns them for an array of yours.

**I** the same object · **H** shared, no copy · **P** one copy in the same kind of memory · **U** one upload · **D** one
download (from pyclesperanto to TensorFlow and JAX a second copy aligns it) · **–** no such device.
A letter in parentheses is the result of `copy=False`.

In the table for the host an array lies in host memory if its framework has arrays there. CuPy's and Numba's lie on a GPU,
pyclesperanto's in OpenCL memory; TensorFlow and JAX can use no GPU. The cells for a GPU come from the planner and have run
on a simulated driver, not on a card: those between NumPy, CuPy, PyTorch, TensorFlow, JAX and Numba with the real packages
(`tests/simulated_cuda/frameworks/together/test_matrix.py`), those of pyclesperanto with a fake of it.
Shares in host memory that a GPU reads where they lie (`mapped=True`, or a machine with one memory) have run with PyTorch, CuPy,
Numba, JAX and TensorFlow: simulated driver, real package.
TensorFlow keeps int32 in host memory, also in tensors whose `device` is a GPU: such sources are in host memory, and
their `get_device_id` is None.
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
    """Whether an array of this dtype without an owner can become one of the framework's."""
    try:
        other = "torch" if framework == "numpy" else "numpy"  # a conversion to itself says nothing
        plan = matrix.cell(other, framework, dtype=dtype, read_only=True, shape=(4,))
    except UnsupportedDtype as refused:
        return "refused ↓" if "allow_downcast" in refused.reason else "refused"
    return "by value" if any(reason.startswith("dtype:") for reason in plan.reasons) else "yes"


def table(corner: str, rows: list[str], columns: list[str], cell: Cell) -> str:
    return markdown([corner, *columns], [[row, *(cell(row, column) for column in columns)] for row in rows])


def page() -> str:
    every = NAMES + MORE
    return "\n".join(
        [
            HEAD,
            "## On the host\n",
            table("from \\ to", every, every, letters()),
            "\n## On one GPU\n",
            table("from \\ to", every, every, letters(on_gpu=True)),
            "\n## From a GPU to the host\n\nWith `device=\"cpu\"`.\n",
            table("from \\ to", [name for name in every if name not in ("numpy", "pyarrow")], every,
                  letters(on_gpu=True, device="cpu")),
            "\n## Dtypes\n\nThe dtypes that a target accepts. ↓: the conversion would narrow, and does so with `allow_downcast=True` if"
            " every integer fits.\nThe column of JAX is for `jax_enable_x64`; without it int64, uint64, float64 and complex128 are"
            " refused ↓, too.\n",
            table("dtype", list(CODES), every, dtypes),
            "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
