# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark beside its floor and its peer and prints one table; --json writes the rows.

Each row is {id, work, value, unit, floor, ratio, reach, peer, peer_value}: ratio = value / floor, smaller is better;
`reach` is the goal and does not decide pass or fail. FILE.more.json has further measurements of a row by its id.
Processes are pinned: placement "one" runs both sides on CPU 0, "two" on CPUs 0 and 1. The figures of a row are those of
placement "one"; those of "two" are added to it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keep_rows
import models
import neighbours
import passing
import peer_table
import peers
import recorded
import restart
import select_rows
import service_rows
import swaps
import table_rows
import tier_rows

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

# id: (work, unit, reach as text)
ROWS: dict[str, tuple[str, str, str]] = {
    "put_64mib": ("put 64 MiB into a recycled arena, Publish included, C++", "us", "<= 1.15 x memcpy"),
    "put_64mib_python": ("the same from Python, NumPy", "us", "<= 1.15 x memcpy; >= 5 x torch.multiprocessing, new tensor"),
    "born_put": ("put 64 MiB that NumPy made in broker memory; floor: the put of a copy", "us", "<= 50 us, <= 0.01 x copied"),
    "born_small": ("np.empty(8) in a block of Broker.born; floor: outside", "ns", "<= 1.05 x outside"),
    "born_step": ("a pipeline of OpenCV, or NumPy, on two frames of 1080p in the block; floor: outside", "ms", "<= 1.03 x outside"),
    "born_put_torch": ("put 64 MiB that torch made in broker memory; floor: the put of a copy", "us", "<= 50 us, <= 0.01 x copied"),
    "born_put_jax": ("the same, JAX on the CPU", "us", "<= 50 us, <= 0.01 x copied"),
    "born_put_cv2": ("the same, OpenCV", "us", "<= 50 us, <= 0.01 x copied"),
    "born_step_torch": ("a training step of a small CNN in the block; floor: outside", "ms", "<= 1.03 x outside"),
    "put_64mib_first": ("first put of a session, 64 MiB, populated ahead", "us", "<= 1.5 x memcpy"),
    "floor_spin": ("a floor: two words in shared memory, both sides spin; its floor: a ping-pong that sleeps", "us", "a floor"),
    "put_4kib": ("put 4 KiB, one round trip", "us", "<= 1.4 x ping-pong"),
    "ring_put_4kib": ("put 4 KiB through the session queue, unwaited, C++", "us", "<= 1.5 us"),
    "ring_put_4kib_python": ("the same from Python, NumPy", "us", "<= 5 us"),
    "acquire_4kib": ("acquire 4 KiB, arena mapped, C++", "us", "<= 1.35 x ping-pong"),
    "acquire_1mib": ("acquire 1 MiB", "us", "<= 1.35 x ping-pong"),
    "acquire_64mib": ("acquire 64 MiB", "us", "<= 1.35 x ping-pong"),
    "acquire_1gib": ("acquire 1 GiB", "us", "<= 1.35 x ping-pong"),
    "acquire_first": ("new client: connect, descriptor, map, first byte", "us", "reported against connect + 3 ping-pongs"),
    "attach_first_1gib": ("the same, 1 GiB, until its first byte is read", "us", "<= 1.5 x (connect + one ping-pong + mmap)"),
    "get_numpy": ("get 1 MiB from Python, untouched view, NumPy", "us", "<= 1 x (C++ acquire + 10 us + import); >= 5 x torch re-send"),
    "get_torch": ("the same, PyTorch (a copy-on-write mapping of its own)", "us", "as get_numpy"),
    "get_jax": ("the same, JAX", "us", "as get_numpy"),
    "get_tensorflow": ("the same, TensorFlow", "us", "as get_numpy"),
    "hold_hot": ("acquire and release without a call, same name (29 bytes)", "ns", "<= 60 ns"),
    "hold_random_1e6": ("the same, random among 10^6 shares", "ns", "<= 1.3 x two dependent random reads"),
    "view_numpy": ("get and drop, 1 MiB, warm, Python", "us", "<= 3 us; >= 50 x torch re-send"),
    "view_torch": ('the same, PyTorch with access="shared"', "us", "<= 5 us; >= 50 x torch re-send"),
    "view_torch_private": ("the same, PyTorch, a copy-on-write mapping of its own, kept by the reaper", "us", "<= 12 us"),
    "withdraw_256": ("Withdraw, 256 sessions with 64 holds each", "us", "<= 10 us"),
    "catalogue_bytes_1e6": ("catalogue bytes of a share, 10^6 shares", "bytes", "<= 200"),
    "channel_4kib": ("send and receive through a channel, one way, 4 KiB", "us", "<= 0.8 x one SEQPACKET message on one CPU, 0.1 on two"),
    "channel_1gib": ("the same, 1 GiB", "us", "as channel_4kib"),
    "relay_hop_4kib": ("receive 4 KiB from a channel and send the same into another, C++", "us", "reported"),
    "relay_hop_1gib": ("the same, 1 GiB", "us", "as relay_hop_4kib"),
    "python_send": ("send of 4 KiB into a channel from Python, NumPy, the call alone; floor: the same from C++", "us", "<= 1.5 x C++"),
    "python_receive": ("the receive of it", "us", "<= 2 x C++"),
    "iceoryx_4kib": ("a peer: a chunk of iceoryx 2.0 one way; floor: ours through a channel", "us", "side by side"),
    "iceoryx_1mib": ("the same, 1 MiB", "us", "side by side"),
    "plasma_put_64mib": ("a peer: Plasma of pyarrow 11, put; floor: put_64mib_python", "us", "side by side"),
    "plasma_get_1mib": ("a peer: Plasma, get of what is there; floor: view_numpy", "us", "side by side"),
    "grpc_unary": ("one unary call at the gRPC door, C++", "us", "<= 1.2 x bare gRPC echo"),
    "ctl_ls_row": ("client CPU of a row of arraybridgectl -o jsonl ls, 10^5 shares", "us", "<= 5"),
    "share_bytes_1e3": ("daemon memory of one idle share, 10^3 shares", "bytes", "<= 1024; acquire latency flat"),
    "share_bytes_1e4": ("the same, 10^4 shares", "bytes", "<= 1024"),
    "share_bytes_1e5": ("the same, 10^5 shares", "bytes", "<= 1024"),
}
# Rows whose floor is a ping-pong, and their number of ways of one: on two CPUs both sides spin.
SPINNING = {"put_4kib": 1.0, "acquire_4kib": 1.0, "acquire_1mib": 1.0, "acquire_64mib": 1.0, "acquire_1gib": 1.0}
SPINNING |= {"channel_4kib": 0.5, "channel_1gib": 0.5, "relay_hop_4kib": 0.5, "relay_hop_1gib": 0.5}
# Rows with a limit as their floor.
LIMITS = {"share_bytes": 1024.0, "catalogue_bytes": 200.0, "ctl_ls_row": 5.0}
# The row that a peer's row is compared with.
BESIDE = {
    "iceoryx_4kib": "channel_4kib",
    "iceoryx_1mib": "channel_1mib",
    "plasma_put_64mib": "put_64mib_python",
    "plasma_get_1mib": "view_numpy",
}
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")


