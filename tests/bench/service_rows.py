# SPDX-License-Identifier: Apache-2.0
"""The rows of services: a call and its answer between two processes, and many callers with one
model, in Python on both sides.

Servers answer with what they got. The peers do the same: a pickled array over a Unix socket (multiprocessing.connection), a
unary call of gRPC with the bytes of an array, and the requests and responses of iceoryx2 with an event for each, so that both
sides sleep, if deploy/setup has installed it. Calls take turns with a channel there and back, which is the floor. CPU placement is
that of the caller of this program.

    tests/bench/service_rows.py [full]      prints the rows as JSON
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import numpy as np

ICEORYX = Path(__file__).resolve().parents[2] / "build/peers/pypi/bin/python"
DAEMON = Path(__file__).resolve().parents[2] / "build/dev/daemon/arraybridged"
KIB, MIB = 1 << 10, 1 << 20
PROCESSES, TASKS, BATCH, WIDTH = 8, 70, 32, 1024


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


# --- The other process: `service_rows.py serve KIND ADDRESS`


def serve_calls(address: str) -> None:
    from arraybridge import Broker

    with Broker(address).service("same") as service:
        print("ready", flush=True)
        for request in service.requests():
            request.reply(request.value)


def serve_channel(address: str) -> None:
    from arraybridge import Broker

    broker = Broker(address)
    there, back = broker.channel("there").open("receiver"), broker.channel("back").open("sender")
    print("ready", flush=True)
    for array in there.receiver():
        back.send(array)


def model() -> Callable[[Any], Any]:
    weights = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype("f4")
    return lambda images: images @ weights @ weights @ weights


def serve_batches(address: str) -> None:
    from arraybridge import Broker

    compute = model()
    with Broker(address).service("model", batch=BATCH, within=0.005, queue=256) as service:
        print("ready", flush=True)
        for batch in service.requests():
            batch.reply(compute(batch.stack()))


def serve_pickles(address: str) -> None:
    with Listener(address, "AF_UNIX") as listener:
        print("ready", flush=True)
        with listener.accept() as peer:
            while True:
                try:
                    peer.send(peer.recv())
                except EOFError:  # the caller has ended
                    return


def serve_grpc(address: str) -> None:
    import grpc

    def same(request: bytes, _: Any) -> bytes:
        return np.frombuffer(request, "u1").tobytes()

    options = [("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(1), options=options)
    handler = grpc.method_handlers_generic_handler("bench", {"Same": grpc.unary_unary_rpc_method_handler(same)})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{address}")
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


class Iceoryx:
    """Its service and events; in an environment of its own."""

    def __init__(self, scratch: str) -> None:
        import iceoryx2 as library

        library.set_log_level(library.LogLevel.Error)
        config = library.config.default()
        config.global_cfg.prefix = library.FileName.new(f"ab{Path(scratch).name[-8:]}_")
        config.global_cfg.root_path = library.Path.new(scratch)
        self.library = library
        self.node = library.NodeBuilder.new().config(config).create(library.ServiceType.Ipc)
        slices = library.Slice[ctypes.c_uint8], library.Slice[ctypes.c_uint8]
        self.service = self.node.service_builder(library.ServiceName.new("same")).request_response(*slices).open_or_create()

    def event(self, name: str) -> Any:
        return self.node.service_builder(self.library.ServiceName.new(name)).event().open_or_create()


def filled(slot: Any, source: Any) -> Any:
    np.frombuffer(slot.payload().as_memory_view(), dtype="u1")[:] = source
    return slot.assume_init()


def serve_iceoryx(address: str) -> None:
    peer = Iceoryx(address)
    server = peer.service.server_builder().initial_max_slice_len(MIB).create()
    asked, answered = peer.event("asked").listener_builder().create(), peer.event("answered").notifier_builder().create()
    print("ready", flush=True)
    while True:
        while (request := server.receive()) is None:
            asked.blocking_wait()
        view = np.frombuffer(request.payload().as_memory_view(), dtype="u1")
        filled(request.loan_slice_uninit(view.size), view).send()
        answered.notify()
        del view
        request.delete()


SERVE = {
    "calls": serve_calls,
    "channel": serve_channel,
    "batches": serve_batches,
    "pickles": serve_pickles,
    "grpc": serve_grpc,
    "iceoryx": serve_iceoryx,
}


# --- This process


@contextmanager
def server(kind: str, address: str, python: str = sys.executable) -> Iterator[None]:
    with subprocess.Popen([python, __file__, "serve", kind, address], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n", f"the server of {kind} does not start"
            yield
        finally:
            process.kill()


def microseconds(call: Callable[[], Any], count: int) -> list[float]:
    for _ in range(count // 4):
        call()
    times = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - begun) / 1000)
    return times


def in_turns(works: dict[str, Callable[[], Any]], count: int, rounds: int) -> dict[str, float]:
    """Median microseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name] += microseconds(work, count)
    return {name: statistics.median(each) for name, each in times.items()}


