# SPDX-License-Identifier: Apache-2.0
"""Prints how an array gets from one framework to another, and why not by a cheaper way.

`explain torch jax` assumes an ordinary array (compact, aligned); neither framework needs to be installed. JAX is
assumed to have its 64-bit types enabled; if the result differs without them, it is printed too.
"""

from __future__ import annotations

import argparse
from typing import Any

from arraybridge import adapters
from arraybridge.commands import matrix
from arraybridge.errors import MemoryConversionError
from arraybridge.planner import CODES, Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="framework of the array")
    parser.add_argument("target", help="framework of the result")
    parser.add_argument("--gpu", action="store_true", help="array on a CUDA GPU, if the framework supports it")
    parser.add_argument("--dtype", default="float32", choices=sorted(CODES), metavar="DTYPE", help="default: float32")
    parser.add_argument(
        "--shape", type=_shape, default=matrix.SHAPE, help="sizes separated by commas, '' for no dimensions; default: 480,640"
    )
    parser.add_argument("--read-only", action="store_true", help="the array cannot be written")
    parser.add_argument("--allow-downcast", action="store_true", help="the target may narrow the dtype")


def run(wishes: argparse.Namespace) -> int:
    array: dict[str, Any] = {"on_gpu": wishes.gpu, "dtype": wishes.dtype, "shape": wishes.shape}
    if wishes.read_only:
        array["read_only"] = True
    for name in (wishes.source, wishes.target):
        adapters.named(name)
    lines, refused = [], 0
    for prefix, copy in (("", None), ("copy=False: ", False), ("copy=True: ", True)):
        try:
            plan = matrix.cell(wishes.source, wishes.target, copy=copy, allow_downcast=wishes.allow_downcast, **array)
            lines.append((prefix, _explained(plan)))
        except MemoryConversionError as error:
            refused += 1
            lines.append((prefix, f"refused: {error.reason}"))
    never = refused == len(lines)
    once = never and len({text for _, text in lines}) == 1
    for prefix, text in lines[:1] if once else lines:
        print(f"{prefix}{text}")
    if not never and not wishes.allow_downcast and (why := matrix.refused_as_it_comes(wishes.target, wishes.dtype)):
        print(f"{wishes.target} with its default configuration (64-bit types off): refused: {why}")
    return 1 if never else 0


def _explained(plan: Plan) -> str:
    return "\n  ".join([str(plan).partition(" (")[0], *(f"because {why}" for why in plan.reasons), *plan.notes])


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(",") if part)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"sizes must be numbers separated by commas, not {text!r}") from error
    if min(sizes, default=0) < 0:
        raise argparse.ArgumentTypeError(f"a shape must not have negative sizes: {text}")
    return sizes
