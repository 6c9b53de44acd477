# SPDX-License-Identifier: Apache-2.0
"""Access rights: two real users of one daemon, at both doors, and namespaces that the operator shares with some users."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_client import Daemon, eventually
from test_http import url
from users import Place, User

ALICE, BOB, CAROL, TEAM = 61001, 61002, 61003, 61900
PERMISSION_DENIED, NOT_FOUND, RESOURCE_EXHAUSTED, UNAUTHENTICATED = 7, 5, 8, 16
DOORS = ("grpc", "lifeline")
Users = Callable[..., User]

CONFIG = f"""
[memory.host]
capacity = "64MiB"
[http]
listen = "127.0.0.1:0"
[namespace.team]
access = ["uid:{ALICE}", "gid:{TEAM}:ro"]
"""


def opened(user: User) -> Callable[..., Any]:
    """Commands of a user's process, with a session at each door."""
    for door in DOORS:
        user.act("open", door, door)
    return user.act


# Every verb that names a namespace, with the other fields of a valid request.
KEY = [{"name": "secret"}]
SPEC = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [1], "size": 1}
NAMING: list[tuple[str, dict[str, Any]]] = [
    ("Allocate", {"size": 4096}),
    ("Publish", {"name": "secret", "arena": 1, "size": 1, "specs": {"arrays": [SPEC]}}),
    ("Acquire", {"shares": KEY}),
    ("Acquire", {"shares": KEY, "timeout_ms": 60_000}),
    ("Acquire", {"shares": [{"id": 1}]}),
    ("Withdraw", {"shares": KEY}),
    ("Claim", {"name": "secret"}),
    ("Tier", {"action": 1}),
    ("OpenChannel", {"name": "frames", "role": 1}),
    ("OpenChannel", {"name": "frames", "role": 2}),
    ("Watch", {}),
    ("Inspect", {"share": {"name": "secret"}}),
    ("Inspect", {"share": {"id": 1}}),
]
BROWSING: list[tuple[str, dict[str, Any]]] = [("Browse", {"part": part}) for part in (0, 1)]
WRITING = {"Allocate", "Publish", "Withdraw", "Claim", "OpenChannel", "Browse"}  # also what reads without calls


def refusals(act: Callable[..., Any], namespace: str) -> list[Any]:
    """The answer to each of these requests, at each door."""
    told = []
    for door in DOORS:
        for verb, fields in NAMING + (BROWSING if door == "lifeline" else []):
            told.append((door, verb, act("call", door, verb, namespace=namespace, **fields)))
    return told


# ---- private namespaces ----


def test_users_cannot_read_or_name_each_others_objects(place: Place, user: Users) -> None:
    daemon = place.daemon(CONFIG)
    alice, bob = opened(user(ALICE)), opened(user(BOB))
    share = alice("publish", "grpc", "secret", b"alice's bytes", "project-x")
    alice("publish", "grpc", "plan", b"more", "default")
    assert alice("read", "grpc", "secret", "project-x") == b"alice's bytes"
    for door in DOORS:
        # The answer is the same for her objects and for objects that do not exist.
        for namespace, other in (("project-x", "project-y"), ("default", "default")):
            there = bob("call", door, "Acquire", namespace=namespace, shares=KEY)
            assert there["code"] == NOT_FOUND
            nothing = bob("call", door, "Acquire", namespace=other, shares=[{"name": "secreT"}])
            assert nothing["text"].replace("secreT", "secret").replace(other, namespace) == there["text"]
        assert bob("call", door, "Acquire", namespace="project-x", shares=[{"id": share}])["code"] == NOT_FOUND
        assert bob("call", door, "Withdraw", namespace="project-x", shares=KEY)["code"] == NOT_FOUND
        for kind in range(4):
            listed = bob("call", door, "List", kind=kind)
            for word in (b"secret", b"project-x", b"plan"):
                assert word not in listed, (door, kind)
        for kind in (0, 3):
            assert bob("call", door, "List", kind=kind, page_token=f"0:{ALICE}/") == b""
    assert bob("call", "lifeline", "Browse", namespace="project-x")["code"] == NOT_FOUND
    for path in ("/metrics", "/"):
        with urllib.request.urlopen(url(daemon) + path) as answer:
            text = answer.read().decode()
        assert str(ALICE) in text
        assert not any(word in text for word in ("secret", "project-x", "plan", "team")), path
    assert "project-x" not in daemon.log.read_text()


