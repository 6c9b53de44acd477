# SPDX-License-Identifier: Apache-2.0
"""arraybridgectl with a real daemon: its output and its exit codes."""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from foreign_client import CTL, DAEMON, ROOT, Daemon, Session, eventually

ERROR, USAGE, CANNOT_CONNECT, PERMISSION, NOT_FOUND, EXHAUSTED, TIMEOUT = range(1, 8)


# Not by subprocess's own arguments: for those it forks, which gRPC's threads in this process do not always survive.
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def ctl(*arguments: object, prefix: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    known = {key: value for key, value in os.environ.items() if key not in ("ARRAYBRIDGE_ADDRESS", "XDG_RUNTIME_DIR")}
    return subprocess.run([*prefix, str(CTL), *map(str, arguments)], capture_output=True, text=True, env={**known, **environment})


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, generated: tuple[Any, Any]) -> Iterator[Session]:
    """Five shares and their producer's session."""
    daemon = Daemon(tmp_path_factory.mktemp("ctl") / "arraybridge", ticket_lifetime="1s")
    session = Session(daemon, *generated)
    for index in range(5):
        session.publish(f"share {index}", bytes(2048))
    yield session
    session.close()
    assert daemon.terminate() == 0


@pytest.fixture(scope="module")
def address(session: Session) -> Path:
    return session.daemon.directory


def test_ping(address: Path) -> None:
    answer = ctl("-H", address, "ping")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "ok\n", "")


def test_the_address_may_be_a_uri_or_come_from_the_environment(address: Path) -> None:
    assert ctl("ping", "-H", f"unix://{address}/broker.sock").returncode == 0
    assert ctl("ping", ARRAYBRIDGE_ADDRESS=str(address)).returncode == 0
    assert ctl("ping", XDG_RUNTIME_DIR=str(address.parent)).returncode == 0
    relative = os.path.relpath(address.parent)
    assert ctl("ping", XDG_RUNTIME_DIR=relative).returncode == CANNOT_CONNECT, "a relative directory is ignored"
    assert ctl("ping", "-H", "/nonexistent", ARRAYBRIDGE_ADDRESS=str(address)).returncode == CANNOT_CONNECT


def test_info(address: Path, session: Session) -> None:
    table = ctl("info", "-H", address)
    assert table.returncode == 0
    assert table.stdout.startswith("WHAT ")
    assert "serving" in table.stdout
    info = json.loads(ctl("info", "-H", address, "-o", "json").stdout)
    assert info["protocol_max"] == 1
    assert info["limits"]["frame_bytes_max"] == "65536"
    assert session.opened.token.hex() not in table.stdout


def test_ls_prints_a_table(address: Path) -> None:
    lines = ctl("-H", address, "ls").stdout.splitlines()
    assert lines[0].split()[:4] == ["NAMESPACE", "NAME", "GENERATION", "SIZE"]
    assert len(lines) == 6
    column = lines[0].index("NAME", 9)
    assert sorted(line[column : column + 7] for line in lines[1:]) == [f"share {index}" for index in range(5)]
    assert all("2 KiB" in line and "uint8[2048]" in line for line in lines[1:])
    assert ctl("-H", address, "--no-header", "ls", "shares").stdout.splitlines() != []
    assert not ctl("-H", address, "ls", "--no-header").stdout.startswith("NAMESPACE")


def test_ls_as_json_holds_the_messages(address: Path, session: Session) -> None:
    shares = json.loads(ctl("-H", address, "-o", "json", "ls").stdout)["shares"]
    assert sorted(info["share"]["name"] for info in shares) == [f"share {index}" for index in range(5)]
    assert shares[0]["share"]["handle"]["size"] == "2048"
    sessions = json.loads(ctl("-H", address, "-o", "json", "ls", "sessions").stdout)["sessions"]
    assert sorted(info["client"] for info in sessions) == ["arraybridgectl", "foreign"]
    devices = json.loads(ctl("-H", address, "-o", "json", "ls", "devices").stdout)["devices"]
    assert int(devices[0]["capacity_bytes"]) > 0


