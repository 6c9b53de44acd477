# SPDX-License-Identifier: Apache-2.0
"""The rows of tables, each beside the same work without arraybridge: one table of 50 columns, a tenth of them text, with nulls.

table_put: Broker.put of a table of pyarrow; floor: memcpy of its buffers into warm memory. table_get: Broker.get as pyarrow in
a process that has read another one; peers: five ways to pass the table to four readers, of which the sum of the writing and
all readings counts: pickle 5 over a pipe, an Arrow IPC file in /dev/shm that is mapped, the buffers as arrays that joblib
dumps there and maps, and, where they are installed, Flight on loopback and put and get of Ray.

    tests/bench/table_rows.py [full] prints the rows as JSON, with the figures of the peers
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

READERS = 4
COLUMNS = 50
WORK = {
    "table_put": ("put of a table of 50 columns with text and nulls; floor: memcpy of its buffers", "ms", "<= 1.15 x"),
    "table_get": ("get of it as pyarrow in another process", "us", "<= 200 us"),
    "table_get_pandas": ("get of it as pandas, with Arrow's dtypes, in another process", "us", "<= 1 ms"),
    "table_four_readers": ("put, and gets by four readers; floor: the best of the peers", "ms", "<= 0.33 x"),
}
READER = """
import sys, time
import arraybridge, pyarrow, pyarrow.ipc, pandas
how, where = sys.argv[1:3]
if how == "joblib":
    import joblib
broker = arraybridge.Broker(where, start="never") if how.startswith("broker") else None
if broker is not None:
    broker.get("small", how.partition(" ")[2])
print("ready", flush=True)
while sys.stdin.buffer.readline():
    begun = time.perf_counter()
    if broker is not None:
        table = broker.get("table", how.partition(" ")[2])
    elif how == "file":
        table = pyarrow.ipc.open_file(pyarrow.memory_map(where)).read_all()
    elif how == "joblib":
        table = joblib.load(where, mmap_mode="r")
    elif how == "pickle":
        import pickle
        head = int.from_bytes(sys.stdin.buffer.read(8), "little")
        sizes = pickle.loads(sys.stdin.buffer.read(head))
        table = pickle.loads(sys.stdin.buffer.read(sizes[0]), buffers=[sys.stdin.buffer.read(size) for size in sizes[1:]])
    else:
        import pyarrow.flight
        client = pyarrow.flight.connect(where)
        table = client.do_get(pyarrow.flight.Ticket(b"table")).read_all()
    took = time.perf_counter() - begun
    assert len(table) > 0
    print(took * 1e3, flush=True)