def test_users_get_no_events_of_each_other(place: Place, user: Users) -> None:
    place.daemon(CONFIG, bytes_per_uid="16MiB")
    alice, bob = user(ALICE).act, opened(user(BOB))
    watched = [(door, namespace) for door in DOORS for namespace in ("", "default", "project-x", "team")]
    for door, namespace in watched:
        if namespace == "team":
            assert bob("call", door, "Watch", namespace=namespace)["code"] == PERMISSION_DENIED
        else:
            bob("watch", f"{door}/{namespace}", door, namespace=namespace)
    for door in DOORS:  # all kinds of events: sessions, arenas, shares, leases, withdrawn names, refusals, a quota
        alice("open", door, door, client="alice's tool")
        for namespace in ("project-x", "default", "team"):
            alice("watch", f"{door}/{namespace}", door, namespace=namespace)
    for namespace in ("project-x", "default", "team"):
        alice("publish", "grpc", "secret", b"alice's bytes", namespace, note="alice's route")
        for door in DOORS:
            alice("call", door, "Acquire", namespace=namespace, shares=KEY)
            assert alice("call", door, "Withdraw", namespace=namespace, shares=[{"name": "never"}])["code"] == NOT_FOUND
            assert alice("call", door, "Allocate", namespace=namespace, size=32 << 20)["code"] == RESOURCE_EXHAUSTED
        alice("call", "grpc", "Withdraw", namespace=namespace, shares=KEY)
        alice("publish", "grpc", "last", b"more", namespace)
    for namespace in ("default", "project-x"):
        bob("publish", "grpc", "own", b"bob's", namespace)
    for door, namespace in watched:
        if namespace != "team":
            heard = bob("hear", f"{door}/{namespace}", "own")
            assert {each.get("uid") for each in heard} == {BOB}, heard
            assert {each.get("name") for each in heard} <= {"own", None}
            assert not any("alice" in each.get("note", "") for each in heard)
    for door in DOORS:  # the user with the right gets the events
        for namespace in ("project-x", "default", "team"):
            heard = alice("hear", f"{door}/{namespace}", "last")
            assert isinstance(heard, list), heard
            kinds = {each["kind"].removeprefix("EVENT_KIND_") for each in heard}
            assert {"ALLOCATE", "PUBLISH", "ACQUIRE", "WITHDRAW", "REFUSAL", "QUOTA"} <= kinds


def test_users_cannot_inspect_each_others_shares(place: Place, user: Users) -> None:
    place.daemon(CONFIG)
    alice, bob = user(ALICE).act, opened(user(BOB))
    for door in DOORS:
        alice("open", door, door, client="alice's tool")
    share = alice("publish", "grpc", "secret", b"alice's bytes", "default", note="alice's route")
    assert alice("read", "grpc", "secret") == b"alice's bytes"
    assert "alice's route" in str(alice("told", "lifeline", "Inspect", namespace="default", share={"name": "secret"}))
    for door in DOORS:
        there = bob("call", door, "Inspect", namespace="default", share={"name": "secret"})
        nothing = bob("call", door, "Inspect", namespace="default", share={"name": "secreT"})
        assert there["code"] == NOT_FOUND
        assert nothing["text"].replace("secreT", "secret") == there["text"]
        there = bob("call", door, "Inspect", namespace="default", share={"id": share})
        nothing = bob("call", door, "Inspect", namespace="default", share={"id": share + 1000})
        assert there["code"] == NOT_FOUND
        assert nothing["text"].replace(str(share + 1000), str(share)) == there["text"]
    bob("publish", "grpc", "secret", b"bob's", "default")
    for door in DOORS:  # his own share of that name: only his sessions, and her reads are not counted
        told = bob("told", door, "Inspect", namespace="default", share={"name": "secret"})
        assert {each["uid"] for each in told["offers"]} == {BOB}
        assert len(told["offers"]) == len(DOORS) and "offers_left_out" not in told
        assert told["maker"]["uid"] == BOB and "readers" not in told
        assert "alice" not in str(told)


def test_users_cannot_export_each_others_arenas(place: Place, user: Users) -> None:
    place.daemon(CONFIG)
    alice, bob = opened(user(ALICE)), opened(user(BOB))
    handle = alice("told", "grpc", "Allocate", namespace="default", size=4096)["handle"]
    arena = {"arena": int(handle["arena"]), "arena_generation": int(handle["generation"])}
    end = int(alice("told", "lifeline", "OpenChannel", namespace="default", name="frames", role=2)["channel"])
    alice("publish", "grpc", "secret", b"alice's bytes", "default")
    alice("call", "lifeline", "Acquire", namespace="default", shares=KEY)
    for door in DOORS:
        ends = ({"direct_channel_of": end}, {"direct_channel_of": end + 1000})
        for mine, nobodys in ((arena, {**arena, "arena": arena["arena"] + 1000}), ends):
            there, nothing = bob("call", door, "Export", **mine), bob("call", door, "Export", **nobodys)
            assert there["code"] == NOT_FOUND
            assert there == {"code": nothing["code"], "text": nothing["text"].replace("1001", "1")}
        assert bob("call", door, "Mapped", arena=arena["arena"])["code"] == NOT_FOUND


