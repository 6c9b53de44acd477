# SPDX-License-Identifier: Apache-2.0
"""Measures conversions inside one process beside the bare from_dlpack of their target, and the cost of a View; prints
Markdown.

    python tests/bench/bench_convert.py [--rounds N] [--json FILE]

Both sides of a row are measured in turn, in short batches. The fastest batches are compared, because other load on the
machine only adds time; the medians beside them show how much. --json adds the rows to those of bench.py in a file: {id,
work, value, unit, floor, ratio, reach, peer, peer_value}, where `floor` is the bare from_dlpack, or an empty call.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import jax
import numpy as np
import tensorflow as tf
import torch

import arraybridge
from arraybridge import counts

BATCH_S = 0.002  # long compared with the clock, short compared with disturbances
LOOPS = 20_000


class Row(NamedTuple):
    id: str
    what: str
    ours_ns: float
    bare_ns: float
    medians_ns: tuple[float, float]
    aim: str


def measured(id: str, what: str, ours: Callable[[], Any], bare: Callable[[], Any], rounds: int, aim: str = "") -> Row:
    counts = [max(1, int(BATCH_S / max(once(call, 3), 1e-8))) for call in (ours, bare)]
    pairs = [[once(call, count) for call, count in zip((ours, bare), counts, strict=True)] for _ in range(rounds)]
    first, second = zip(*pairs, strict=True)
    medians = statistics.median(first) * 1e9, statistics.median(second) * 1e9
    return Row(id, what, min(first) * 1e9, min(second) * 1e9, medians, aim)


def once(call: Callable[[], Any], count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


def conversions(rounds: int) -> list[Row]:
    """copy=False: measures the conversion without the copy that protects an immutable array."""
    broker = arraybridge.Broker("/nonexistent", start="never")
    values = np.asarray(arraybridge.asdlpack(np.arange(1 << 18, dtype="f4").reshape(512, 512), copy=True))
    sources = {
        "numpy": values,
        "torch": torch.from_numpy(values),
        "tensorflow": broker.convert(values, "tensorflow", copy=False),
        "jax": broker.convert(values, "jax", copy=False),
    }
    bare: dict[str, Callable[[Any], Any]] = {
        "numpy": np.from_dlpack,
        "torch": torch.from_dlpack,
        "tensorflow": lambda array: tf.experimental.dlpack.from_dlpack(array.__dlpack__()),
        "jax": jax.dlpack.from_dlpack,
    }
    rows = []
    for source, array in sources.items():
        for target, take in bare.items():
            # A constant array goes to torch, which may write, only by a copy.
            if source == target or (source in ("jax", "tensorflow") and target == "torch"):
                continue
            other = lambda array=array, take=take: take(array)
            ways: dict[str, Callable[[], Any]] = {
                "convert": lambda array=array, target=target: broker.convert(array, target, copy=False),
                "convert_memory": lambda array=array, source=source, target=target: arraybridge.convert_memory(
                    array, source, target, None, copy=False
                ),
            }
            if target != "numpy":
                ways["default_gpu"] = lambda array=array, source=source, target=target: arraybridge.convert_memory(
                    array, source, target, copy=False
                )
            for way, ours in ways.items():
                name = f"{source} to {target}, {way}"
                aim = "" if way == "default_gpu" else "at most 1,000 more"  # the warning is Python's cost
                rows.append(measured(f"{way}_{source}_to_{target}", name, ours, other, rounds, aim))
    return rows


def views(rounds: int) -> list[Row]:
    """The costs of a View, the C table and detection, beside an empty call of the same kind."""
    view = arraybridge.asdlpack(np.arange(1024, dtype="f4"))
    tensor = torch.ones(3)
    empty = lambda: None
    tally = counts.Counts().free(arraybridge.Broker("/nonexistent", start="never").plan(tensor, "numpy"))
    rows = [
        measured("view_dlpack", "View.__dlpack__()", lambda: view.__dlpack__(), empty, rounds, "at most 150"),
        measured(
            "view_dlpack_keywords", "View.__dlpack__(max_version=, stream=None)",
            lambda: view.__dlpack__(max_version=(1, 0), stream=None), empty, rounds, "at most 150",
        ),
        measured("count", "one more in conversion_counts()", tally.add, empty, rounds, "at most 50 more"),
        measured(
            "detect", "detect_memory_type", lambda: arraybridge.detect_memory_type(tensor), empty, rounds, "at most 100"
        ),
    ]  # fmt: skip
    rows += views_of_a_share(rounds)
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/exchange_loop.so"
        source = Path(__file__).with_name("exchange_loop.cc")
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, "-std=c++20", "-O2", "-fPIC", "-shared", str(source), "-o", library], check=True)
        loops = ctypes.PyDLL(library)
    for id, name, loop in (
        ("c_table_owned", "owned and deleted", loops.Own), ("c_table_borrowed", "borrowed", loops.BorrowOnly),
    ):  # fmt: skip
        table = ctypes.c_void_p(view.__c_dlpack_exchange_api__)
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            assert loop(table, ctypes.py_object(view), LOOPS) == 0
            times.append((time.perf_counter() - begun) / LOOPS * 1e9)
        rows.append(Row(id, f"C table, {name}", min(times), 0.0, (statistics.median(times), 0.0), "at most 80"))
    return rows


def views_of_a_share(rounds: int) -> list[Row]:
    """__dlpack__ of a share's View: a copy-on-write mapping for each consumer, beside the share's own memory."""
    rows = []
    with arraybridge.Broker(start="private") as broker:
        for name, count in (("4 KiB", 1024), ("64 MiB", 16 << 20)):
            share = broker.put(np.ones(count, "f4"))
            private, shared = share.view(), share.view(access="shared")
            rows.append(measured(
                f"view_dlpack_private_{name.replace(' ', '').lower()}",
                f"View.__dlpack__(max_version=) of a share of {name}, private, beside access=\"shared\"",
                lambda view=private: view.__dlpack__(max_version=(1, 0)),
                lambda view=shared: view.__dlpack__(max_version=(1, 0)), rounds, "at most 10,000",
            ))  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", metavar="FILE", help="add the rows to those that are there")
    wish = parser.parse_args()
    rounds = wish.rounds
    print(f"NumPy {np.__version__}, torch {torch.__version__}, TensorFlow {tf.__version__}, JAX {jax.__version__}, "
          f"Python {sys.version.split()[0]}; 1 MiB of float32; nanoseconds, the quickest of {rounds} turns\n")  # fmt: skip
    print("| from, to | ours | bare from_dlpack | ratio | more | medians | aim |\n|---|---|---|---|---|---|---|")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", arraybridge.DeviceFallbackWarning)  # its cost is that of Python's filters
        converted = conversions(rounds)
    for row in converted:
        print(f"| {row.what} | {row.ours_ns:,.0f} | {row.bare_ns:,.0f} | {row.ours_ns / row.bare_ns:.2f} | "
              f"{row.ours_ns - row.bare_ns:+,.0f} | {told(row)} | {row.aim} |")  # fmt: skip
    print("\n| what | ns | an empty call | medians | aim |\n|---|---|---|---|---|")
    viewed = views(rounds)
    for row in viewed:
        print(f"| {row.what} | {row.ours_ns:,.0f} | {row.bare_ns:,.0f} | {told(row)} | {row.aim} |")
    if wish.json:
        add(Path(wish.json), [*converted, *viewed])


def add(file: Path, rows: list[Row]) -> None:
    """Adds the rows to a file; replaces rows of the same id."""
    new = [as_json(row) for row in rows]
    ids = {row["id"] for row in new}
    old = json.loads(file.read_text()) if file.exists() else []
    file.write_text(json.dumps([row for row in old if row["id"] not in ids] + new, indent=2) + "\n")


def as_json(row: Row) -> dict[str, Any]:
    bare = row.bare_ns
    return {
        "id": row.id,
        "work": row.what,
        "value": round(row.ours_ns, 1),
        "unit": "ns",
        "floor": round(bare, 1) if bare else None,
        "ratio": round(row.ours_ns / bare, 3) if bare else None,
        "reach": row.aim,
        "peer": None,
        "peer_value": None,
    }


def told(row: Row) -> str:
    return " / ".join(f"{each:,.0f}" for each in row.medians_ns)


if __name__ == "__main__":
    main()