@contextlib.contextmanager
def running(command: list[str], cpu: int | None, ready_fd: bool = False, knows: bool = True) -> Iterator[int]:
    """A process on one CPU, or on all for None, from its ready line until the block ends; yields its id. Not `knows`: the
    process starts with all CPUs and is moved afterwards, so that it sees a machine with several CPUs.
    """
    out = subprocess.PIPE
    pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
    if ready_fd:
        read, write = os.pipe()
        process = subprocess.Popen(
            [*(pinned if knows else []), *command, "--ready-fd", str(write)], pass_fds=[write], stderr=subprocess.DEVNULL
        )
        os.close(write)
        with os.fdopen(read) as lines:
            if lines.readline() != "ready\n":
                raise SystemExit(f"{command[0]} did not start")
    else:
        process = subprocess.Popen([*pinned, *command], stdout=out)
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise SystemExit(f"{command[0]} did not start")
    for task in Path(f"/proc/{process.pid}/task").iterdir() if cpu is not None else ():
        os.sched_setaffinity(int(task.name), {cpu})
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def measured(command: list[str], cpu: int | None = 0) -> list[dict[str, Any]]:
    """The JSON lines of a benchmark program, on one CPU, or on all for None."""
    pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*pinned, *command], stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"benchmark failed ({done.returncode}): {' '.join(command)}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def listed(build: Path, home: str) -> dict[str, Any]:
    """Client CPU of `arraybridgectl -o jsonl ls` per row."""
    command = [str(build / "client/ctl/arraybridgectl"), "-H", home, "--timeout", "120s", "-o", "jsonl", "ls"]
    process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as lines:
        count = sum(1 for _ in lines)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or count == 0:
        raise SystemExit(f"arraybridgectl ls gave {count} rows and ended with {process.returncode}")
    return {"id": "ctl_ls_row", "value": (usage.ru_utime + usage.ru_stime) * 1e6 / count}