def test_users_cannot_act_in_each_others_sessions(place: Place, user: Users) -> None:
    place.daemon(CONFIG)
    alice, bob = opened(user(ALICE)), opened(user(BOB))
    token = alice("open", "more")
    alice("publish", "grpc", "secret", b"bytes", "default")
    # Not even with her session's token on his own connection.
    for verb, fields in (("Acquire", {"shares": KEY}), ("List", {}), ("GetStats", {})):
        assert bob("with_token", token, verb, **fields)["code"] == UNAUTHENTICATED
    assert bob("join", token)["code"] == NOT_FOUND
    assert bob("join", bytes(16))["text"] == bob("join", token)["text"]
    assert isinstance(alice("with_token", token, "GetStats"), bytes)
    assert alice("join", token) is None
    # Not with her ticket in his own session.
    ticket = alice("ticket")
    stolen, invented = bob("redeem", "grpc", ticket), bob("redeem", "grpc", bytes(16))
    assert stolen == invented
    assert stolen["code"] == NOT_FOUND


def test_users_cannot_use_up_each_others_limits(place: Place, user: Users) -> None:
    place.daemon(
        CONFIG,
        sessions_per_uid="3",
        bytes_per_uid="16MiB",
    )
    alice, bob = user(ALICE).act, user(BOB).act
    for door in DOORS:
        got = alice("flood", door, 20)
        assert got <= 3, door
        # She has reached her limits, and he can still use his.
        bob("open", door, door)
        assert isinstance(bob("call", door, "GetStats"), bytes)
    greedy = user(ALICE + 100).act
    greedy("open", "grpc")
    taken = []
    for index in range(8):
        taken.append(greedy("call", "grpc", "Allocate", namespace=f"n{index % 3}", size=4 << 20))
    refused = [answer for answer in taken if isinstance(answer, dict)]
    assert len(refused) >= 4
    assert {answer["code"] for answer in refused} == {RESOURCE_EXHAUSTED}
    for namespace in ("default", "mine"):
        assert isinstance(bob("call", "grpc", "Allocate", namespace=namespace, size=4 << 20), bytes)


def test_users_cannot_prevent_each_others_watches(place: Place, user: Users) -> None:
    place.daemon(CONFIG)
    alice, bob = opened(user(ALICE)), opened(user(BOB))
    got = [alice("call", door, "Watch") for door in DOORS * 9]
    assert [isinstance(each, bytes) for each in got] == [True] * 16 + [False] * 2
    for refused in got[16:]:
        assert refused["code"] == RESOURCE_EXHAUSTED
        assert "its part of limits.watchers (64)" in refused["text"]
    for door in DOORS:
        assert isinstance(bob("call", door, "Watch"), bytes)


def test_users_cannot_prevent_each_others_reads_without_calls(place: Place, user: Users) -> None:
    place.daemon(CONFIG, object_bytes_per_uid="600KiB")
    alice, bob = user(ALICE).act, user(BOB).act
    for number in range(8):
        alice("open", str(number), "lifeline")
    queues = [alice("call", str(number), "Browse", namespace="default", part=2) for number in range(8)]
    assert [isinstance(each, bytes) for each in queues] == [True] * 7 + [False]
    assert "limits.object_bytes_per_uid" in queues[7]["text"]
    bob("open", "0", "lifeline")
    assert isinstance(bob("call", "0", "Browse", namespace="default", part=2), bytes)
    direct_channels = []
    for name in ("one", "two"):
        ends = [int(bob("told", "0", "OpenChannel", namespace="default", name=name, role=role)["channel"]) for role in (1, 2)]
        direct_channels.append(bob("call", "0", "Browse", namespace="default", part=8, channel=ends[0]))
    assert [isinstance(each, bytes) for each in direct_channels] == [True, False], direct_channels
    assert "limits.object_bytes_per_uid" in direct_channels[1]["text"]