def test_ls_follows_pages_to_the_end(address: Path, session: Session) -> None:
    for _ in range(6):  # more rows than fit into one page
        session.call("Acquire", namespace="default", shares=[{"name": "share 0"}] * 100)
    assert session.call("List", kind="LEASES").next_page_token
    leases = json.loads(ctl("-H", address, "-o", "json", "ls", "leases").stdout)
    assert len(leases["leases"]) == 600
    assert leases["next_page_token"] == ""


def test_stats(address: Path) -> None:
    table = ctl("-H", address, "stats")
    assert table.returncode == 0
    assert any(line.split() == ["shares", "5"] for line in table.stdout.splitlines())
    assert "device cpu" in table.stdout
    stats = json.loads(ctl("-H", address, "-o", "json", "stats").stdout)
    assert (stats["shares"], stats["pending_fences"], stats["lost_fences_total"]) == ("5", "0", "0")
    assert stats["devices"][0]["quarantined_bytes"] == "0"


@pytest.mark.parametrize("what", ["shares", "sessions", "leases", "namespaces", "devices"])
def test_every_table_has_its_header(address: Path, what: str) -> None:
    answer = ctl("-H", address, "ls", what)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split("\n")[0].isupper()


def test_a_namespace_is_a_filter(address: Path) -> None:
    assert json.loads(ctl("-H", address, "-o", "json", "-n", "default", "ls").stdout)["shares"]
    assert json.loads(ctl("-H", address, "-o", "json", "-n", "elsewhere", "ls").stdout)["shares"] == []


def test_its_session_ends_with_it(address: Path, session: Session) -> None:
    ctl("-H", address, "ls")
    eventually("its session has ended", lambda: session.call("GetStats").sessions == 1)


@pytest.mark.parametrize(
    "arguments",
    [[], ["bogus"], ["ls", "everything"], ["-o", "xml", "ping"], ["--timeout", "5", "ping"], ["-H", "http://h", "ping"]],
    ids=" ".join,
)
def test_usage(arguments: list[str]) -> None:
    assert ctl(*arguments).returncode == USAGE


@pytest.mark.parametrize("command", ["ping", "reload", "cdi generate"])
def test_an_address_of_another_host_is_refused(command: str) -> None:
    for named in ("tcp://192.0.2.7:9443", "[::1]:9443"):
        done = ctl("-H", named, *command.split())
        assert done.stderr.startswith(f"arraybridgectl: address '{named}': expected a directory or unix:///path; TCP was removed"), done
        assert done.returncode == USAGE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lst"], "'lst' is not a command of arraybridgectl: did you mean 'ls'? 'arraybridgectl --help' lists its commands"),
        (["pimg", "-n", "team"], "'pimg' is not a command of arraybridgectl: did you mean 'ping'?"),
        (["quota", "gett", "own"], "'gett' is not a command of arraybridgectl quota: did you mean 'get'?"),
        (["chanel", "ls"], "'chanel' is not a command of arraybridgectl: did you mean 'channel'?"),
        (["chanel", "show", "frames"], "'chanel' is not a command of arraybridgectl: did you mean 'channel'?"),
        (["channel", "sow", "ls"], "'sow' is not a command of arraybridgectl channel: did you mean 'show'?"),
        (["sats", "--help"], "'sats' is not a command of arraybridgectl: did you mean 'stats'?"),
        (["photograph"], "'photograph' is not a command of arraybridgectl: 'arraybridgectl --help' lists its commands"),
        (["\x1b[31mls"], r"'\x1b[31mls' is not a command"),
        (["x" * 100_000], f"'{'x' * 40}' is not a command"),
        (["--timout", "5s", "ls"], "not expected: 5s --timout"),
        (["quota", "get"], "NAMESPACE is required"),
    ],
    ids=lambda each: " ".join(each)[:20] if isinstance(each, list) else "",
)  # fmt: skip
def test_an_unknown_command_is_answered_with_the_nearest(arguments: list[str], said: str) -> None:
    answer = ctl(*arguments)
    assert (answer.returncode, answer.stdout) == (USAGE, "") and said in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "happened", "then"),
    [
        ("show nope", "namespace 'default' has no share named 'nope'", "arraybridgectl ls lists what there is"),
        ("withdraw nope -n team", "namespace 'team' has no share named 'nope'", "arraybridgectl ls lists what there is"),
        ("get nope nope.npy", "namespace 'default' has no share named 'nope'", "arraybridgectl ls lists what there is"),
        ("channel rm none", "namespace 'default' has no channel 'none'", "arraybridgectl channel ls lists what there is"),
        ("channel show none", "namespace 'default' has no channel 'none'", "arraybridgectl channel ls lists what there is"),
        ("end 77", "no session 77", "arraybridgectl ls sessions --all lists what there is"),
    ],
    ids=lambda each: each.partition(" ")[0],
)  # fmt: skip
def test_what_is_not_there_is_named_and_where_to_look(address: Path, arguments: str, happened: str, then: str) -> None:
    answer = ctl("-H", address, *arguments.split())
    assert (answer.returncode, answer.stdout, answer.stderr) == (NOT_FOUND, "", f"arraybridgectl: {happened}; {then}\n")