QUICK_ROUNDS = 3


def collect(build: Path, placement: str, rounds: int, shares: int) -> dict[str, dict[str, float]]:
    """All figures of one placement, by id."""
    other = {"one": 0, "two": 1}[placement]
    found: dict[str, dict[str, float]] = {}

    def note(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            found[row.pop("id")] = row

    with tempfile.TemporaryDirectory(prefix="arraybridge-bench-") as scratch:
        home, echo, grpc_echo = f"{scratch}/broker", f"{scratch}/echo", f"{scratch}/grpc"
        os.mkdir(home, 0o700)
        daemon = [str(build / "daemon/arraybridged"), "--directory", home, "--log-level", "error"]
        daemon += ["--limit", "shares_per_namespace=200000", "--limit", "object_bytes_per_uid=1GiB"]
        bench = build / "tests/bench"
        with (
            running([str(bench / "floor_echo"), "--socket", echo], other),
            running([str(bench / "bench_grpc"), "--serving", "1", "--socket", grpc_echo], other),
            running(daemon, other, ready_fd=True, knows=placement == "one") as daemon_id,
        ):
            common = ["--address", home, "--rounds", str(rounds)]
            note(measured([str(bench / "floor_spin"), "--cpu", str(other), "--rounds", str(rounds)]))
            note(measured([str(bench / "bench_lifeline"), "--echo", echo, *common]))
            note(measured([str(bench / "bench_unwaited"), *common]))
            largest = ["--largest-mib", "1024" if rounds > QUICK_ROUNDS else "64"]
            peer = ["--peer-cpu", str(other)]
            note(measured([str(bench / "bench_channel"), "--echo", echo, *largest, *peer, *common]))
            note(measured([str(bench / "bench_grpc"), "--echo", grpc_echo, *common]))
            for program in ("bench_hazards", "bench_withdraw"):
                note(measured([str(bench / program), "--rounds", str(rounds)]))
            script = [sys.executable, str(HERE / "bench_python.py")]
            for work in ("put", "unwaited", "channel"):
                note(measured([*script, work, *common]))
            note(measured([sys.executable, str(HERE / "bench_born.py"), *common]))
            for framework in FRAMEWORKS:
                note(measured([*script, framework, *common]))
            largest = ["--largest-mib", "64" if rounds > QUICK_ROUNDS else "1"]
            note(measured([*script, "peers", *largest, "--rounds", str(rounds), "--cpu", str(other)]))
            note(
                measured(
                    [str(bench / "bench_shares"), "--address", home, "--echo", echo] + ["--daemon", str(daemon_id), "--shares", str(shares)]
                )
            )
            note([listed(build, home)])
        for peer in (lambda: peers.iceoryx(bench, other, rounds), lambda: peers.plasma(scratch, other, rounds)):
            try:
                for name, value in peer().items():
                    row = name.removeprefix("peer_")
                    found[row] = {"value": value, "floor": found[BESIDE[row]]["value"]}
            except peers.Absent as why:
                print(f"left out: {why}", file=sys.stderr)
    found["floor_spin"]["floor"] = found["acquire_4kib"]["floor"]
    for call in ("send", "receive"):
        found[f"python_{call}"]["floor"] = found[f"calls_{call}"]["value"]
    for framework in FRAMEWORKS:
        row = found[f"get_{framework}"]
        row["floor"] = found["acquire_1mib"]["value"] + 10 + row["framework_import"]
    return found


def peer_of(row: str, found: dict[str, dict[str, float]]) -> tuple[str | None, float | None]:
    names = {
        "put_64mib": "peer_torch_file_descriptor_new_64mib",
        "put_64mib_python": "peer_torch_file_descriptor_new_64mib",
        **{f"get_{framework}": "peer_torch_file_descriptor_resend_1mib" for framework in FRAMEWORKS},
        **{f"view_{kind}": "peer_torch_file_descriptor_resend_1mib" for kind in ("numpy", "torch", "torch_private")},
    }
    if names.get(row) not in found:
        return None, None
    return names[row].removeprefix("peer_"), found[names[row]]["value"]


def row_of(row: str, found: dict[str, dict[str, float]], beside: dict[str, dict[str, float]] | None) -> dict[str, Any]:
    work, unit, reach = ROWS[row]
    key = {"share_bytes_1e3": "share_bytes_1000", "share_bytes_1e4": "share_bytes_10000", "share_bytes_1e5": "share_bytes_100000"}.get(
        row, row
    )
    if key not in found:
        return {
            "id": row,
            "work": work,
            "value": None,
            "unit": unit,
            "floor": None,
            "ratio": None,
            "reach": reach,
            "peer": None,
            "peer_value": None,
            "note": "not there" if row in BESIDE else "not run with --quick",
        }
    own = found[key]
    floor = next((limit for rows, limit in LIMITS.items() if row.startswith(rows)), 0.0) or own["floor"]
    peer, peer_value = peer_of(row, found)
    result: dict[str, Any] = {
        "id": row,
        "work": work,
        "value": round(own["value"], 2),
        "unit": unit,
        "floor": round(floor, 2),
        "ratio": round(own["value"] / floor, 3),
        "reach": reach,
        "peer": peer,
        "peer_value": None if peer_value is None else round(peer_value, 1),
    }
    if "acquire" in own:
        result["acquire_ratio"] = round(own["acquire"] / own["floor"], 3)
    for extra in ("touched", "framework_import", "sustained", "fenced", "huge_floor", "huge_value", "huge_fenced"):
        if extra in own:
            result[extra] = round(own[extra], 2)
    if beside is not None and key in beside and not row.startswith(tuple(LIMITS)):
        other = beside[key]
        result["two_cpus"] = {
            "value": round(other["value"], 2),
            "floor": round(other["floor"], 2),
            "ratio": round(other["value"] / other["floor"], 3),
        }
        if row in SPINNING:
            result["two_cpus"]["spin_ratio"] = round(other["value"] / SPINNING[row] / beside["floor_spin"]["value"], 3)
        if peer is not None:
            result["two_cpus"]["peer_value"] = round(beside["peer_" + peer]["value"], 1)
    return result


# id of bench_clients without the number: (work, reach)
MANY = {
    "put_clients": (
        "waited puts of 4 KiB by so many processes on all CPUs, per put; floor: a server that echoes, epoll",
        "<= 1.11 x floor, p99 <= 2 x",
    ),
    "acquire_clients": ("the same, acquires by a call", "<= 1.11 x floor, p99 <= 2 x"),
    "channel_pairs": ("so many pairs of processes, a channel each: hand-offs of the fastest pair beside the slowest", "<= 2"),
}


def many_clients(build: Path, rounds: int) -> list[dict[str, Any]]:
    """The daemon, its floor and all clients run on all CPUs."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="arraybridge-bench-") as home:
        daemon = [str(build / "daemon/arraybridged"), "--directory", home, "--log-level", "error"]
        with running(daemon, None, ready_fd=True):
            found = measured([str(build / "tests/bench/bench_clients"), "--address", home, "--rounds", str(rounds)], None)
    for own in found:
        work, reach = MANY[own["id"].rpartition("_")[0]]
        row = {"id": own["id"], "work": work, "value": round(own["value"], 2), "unit": "x" if "pairs" in own["id"] else "us"}
        row |= {
            "floor": round(own["floor"], 2),
            "ratio": round(own["value"] / own["floor"], 3),
            "reach": reach,
            "peer": None,
            "peer_value": None,
        }
        rows.append(row | {name: round(number, 2) for name, number in own.items() if name not in row})
    return rows


KEYS = ("id", "work", "value", "unit", "floor", "ratio", "reach", "peer", "peer_value")


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    """Writes the rows, and further measurements into a file beside them."""
    file.write_text(json.dumps([{key: row[key] for key in KEYS} for row in rows], indent=2) + "\n")
    more = {row["id"]: {key: value for key, value in row.items() if key not in KEYS} for row in rows}
    file.with_suffix(".more.json").write_text(json.dumps({id: beside for id, beside in more.items() if beside}, indent=2) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| id | value | floor | ratio | two CPUs: ratio | two CPUs: beside spinning | peer | peer / value | reach |", "|---" * 9 + "|"]
    for row in rows:
        if row["value"] is None:
            lines.append(f"| `{row['id']}` | {row['note']} |  |  |  |  |  |  | {row['reach']} |")
            continue
        two, spin = (row.get("two_cpus", {}).get(key, "") for key in ("ratio", "spin_ratio"))
        times = "" if row["peer_value"] is None else f"{row['peer_value'] / row['value']:.1f}"
        peer = "" if row["peer"] is None else f"{row['peer']} {row['peer_value']}"
        lines.append(
            f"| `{row['id']}` | {row['value']} {row['unit']} | {row['floor']} | {row['ratio']} | {two} | {spin} | {peer} | {times} | {row['reach']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one placement, few rounds, 10^4 shares")
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help=argparse.SUPPRESS)
    wish = parser.parse_args()
    rounds, shares = (QUICK_ROUNDS, 10_000) if wish.quick else (15, 100_000)
    one = collect(wish.build, "one", rounds, shares)
    two = None if wish.quick or (os.cpu_count() or 1) < 2 else collect(wish.build, "two", rounds, 1000)
    rows = [row_of(row, one, two) for row in ROWS]
    attacked = neighbours.rows(wish.build, not wish.quick)
    rows += attacked
    rows += restart.rows(wish.build, not wish.quick)
    rows += many_clients(wish.build, 2 if wish.quick else 15)
    rows += passing.rows(wish.build, not wish.quick)
    rows += models.rows(wish.build, not wish.quick)
    rows += table_rows.rows(wish.build, not wish.quick)
    rows += keep_rows.rows(wish.build, not wish.quick)
    rows += tier_rows.rows(wish.build, not wish.quick)
    rows += swaps.rows(wish.build, not wish.quick)
    rows += recorded.rows(wish.build, not wish.quick)
    rows += service_rows.rows(wish.build, not wish.quick)
    rows += select_rows.rows(wish.build, not wish.quick)
    print(f"{datetime.date.today()} · {os.cpu_count()} CPUs · Linux {platform.release()} · Python {platform.python_version()}")
    print(
        "medians; value and floor of the same run, both sides pinned to one CPU unless the column says two; neighbours, restarts, many clients and processes: all CPUs\n"
    )
    print(table(rows))
    print("\nPeers, one hop, microseconds (one CPU" + ("):" if two is None else " / two CPUs):"))
    for name, own in one.items():
        if name.startswith("peer_"):
            beside = "" if two is None else f" / {two[name]['value']:.1f}"
            print(f"  {name.removeprefix('peer_'):42s} {own['value']:.1f}{beside}")
    print("\nA neighbour (the daemon and both users on all CPUs):\n")
    print(neighbours.summary(attacked))
    daemon = wish.build / "daemon/arraybridged"
    others = [peer_table.collect("0", 1 if wish.quick else rounds, daemon, not wish.quick)]
    if two is not None:
        others.append(peer_table.collect("0,1", rounds, daemon, True))
    peers_beside = peer_table.rows(others[0], others[1] if len(others) > 1 else None)
    channels = peer_table.channels(others[0], others[1] if len(others) > 1 else None)
    print("\nPeers from PyPI, Python on both sides (one CPU" + ("):" if two is None else " / two CPUs):"))
    print(peer_table.table(peers_beside))
    print("\nOur channels from Python beside the peer of each row:\n")
    print(table(channels))
    if wish.json:
        write(Path(wish.json), rows + channels + peers_beside)


if __name__ == "__main__":
    main()
