# SPDX-License-Identifier: Apache-2.0
"""arraybridgectl service: what it shows of services that a client of another language serves and calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from foreign_client import Daemon, Session, eventually
from test_arraybridgectl import NOT_FOUND, USAGE, completed, ctl
from test_channels import open_end, send

Opener = Callable[..., Session]
FIGURES = b"requests=%d failed=2 rate_milli=%d p50_us=%d p99_us=%d later=1 odd=x ="


def serve(session: Session, name: str, server: str, figures: bytes = b"") -> Any:
    end = open_end(session, "RECEIVER", f"service/{name}/tickets", capacity=5)
    if figures:
        session.publish(f"service/{name}/figures/{server}", bytes(8), metadata=figures)
    return end


def test_services_are_listed(daemon: Daemon, session: Session, open_session: Opener) -> None:
    servers = [open_session(daemon, client=f"server {number}") for number in range(2)]
    serve(servers[0], "a/detect", "x", FIGURES % (20, 1500, 900, 4000))
    serve(servers[1], "a/detect", "y", FIGURES % (5, 500, 12000, 15000))
    open_end(session, "RECEIVER", "service/a/detect/requests/x")
    caller = open_end(open_session(daemon, client="asker"), "SENDER", "service/a/detect/tickets")
    serve(session, "idle", "z")
    open_end(session, "RECEIVER", "frames")
    table = ctl("-H", daemon.directory, "service", "ls")
    assert (table.returncode, table.stderr) == (0, "")
    header, *rows = table.stdout.splitlines()
    assert header.split() == "NAMESPACE SERVICE SERVERS CALLERS WAITING QUEUE OLDEST REQUESTS RATE P50 P99".split()
    assert [row.split() for row in rows] == [
        ["default", "a/detect", "2", "1", "0", "5", "-", "25", "2.0/s", "12.00", "ms", "15.00", "ms"],
        ["default", "idle", "1", "0", "0", "5", "-", "-", "-", "-", "-"],
    ]
    listed = json.loads(ctl("-H", daemon.directory, "service", "ls", "-o", "json").stdout)["services"]
    assert [each["service"] for each in listed] == ["a/detect", "idle"]
    assert listed[0]["requests_per_1000_s"] == 2000 and listed[0]["p99_us"] == 15000 and "requests" not in listed[1]
    lines = ctl("-H", daemon.directory, "service", "ls", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == listed
    csv = ctl("-H", daemon.directory, "service", "ls", "-o", "csv", "-n", "default").stdout.splitlines()
    assert csv[1] == "default,a/detect,2,1,0,5,,25,2.0/s,12000,15000"
    assert ctl("-H", daemon.directory, "service", "ls", "-n", "other", "--no-header").stdout == ""
    assert caller.capacity == 5


def test_a_service_is_shown(daemon: Daemon, session: Session, open_session: Opener) -> None:
    server = open_session(daemon, client="detector")
    serve(server, "detect", "x", FIGURES % (20, 1500, 900, 4000))
    serve(server, "detect", "y")
    asker = open_session(daemon, client="asker")
    sender = open_end(asker, "SENDER", "service/detect/tickets").channel
    for _ in range(3):
        send(asker, sender, bytes(8))
    eventually("three wait", lambda: session.call("GetStats").queued_shares == 3)
    shown = ctl("-H", daemon.directory, "service", "show", "detect")
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = [row.split(maxsplit=1) for row in shown.stdout.splitlines()[1:]]
    assert rows[:3] == [["service", "detect"], ["namespace", "default"], ["waiting", "3 of 5"]]
    assert rows[3][0] == "oldest"
    texts = [text for what, text in rows if what == "server"]
    assert any(text.endswith(", 20 requests, 2 failed, 1.5/s, p50 0.90 ms, p99 4.00 ms") for text in texts)
    assert any(text.endswith(", no answer in the last seconds") for text in texts)
    assert all(text.startswith("detector, process ") for text in texts)
    assert [text.split(",")[0] for what, text in rows if what == "caller"] == ["asker"]
    told = json.loads(ctl("-H", daemon.directory, "service", "show", "detect", "-o", "json").stdout)
    assert told["waiting"] == 3 and told["servers"] == 2 and told["callers"] == 1
    assert [each["client"] for each in told["server"]] == ["detector", "detector"]
    assert [each.get("p50_us") for each in told["server"]].count(900) == 1
    assert told["caller"][0]["client"] == "asker"


def test_errors_say_what_to_do(daemon: Daemon, session: Session) -> None:
    open_end(session, "RECEIVER", "service/detect/tickets")
    told = ctl("-H", daemon.directory, "service", "show", "detct")
    assert told.returncode == NOT_FOUND
    assert "namespace 'default' has no service 'detct'; did you mean 'detect'? arraybridgectl service ls lists what there is" in told.stderr
    assert ctl("-H", daemon.directory, "service", "show").returncode == USAGE
    assert ctl("-H", daemon.directory, "service").returncode == USAGE
    for odd in ("service/tickets", "service//tickets", "service/x/ticket"):
        open_end(session, "RECEIVER", odd)
    names = [line.split()[1] for line in ctl("-H", daemon.directory, "service", "ls", "--no-header").stdout.splitlines()]
    assert names == ["detect"]


def test_shells_complete_services() -> None:
    assert completed("service", "") == {"ls", "show"}