def test_a_name_that_is_not_there_is_answered_with_the_nearest(address: Path, session: Session) -> None:
    session.publish("camera_left", bytes(8))
    session.call("OpenChannel", namespace="default", name="preview", role="RECEIVER")
    try:
        for arguments, guess in (
            ("show camera_lfet", "did you mean 'camera_left'? arraybridgectl ls"),
            ("get camera-left nope.npy", "did you mean 'camera_left'? arraybridgectl ls"),
            ("withdraw camera_left -n team", "'camera_left'; arraybridgectl ls"),
            ("show camera_left --generation 77", "of generation 77; arraybridgectl ls"),
            ("channel show prewiev", "did you mean 'preview'? arraybridgectl channel ls"),
            ("trace microscope", "'microscope'; arraybridgectl ls"),
        ):
            answer = ctl("-H", address, *arguments.split())
            assert (answer.returncode, answer.stdout) == (NOT_FOUND, "") and guess in answer.stderr, answer.stderr
    finally:
        session.call("Withdraw", shares=[{"name": "camera_left"}])


def test_no_daemon(tmp_path: Path) -> None:
    answer = ctl("ping", "-H", tmp_path)
    assert answer.returncode == CANNOT_CONNECT
    assert f"cannot connect to {tmp_path}/broker.sock" in answer.stderr
    assert "; arraybridged --directory DIR starts a broker, arraybridgectl doctor looks for the cause" in answer.stderr
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "broker.sock"))
    assert ctl("ping", "-H", tmp_path).returncode == CANNOT_CONNECT