def row(
    name: str, work: str, reach: str, value: float, floor: float, peer: tuple[str, float] | None = None, **more: float
) -> dict[str, Any]:
    own = {"id": name, "work": work, "value": round(value, 1), "unit": "us", "floor": round(floor, 1)}
    own |= {"ratio": round(value / floor, 3), "reach": reach, "peer": peer and peer[0], "peer_value": peer and round(peer[1], 1)}
    return own | {key: round(number, 3) for key, number in more.items()}


def there_and_back(broker: Any) -> Callable[[Any], Any]:
    there, back = broker.channel("there").open("sender"), broker.channel("back").open("receiver")

    def send(array: Any) -> Any:
        there.send(array)
        return back.receive()

    return send


def in_place(broker: Any) -> Any:
    frame = broker.empty((6 * MIB,), "u1")
    frame[:: 4 * KIB] = 1
    return frame


def calls(full: bool) -> list[dict[str, Any]]:
    import grpc

    from arraybridge import Broker

    small, large = np.ones(4 * KIB, "u1"), np.ones(MIB, "u1")
    count, rounds = (200, 9) if full else (50, 3)
    with Broker(start="private") as broker, tempfile.TemporaryDirectory() as folder:
        at = str(broker.address)
        with (
            server("calls", at),
            server("channel", at),
            server("pickles", f"{folder}/pickles"),
            server("grpc", f"{folder}/grpc"),
            Client(f"{folder}/pickles", "AF_UNIX") as pipe,
            grpc.insecure_channel(f"unix:{folder}/grpc", options=[("grpc.max_receive_message_length", -1)]) as wire,
        ):
            unary, send = wire.unary_unary("/bench/Same"), there_and_back(broker)

            def pickled(array: Any) -> Any:
                pipe.send(array)
                return pipe.recv()

            found = in_turns({
                "call": lambda: broker.call("same", small),
                "channel": lambda: send(small),
                "connection": lambda: pickled(small),
                "call_1mib": lambda: broker.call("same", large),
                "grpc": lambda: np.frombuffer(unary(large.tobytes()), "u1"),
                "call_6mib": lambda: broker.call("same", in_place(broker)),
                "channel_6mib": lambda: send(in_place(broker)),
            }, count, rounds)  # fmt: skip
    peer = measured_iceoryx(count * rounds)
    beside = {
        "channel_one_way": found["channel"] / 2,
        "connection": found["connection"],
        "call_1mib": found["call_1mib"],
        "grpc_1mib": found["grpc"],
    }
    text = "a call of a service in another process, Python; floor: a channel there and back"
    return [
        row("call_4kib_python", f"{text}, 4 KiB", "<= iceoryx2", found["call"], found["channel"], peer, **beside),
        row("call_6mib_python", f"{text}, 6 MiB in place both ways", "<= 2.2 x", found["call_6mib"], found["channel_6mib"]),
    ]  # fmt: skip


