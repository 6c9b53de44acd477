# SPDX-License-Identifier: Apache-2.0
"""The daemon's HTTP pages, parsed as Prometheus does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from foreign_client import BUILD, CTL, PATIENCE_S, ROOT, Daemon, Lifeline, Refused, Session, eventually, refused


def url(daemon: Daemon) -> str:
    found = re.search(r"http port (\d+)", daemon.log.read_text())
    assert found is not None
    return f"http://127.0.0.1:{found[1]}"


def read(daemon: Daemon, path: str) -> str:
    with urllib.request.urlopen(url(daemon) + path) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)}


@pytest.fixture
def daemon(start: Callable[..., Daemon]) -> Daemon:
    return start("--http", "127.0.0.1:0", "--log-format", "json")


def test_metrics_count_the_calls_of_a_session(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    session = open_session(daemon)
    for name in ("one", "two"):
        session.publish(name, bytes(1000))
    session.call("Acquire", namespace="default", shares=[{"name": "one"}])
    with refused(grpc.StatusCode.NOT_FOUND, "nowhere"):
        session.call("Acquire", namespace="default", shares=[{"name": "nowhere"}])
    found = samples(read(daemon, "/metrics"))
    assert found["arraybridge_sessions"] == 1
    assert found["arraybridge_leases"] == 1
    assert found["arraybridge_publishes_total"] == 2
    assert found['arraybridge_requests_total{door="grpc",verb="Publish",code="OK"}'] == 2
    assert found['arraybridge_requests_total{door="grpc",verb="Acquire",code="NOT_FOUND"}'] == 1
    assert found['arraybridge_request_duration_seconds_count{door="grpc",verb="Acquire"}'] == 2
    charged = [value for name, value in found.items() if name.startswith("arraybridge_namespace_charged_bytes")]
    assert sum(charged) > 0
    assert found["process_open_fds"] > 3
    assert found["process_resident_memory_bytes"] > 1 << 20


def counted(daemon: Daemon, family: str) -> dict[str, float]:
    """The samples of one family that are not 0, by labels."""
    found = samples(read(daemon, "/metrics"))
    return {name.removeprefix(f"arraybridge_{family}"): value for name, value in found.items()
            if re.match(rf"arraybridge_{family}(?:\{{|$)", name) and value != 0}  # fmt: skip


def test_a_waiting_request_is_in_flight(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    session = open_session(daemon)
    waits = session.begin("Acquire", namespace="default", shares=[{"name": "later"}], timeout_ms=60_000)
    label = '{door="grpc",verb="Acquire"}'
    eventually("it waits", lambda: counted(daemon, "waiting_requests"))
    assert counted(daemon, "requests_inflight") == {label: 1}
    session.publish("later", bytes(10))
    assert waits.result().shares
    assert counted(daemon, "requests_inflight") == {}
    waits = session.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000)
    eventually("it waits", lambda: counted(daemon, "requests_inflight") == {label: 1})
    waits.cancel()
    eventually("nobody waits", lambda: counted(daemon, "requests_inflight") == {})
    watch = session.stub.Watch(session.messages.WatchRequest(), metadata=session.metadata, timeout=PATIENCE_S)
    next(watch)
    assert counted(daemon, "requests_inflight") == {'{door="grpc",verb="Watch"}': 1}
    watch.cancel()
    eventually("nobody watches", lambda: counted(daemon, "requests_inflight") == {})


def test_bytes_tickets_and_descriptors_are_counted(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start("--http", "127.0.0.1:0", "--log-format", "json", ticket_lifetime="10s")
    session = open_session(daemon)
    host = 'device="host",uuid="",kind="memfd"'
    assert counted(daemon, "allocations_total") == counted(daemon, "tickets_total") == counted(daemon, "descriptors_passed_total") == {}
    allocated = session.call("Allocate", namespace="default", size=1 << 20)
    assert counted(daemon, "allocations") == counted(daemon, "allocations_total") == {f"{{{host}}}": 1}
    assert counted(daemon, "allocation_duration_seconds_count") == {f"{{{host}}}": 1}
    assert counted(daemon, "allocated_bytes_total") == {f"{{{host}}}": 1 << 20}
    _, descriptor = session.lifeline.redeem(allocated.ticket)
    os.close(descriptor)
    with pytest.raises(Refused):
        session.lifeline.redeem(allocated.ticket)
    assert counted(daemon, "tickets_total") == {'{outcome="redeemed"}': 1, '{outcome="refused"}': 1}
    eventually("it went out", lambda: counted(daemon, "descriptors_passed_total") == {'{kind="memfd"}': 1})
    session.call("Release", arenas=[allocated.handle.arena])
    eventually("its bytes are free", lambda: counted(daemon, "freed_bytes_total"))
    assert counted(daemon, "freed_bytes_total") == {f'{{{host},cause="release"}}': 1 << 20}
    assert counted(daemon, "allocations") == {}
    session.publish("one", bytes(1000))
    session.call("Withdraw", namespace="default", shares=[{"name": "one"}])
    assert counted(daemon, "withdrawals_total") == {"": 1}
    session.call("Allocate", namespace="default", size=1 << 20)  # a ticket that is not redeemed
    session.close()
    eventually("all is free", lambda: counted(daemon, "allocations") == {})
    assert counted(daemon, "freed_bytes_total")[f'{{{host},cause="session_end"}}'] >= 1 << 20
    assert sum(counted(daemon, "freed_bytes_total").values()) == sum(counted(daemon, "allocated_bytes_total").values())
    assert counted(daemon, "tickets_total")['{outcome="expired"}'] == 1


def test_the_running_version_is_shown(daemon: Daemon, start: Callable[..., Daemon]) -> None:
    (labels,) = counted(daemon, "build_info")
    build = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    assert set(build) == {"version", "revision", "driver"}
    here = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if here.returncode == 0 and build["revision"] != "unknown":
        assert re.fullmatch(r"[0-9a-f]{12}(?:-dirty)?", build["revision"])
    assert build["driver"] == "none" or re.fullmatch(r"\d+\.\d", build["driver"])
    simulated = start(
        "--http", "127.0.0.1:0", "--log-format", "json", "--cuda-driver", str(BUILD / "tests/simulated_cuda/libsimulated_cuda.so")
    )
    (labels,) = counted(simulated, "build_info")
    assert re.search(r'driver="\d+\.\d"', labels)
    assert {re.sub(r".*kind=.(\w+).*", r"\1", name) for name in samples(read(simulated, "/metrics"))
            if name.startswith("arraybridge_allocations{")} == {"memfd", "cuda_vmm", "cuda_ipc"}  # fmt: skip


def test_refusals_and_ends_have_their_reasons(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    """The counts in addition to the verbs: reasons of refusals, and causes of session ends, at both doors."""
    daemon = start("--http", "127.0.0.1:0", "--log-format", "json", "--namespace-quota", "1MiB", watchers="1")
    before = samples(read(daemon, "/metrics"))
    assert before["arraybridge_start_time_seconds"] == pytest.approx(time.time(), abs=60)
    assert before['arraybridge_log_messages_total{level="error"}'] == 0
    assert before['arraybridge_log_messages_total{level="info"}'] > 0
    session, ends, cut = (open_session(daemon) for _ in range(3))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
        session.call("Allocate", namespace="default", size=8 << 20)
    watches = [session.stub.Watch(session.messages.WatchRequest(), metadata=session.metadata, timeout=PATIENCE_S)]
    next(watches[0])  # before the second request, which might overtake it
    watches.append(session.stub.Watch(session.messages.WatchRequest(), metadata=session.metadata, timeout=PATIENCE_S))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "limit watchers"):
        next(watches[1])
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        session.stub.GetStats(session.messages.GetStatsRequest())
    ends.close()
    ctl = subprocess.run([CTL, "-H", daemon.directory, "end", str(cut.opened.session)], capture_output=True, text=True)
    assert ctl.returncode == 0, ctl.stderr
    lifeline = Lifeline(daemon, session.messages)
    lifeline.socket.send(b"nonsense")

    def told() -> dict[str, float]:
        return {name.removeprefix("arraybridge_"): value for name, value in samples(read(daemon, "/metrics")).items()}

    causes = ("clean", "limit", "protocol")
    eventually("all three ends are told", lambda: all(told()[f'session_ends_total{{cause="{cause}"}}'] for cause in causes))
    now = told()
    assert now['session_ends_total{cause="limit"}'] == now['session_ends_total{cause="protocol"}'] == 1
    assert (now['session_ends_total{cause="killed"}'], now['session_ends_total{cause="drain"}']) == (0, 0)
    assert now['limit_hits_total{limit="watchers"}'] == now['limit_hits_total{limit="quota_too_small"}'] == 1
    assert now['allocation_failures_total{reason="quota"}'] == 1 and now['allocation_failures_total{reason="driver"}'] == 0
    assert sum(value for name, value in now.items() if name.startswith("auth_failures_total")) >= 1
    assert now['log_messages_total{level="warn"}'] >= 1
    assert now["watchdog_pings_total"] == 0  # no manager watches it


@pytest.mark.parametrize("told", ["false", "true"])
def test_namespaces_are_named_only_if_configured(
    start: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path, told: str
) -> None:
    config = tmp_path / "arraybridged.toml"
    config.write_text(f"[http]\nlisten = '127.0.0.1:0'\nnamespaces = {told}\n[log]\nformat = 'json'\n")
    daemon = start("--config", str(config))
    session = open_session(daemon)
    session.call("Allocate", namespace="secret-plans", size=4096)
    session.publish("a-name-of-mine", bytes(10))
    for page in ("/metrics", "/"):
        assert ("secret-plans" in read(daemon, page)) == (told == "true")
    for page in ("/metrics", "/", "/healthz", "/readyz"):
        assert "a-name-of-mine" not in read(daemon, page)


def test_promtool_reports_no_error(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's package prometheus) is not installed")
    open_session(daemon).publish("one", bytes(1000))
    text = read(daemon, "/metrics")
    answer = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")
    broken = text.replace("# HELP arraybridge_leases ", "# HELP arraybridge_leases_total ")
    assert subprocess.run([promtool, "check", "metrics"], input=broken, capture_output=True, text=True).returncode != 0


def test_the_status_page_is_complete_and_loads_nothing_from_elsewhere(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    open_session(daemon).publish("one", bytes(1000))
    page = read(daemon, "/")
    for words in ("<h1>arraybridged", "<h2>Memory", "<h2>Users", "<h2>Now", "<h2>Requests", "Publish", "host"):
        assert words in page
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["status.css", "status.js"]
    assert not re.search(r"<script>|url\(|http:", page)


def test_the_error_for_a_port_in_use_names_it(daemon: Daemon, start: Callable[..., Daemon]) -> None:
    taken = url(daemon).removeprefix("http://")
    with pytest.raises(AssertionError, match=rf"cannot listen on {taken}: Address already in use"):
        start("--http", taken)


def test_other_hosts_can_read_only_a_public_address(start: Callable[..., Daemon]) -> None:
    assert read(start("--http", "0.0.0.0:0", "--http-public", "--log-format", "json"), "/healthz") == "ok\n"
    with pytest.raises(AssertionError, match=r"--http: '0\.0\.0\.0:0' is not a loopback address.*--http-public"):
        start("--http", "0.0.0.0:0")


def test_other_methods_and_pages_are_refused(daemon: Daemon) -> None:
    for request in (
        urllib.request.Request(url(daemon) + "/metrics", data=b"x", method="POST"),
        urllib.request.Request(url(daemon) + "/shutdown"),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code in (404, 413)


RULES = Path(__file__).resolve().parents[2] / "deploy/prometheus"


def test_alert_rules_ask_for_metrics_that_exist(daemon: Daemon) -> None:
    known = set(re.findall(r"^# TYPE (\S+)", read(daemon, "/metrics"), re.MULTILINE))
    asked = set(re.findall(r"\b(?:arraybridge|process)_[a-z_]+\b", (RULES / "rules.yml").read_text()))
    assert asked and asked <= known


def test_alert_rules_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's package prometheus) is not installed")
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        answer = subprocess.run([promtool, *command], cwd=RULES, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_documentation_lists_every_metric_and_no_other(named: Daemon) -> None:
    page = (RULES.parents[1] / "docs/guides/watching.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page[page.index("| `arraybridge_…` |") :].split("\n\n")[0], re.MULTILINE)
    told = {f"arraybridge_{name}" for row in rows[1:] for name in re.findall(r"`(\w+)`", row)}
    served = set(re.findall(r"^# TYPE (arraybridge_\S+)", read(named, "/metrics"), re.MULTILINE))
    assert told == served


def test_slow_connections_do_not_silence_the_health_page(daemon: Daemon) -> None:
    """More than half as many as the daemon may open descriptors, each with a byte now and then."""
    port = int(url(daemon).rsplit(":", 1)[1])
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (512, 512))
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(400)]
    ended = threading.Event()

    def trickle() -> None:
        while not ended.wait(0.5):
            for each in slow:
                with contextlib.suppress(OSError):
                    each.send(b"G", socket.MSG_DONTWAIT)

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        for _ in range(3):
            with urllib.request.urlopen(url(daemon) + "/healthz", timeout=PATIENCE_S) as answer:
                assert answer.read() == b"ok\n"
    finally:
        ended.set()
        thread.join()
        for each in slow:
            each.close()


def page_of(daemon: Daemon, path: str) -> Any:
    return json.loads(read(daemon, path))


@pytest.fixture
def named(start: Callable[..., Daemon]) -> Daemon:
    return start("--http", "127.0.0.1:0", "--http-namespaces", "--log-format", "json", members_per_channel="300")


def test_the_lists_are_served_as_json(named: Daemon, open_session: Callable[..., Session]) -> None:
    """The answers are the messages of the protocol, page by page, without the user's own bytes."""
    session = open_session(named, client="prep")
    for name in ("frame-1", "frame-2", "other"):
        session.publish(name, bytes(4000), metadata=b"of the user", structure=b"of the user")
    shares = page_of(named, "/list.json?kind=SHARES&name_prefix=frame-")["shares"]
    assert [row["share"]["name"] for row in shares] == ["frame-1", "frame-2"]
    assert {row["share"]["handle"]["size"] for row in shares} == {"4000"}
    assert not {"metadata", "structure"} & set(shares[0]["share"])
    first = page_of(named, "/list.json?kind=SHARES&page_size=2")
    rest = page_of(named, f"/list.json?kind=SHARES&page_size=2&page_token={urllib.parse.quote(first['next_page_token'])}")
    assert [row["share"]["name"] for row in first["shares"] + rest["shares"]] == ["frame-1", "frame-2", "other"]
    (row,) = page_of(named, "/list.json?kind=SESSIONS")["sessions"]
    assert (row["client"], int(row["session"])) == ("prep", session.opened.session)
    assert page_of(named, f"/list.json?kind=SHARES&session={session.opened.session}")["shares"]
    session.call("OpenChannel", namespace="default", name="frames", role="RECEIVER", capacity=3)
    (channel,) = page_of(named, "/list.json?kind=CHANNELS&ends=true")["channels"]
    assert (channel["name"], channel["capacity"], channel["ends"][0]["client"]) == ("frames", "3", "prep")
    assert page_of(named, "/info.json")["life"]["number"] == "1"
    assert page_of(named, "/stats.json")["shares"] == "3"
    assert page_of(named, "/list.json?kind=DEVICES")["devices"]


