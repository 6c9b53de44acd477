# SPDX-License-Identifier: Apache-2.0
"""arraybridgectl ls: selection, order, columns and group sums of rows."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from foreign_client import CTL, PATIENCE_S, Daemon, Session
from users import Place, User

USAGE = 2
ALICE, BOB = 61001, 61002


class Listed:
    """A daemon with shares of a session and of an ended tool, in two namespaces, and with leases of another session on them."""

    def __init__(self, daemon: Daemon, open_session: Callable[..., Session], scratch: Path) -> None:
        self.daemon = daemon
        self.ctl = [CTL, "-H", daemon.directory, "--timeout", f"{PATIENCE_S:.0f}s"]
        self.first = open_session(daemon, client="first")
        self.second = open_session(daemon, client="second")
        self.first.publish("big", bytes(9000))
        self.first.publish("small", bytes(10))
        numpy.save(scratch / "middle.npy", numpy.zeros(512, "u1"))
        put = subprocess.run([*self.ctl, "-n", "elsewhere", "-o", "json", "put", scratch / "middle.npy"], stdout=-1)
        self.tool = int(json.loads(put.stdout)["maker_process_id"])
        for name, namespace in [("big", "default"), ("big", "default"), ("middle", "elsewhere")]:
            self.second.call("Acquire", namespace=namespace, shares=[{"name": name}])

    def ls(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(list(map(str, [*self.ctl, "ls", *arguments])), capture_output=True, text=True)

    def json(self, *arguments: object) -> Any:
        done = self.ls("-o", "json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def names(self, *arguments: object) -> list[str]:
        return [info["share"]["name"] for info in self.json(*arguments)["shares"]]

    def rows(self, *arguments: object) -> list[dict[str, str]]:
        done = self.ls("-o", "csv", *arguments)
        assert done.returncode == 0, done.stderr
        return list(csv.DictReader(done.stdout.splitlines()))


@pytest.fixture
def listed(daemon: Daemon, open_session: Callable[..., Session], tmp_path: Path) -> Listed:
    return Listed(daemon, open_session, tmp_path)


def test_rows_are_selected(listed: Listed) -> None:
    me, here = os.getuid(), os.getpid()
    assert listed.names("--pid", here) == ["big", "small"]
    assert listed.names("--pid", listed.tool) == ["middle"]
    assert listed.names("--pid", 1) == []
    assert sorted(listed.names("--owner", me)) == ["big", "middle", "small"]
    assert listed.names("--owner", me + 1) == []
    assert sorted(listed.names("--device", "cpu")) == ["big", "middle", "small"]
    assert listed.names("--device", "cuda:0") == []
    assert sorted(listed.names("--older-than", "0ms")) == ["big", "middle", "small"]
    assert listed.names("--older-than", "1d") == []
    assert listed.names("--pid", here, "--owner", me, "--device", "cpu", "--sort", "size") == ["small", "big"]
    assert sorted(row["CLIENT"] for row in listed.rows("sessions", "--pid", here)) == ["first", "second"]
    assert listed.json("sessions", "--older-than", "1h")["sessions"] == []
    assert [row["NAME"] for row in listed.rows("leases", "--pid", here, "--sort", "name")] == ["big", "big", "middle"]
    assert listed.json("leases", "--owner", me + 1)["leases"] == []
    assert len(listed.json("leases", "--device", "cpu")["leases"]) == 3
    assert len(listed.json("namespaces", "--owner", me)["namespaces"]) == 2
    assert [row["DEVICE"] for row in listed.rows("devices", "--device", "cpu")] == ["cpu"]
    assert listed.json("leases", "--pid", listed.tool)["leases"] == []
    assert [row["NAME"] for row in listed.rows("--all", "--pid", listed.tool)] == ["middle"]


def test_an_owner_may_have_a_name(listed: Listed) -> None:
    if os.getuid() != 0:
        pytest.skip("the only known user name is root")
    assert len(listed.names("--owner", "root")) == 3
    refused = listed.ls("--owner", "nobody-by-this-name")
    assert (refused.returncode, "no user 'nobody-by-this-name'" in refused.stderr) == (USAGE, True)


def test_rows_are_sorted(listed: Listed) -> None:
    assert listed.names("--sort", "size") == ["small", "middle", "big"]
    assert listed.names("--sort", "size", "--reverse") == ["big", "middle", "small"]
    assert listed.names("--sort", "name") == ["big", "middle", "small"]
    assert listed.names("--sort", "age") == ["middle", "small", "big"]
    assert [row["LEASES"] for row in listed.rows("sessions", "--sort", "leases", "--reverse")][0] == "3"
    lines = listed.ls("-o", "jsonl", "--sort", "size").stdout.splitlines()
    assert [json.loads(line)["share"]["name"] for line in lines] == ["small", "middle", "big"]
    for kind, column in [("devices", "not-shared-as"), ("namespaces", "orphan-grace"), ("leases", "share")]:
        assert listed.ls(kind, "--sort", column).returncode == 0


def test_rows_are_summed_in_groups(listed: Listed) -> None:
    assert listed.json("--group-by", "namespace") == [
        {"namespace": "default", "shares": "2", "size": "9010"},
        {"namespace": "elsewhere", "shares": "1", "size": "512"},
    ]
    assert listed.json("--group-by", "device", "--pid", os.getpid()) == [{"device": "cpu", "shares": "2", "size": "9010"}]
    first, second = (str(session.opened.session) for session in (listed.first, listed.second))
    assert {row["SESSION"]: row["SIZE"] for row in listed.rows("--group-by", "session")} == {first: "9010", "gone": "512"}
    assert listed.rows("leases", "--group-by", "session") == [{"SESSION": second, "LEASES": "3", "SIZE": "18512"}]
    by_size = listed.rows("leases", "--group-by", "namespace", "--sort", "size")
    assert [row["NAMESPACE"] for row in by_size] == ["elsewhere", "default"]
    (line,) = listed.ls("-o", "jsonl", "--group-by", "device").stdout.splitlines()
    assert json.loads(line)["shares"] == "3"
    assert "8.8 KiB" in listed.ls("--group-by", "device", "--pid", os.getpid()).stdout


def test_channels_are_listed(listed: Listed) -> None:
    assert listed.json("channels")["channels"] == []
    opened = listed.first.call("OpenChannel", namespace="elsewhere", name="frames", role="SENDER", capacity=3)
    listed.second.call("OpenChannel", namespace="default", name="other", role="RECEIVER")
    listed.first.publish("", bytes(1000), namespace="elsewhere", channel=opened.channel)
    (row,) = listed.rows("channels", "-n", "elsewhere")
    assert 0 <= int(row.pop("OLDEST")) < 60_000
    assert row == {
        "NAMESPACE": "elsewhere", "CHANNEL": "frames", "SENDERS": "1", "RECEIVERS": "0", "QUEUED": "1", "CAPACITY": "3",
        "SIZE": "1000", "STREAM": "1", "DIRECT": "no", "UID": str(os.getuid()), "SENT": "1", "RATE": "0.0/s", "DROPPED": "0",
        "MODE": "queue", "RECEIVED": "0", "REPLAY": "0",
    }  # fmt: skip
    assert [row["CHANNEL"] for row in listed.rows("channels", "--all", "--sort", "queued")] == ["other", "frames"]
    assert listed.rows("channels", "--owner", os.getuid() + 1) == []
    refused = listed.ls("channels", "--pid", 1)
    assert (refused.returncode, "channels cannot be selected by --pid" in refused.stderr) == (USAGE, True)


def test_one_channel_is_shown_drained_and_removed(listed: Listed, daemon: Daemon) -> None:
    def ctl(*arguments: object, form: str = "table") -> subprocess.CompletedProcess[str]:
        command = [CTL, "-H", daemon.directory, "-o", form, "channel", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    sends = listed.first.call("OpenChannel", namespace="default", name="frames", role="SENDER", mode=2, replay=2, drop_oldest=True)
    receives = listed.second.call("OpenChannel", namespace="default", name="frames", role="RECEIVER", capacity=2)
    assert (receives.capacity, receives.mode) == (2, 2)
    for _ in range(4):
        listed.first.publish("", bytes(512), channel=sends.channel)
    shown = ctl("show", "frames")
    words = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.stdout.splitlines() if line.strip()}
    assert (words["mode"], words["replay"], words["capacity"]) == ("broadcast, drop oldest", "2", "2")
    assert words["sent"].startswith("4, ") and (words["received"], words["dropped"]) == ("0", "2")
    assert words["queued"].startswith("2, ")
    assert f"process {os.getpid()}, session {listed.first.opened.session}, sent 4" in words["sender"]
    assert words["receiver"].endswith("received 0, waiting 2, missed 2")
    ends = json.loads(ctl("show", "frames", form="json").stdout)["ends"]
    assert [end["dropped"] for end in ends] == ["0", "2"]

    (header, row), (other, _) = (text.stdout.splitlines() for text in (ctl("ls"), listed.ls("channels")))
    assert header.split() == other.split() and row.split()[:2] == ["default", "frames"]
    assert ctl("drain", "frames").stdout == "dropped 2 queued arrays\n"
    refused = ctl("rm", "frames")
    assert refused.returncode != 0 and "has 1 senders and 1 receivers" in refused.stderr
    for session, end in (listed.first, sends), (listed.second, receives):
        session.call("CloseChannel", channel=end.channel)
    missing = ctl("show", "frames")
    assert missing.returncode != 0 and "namespace 'default' has no channel 'frames'" in missing.stderr
    left = listed.second.call("OpenChannel", namespace="default", name="left", role="SENDER")
    listed.second.publish("", bytes(512), channel=left.channel)
    listed.second.call("CloseChannel", channel=left.channel)
    assert ctl("rm", "left").stdout == "removed; dropped 1 queued arrays\n"
    assert listed.json("channels")["channels"] == []


def test_channels_with_the_longest_names_are_paged(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    session = open_session(daemon)
    namespace, names = "n" * 255, sorted(f"{number:03}".ljust(255, "c") for number in range(150))
    for name in names:
        session.call("OpenChannel", namespace=namespace, name=name, role="SENDER")
    done = subprocess.run([CTL, "-H", daemon.directory, "-n", namespace, "-o", "json", "ls", "channels"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in json.loads(done.stdout)["channels"]] == names


def test_wide_has_more_columns_and_csv_has_all(listed: Listed) -> None:
    more = {
        "shares": ["UID", "ID", "ARENA", "OFFSET", "METADATA", "EXPIRES IN", "ON EXIT", "FORWARD OF"],
        "sessions": ["KINDS"],
        "leases": ["UID", "PID", "DEVICE", "SHARE"],
        "namespaces": ["FREE", "RIGHT", "LIFETIME", "ORPHAN GRACE", "ON EXIT"],
        "devices": ["FREE", "NUMBER", "NOT SHARED AS"],
        "channels": ["UID"],
    }
    listed.first.call("OpenChannel", namespace="default", name="frames", role="SENDER")
    for kind, columns in more.items():
        table, wide = (listed.ls(kind, "-o", form).stdout.splitlines()[0] for form in ("table", "wide"))
        assert wide.startswith(table[:9]) and len(wide.split()) > len(table.split())
        for column in columns:
            assert column in wide and column not in table.split(), (kind, column)
        assert set(columns) < set(listed.rows(kind)[0])
        assert listed.ls(kind, "--all", "-o", "wide").stdout.splitlines()[0].split() == wide.split()
    shares = {row["NAME"]: row for row in listed.rows()}
    assert (shares["big"]["UID"], shares["big"]["ON EXIT"]) == (str(os.getuid()), "keep")
    assert {row["PID"] for row in listed.rows("leases")} == {str(os.getpid())}
    assert {row["KINDS"] for row in listed.rows("sessions")} == {"memfd"}
    assert {row["ORPHAN GRACE"] for row in listed.rows("namespaces")} == {"60000"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["leases", "--older-than", "1s"], ["namespaces", "--pid", "1"], ["devices", "--owner", "0"],
        ["sessions", "--device", "cpu"], ["sessions", "--group-by", "device"], ["--group-by", "colour"],
        ["--sort", "colour"], ["--group-by", "device", "--sort", "name"], ["--older-than", "5"], ["--pid", "x"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_invalid_arguments_are_refused_before_a_connection_is_made(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run([CTL, "-H", tmp_path, "ls", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (USAGE, ""), done.stderr
    assert done.stderr


def test_only_an_administrator_sees_the_users_of_a_shared_namespace(place: Place, user: Callable[..., User]) -> None:
    daemon = place.daemon(f'[namespace.team]\naccess = ["uid:{ALICE}", "uid:{BOB}"]\non_publisher_exit = "withdraw"\n')
    for uid in (ALICE, BOB):
        one = user(uid)
        one.act("open", "s")
        one.act("publish", "s", f"of {uid}", bytes(10), "team")
    words: list[str | Path] = [CTL, "-H", daemon.directory, "-o", "json", "ls", "--all", "-n", "team", "--owner", str(BOB)]
    infos = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)["shares"]
    assert [(info["share"]["name"], info["maker_uid"], info["goes_with_maker"]) for info in infos] == [(f"of {BOB}", BOB, True)]


def test_a_filter_does_not_match_fields_that_are_hidden_from_a_user(
    place: Place, user: Callable[..., User], generated: tuple[Any, Any]
) -> None:
    place.daemon(f'[namespace.team]\naccess = ["uid:{ALICE}", "uid:{BOB}"]\n')
    for uid in (ALICE, BOB):
        one = user(uid)
        one.act("open", "s")
        one.act("publish", "s", f"of {uid}", bytes(10), "team")
    alice = user(ALICE)
    alice.act("open", "s")
    listed = generated[0].ListResponse.FromString(alice.act("call", "s", "List", namespace="team"))
    told = {info.share.name: info.maker_uid if info.HasField("maker_uid") else None for info in listed.shares}
    assert told == {f"of {ALICE}": ALICE, f"of {BOB}": None}