def calls_in_cpp(full: bool) -> list[dict[str, Any]]:
    from arraybridge import Broker

    program = Path(os.environ.get("ARRAYBRIDGE_DAEMON", DAEMON)).parents[1] / "tests/bench/bench_service"
    with Broker(start="private") as broker:
        words = [str(program), "--address", str(broker.address), "--rounds", "45" if full else "9"]
        measured = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    text = "a call of a service in another process, C++, 4 KiB; floor: a channel there and back"
    return [row("call_4kib", text, "<= 2.2 x", measured["value"], measured["floor"])]


def measured_iceoryx(count: int) -> tuple[str, float] | None:
    if not ICEORYX.exists():
        print("left out: iceoryx2 is not installed", file=sys.stderr)
        return None
    done = subprocess.run([str(ICEORYX), __file__, "iceoryx", str(count)], stdout=subprocess.PIPE, check=True)
    return "iceoryx2", float(done.stdout)


def call_iceoryx(count: int) -> float:
    with tempfile.TemporaryDirectory() as scratch, server("iceoryx", scratch):
        peer, source = Iceoryx(scratch), np.ones(4 * KIB, "u1")
        client = peer.service.client_builder().initial_max_slice_len(MIB).create()
        asked, answered = peer.event("asked").notifier_builder().create(), peer.event("answered").listener_builder().create()

        def call() -> None:
            pending = filled(client.loan_slice_uninit(source.size), source).send()
            asked.notify()
            while (response := pending.receive()) is None:
                answered.blocking_wait()
            assert np.frombuffer(response.payload().as_memory_view(), dtype="u1")[0] == 1
            response.delete()
            pending.delete()

        return statistics.median(microseconds(call, count))


# --- Many callers: `service_rows.py ask ADDRESS SECONDS`


def ask(address: str, seconds: float) -> dict[str, Any]:
    from arraybridge import Broker

    broker, image = Broker(address), np.ones(WIDTH, "f4")
    times: list[float] = []

    async def asker(until: float) -> None:
        while time.monotonic() < until:
            begun = time.perf_counter()
            await broker.acall("model", image, timeout=60)
            times.append((time.perf_counter() - begun) * 1e6)

    async def main() -> None:
        await asyncio.gather(*(broker.acall("model", image, timeout=60) for _ in range(TASKS)))
        begun.append(time.monotonic())
        await asyncio.gather(*(asker(begun[0] + seconds) for _ in range(TASKS)))

    begun: list[float] = []
    asyncio.run(main())
    return {"times": times, "rate": len(times) / (time.monotonic() - begun[0])}


def many(full: bool) -> list[dict[str, Any]]:
    from arraybridge import Broker

    seconds = 10.0 if full else 2.0
    images, compute = [np.ones(WIDTH, "f4")] * BATCH, model()
    alone = BATCH / statistics.median(microseconds(lambda: compute(np.stack(images)), 200)) * 1e6
    with Broker(start="private") as broker, server("batches", str(broker.address)):
        words = [sys.executable, __file__, "ask", str(broker.address), str(seconds)]
        asking = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
        told = [json.loads(each.communicate()[0]) for each in asking]
    times = sorted(sum((each["times"] for each in told), []))
    p50, p95 = times[len(times) // 2], times[len(times) * 95 // 100]
    rate = sum(each["rate"] for each in told)
    work = f"p95 of {PROCESSES * TASKS} callers in {PROCESSES} processes, batches of {BATCH}; floor: p50"
    reach = "<= 3 x; rate >= 0.8 x the model's own"
    return [row("service_560", work, reach, p95, p50, rate=rate, rate_of_the_model=alone, rate_share=rate / alone)]


def main(words: list[str]) -> None:
    if words[:1] == ["serve"]:
        SERVE[words[1]](words[2])
    elif words[:1] == ["iceoryx"]:
        print(call_iceoryx(int(words[1])))
    elif words[:1] == ["ask"]:
        print(json.dumps(ask(words[1], float(words[2]))))
    else:
        full = "full" in words
        print(json.dumps([*calls(full), *calls_in_cpp(full), *many(full)], indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