"""


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


def table_of(mebibytes: int) -> Any:
    import numpy as np
    import pyarrow as pa

    count = mebibytes * (1 << 20) // (COLUMNS * 8)
    numbers = np.arange(count)
    texts = pa.array([f"{each % 997:05}" for each in range(min(count, 10_000))])
    text = pa.concat_arrays([texts] * max(1, count // len(texts))).slice(0, count)
    columns = {}
    for index in range(COLUMNS):
        if index % 10 == 9:
            columns[f"text {index}"] = pa.chunked_array([text])
        else:
            nulls = numbers % 10 == 3 if index % 3 == 0 else None
            columns[f"number {index}"] = pa.chunked_array([pa.array(numbers.astype("f8" if index % 2 else "i8"), mask=nulls)])
    shortest = min(map(len, columns.values()))
    return pa.table({name: column.slice(0, shortest) for name, column in columns.items()})


def milliseconds(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return (time.perf_counter() - begun) * 1e3


def put_ms(broker: Any, table: Any, turns: int) -> tuple[float, float]:
    """The medians of a put and of a memcpy of the buffers, in turns."""
    import numpy as np

    buffers = [np.frombuffer(each, np.uint8) for column in table.columns for each in column.chunk(0).buffers() if each is not None]
    rooms = [np.zeros_like(each) for each in buffers]
    puts, copies = [], []
    broker.put(table, "table")
    for _ in range(turns):
        broker.withdraw("table")
        copies.append(milliseconds(lambda: [np.copyto(room, each) for room, each in zip(rooms, buffers, strict=True)]))
        puts.append(milliseconds(lambda: broker.put(table, "table")))
    return statistics.median(puts), statistics.median(copies)


def started(how: str, where: str) -> subprocess.Popen[bytes]:
    reader = subprocess.Popen([sys.executable, "-c", READER, how, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout is not None and reader.stdout.readline() == b"ready\n"
    return reader


def asked(reader: subprocess.Popen[bytes], more: bytes = b"") -> float:
    assert reader.stdin is not None and reader.stdout is not None
    reader.stdin.write(b"\n" + more)
    reader.stdin.flush()
    return float(reader.stdout.readline())


def read_ms(how: str, where: str, turns: int = 1, before: Callable[[], object] = lambda: None) -> list[float]:
    """Milliseconds of the reading by READERS processes, one after another, each so many times."""
    found = []
    for _ in range(READERS):
        reader = started(how, where)
        for _ in range(turns):
            before()
            found.append(asked(reader))
        reader.communicate()
    return found


def of_a_file(table: Any, folder: str) -> float:
    """Milliseconds of an Arrow IPC file in shared memory, and its four readings."""
    import pyarrow as pa

    path = f"{folder}/table.arrow"

    def write() -> None:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    return milliseconds(write) + sum(read_ms("file", path))


def of_pickle(table: Any) -> float:
    """Milliseconds of pickle 5 with buffers beside it, through a pipe to each of four readers."""
    import pickle

    readers = [started("pickle", "") for _ in range(READERS)]

    def send() -> None:
        for reader in readers:
            buffers: list[pickle.PickleBuffer] = []
            body = pickle.dumps(table, 5, buffer_callback=buffers.append)
            raw = [each.raw() for each in buffers]
            sizes = pickle.dumps([len(body), *map(len, raw)])
            assert reader.stdin is not None and reader.stdout is not None
            reader.stdin.write(b"\n" + len(sizes).to_bytes(8, "little") + sizes + body)
            for each in raw:
                reader.stdin.write(each)
            reader.stdin.flush()
            assert float(reader.stdout.readline()) > 0

    took = milliseconds(send)
    for reader in readers:
        reader.communicate()
    return took


def of_flight(table: Any) -> float:
    """Milliseconds of four readers that get the table from a server of Flight on loopback."""
    import pyarrow.flight

    class Server(pyarrow.flight.FlightServerBase):
        def do_get(self, context: Any, ticket: Any) -> Any:
            return pyarrow.flight.RecordBatchStream(table)

    with Server("grpc://127.0.0.1:0") as server:
        return sum(read_ms("flight", f"grpc://127.0.0.1:{server.port}"))


def of_joblib(table: Any, folder: str) -> float:
    """Milliseconds of the buffers as arrays of NumPy that joblib dumps into shared memory, and of four readers that map them."""
    import joblib
    import numpy as np

    path = f"{folder}/table.joblib"
    buffers = {
        name: [None if each is None else np.frombuffer(each, np.uint8) for chunk in column.chunks for each in chunk.buffers()]
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return milliseconds(lambda: joblib.dump(buffers, path)) + sum(read_ms("joblib", path))


def of_ray(table: Any) -> float:
    """Milliseconds of a put into Ray's object store, and of four workers that get it."""
    import ray

    @ray.remote(num_cpus=0)
    class Reader:
        def ready(self) -> None:
            pass

        def read(self, found: list[Any]) -> float:
            begun = time.perf_counter()
            got = ray.get(found[0])
            took = time.perf_counter() - begun
            assert len(got) > 0
            return took * 1e3

    ray.init(num_cpus=1, object_store_memory=3 * table.nbytes + (256 << 20), include_dashboard=False, log_to_driver=False)
    try:
        readers = [Reader.remote() for _ in range(READERS)]
        ray.get([reader.ready.remote() for reader in readers])
        found: list[Any] = []
        took = milliseconds(lambda: found.append(ray.put(table)))
        return took + sum(float(ray.get(reader.read.remote(found))) for reader in readers)
    finally:
        ray.shutdown()


def row(name: str, work: tuple[str, str, str | None], value: float, floor: float | None, *peer: Any) -> dict[str, Any]:
    """A row of the benchmark. peer: its name and its value."""
    what, unit, reach = work
    named, peer_value = peer or (None, None)
    ratio = None if floor is None else round(value / floor, 3)
    return {
        "id": name, "work": what, "value": round(value, 2), "unit": unit, "floor": None if floor is None else round(floor, 2),
        "ratio": ratio, "reach": reach, "peer": named, "peer_value": None if peer_value is None else round(peer_value, 2),
    }  # fmt: skip


def measure(full: bool) -> list[dict[str, Any]]:
    import arraybridge

    table = table_of(1024 if full else 64)
    small = table.slice(0, 10)
    with arraybridge.Broker(start="private", timeout_s=60) as broker, tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        broker.put(small, "small")
        put, copy = put_ms(broker, table, 9 if full else 3)
        address = str(broker.address)
        once = read_ms("broker pyarrow", address)
        gets = read_ms("broker pyarrow", address, 9)
        frames = read_ms("broker pandas", address, 9)
        peers = {
            "Arrow IPC file, mapped": of_a_file(table, folder), "pickle 5 over a pipe": of_pickle(table),
            "joblib, mapped": of_joblib(table, folder),
        }  # fmt: skip
        for name, peer in {"Flight on loopback": of_flight, "Ray put and get": of_ray}.items():
            try:
                peers[name] = peer(table)
            except ImportError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
        best = min(peers, key=lambda name: peers[name])
        whole = row("table_four_readers", WORK["table_four_readers"], put + sum(once), peers[best], best, peers[best])
        return [
            row("table_put", WORK["table_put"], put, copy),
            row("table_get", WORK["table_get"], statistics.median(gets) * 1e3, None),
            row("table_get_pandas", WORK["table_get_pandas"], statistics.median(frames) * 1e3, None),
            whole | {name: round(value, 2) for name, value in peers.items()},
        ]


if __name__ == "__main__":
    print(json.dumps(measure("full" in sys.argv[1:]), indent=2))
