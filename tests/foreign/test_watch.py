# SPDX-License-Identifier: Apache-2.0
"""Watch and inspect at the public door, and the commands that show them."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from foreign_client import CTL, PATIENCE_S, Daemon, Session, eventually, refused

NOT_FOUND, TIMEOUT = 5, 7


def command(daemon: Daemon, timeout: str = f"{PATIENCE_S:.0f}s") -> list[str]:
    return [str(CTL), "-H", str(daemon.directory), "--timeout", timeout]


def ctl(daemon: Daemon, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command(daemon), *map(str, arguments)], capture_output=True, text=True)


def watched(session: Session, **fields: Any) -> Any:
    """An open watch: a stream of events."""
    stream = session.stub.Watch(session.messages.WatchRequest(**fields), metadata=session.metadata, timeout=PATIENCE_S)
    assert not next(stream).events  # the watch is open
    return stream


def events(stream: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += next(stream).events
    return found


def test_events_are_streamed(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    stream = watched(session)
    other = open_session(daemon, client="other")
    other.publish("frame", bytes(512), note="foreign place")
    other.read("frame")
    kinds = session.messages.EventKind
    told = events(stream, 5)
    assert [kinds.Name(event.kind)[len("EVENT_KIND_") :] for event in told] == [
        "SESSION_BEGIN", "ALLOCATE", "PUBLISH", "ACQUIRE", "RELEASE",
    ]  # fmt: skip
    assert (told[0].note, told[0].uid) == ("other", os.getuid())
    assert (told[2].name, told[2].note, told[2].bytes) == ("frame", "foreign place", 512)
    assert len({event.session for event in told}) == 1
    with refused(grpc.StatusCode.NOT_FOUND):
        other.call("Withdraw", namespace="default", shares=[{"name": "never"}])
    (refusal,) = events(stream, 1)
    assert (refusal.verb, refusal.reason, refusal.code) == ("Withdraw", "SHARE_NOT_FOUND", NOT_FOUND)
    assert session.call("GetStats").watchers == 1
    stream.cancel()
    eventually("the watch is closed", lambda: session.call("GetStats").watchers == 0)


def test_the_broker_applies_the_filter(session: Session) -> None:
    stream = watched(session, kinds=["EVENT_KIND_PUBLISH"], name_prefix="b")
    session.publish("a", bytes(1))
    session.publish("b", bytes(1))
    assert [event.name for event in events(stream, 1)] == ["b"]
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "event kind 77 is unknown"):
        list(session.stub.Watch(session.messages.WatchRequest(kinds=[77]), metadata=session.metadata, timeout=PATIENCE_S))


def test_a_watch_needs_a_session_and_ends_with_it(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    with refused(grpc.StatusCode.UNAUTHENTICATED, "names no session"):
        list(session.stub.Watch(session.messages.WatchRequest()))
    other = open_session(daemon)
    stream = watched(other)
    other.stream.cancel()
    with refused(grpc.StatusCode.CANCELLED):
        list(stream)
    eventually("the watch is closed", lambda: session.call("GetStats").watchers == 0)


def test_a_watch_that_reads_too_slowly_is_ended(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    """The client's buffers fill first, then the broker's queue. Probes of the bandwidth would let the buffers grow."""
    daemon = start(events_per_watcher="10")
    session = open_session(daemon)
    channel = grpc.insecure_channel(
        f"unix:{daemon.directory / 'broker.sock'}",
        options=[
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", 1024),
            ("grpc.max_receive_message_length", -1),
        ],  # fmt: skip
    )
    stub = type(session.stub)(channel)
    stream = stub.Watch(session.messages.WatchRequest(), metadata=session.metadata, timeout=PATIENCE_S)
    assert not next(stream).events
    # The client reads nothing from now on.
    eventually(
        "something is lost",
        lambda: [session.begin("Export", arena=99).exception() for _ in range(20)] and session.call("GetStats").events_dropped_total,
    )
    told = 0
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "read too slowly and lost") as seen:
        for answer in stream:
            told += len(answer.events)
    assert told >= 10 and seen["text"].endswith("(limits.events_per_watcher 10)")
    channel.close()


def test_a_drain_ends_it(daemon: Daemon, session: Session) -> None:
    stream = watched(session)
    ended: list[Any] = []

    def read() -> None:
        try:
            list(stream)
        except grpc.RpcError as error:
            ended.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert daemon.terminate() == 0
    reader.join()
    assert ended[0].code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_inspect_shows_one_share(session: Session) -> None:
    session.publish("frame", bytes(512), note="foreign place")
    session.call("Acquire", namespace="default", shares=[{"name": "frame"}], note="foreign hand_over")
    found = session.call("Inspect", namespace="default", share={"name": "frame"})
    assert (found.share.share.name, found.maker.note, found.maker.client) == ("frame", "foreign place", "foreign")
    assert [(visit.note, visit.count) for visit in found.readers] == [("foreign hand_over", 1)]
    assert [offer.why_not for offer in found.offers] == [""]
    with refused(grpc.StatusCode.NOT_FOUND, "has no share named 'never'"):
        session.call("Inspect", namespace="default", share={"name": "never"})
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "maximum 64"):
        session.call("Acquire", namespace="default", shares=[{"name": "frame"}], note="x" * 65)


def test_ctl_watch_prints_a_line_for_each_event(daemon: Daemon, session: Session) -> None:
    lines = subprocess.Popen(
        [*command(daemon), "-o", "jsonl", "watch", "--kind", "publish", "--kind", "refusal", "--count", "2"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    eventually("it watches", lambda: session.call("GetStats").watchers == 1)
    session.publish("frame", bytes(512))
    session.begin("Export", arena=99).exception()
    out, _ = lines.communicate()
    first, second = map(json.loads, out.splitlines())
    assert lines.returncode == 0
    assert (first["kind"], first["name"], first["bytes"]) == ("EVENT_KIND_PUBLISH", "frame", "512")
    assert (second["kind"], second["verb"], second["reason"]) == ("EVENT_KIND_REFUSAL", "Export", "ARENA_NOT_FOUND")

    table = subprocess.Popen([*command(daemon), "watch", "--prefix", "b", "--count", "1"], stdout=subprocess.PIPE, text=True)
    eventually("it watches", lambda: session.call("GetStats").watchers == 1)
    session.publish("a", bytes(512))
    session.publish("b", bytes(512), note="how")
    out, _ = table.communicate()
    header, line = out.splitlines()
    assert header.split()[:3] == ["TIME", "KIND", "SESSION"]
    assert line.split()[1] == "publish" and " b " in line and line.endswith("how")


def test_ctl_watch_begins_with_earlier_events(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    """Existing shares, once each and in order; then new events."""

    def names(*words: str) -> list[tuple[str, str]]:
        told = ctl(daemon, "-o", "jsonl", "watch", *words).stdout.splitlines()
        return [(event["kind"].removeprefix("EVENT_KIND_"), event["name"] or event["note"]) for event in map(json.loads, told)]

    session.publish("a", bytes(100))
    session.publish("b", bytes(200), namespace="other")
    session.publish("gone", bytes(1))
    session.call("Withdraw", namespace="default", shares=[{"name": "gone"}])
    assert sorted(names("--since", "1h", "--count", "3")) == [("PUBLISH", "a"), ("PUBLISH", "b"), ("SESSION_BEGIN", "foreign")]
    assert names("--since", "1h", "--count", "3")[0] == ("SESSION_BEGIN", "foreign")
    assert names("--since", "1h", "--prefix", "b", "--count", "1") == [("PUBLISH", "b")]
    assert names("-n", "other", "--since", "1h", "--kind", "publish", "--count", "1") == [("PUBLISH", "b")]
    assert ctl(daemon, "watch", "--since", "0s").returncode == 2

    eventually("a is a while ago", lambda: int(session.call("List").shares[0].age_ms) > 20)
    words = [*command(daemon), "-o", "jsonl", "watch"]
    watch = subprocess.Popen([*words, "--since", "1h", "--kind", "publish", "--count", "3"], stdout=subprocess.PIPE, text=True, bufsize=1)
    assert watch.stdout is not None
    past = [json.loads(watch.stdout.readline()) for _ in range(2)]
    (known,) = session.call("List", name_prefix="a").shares
    assert (past[0]["share"], past[0]["bytes"]) == (str(known.share.id), "100")
    told = int(past[0]["time_ns"]) / 1e9
    assert abs(time.time() - known.age_ms / 1e3 - told) < 60  # the clocks are read at different times
    session.publish("now", bytes(1))
    out, _ = watch.communicate()
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["now"]

    young = subprocess.Popen([*words, "--since", "10ms", "--kind", "session_begin", "--count", "1"], stdout=subprocess.PIPE, text=True)
    eventually("it watches", lambda: session.call("GetStats").watchers == 1)
    open_session(daemon, client="young")
    out, _ = young.communicate()
    assert json.loads(out)["note"] == "young"


def test_ctl_watch_outlives_its_timeout_and_ends_with_the_broker(
    start: Callable[..., Daemon], open_session: Callable[..., Session]
) -> None:
    daemon = start()
    session = open_session(daemon)
    for _ in range(5):  # on a stalled machine its timeout may be over before it watches
        watch = subprocess.Popen(
            [*command(daemon, "300ms"), "watch", "--kind", "publish"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        eventually("it watches", lambda watch=watch: session.call("GetStats").watchers == 1 or watch.poll() is not None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            watch.wait(1)
        if watch.returncode != TIMEOUT:
            break
        eventually("it watches no longer", lambda: session.call("GetStats").watchers == 0)
    assert watch.returncode is None, "it goes on"
    session.publish("late", bytes(1))
    assert watch.stdout is not None
    watch.stdout.readline()
    assert " late " in watch.stdout.readline()
    assert daemon.terminate() == 0
    _, error = watch.communicate()
    assert watch.returncode == 3 and error.startswith("arraybridgectl: ")
    assert ctl(daemon, "watch").returncode == 3


def test_ctl_shows_one_share(daemon: Daemon, session: Session) -> None:
    session.publish("frame", bytes(512), note="foreign place: not in broker memory")
    session.call("Acquire", namespace="default", shares=[{"name": "frame"}], note="foreign hand_over")
    shown = ctl(daemon, "show", "frame")
    assert shown.returncode == 0, shown.stderr
    facts = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
    assert (facts["name"], facts["kind"], facts["size"], facts["leases"]) == ("frame", "memfd", "512 B", "1")
    assert facts["maker"].startswith("foreign, process ")
    assert re.fullmatch(r"by +session \d+, process \d+, 1 lease", facts["held"])

    made, read = csv.DictReader(ctl(daemon, "-o", "csv", "trace", "frame").stdout.splitlines())
    assert (made["DID"], made["ROUTE"], made["TIMES"]) == ("made", "foreign place: not in broker memory", "")
    assert (read["DID"], read["ROUTE"], read["TIMES"], read["CLIENT"]) == ("read", "foreign hand_over", "1", "foreign")
    assert int(made["LAST"]) <= int(read["LAST"])

    explained = list(csv.DictReader(ctl(daemon, "-o", "csv", "explain", "frame").stdout.splitlines()))
    assert (explained[0]["TO"], explained[0]["KIND"], explained[0]["OFFERED"]) == ("cpu", "memfd", "yes")
    assert {row["CLIENT"] for row in explained if row["TO"].startswith("session ")} == {"foreign", "arraybridgectl"}
    found = json.loads(ctl(daemon, "-o", "json", "trace", "frame").stdout)
    assert found["readers"][0]["note"] == "foreign hand_over"

    gone = ctl(daemon, "trace", "never")
    assert gone.returncode == NOT_FOUND and "namespace 'default' has no share named 'never'" in gone.stderr
    assert ctl(daemon, "trace", "frame", "--generation", "99").returncode == NOT_FOUND
    assert ctl(daemon, "-n", "other", "trace", "frame").returncode == NOT_FOUND
    assert ctl(daemon, "trace").returncode == 2

    assert ctl(daemon, "withdraw", "frame").stdout == "withdrawn\n"
    assert ctl(daemon, "withdraw", "frame").returncode == NOT_FOUND
    assert ctl(daemon, "watch", "--kind", "bogus").returncode == 2


def test_ctl_explains_why_a_session_is_refused(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    session.publish("frame", bytes(1))
    open_session(daemon, client="deaf", capabilities={"kinds": ["HANDLE_KIND_CUDA_VMM"]})
    rows = csv.DictReader(ctl(daemon, "-o", "csv", "explain", "frame").stdout.splitlines())
    (deaf,) = (row for row in rows if row["CLIENT"] == "deaf")
    assert (deaf["OFFERED"], deaf["WHY"]) == ("no", "it is shared as memfd; this session opens cuda_vmm")