def test_a_page_without_names_lists_none(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    open_session(daemon).publish("secret", bytes(10))
    for kind in ("SHARES", "SESSIONS", "LEASES", "NAMESPACES", "CHANNELS"):
        with pytest.raises(urllib.error.HTTPError, match="403") as refusal:
            read(daemon, f"/list.json?kind={kind}")
        assert "http.namespaces = true" in json.loads(refusal.value.read())["message"]
    assert page_of(daemon, "/list.json?kind=DEVICES")["devices"]
    assert "secret" not in read(daemon, "/stats.json") + read(daemon, "/info.json")


@pytest.mark.parametrize("query", ["", "kind=FOOD", "kind=SHARES&page_token=nonsense", "kind=SHARES&session=x", "kind=SHARES&page_size=-1",
                                   "kind=SHARES&session=99999999999999999999", f"kind=SHARES&namespace={'n' * 5000}"])  # fmt: skip
def test_a_bad_query_is_refused(named: Daemon, query: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400") as refusal:
        read(named, f"/list.json?{query}")
    assert json.loads(refusal.value.read())["message"]


def test_the_page_loads_its_own_files_alone(daemon: Daemon) -> None:
    with urllib.request.urlopen(url(daemon) + "/") as answer:
        policy = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
        page = answer.read().decode()
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    for file, kind in (("status.js", "text/javascript"), ("status.css", "text/css")):
        assert file in page
        with urllib.request.urlopen(f"{url(daemon)}/{file}") as answer:
            assert answer.headers["Content-Type"].startswith(kind) and answer.read()


def test_the_charged_bytes_add_up(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    """Named, queued, held by readers and unused: to the byte, in metrics, lists and statistics; also when their maker has
    ended, and after the daemon was killed."""
    named = start("--keeper", "--http", "127.0.0.1:0", "--http-namespaces", "--log-format", "json")
    maker, reader = open_session(named), open_session(named)
    sender = maker.call("OpenChannel", namespace="default", name="frames", role="SENDER", capacity=4).channel
    receiver = reader.call("OpenChannel", namespace="default", name="frames", role="RECEIVER").channel
    maker.publish("named", bytes(5000))
    maker.publish("replaced", bytes(3000))
    reader.call("Acquire", namespace="default", shares=[{"name": "replaced"}])
    maker.call("Withdraw", namespace="default", shares=[{"name": "replaced"}])
    for size in (1000, 2000, 4000):
        maker.publish("", bytes(size), channel=sender)
    maker.call("Allocate", namespace="default", size=1 << 16)

    def check(named_bytes: int, queued: int, held: int, unowned: bool) -> bool:
        (row,) = page_of(named, "/list.json?kind=NAMESPACES")["namespaces"]
        number = {name: int(row.get(name, 0)) for name in
                  ("charged_bytes", "share_bytes", "named_bytes", "queued_bytes", "unowned_bytes")}  # fmt: skip
        stats = page_of(named, "/stats.json")
        sessions = page_of(named, "/list.json?kind=SESSIONS").get("sessions", [])
        owned = sum(int(row.get("arena_bytes", 0)) for row in sessions)
        label = f'uid="{os.getuid()}",namespace="default"'
        uses = counted(named, "charged_bytes")
        use = {name: uses.get(f'{{{label},use="{name}"}}', 0) for name in ("named", "queued", "held", "unused")}
        # The answers are of different moments: while arenas are being freed, they differ.
        return (
            number["charged_bytes"] == int(stats["charged_bytes"]) == sum(use.values())
            and counted(named, "namespace_charged_bytes") == {f"{{{label}}}": number["charged_bytes"]}
            and (number["named_bytes"], number["queued_bytes"]) == (use["named"], use["queued"]) == (named_bytes, queued)
            and use["held"] == number["share_bytes"] - named_bytes - queued == held
            and number["charged_bytes"] == owned + number["unowned_bytes"]
            and bool(number["unowned_bytes"]) == unowned
        )

    assert check(5000, 7000, 3000, unowned=False)
    received = reader.call("Receive", channel=receiver)
    assert check(5000, 6000, 4000, unowned=False)
    maker.close()
    eventually("its arenas have no owner", lambda: check(5000, 6000, 4000, unowned=True))
    assert received.shares
    named.kill_below_keeper()

    def is_next() -> bool:
        with contextlib.suppress(OSError):
            return bool(page_of(named, "/info.json")["life"]["number"] == "2")
        return False

    eventually("the next daemon serves", is_next)
    eventually("it counts the same", lambda: check(5000, 6000, 4000, unowned=True))


def test_channels_have_a_bounded_number_of_samples(named: Daemon, open_session: Callable[..., Session]) -> None:
    session = open_session(named)
    for number in range(103):
        session.call("OpenChannel", namespace="default", name=f"{number:03}", role="RECEIVER", capacity=1)
    sender = session.call("OpenChannel", namespace="default", name="000", role="SENDER").channel
    session.publish("", bytes(10), channel=sender)
    found = samples(read(named, "/metrics"))
    assert len([name for name in found if name.startswith("arraybridge_channel_queued{")]) == 100
    assert found["arraybridge_channels_not_shown"] == 3
    label = f'{{uid="{os.getuid()}",namespace="default"'
    assert found[f'arraybridge_channel_queued{label},channel="000"}}'] == found[f"arraybridge_channels_full{label}}}"] == 1
    assert found[f'arraybridge_channel_arrays_sent_total{label},channel="000"}}'] == 1
    time.sleep(0.05)
    found = samples(read(named, "/metrics"))
    assert 0.05 <= found[f'arraybridge_channel_oldest_seconds{label},channel="000"}}'] < 60
    assert found[f"arraybridge_channels_oldest_seconds{label}}}"] >= 0.05


def test_polls_are_no_refusals(named: Daemon, open_session: Callable[..., Session]) -> None:
    session = open_session(named)
    receiver = session.call("OpenChannel", namespace="default", name="frames", role="RECEIVER").channel
    for _ in range(5):
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
            session.call("Receive", channel=receiver)
    assert counted(named, "refusals_total") == {}
    with refused(grpc.StatusCode.NOT_FOUND):
        session.call("Acquire", namespace="default", shares=[{"name": "nowhere"}])
    assert counted(named, "refusals_total") == {"": 1}


def test_a_full_quota_names_the_largest_holders(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start("--http", "127.0.0.1:0", "--namespace-quota", "8MiB", "--log-format", "json")
    session = open_session(daemon, client="prep")
    sender = session.call("OpenChannel", namespace="default", name="frames", role="SENDER", capacity=4).channel
    session.call("OpenChannel", namespace="default", name="frames", role="RECEIVER")
    session.publish("weights", bytes(3 << 20))
    session.publish("", bytes(2 << 20), channel=sender)
    for name in ("a", "b", "c"):
        session.publish(name, bytes(1000))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED) as refusal:
        session.call("Allocate", namespace="default", size=4 << 20)
    for words in ("no room for 4194304 bytes (4.0 MiB)", "left of its quota of 8.0 MiB", "share 'weights' has 3.0 MiB (arraybridgectl withdraw)",
                  "in channel 'frames' wait 2.0 MiB (arraybridgectl channel drain)", "are free in arenas"):  # fmt: skip
        assert words in refusal["text"]
    line = next(line for line in map(json.loads, daemon.log.read_text().splitlines()) if line.get("event") == "quota_refused")
    assert (line["client"], line["level"]) == ("prep", "info") and "share 'weights'" in line["message"]
