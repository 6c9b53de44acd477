# SPDX-License-Identifier: Apache-2.0
"""The tables of README and of the page on performance, with the figures of the newest benchmark. draw.py writes them
between their marks."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from benchmark import newest

BEGIN: Final = "<!-- docs/pictures/draw.py writes this table -->\n"
END: Final = "<!-- end -->\n"


class Row(NamedTuple):
    """`id`: of `tests/bench/run --json`. `floor`: what the ratio is to; empty: the row has a limit, and no floor.
    `aim`: empty: not shown. `beside`: the id of the row whose value is the floor, if it is not in the same row.
    """

    what: str
    id: str
    floor: str
    aim: str
    beside: str = ""


PING_PONG: Final = "bare SEQPACKET ping-pong"
IMPORT: Final = "C++ acquire + 10 µs + its own import"
ROWS: Final = (
    Row("put 64 MiB into a recycled arena, C++", "put_64mib", "memcpy", "1.15"),
    Row("the same from Python, NumPy", "put_64mib_python", "memcpy", "1.15"),
    Row("first put of a session, 64 MiB", "put_64mib_first", "memcpy", "1.5"),
    Row("put 4 KiB, one round trip", "put_4kib", PING_PONG, "1.4"),
    Row("put 4 KiB, nobody waits (`wait=False`), C++", "ring_put_4kib", "", "1.5 µs"),
    Row("the same from Python", "ring_put_4kib_python", "", "5 µs"),
    Row("acquire 4 KiB by a call, C++", "acquire_4kib", PING_PONG, "1.35"),
    Row("acquire 1 GiB by a call", "acquire_1gib", PING_PONG, "1.35"),
    Row("acquire and release without a call", "hold_hot", "a hash, a lock, a fence", "60 ns"),
    Row("the same, random among 10⁶ shares", "hold_random_1e6", "two dependent random reads", "1.3"),
    Row("a new client: connect, map, first byte of 1 GiB", "attach_first_1gib", "connect + ping-pong + mmap", "1.5"),
    Row("`get` 1 MiB, NumPy", "get_numpy", IMPORT, "1"),
    Row("`get` 1 MiB, PyTorch", "get_torch", IMPORT, "1"),
    Row("`get` 1 MiB, JAX", "get_jax", IMPORT, "1"),
    Row("`get` 1 MiB, TensorFlow", "get_tensorflow", IMPORT, "1"),
    Row("one hand-off through a channel, 4 KiB, C++", "channel_4kib", "one SEQPACKET message", "0.8; 0.1"),
    Row("the same, 1 GiB", "channel_1gib", "one SEQPACKET message", "0.8; 0.1"),
    Row("the call of `send`, 4 KiB, NumPy", "python_send", "the same from C++", "1.5"),
    Row("the call of `receive`, 4 KiB, NumPy", "python_receive", "the same from C++", "2"),
    Row("a hand-off of 4 KiB from Python", "channel_4kib_python", "iceoryx2 from Python", "1"),
    Row("a frame of 6.2 MB, copied in, from Python", "channel_6mib", "a ring of SharedMemory, by hand", "1"),
    Row("the same, filled in place", "channel_6mib_in_place", "iceoryx2 from Python", "1"),
    Row("the same over two relays", "relay_3_hops_6mib_arraybridge", "SharedArray's slot numbers", "1.25", "relay_3_hops_6mib_sharedarray"),
    Row("one call at the gRPC door, C++", "grpc_unary", "bare gRPC echo", "1.2"),
    Row("10⁶ shares after a crash of the broker", "recover_1e6", "", "1,500 ms"),
    Row("a call that finds the broker crashed", "outage_call", "", "20 ms"),
    Row("`ProcessPoolExecutor.map`, 64 MiB to a worker", "pool_map_64mib", "without `install()`", "0.1"),
    Row("a model of 20,000 tensors, opened for torch", "attach_20000", "torch.multiprocessing", "0.01"),
    Row("a batch of 8 MiB of a DataLoader, 4 workers", "dataloader_epoch", "torch's default collate", "0.5"),
    Row("1 GiB of safetensors loaded", "load_safetensors", "pread into warm memory", "1.15"),
    Row("memory of that model in eight processes", "model_processes_8", "the model", "1.05"),
    Row("daemon memory of an idle share, of 10⁵", "share_bytes_1e5", "", "1,024 bytes"),
)
# In README: what users do most, and what is not good enough yet.
SHORT: Final = tuple(
    next(row for row in ROWS if row.id == chosen)._replace(what=what, aim="")
    for chosen, what in [
        ("put_64mib_python", "`put` 64 MiB from NumPy"),
        ("channel_4kib_python", "hand 4 KiB to another process, Python"),
        ("channel_6mib", "a frame of 6.2 MB through a channel, copied in"),
        ("channel_6mib_in_place", "the same, filled in place"),
        ("pool_map_64mib", "`ProcessPoolExecutor.map`, 64 MiB to a worker"),
        ("attach_20000", "a model of 20,000 tensors, opened for torch"),
        ("grpc_unary", "one call at the gRPC door"),
    ]
)


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    digits = 1 if value >= 10 else 2 if value >= 0.1 else 3
    return f"{value:.{digits}f}"


def _line(row: Row, one: dict[str, Any], two: dict[str, Any]) -> str:
    """one, two: the rows by id, of one CPU and of two."""
    found = one[row.id]
    cells = [row.what, f"{_number(found['value'])} {found['unit'].replace('us', 'µs')}", "", "", "", row.aim]
    if row.floor:
        floors = [one[row.beside]["value"], _two(two, row.beside, "value")] if row.beside else [found["floor"], _two(two, row.id, "floor")]
        values = [found["value"], _two(two, row.id, "value")]
        cells[2] = f"{_number(floors[0])} ({row.floor})"
        cells[3:5] = [_number(value / floor) if value and floor else "" for value, floor in zip(values, floors, strict=True)]
    return f"| {' | '.join(cells if row.aim else cells[:-1])} |"


def _two(two: dict[str, Any], row: str, key: str) -> float | None:
    found: float | None = two.get(row, {}).get("two_cpus", {}).get(key)
    return found


def table(rows: tuple[Row, ...]) -> str:
    file = newest("host")
    one = {row["id"]: row for row in json.loads(file.read_text(encoding="utf-8"))}
    two = json.loads(file.with_suffix(".more.json").read_text(encoding="utf-8"))
    heads = ["What", "Time", "Floor or peer of the same run", "Ratio, one CPU", "two CPUs", *(["Aim"] if rows[0].aim else [])]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(_line(row, one, two) for row in rows if row.id in one)]) + "\n"


def written(page: str, rows: tuple[Row, ...]) -> str:
    """The page with today's table."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table(rows)}{END}{rest.split(END, 1)[1]}"