@pytest.mark.parametrize("door", DOORS)
def test_users_cannot_delay_each_others_waiting_requests(place: Place, user: Users, door: str) -> None:
    place.daemon(CONFIG, sessions_per_uid="4", bytes_per_uid="16MiB")
    alice, bob = user(ALICE).act, opened(user(BOB))
    alice("open", "looks")
    for size in (8, 8):  # up to her limit
        assert isinstance(alice("call", "looks", "Allocate", namespace="default", size=size << 20), bytes)
    names = {"namespace": "default", "shares": [{"name": "never"}], "timeout_ms": 60_000}
    for number in range(3):
        alice("open", str(number), door)
        alice("wait_much", str(number), 32, "Acquire", **names)
        alice("wait_much", str(number), 40, "Allocate", namespace="default", size=8 << 20, timeout_ms=60_000)
    eventually("all that may wait do", lambda: alice("waiting", "looks") == 3 * 64)
    # His requests are served, including waiting ones.
    assert isinstance(bob("call", door, "Allocate", namespace="default", size=8 << 20), bytes)
    bob("begin", "grpc", "Acquire", namespace="default", shares=[{"name": "soon"}], timeout_ms=60_000)
    eventually("his waits, too", lambda: bob("waiting", "grpc") == 3 * 64 + 1)
    bob("publish", "grpc", "soon", b"here", "default")
    assert b"soon" in bob("finish")
    assert alice("waiting", "looks") == 3 * 64


# ---- shared namespaces ----


def test_a_namespace_is_open_to_its_access_list(place: Place, user: Users) -> None:
    place.daemon(CONFIG)
    alice, bob, carol = opened(user(ALICE)), opened(user(BOB, [TEAM])), opened(user(CAROL))
    before = refusals(carol, "team")
    alice("publish", "grpc", "secret", b"of the team", "team")
    assert bob("read", "grpc", "secret", "team") == b"of the team"
    assert isinstance(bob("call", "lifeline", "Acquire", namespace="team", shares=KEY), bytes)
    assert b"secret" in bob("call", "grpc", "List")
    assert b"secret" not in carol("call", "grpc", "List")
    # A user without the right gets the same answer whether or not the namespace has contents.
    after = refusals(carol, "team")
    assert before == after
    for door, verb, told in after:
        assert told == {"code": PERMISSION_DENIED, "text": f"user {CAROL} may not use namespace 'team'"}, (door, verb)
    for door, verb, told in refusals(bob, "team"):
        if verb in WRITING:
            assert told == {"code": PERMISSION_DENIED, "text": f"user {BOB} may only read namespace 'team'"}, (door, verb)
    # A session's queue carries all requests of the session.
    assert isinstance(carol("call", "lifeline", "Browse", namespace="team", part=2), bytes)
    # The groups of a user at the time of connecting count; a user in none of them is refused.
    assert opened(user(BOB))("call", "grpc", "Acquire", namespace="team", shares=KEY)["code"] == PERMISSION_DENIED


def test_a_closed_broker_does_not_reveal_its_namespaces(place: Place, user: Users) -> None:
    place.daemon(CONFIG + '[access]\nunlisted = "refused"\n')
    carol = opened(user(CAROL))
    there, nothing = refusals(carol, "team"), refusals(carol, "maet")
    assert [told["code"] for _, _, told in there] == [PERMISSION_DENIED] * len(there)
    for one, other in zip(there, nothing, strict=True):
        assert other[2]["text"].replace("maet", "team") == one[2]["text"]
        assert other[2]["code"] == one[2]["code"]
    carol("publish", "grpc", "own", b"mine", "default")
    assert carol("read", "grpc", "own", "default") == b"mine"