def test_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "broker.sock"))
        silent.listen()
        assert ctl("ping", "-H", tmp_path, "--timeout", "200ms").returncode == TIMEOUT


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_no_permission(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(str(tmp_path / "broker.sock"))
        ours.listen()
        (tmp_path / "broker.sock").chmod(0o600)
        denied = ctl("ping", "-H", tmp_path, prefix=NOBODY)
    assert denied.returncode == PERMISSION, denied


def test_version(address: Path, tmp_path: Path) -> None:
    lines = [line.split() for line in ctl("-H", address, "--no-header", "version").stdout.splitlines()]
    own = lines[0][1]
    assert lines == [["arraybridgectl", own, "1"], ["arraybridged", own, "1", "to", "1"]]
    told = json.loads(ctl("-H", address, "-o", "json", "version").stdout)
    assert told == {"version": own, "protocol": 1, "broker": {"version": own, "protocol_min": 1, "protocol_max": 1}}
    alone = ctl("-H", tmp_path, "version")
    assert (alone.returncode, alone.stdout.split()[:5]) == (0, ["WHAT", "VERSION", "PROTOCOL", "arraybridgectl", own])
    assert "the broker does not answer: cannot connect" in alone.stdout
    assert "broker" not in json.loads(ctl("-H", tmp_path, "-o", "json", "version").stdout)


def test_every_exit_code_occurs(address: Path, tmp_path: Path) -> None:
    assert ctl("-H", address, "ping").returncode == 0
    assert ctl("-H", tmp_path, "doctor").returncode == ERROR
    assert ctl("-H", address, "ls", "--sort", "bogus").returncode == USAGE
    assert ctl("-H", tmp_path, "ping").returncode == CANNOT_CONNECT
    denied = ctl("token", "create", tmp_path / "no" / "token")
    assert denied.returncode == PERMISSION, denied.stderr
    assert ctl("-H", address, "show", "nothing").returncode == NOT_FOUND
    assert ctl("-H", address, "trim", "--device", "cuda:7").returncode == NOT_FOUND
    full = ctl("-H", address, "quota", "set", "default", "--uid", os.getuid(), "--bytes", "1")
    assert full.returncode == 0, full.stderr
    try:
        (tmp_path / "a.npy").write_bytes(NPY)
        assert ctl("-H", address, "--timeout", "30s", "put", tmp_path / "a.npy").returncode == EXHAUSTED
    finally:
        ctl("-H", address, "quota", "set", "default", "--uid", os.getuid(), "--bytes", "default")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "broker.sock"))
        silent.listen()
        assert ctl("-H", tmp_path, "ls", "--timeout", "100ms").returncode == TIMEOUT


# An array without elements, whose share still needs an arena.
NPY = b"\x93NUMPY\x01\0\x38\0{'descr': '|u1', 'fortran_order': False, 'shape': (0,)}\n"


def test_options_may_follow_any_command(address: Path) -> None:
    for words in (["ls"], ["stats"], ["info"], ["doctor"], ["config", "show"], ["quota", "get", "default", "--uid", os.getuid()]):
        answer = ctl(*words, "-H", address, "-o", "json", "--timeout", "30s", "--no-header", "--units", "KiB")
        assert answer.returncode == 0, (words, answer.stderr)
        json.loads(answer.stdout)


def test_units_are_those_of_every_table(address: Path) -> None:
    assert "2.0 KiB" in ctl("-H", address, "ls", "--units", "KiB").stdout
    assert " 2048 B " in ctl("-H", address, "--units", "B", "ls").stdout
    assert "GiB" in ctl("-H", address, "stats", "--units", "GiB").stdout
    assert "2048" in ctl("-H", address, "-o", "csv", "ls", "--units", "GiB").stdout  # CSV has bytes for any units
    assert ctl("-H", address, "ls", "--units", "KB").returncode == USAGE


def test_the_default_configuration_is_the_one_that_is_shipped() -> None:
    shipped = (ROOT / "deploy/config/arraybridged.toml").read_text()
    answer = ctl("config", "default")
    assert (answer.returncode, answer.stdout) == (0, shipped)


