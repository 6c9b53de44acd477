"""Says which way an array goes from one framework to another, and why not a cheaper one.

`explain torch jax` speaks of an ordinary array (compact, aligned); neither framework has to be installed. JAX is thought
of with its 64-bit types on.
"""

from __future__ import annotations

import argparse
from typing import Any

from arraybridge import adapters, matrix
from arraybridge.errors import MemoryConversionError
from arraybridge.planner import CODES, Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="the framework that the array is of")
    parser.add_argument("target", help="the framework that it shall be of")
    parser.add_argument("--gpu", action="store_true", help="on a CUDA GPU, where the framework can be there")
    parser.add_argument("--dtype", default="float32", choices=sorted(CODES), metavar="DTYPE", help="default: float32")
    parser.add_argument("--shape", type=_shape, default=matrix.SHAPE, help="sizes with commas; default: 480,640")
    parser.add_argument("--read-only", action="store_true", help="the array cannot be written")


def run(wishes: argparse.Namespace) -> int:
    array: dict[str, Any] = {"on_gpu": wishes.gpu, "dtype": wishes.dtype, "shape": wishes.shape}
    if wishes.read_only:
        array["read_only"] = True
    for name in (wishes.source, wishes.target):
        adapters.named(name)
    plans = []
    for copy in (None, False, True):
        try:
            plans.append(matrix.cell(wishes.source, wishes.target, copy=copy, **array))
            text = _told(plans[-1])
        except MemoryConversionError as error:
            text = f"refused: {error.reason}"
        print(f"{'' if copy is None else f'copy={copy}: '}{text}")
    return 0 if plans else 1


def _told(plan: Plan) -> str:
    return "\n  ".join([str(plan).partition(" (")[0], *(f"because {why}" for why in plan.reasons), *plan.notes])


def _shape(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(",") if part)
    if min(sizes, default=0) < 0:
        raise argparse.ArgumentTypeError(f"a shape has no negative sizes: {text}")
    return sizes
