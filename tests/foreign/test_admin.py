# SPDX-License-Identifier: Apache-2.0
"""The administration of a running daemon: its door, the rights to use it, and the effect of each request."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from foreign_client import CTL, DAEMON, HEADER, OPEN_SESSION, PATIENCE_S, Daemon, Session, eventually, refused
from grpc_health.v1 import health_pb2, health_pb2_grpc
from users import Place, User

ERROR, USAGE, CANNOT_CONNECT, PERMISSION, NOT_FOUND, EXHAUSTED = 1, 2, 3, 4, 5, 6
ALICE, BOB, OPERATORS = 61001, 61002, 61901
MiB = 1 << 20
CONFIG = """
[memory.host]
capacity = "64MiB"
[namespace.team]
access = ["anyone"]
quota = "{quota}"
"""


def ctl(daemon: Daemon, *arguments: object) -> subprocess.CompletedProcess[str]:
    words = [CTL, "-H", daemon.directory, "--timeout", f"{PATIENCE_S:.0f}s", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True)


def done(daemon: Daemon, *arguments: object) -> str:
    answer = ctl(daemon, *arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def answered(daemon: Daemon, *arguments: object) -> Any:
    return json.loads(done(daemon, "-o", "json", *arguments))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "arraybridged.toml"
    path.write_text(CONFIG.format(quota="32MiB"))
    return path


@pytest.fixture
def daemon(start: Callable[..., Daemon], config: Path) -> Daemon:
    return start("--config", str(config), namespaces="3")


# ---- requests ----


def test_quotas_are_read_and_changed(daemon: Daemon, config: Path, session: Session) -> None:
    session.publish("a", bytes(MiB), "team")
    assert answered(daemon, "quota", "get", "team") == {
        "of": {"namespace": "team"},
        "quota_bytes": str(32 * MiB),
        "charged_bytes": str(MiB),
        "set": False,
    }
    assert answered(daemon, "quota", "set", "team", "--bytes", "2MiB")["quota_bytes"] == str(2 * MiB)
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MiB} are left of its quota of 2.0 MiB"):
        session.call("Allocate", namespace="team", size=2 * MiB)
    # A reload does not change a quota that was set; resetting it does.
    config.write_text(CONFIG.format(quota="16MiB"))
    assert "changed namespace.team" in done(daemon, "reload")
    assert answered(daemon, "quota", "get", "team")["quota_bytes"] == str(2 * MiB)
    waiting = session.begin("Allocate", namespace="team", size=2 * MiB, timeout_ms=60_000)
    eventually("the request waits", lambda: session.call("GetStats").waiting == 1)
    assert answered(daemon, "quota", "set", "team", "--bytes", "default")["quota_bytes"] == str(16 * MiB)
    assert waiting.result(PATIENCE_S).handle.size == 2 * MiB


def test_a_broker_without_administration_is_named(start: Callable[..., Daemon]) -> None:
    embedded = start("--embedded")
    assert "ok" in done(embedded, "ping")
    answer = ctl(embedded, "trim")
    assert answer.returncode == CANNOT_CONNECT
    assert f"the broker at {embedded.directory}/broker.sock is not administered" in answer.stderr
    assert "has it where server.admin says" in answer.stderr


def test_a_quota_may_be_set_for_one_user(daemon: Daemon, session: Session) -> None:
    me, other = os.getuid(), 4711
    assert ctl(daemon, "quota", "set", "own", "--bytes", "1MiB").returncode == ERROR
    assert "name its owner, too (arraybridgectl: --uid UID)" in ctl(daemon, "quota", "get", "own").stderr
    assert "name it without a user" in ctl(daemon, "quota", "get", "team", "--uid", me).stderr
    done(daemon, "quota", "set", "own", "--uid", other, "--bytes", "0")
    assert session.call("Allocate", namespace="own", size=MiB).handle.size == MiB
    done(daemon, "quota", "set", "own", "--uid", me, "--bytes", "0")
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "the quota is 0"):
        session.call("Allocate", namespace="own", size=MiB)
    assert "yes" in done(daemon, "quota", "get", "own", "--uid", me)
    # The number of set quotas is limited to that of namespaces.
    done(daemon, "quota", "set", "third", "--uid", me, "--bytes", "1TiB")
    full = ctl(daemon, "quota", "set", "fourth", "--uid", me, "--bytes", "1TiB")
    assert (full.returncode, "limit namespaces (3) is reached" in full.stderr) == (EXHAUSTED, True)
    for wrong in ("1 MiB", "99999999TiB", "-1", "much"):
        assert "is not a size" in ctl(daemon, "quota", "set", "own", "--uid", me, f"--bytes={wrong}").stderr


@pytest.mark.parametrize("door", ["grpc", "lifeline"])
def test_a_session_is_ended(
    daemon: Daemon, generated: tuple[Any, Any], session: Session, open_session: Callable[..., Session], door: str
) -> None:
    session.publish("a", bytes(1000))
    if door == "grpc":
        victim = open_session(daemon, client="the one")
        victim.call("Acquire", shares=[{"name": "a"}])
    else:
        lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lifeline.connect(str(daemon.directory / "lifeline.sock"))
        hello = generated[0].OpenSessionRequest(protocol_min=1, protocol_max=1, client="the one")
        lifeline.send(HEADER.pack(OPEN_SESSION, 0, 0, 1) + hello.SerializeToString())
        assert lifeline.recv(65536)
    rows = answered(daemon, "ls", "sessions", "--all")["sessions"]
    number = next(row["session"] for row in rows if row["client"] == "the one")
    assert done(daemon, "end", number) == "ended\n"
    if door == "grpc":
        with pytest.raises(grpc.RpcError):
            next(victim.stream)
        with refused(grpc.StatusCode.UNAUTHENTICATED):
            victim.call("GetStats")
        eventually("its leases have gone", lambda: session.call("GetStats").leases == 0)
    else:
        lifeline.settimeout(PATIENCE_S)
        assert lifeline.recv(1) == b""
        lifeline.close()
    missing = ctl(daemon, "end", number)
    where = "arraybridgectl ls sessions --all lists what there is"
    assert (missing.returncode, missing.stderr) == (NOT_FOUND, f"arraybridgectl: no session {number}; {where}\n")
    assert "an administrator ended it" in daemon.log.read_text()


def test_shares_of_all_users_can_be_withdrawn(daemon: Daemon, session: Session) -> None:
    session.publish("a", bytes(1000))
    session.publish("b", bytes(1000), "team")
    me = os.getuid()
    assert "name its owner, too (arraybridgectl: --uid UID)" in ctl(daemon, "withdraw", "--admin", "a").stderr
    assert done(daemon, "withdraw", "a", "--uid", me) == "withdrawn\n"
    assert done(daemon, "withdraw", "--admin", "b", "-n", "team") == "withdrawn\n"
    assert ctl(daemon, "withdraw", "--admin", "b", "-n", "team").returncode == NOT_FOUND
    assert not session.call("List").shares


def test_unused_memory_is_returned(daemon: Daemon, session: Session) -> None:
    session.publish("a", bytes(1000))
    eventually("blocks are warm", lambda: session.call("GetStats").devices[0].cached_bytes > 0)
    assert int(answered(daemon, "trim")["freed_bytes"]) > 0
    assert session.read("a") == bytes(1000)


def test_a_reload_reports_its_changes(daemon: Daemon, config: Path) -> None:
    assert done(daemon, "reload") == "nothing changed\n"
    config.write_text(CONFIG.format(quota="1MiB").replace("64MiB", "32MiB"))
    assert done(daemon, "reload") == "changed namespace.team\nkept until a restart: memory.host.capacity\n"
    config.write_text("[limits]\nsessions = 0\n")
    wrong = ctl(daemon, "reload")
    assert (wrong.returncode, f"{config}:2:1: limit sessions: must be more than 0" in wrong.stderr) == (ERROR, True)
    values = {row["key"]: row for row in answered(daemon, "config", "show")["values"]}
    assert values["namespace.team.quota"] == {"key": "namespace.team.quota", "value": "1MiB", "origin": f"{config}:6:1"}
    assert values["memory.host.capacity"]["value"] == "64MiB"  # the value in force, not the new value in the file
    assert values["limits.namespaces"] == {
        "key": "limits.namespaces", "value": "3", "origin": "ARRAYBRIDGED_LIMITS__NAMESPACES",
    }  # fmt: skip
    assert values["log.level"]["origin"] == "default"
    lines = done(daemon, "-o", "jsonl", "config", "show").splitlines()
    assert [json.loads(line)["key"] for line in lines] == list(values)


def test_a_draining_daemon_accepts_no_work(daemon: Daemon, session: Session) -> None:
    session.publish("a", bytes(1000))
    waiting = session.begin("Acquire", shares=[{"name": "never"}], timeout_ms=60_000)
    eventually("it waits", lambda: session.call("GetStats").waiting == 1)
    assert done(daemon, "drain") == "draining\n"
    with refused(grpc.StatusCode.UNAVAILABLE, "draining"):
        waiting.result(PATIENCE_S)
    with refused(grpc.StatusCode.UNAVAILABLE, "draining"):
        session.call("Allocate", size=1)
    assert session.call("List").shares[0].share.name == "a"
    assert ctl(daemon, "ping").returncode == CANNOT_CONNECT
    with daemon.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert daemon.process.poll() is None
    assert done(daemon, "shutdown") == "shutting down\n"
    assert daemon.process.wait(PATIENCE_S) == 0


def test_a_shutdown_now_does_not_wait(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start("--drain-timeout", "1h")
    session = open_session(daemon)
    waiting = session.begin("Acquire", shares=[{"name": "never"}], timeout_ms=60_000)
    eventually("it waits", lambda: session.call("GetStats").waiting == 1)
    assert answered(daemon, "shutdown", "--now") == {}
    assert daemon.process.wait(PATIENCE_S) == 0
    with pytest.raises(grpc.RpcError):
        waiting.result(PATIENCE_S)
    assert not list(daemon.directory.glob("*.sock"))
    assert ctl(daemon, "shutdown").returncode == CANNOT_CONNECT


def test_a_trim_of_one_device(daemon: Daemon) -> None:
    eventually("something is cached", lambda: int(answered(daemon, "ls", "devices")["devices"][0]["cached_bytes"]) > 0)
    nobody = ctl(daemon, "trim", "--device", "cuda:0")
    assert (nobody.returncode, "no device 'cuda:0'" in nobody.stderr) == (NOT_FOUND, True)
    assert int(answered(daemon, "trim", "--device", "cpu")["freed_bytes"]) > 0


TOKENS = """
[namespace.team]
access = ["token:{viewer}:ro", "token:{maker}", "uid:{nobody}"]
[namespace.other]
access = ["token:{maker}"]
"""


def test_a_token_is_revoked(start: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("viewer", "maker")}
    for file in files.values():
        assert subprocess.run([CTL, "token", "create", file]).returncode == 0
        file.chmod(0o640)
    (tmp_path / "config.toml").write_text(TOKENS.format(nobody=BOB, **files))
    daemon = start("--config", str(tmp_path / "config.toml"))
    rows = {(row["namespace"], row["file"]): row for row in answered(daemon, "token", "ls")}
    assert {key: row["right"] for key, row in rows.items()} == {
        ("team", str(files["viewer"])): "read", ("team", str(files["maker"])): "write", ("other", str(files["maker"])): "write",
    }  # fmt: skip
    assert {row["state"] for row in rows.values()} == {"is there"}
    assert rows["other", str(files["maker"])]["origin"] == f"{tmp_path}/config.toml:5:1"
    old = files["maker"].read_text()
    assert old.strip() not in done(daemon, "token", "ls")

    token = old.strip().encode()
    session, viewer = open_session(daemon, token=token), open_session(daemon, token=files["viewer"].read_bytes().strip())
    session.publish("a", bytes(100), namespace="team")
    assert viewer.read("a", namespace="team") == bytes(100)
    stranger = files["maker"].with_name("stranger")
    stranger.write_text(old)
    told = ctl(daemon, "token", "revoke", stranger)
    assert (told.returncode, "opens no namespace" in told.stderr, stranger.read_text()) == (NOT_FOUND, True, old)

    assert [row["namespace"] for row in answered(daemon, "token", "revoke", files["maker"])] == ["other", "team"]
    assert re.fullmatch(r"[0-9a-f]{32}\n", files["maker"].read_text()) and files["maker"].read_text() != old
    assert stat.S_IMODE(files["maker"].stat().st_mode) == 0o640
    with pytest.raises(grpc.RpcError):  # its session has ended
        session.stream.next()
    again = open_session(daemon, token=token)
    with refused(grpc.StatusCode.PERMISSION_DENIED):
        again.call("Acquire", namespace="team", shares=[{"name": "a"}])
    assert viewer.read("a", namespace="team") == bytes(100)  # with another token
    fresh = open_session(daemon, token=files["maker"].read_bytes().strip())
    assert fresh.read("a", namespace="team") == bytes(100)


def test_a_revocation_that_the_daemon_cannot_load_is_reported(start: Callable[..., Daemon], tmp_path: Path) -> None:
    file = tmp_path / "maker"
    assert subprocess.run([CTL, "token", "create", file]).returncode == 0
    config = tmp_path / "config.toml"
    config.write_text(f'[namespace.team]\naccess = ["token:{file}"]\n')
    daemon = start("--config", str(config))
    config.write_text(config.read_text() + "nonsense = 1\n")
    told = ctl(daemon, "token", "revoke", file)
    assert told.returncode == ERROR
    assert "the old token stays valid until the broker reloads" in told.stderr and f"{config}:3:1" in told.stderr
    file.unlink()
    assert [row["state"] for row in answered(daemon, "token", "ls")] == ["is gone"]
    told = ctl(daemon, "token", "revoke", file)
    assert (told.returncode, told.stderr) == (ERROR, f"arraybridgectl: {file}: No such file or directory\n")
    file.symlink_to(config)
    told = ctl(daemon, "token", "revoke", file)
    assert (told.returncode, f"{config}: holds no token" in told.stderr) == (ERROR, True)
    assert "nonsense" in config.read_text()
    assert subprocess.run([CTL, "-H", tmp_path, "token", "revoke", file], capture_output=True).returncode == CANNOT_CONNECT


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A folder with a token, "real", and a symbolic link to it; a configuration names both, each for one namespace."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    assert subprocess.run([CTL, "token", "create", folder / "real"]).returncode == 0
    (folder / "link").symlink_to("real")
    access = "".join(f'[namespace.{name}]\naccess = ["token:{folder}/{name}"]\n' for name in ("real", "link"))
    (tmp_path / "config.toml").write_text(access)
    return folder


@pytest.mark.parametrize("said", ["real", "link", "../tokens/./link"])
def test_a_token_is_revoked_under_all_names_of_its_file(
    start: Callable[..., Daemon], open_session: Callable[..., Session], tokens: Path, said: str
) -> None:
    daemon = start("--config", str(tokens.parent / "config.toml"))
    old = (tokens / "real").read_text()
    assert {row["namespace"] for row in answered(daemon, "token", "revoke", tokens / said)} == {"real", "link"}
    assert (tokens / "link").is_symlink() and (tokens / "link").read_text() == (tokens / "real").read_text() != old
    assert sorted(path.name for path in tokens.iterdir()) == ["link", "real"]
    session = open_session(daemon, token=old.strip().encode())
    for namespace in ("real", "link"):
        with refused(grpc.StatusCode.PERMISSION_DENIED):
            session.call("Acquire", namespace=namespace, shares=[{"name": "a"}])


def test_a_token_with_hard_links_is_not_revoked(start: Callable[..., Daemon], tokens: Path) -> None:
    daemon = start("--config", str(tokens.parent / "config.toml"))
    other = tokens / "other"
    other.hardlink_to(tokens / "real")
    for name in ("real", "link", "other"):
        told = ctl(daemon, "token", "revoke", tokens / name)
        assert (told.returncode, "has 2 hard links" in told.stderr) == (ERROR, True), told.stderr
    other.unlink()
    assert ctl(daemon, "token", "revoke", tokens / "real").returncode == 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(("when", "why"), [(1, "Input/output error"), (2, "may return to the file after a power failure")])
def test_a_revocation_is_on_the_disk(start: Callable[..., Daemon], tokens: Path, when: int, why: str) -> None:
    """The file is synced first, then its folder; a disk error is reported."""
    daemon = start("--config", str(tokens.parent / "config.toml"))
    old = (tokens / "real").read_text()
    words = ["strace", "-f", "-o", tokens.parent / "trace", "-e", "trace=fsync,rename", "-e", f"inject=fsync:error=EIO:when={when}"]
    told = subprocess.run([*words, CTL, "-H", daemon.directory, "token", "revoke", tokens / "real"], capture_output=True, text=True)
    assert (told.returncode, why in told.stderr) == (ERROR, True), told.stderr
    calls = re.findall(r" (fsync|rename)\(", (tokens.parent / "trace").read_text())
    assert calls == ["fsync", "rename", "fsync"][: 1 if when == 1 else 3]
    assert ((tokens / "real").read_text() == old) == (when == 1)
    assert sorted(path.name for path in tokens.iterdir()) == ["link", "real"]


def test_a_token_is_created(tmp_path: Path) -> None:
    printed = [subprocess.run([CTL, "token", "create"], capture_output=True, text=True).stdout for _ in range(2)]
    assert all(re.fullmatch(r"[0-9a-f]{32}\n", token) for token in printed)
    assert printed[0] != printed[1]
    file = tmp_path / "token"
    assert subprocess.run([CTL, "token", "create", file]).returncode == 0
    assert re.fullmatch(r"[0-9a-f]{32}\n", file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_text()
    again = subprocess.run([CTL, "token", "create", file], capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (ERROR, f"arraybridgectl: {file}: already exists\n")
    assert file.read_text() == before
    assert subprocess.run([CTL, "token", "create", tmp_path / "no" / "token"], capture_output=True).returncode == PERMISSION


# ---- rights and doors ----


def test_the_door_may_be_elsewhere_or_off(start: Callable[..., Daemon], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.sock"
    daemon = start("--admin", f"unix://{elsewhere}")
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o660
    assert ctl(daemon, "trim").returncode == CANNOT_CONNECT
    assert subprocess.run([CTL, "-H", f"unix://{elsewhere}", "trim"], capture_output=True).returncode == 0
    for flags in (["--admin", "off"], ["--embedded"]):
        assert not (start(*flags).directory / "admin.sock").exists()


def test_the_public_door_does_not_offer_administration(daemon: Daemon, generated: tuple[Any, Any]) -> None:
    messages = importlib.import_module("foreign_v1.admin_pb2")
    service = importlib.import_module("foreign_v1.admin_pb2_grpc")
    with daemon.channel() as channel, refused(grpc.StatusCode.UNIMPLEMENTED):
        service.AdminStub(channel).Trim(messages.TrimRequest(), timeout=PATIENCE_S)
    with grpc.insecure_channel(f"unix:{daemon.directory}/admin.sock") as channel:
        with refused(grpc.StatusCode.UNIMPLEMENTED):
            generated[1].BrokerStub(channel).GetServerInfo(generated[0].GetServerInfoRequest(), timeout=PATIENCE_S)
        asked = health_pb2.HealthCheckRequest(service="arraybridge.v1.Admin")
        assert health_pb2_grpc.HealthStub(channel).Check(asked, timeout=PATIENCE_S).status == 1


def servers(channel: grpc.Channel) -> bytes:
    """The connections that channelz lists."""
    answer: bytes = channel.unary_unary("/grpc.channelz.v1.Channelz/GetServers")(b"", timeout=PATIENCE_S)
    return answer


def test_administrators_can_list_connections(daemon: Daemon, session: Session) -> None:
    with grpc.insecure_channel(f"unix:{daemon.directory / 'admin.sock'}") as channel:
        assert servers(channel)
    with refused(grpc.StatusCode.UNIMPLEMENTED):
        servers(session.channel)


def test_other_users_cannot_list_connections(start: Callable[..., Daemon], tmp_path: Path) -> None:
    config = tmp_path / "others.toml"
    config.write_text('access.admins = ["uid:61009"]\n')
    other = start("--config", str(config))
    with grpc.insecure_channel(f"unix:{other.directory / 'admin.sock'}") as channel:
        with refused(grpc.StatusCode.CANCELLED):
            servers(channel)
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert health.status == health_pb2.HealthCheckResponse.SERVING


def test_only_administrators_are_served(place: Place, user: Callable[..., User]) -> None:
    admins = f'[access]\nadmins = ["root", "uid:{ALICE}", "gid:{OPERATORS}:ro"]\n'
    daemon = place.daemon(admins)
    # All users can connect to the socket; only the access list decides.
    (daemon.directory / "admin.sock").chmod(0o666)
    alice, bob, looks = user(ALICE).act, user(BOB).act, user(BOB, [OPERATORS]).act
    assert isinstance(alice("administer", "SetQuota", of={"namespace": "default", "uid": BOB}, bytes=1), bytes)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("List", {}), ("GetQuota", {"of": {"namespace": "default", "uid": ALICE}}), ("GetConfig", {}),
        ("SetQuota", {"of": {"namespace": "default", "uid": ALICE}, "bytes": 1}), ("EndSession", {"session": 1}),
        ("Withdraw", {"shares": [{"name": "a"}]}), ("Trim", {}), ("Reload", {}), ("Drain", {}), ("Shutdown", {}),
        ("GetRecovery", {}), ("Upgrade", {}),
    ]  # fmt: skip
    for verb, fields in requests:
        told = bob("administer", verb, **fields)
        assert told == {"code": 7, "text": f"user {BOB} is not an administrator of this broker"}, verb
        told = looks("administer", verb, **fields)
        if verb in ("List", "GetQuota", "GetConfig", "GetRecovery"):
            assert isinstance(told, bytes), verb
        else:
            assert told == {"code": 7, "text": f"user {BOB} may only look, not change anything"}, verb
    assert f"administration refused: uid={BOB} Shutdown" in daemon.log.read_text()
    # The list may change while the daemon runs.
    place.configure(admins.replace(str(ALICE), str(BOB)))
    assert done(daemon, "reload") == "changed access.admins\n"
    assert isinstance(bob("administer", "Trim"), bytes)
    assert alice("administer", "Trim")["code"] == 7
    (daemon.directory / "admin.sock").chmod(0o600)
    assert alice("administer", "Trim")["code"] == 14


def test_only_the_sockets_group_can_connect(place: Place, user: Callable[..., User]) -> None:
    """As arraybridged-admin.socket creates it: a socket with its own group, whose members are administrators."""
    daemon = place.daemon(f'[access]\nadmins = ["root", "gid:{OPERATORS}"]\n')
    os.chown(daemon.directory / "admin.sock", 0, OPERATORS)
    (daemon.directory / "admin.sock").chmod(0o660)
    member, stranger = user(ALICE, [OPERATORS]).act, user(BOB).act
    assert isinstance(member("administer", "SetQuota", of={"namespace": "default", "uid": BOB}, bytes=1 << 20), bytes)
    assert isinstance(member("administer", "Trim"), bytes)
    # The file's mode refuses the user before the list is checked.
    assert stranger("administer", "Trim")["code"] == 14
    assert "administration refused" not in daemon.log.read_text()
    # The right to connect is not sufficient.
    place.configure('[access]\nadmins = ["root"]\n')
    assert done(daemon, "reload") == "changed access.admins\n"
    assert member("administer", "Trim") == {"code": 7, "text": f"user {ALICE} is not an administrator of this broker"}


@pytest.mark.parametrize("admins", ['["token:/etc/hostname"]', '["same_uid"]', "[]", '["nobody-by-this-name"]'])
def test_impossible_administrators_are_refused_in_the_configuration(tmp_path: Path, admins: str) -> None:
    path = tmp_path / "arraybridged.toml"
    path.write_text(f"[access]\nadmins = {admins}\n")
    checked = subprocess.run([DAEMON, "--config", path, "--check-config"], capture_output=True, text=True)
    assert (checked.returncode, f"{path}:2:1: " in checked.stderr) == (2, True), checked.stderr