def test_a_configuration_is_checked_by_the_daemon(tmp_path: Path) -> None:
    where = {"PATH": f"{DAEMON.parent}:{os.environ['PATH']}"}
    config = tmp_path / "arraybridged.toml"
    config.write_text(ctl("config", "default").stdout)
    answer = ctl("config", "check", config, **where)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "valid\n", "")
    config.write_text("version = 1\n[limits]\nsessions = -1\n[memory.host]\ncahce = '1MiB'\n[log]\nlevel = 'loud'\n")
    answer = ctl("config", "check", config, **where)
    assert (answer.returncode, answer.stdout) == (ERROR, "")
    *errors, last = answer.stderr.splitlines()
    assert last == "arraybridgectl: a broker does not start with this configuration"
    assert [each.partition(": ")[2] for each in errors] == [
        f"{config}:3:1: '-1' is not a whole number",
        f"{config}:5:1: memory.host.cahce is unknown: did you mean memory.host.cache?",
        f"{config}:7:1: 'loud' is not one of debug, info, warn, error, off",
    ]
    answer = ctl("config", "check", ARRAYBRIDGED_LIMITS__SESSIONS="many", **where)
    assert (answer.returncode, "ARRAYBRIDGED_LIMITS__SESSIONS" in answer.stderr) == (ERROR, True)
    # The tool alone in a folder, with an empty $PATH.
    alone = tmp_path / "arraybridgectl"
    shutil.copy(CTL, alone)
    done = subprocess.run([alone, "config", "check"], capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert (done.returncode, "no arraybridged beside this program" in done.stderr) == (NOT_FOUND, True)
    (tmp_path / "arraybridged").symlink_to(DAEMON)
    done = subprocess.run([alone, "config", "check"], capture_output=True, text=True, env={"PATH": ""})
    assert (done.returncode, done.stdout) == (0, "valid\n")


def test_csv_has_bytes_and_milliseconds_and_quotes_where_needed(address: Path, session: Session) -> None:
    session.publish('a, "b"', bytes(4096))
    try:
        rows = list(csv.DictReader(ctl("-H", address, "-o", "csv", "ls").stdout.splitlines()))
        assert {row["NAME"] for row in rows} == {*(f"share {index}" for index in range(5)), 'a, "b"'}
        assert {row["SIZE"] for row in rows} == {"2048", "4096"}
        assert all(row["AGE"].isdigit() for row in rows)
        lines = ctl("-H", address, "-o", "csv", "--no-header", "ls").stdout.splitlines()
        assert len(lines) == 6 and not lines[0].startswith("NAMESPACE")
    finally:
        session.call("Withdraw", namespace="default", shares=[{"name": 'a, "b"'}])


def test_jsonl_is_an_object_a_line(address: Path) -> None:
    shares = [json.loads(line) for line in ctl("-H", address, "-o", "jsonl", "ls").stdout.splitlines()]
    assert sorted(info["share"]["name"] for info in shares) == [f"share {index}" for index in range(5)]
    (stats,) = ctl("-H", address, "-o", "jsonl", "stats").stdout.splitlines()
    assert json.loads(stats)["shares"] == "5"
    findings = [json.loads(line)["what"] for line in ctl("-H", address, "-o", "jsonl", "doctor").stdout.splitlines()]
    assert "broker" in findings


def test_text_of_other_users_cannot_control_the_terminal(address: Path, session: Session, tmp_path: Path) -> None:
    """A name may change the direction of writing, a dtype is any UTF-8: both are shown as escapes; JSON keeps their value."""
    name, dtype = "a\u202egpj", "\x1b[31mred\n\u202e"
    allocated = session.call("Allocate", namespace="default", size=256)
    redeemed, descriptor = session.lifeline.redeem(allocated.ticket)
    os.close(descriptor)
    session.call("Mapped", arena=redeemed.handle.arena)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": dtype, "shape": [256], "size": 256}
    session.call("Publish", namespace="default", name=name, arena=redeemed.handle.arena,
                 arena_generation=redeemed.handle.generation, size=256, specs={"arrays": [spec]})  # fmt: skip
    try:
        told = [ctl("-H", address, *form, "ls") for form in ([], ["-o", "csv"], ["-o", "json"], ["-o", "jsonl"])]
        told += [ctl("-H", address, "show", name), ctl("-H", address, "get", name, str(tmp_path / "file.npy"))]
        for answer in told:
            shown = answer.stdout + answer.stderr
            assert not any(letter in shown for letter in "\x1b\u202e"), shown
        assert "\\x1b[31mred\\x0a\\u202e" in told[0].stdout
        shares = [json.loads(line)["share"] for line in told[3].stdout.splitlines()]
        assert [(s["name"], s["specs"]["arrays"][0]["dtype"]) for s in shares if s["name"] == name] == [(name, dtype)]
    finally:
        session.call("Withdraw", namespace="default", shares=[{"name": name}])


def test_top_once_shows_the_current_state(address: Path) -> None:
    lines = ctl("-H", address, "top", "--once").stdout.splitlines()
    assert lines[0].split()[:2] == ["SESSIONS", "SHARES"]
    assert lines[1].split()[:2] == ["2", "5"]  # this command has a session too
    assert any(line.startswith("NAMESPACE") for line in lines) and any("foreign" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_top_shows_rates(address: Path, session: Session) -> None:
    top = subprocess.Popen([CTL, "-H", address, "-o", "csv", "top", "-c", "2", "-d", "1s"], stdout=subprocess.PIPE, text=True, bufsize=1)
    assert top.stdout is not None
    assert top.stdout.readline().startswith("SESSIONS,SHARES")
    first = top.stdout.readline().rstrip("\n").split(",")
    for _ in range(10):
        session.call("Acquire", namespace="default", shares=[{"name": "share 0"}] * 20)
    second = top.communicate()[0].rstrip("\n").split(",")
    assert first[8:] == ["", "", ""]  # no rates at first
    assert int(second[9]) > 0  # acquires per second
    assert int(second[2]) >= int(first[2]) + 200  # leases
    assert top.returncode == 0


def test_top_shows_channels_and_one_flag_has_one_meaning(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start()
    session = open_session(daemon, client="infer")
    session.call("OpenChannel", namespace="elsewhere", name="frames", role="RECEIVER", capacity=3)
    lines = ctl("-H", daemon.directory, "top", "-c", "1").stdout.splitlines()
    header = next(line for line in lines if "CHANNEL" in line)
    assert {"SENDERS", "QUEUED", "OLDEST", "RATE"} <= set(header.split()) and "frames" in lines[lines.index(header) + 1]
    assert any("infer" in line for line in lines)
    assert "frames" not in ctl("-H", daemon.directory, "top", "-c", "1", "-n", "default").stdout  # -n is the namespace everywhere


def test_a_command_about_shares_points_to_the_channel_of_that_name(
    start: Callable[..., Daemon], open_session: Callable[..., Session]
) -> None:
    daemon = start()
    open_session(daemon).call("OpenChannel", namespace="default", name="frames", role="RECEIVER")
    for command in ("trace", "show", "explain"):
        told = ctl("-H", daemon.directory, command, "frames")
        assert told.returncode != 0 and "a channel has that name: arraybridgectl channel show" in told.stderr
        assert "channel show" not in ctl("-H", daemon.directory, command, "frame").stderr


def test_top_reports_that_there_is_no_daemon(tmp_path: Path) -> None:
    assert ctl("-H", tmp_path, "top", "--once").returncode == CANNOT_CONNECT


def completed(*words: str) -> set[str]:
    """Bash's completions for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    script = f"source <('{CTL}' completion bash); COMP_WORDS=(arraybridgectl {line}); COMP_CWORD={len(words)}; _arraybridgectl"
    done = subprocess.run(["bash", "-c", script + '; printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_values() -> None:
    assert completed("l") == {"load", "ls"}
    assert completed("ls", "s") == {"shares", "sessions"}
    assert completed("-o", "") == {"table", "wide", "csv", "json", "jsonl"}
    assert completed("--units", "M") == {"MiB"}
    assert completed("cdi", "") == {"generate"}
    assert completed("token", "") == {"create", "revoke", "ls"}
    assert completed("channel", "") == {"ls", "show", "drain", "rm"}
    assert completed("--sort", "s") == {"senders", "sent", "service", "session", "share", "shares", "size", "stream"}
    assert completed("top", "--") == {"--help", "--count", "--delay", "--once", "--batch"}
    assert completed("--no") == {"--no-header"}


@pytest.mark.parametrize(("shell", "check"), [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_every_shell_reads_its_script(shell: str, check: list[str], tmp_path: Path) -> None:
    script = tmp_path / f"completion.{shell}"
    script.write_text(ctl("completion", shell).stdout)
    for word in ("doctor", "namespace", "jsonl"):
        assert word in script.read_text()
    if shutil.which(check[0]) is None:
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([*check, script], capture_output=True, text=True).returncode == 0


def test_another_shell_is_refused() -> None:
    assert ctl("completion", "tcsh").returncode == USAGE