def test_a_token_opens_a_namespace_at_both_doors(place: Place, user: Users, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    daemon = place.daemon(f'[namespace.team]\naccess = ["uid:{ALICE}", "token:{token}:ro"]\n')
    alice, bob = opened(user(ALICE)), user(BOB).act
    alice("publish", "grpc", "secret", b"of the team", "team")
    for door in DOORS:
        bob("open", f"right at {door}", door, token=b"0123456789abcdef0123456789abcdef")
        bob("open", f"wrong at {door}", door, token=b"0123456789abcdef0123456789abcdee")
        assert isinstance(bob("call", f"right at {door}", "Acquire", namespace="team", shares=KEY), bytes)
        assert bob("call", f"right at {door}", "Allocate", namespace="team", size=1)["code"] == PERMISSION_DENIED
        told = bob("call", f"wrong at {door}", "Acquire", namespace="team", shares=KEY)
        assert told["code"] == PERMISSION_DENIED
        assert told["text"] == f"user {BOB}, with its token, may not use namespace 'team'"
        assert bob("open", "long", door, token=b"x" * 257)["text"] == "the token has 257 bytes (maximum 256)"
    assert "0123456789abcdef" not in daemon.log.read_text()


def test_revoked_rights_end_their_use(place: Place, user: Users) -> None:
    daemon = place.daemon(CONFIG)
    alice, bob = opened(user(ALICE)), opened(user(BOB, [TEAM]))
    alice("publish", "grpc", "secret", b"of the team", "team")
    for door in DOORS:
        assert isinstance(bob("call", door, "Acquire", namespace="team", shares=KEY), bytes)
    place.configure(CONFIG.replace(f', "gid:{TEAM}:ro"', ""))
    daemon.process.send_signal(signal.SIGHUP)
    eventually("his sessions end", lambda: "ended 2 sessions" in daemon.log.read_text())
    eventually("at the gRPC door", lambda: bob("call", "grpc", "GetStats") == {
        "code": UNAUTHENTICATED,
        "text": "metadata 'arraybridge-session' names no open session; a session ends with its stream",
    })  # fmt: skip
    eventually("at the local door", lambda: "text" in repr(bob("call", "lifeline", "GetStats")))
    bob = opened(user(BOB, [TEAM]))
    assert bob("call", "grpc", "Acquire", namespace="team", shares=KEY)["code"] == PERMISSION_DENIED
    assert alice("read", "grpc", "secret", "team") == b"of the team"
    # An invalid file changes nothing.
    place.configure(CONFIG.replace("uid:", "uid:x"))
    daemon.process.send_signal(signal.SIGHUP)
    eventually("it is refused", lambda: "reload refused" in daemon.log.read_text())
    assert alice("read", "grpc", "secret", "team") == b"of the team"


def test_a_waiting_user_gets_another_users_share(place: Place, user: Users) -> None:
    place.daemon(CONFIG)
    alice, bob = opened(user(ALICE)), opened(user(BOB, [TEAM]))
    bob("begin", "grpc", "Acquire", namespace="team", shares=[{"name": "soon"}], timeout_ms=60_000)
    eventually("it waits", lambda: bob("waiting", "grpc") == 1)
    alice("publish", "grpc", "soon", b"here", "team")
    assert b"soon" in bob("finish")


@pytest.mark.parametrize("door", DOORS)
def test_a_channel_needs_the_right_to_write(place: Place, user: Users, door: str) -> None:
    place.daemon(CONFIG.replace(":ro", ""))
    alice, bob, carol = opened(user(ALICE)), opened(user(BOB, [TEAM])), opened(user(CAROL))
    fields = {"namespace": "team", "name": "frames"}
    assert isinstance(alice("call", door, "OpenChannel", role=1, **fields), bytes)
    assert isinstance(bob("call", door, "OpenChannel", role=2, **fields), bytes)
    assert carol("call", door, "OpenChannel", role=2, **fields)["code"] == PERMISSION_DENIED


# ---- lifetime of shares ----


def test_shares_end_with_their_lifetime_or_their_killed_producer(place: Place, user: Users) -> None:
    place.daemon(
        '[namespace.default]\nshare_lifetime = "1h"\n[namespace.brief]\nshare_lifetime = "100ms"\n'
        '[namespace.volatile]\non_publisher_exit = "withdraw"\n'
    )
    maker = user(ALICE)
    alice, reader = opened(maker), opened(user(ALICE))
    for namespace in ("default", "brief", "volatile"):
        alice("publish", "grpc", "a", b"bytes", namespace)
    alice("publish", "grpc", "asked", b"bytes", "default", lifetime_ms=50)

    def is_there(name: str, namespace: str) -> bool:
        told = reader("call", "lifeline", "Acquire", namespace=namespace, shares=[{"name": name}])
        return isinstance(told, bytes)

    # No request arrives in between: the daemon wakes up by itself.
    eventually("the lifetime ends", lambda: b"brief" not in reader("call", "grpc", "List", kind=0))
    eventually("what was asked for ends", lambda: not is_there("asked", "default"))
    assert is_there("a", "default")
    assert is_there("a", "volatile")
    maker.kill()
    eventually("it goes with its maker", lambda: not is_there("a", "volatile"))
    assert is_there("a", "default")


def test_without_a_table_the_daemon_behaves_as_before(daemon: Daemon, open_session: Callable[..., Any]) -> None:
    """The daemon's own user without a table in the configuration."""
    session = open_session(daemon)
    session.publish("a", b"bytes", "anything")
    assert session.read("a", "anything") == b"bytes"
