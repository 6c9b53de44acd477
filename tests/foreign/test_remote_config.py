# SPDX-License-Identifier: Apache-2.0
"""--check-config for the TCP door and its certificates, and arraybridgectl through that door."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority, openssl
from foreign_client import DAEMON
from remote import Files, Pki, RemoteDaemon
from test_arraybridgectl import CANNOT_CONNECT, PERMISSION, TIMEOUT, USAGE, ctl
from test_remote import Start, pki, remote, start_remote

__all__ = ["pki", "remote", "start_remote"]

NOT_FOUND = 5
TLS = 'server.tls = {{ cert = "{0}/cert.pem", key = "{0}/key.pem", client_ca = "{0}/client_ca.pem" }}\n'


def check(config: Path, *flags: str) -> tuple[int, str]:
    command = [DAEMON, "--config", str(config), "--check-config", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == ("valid\n" if done.returncode == 0 else "")
    return done.returncode, done.stderr


@pytest.fixture
def files(tmp_path: Path, pki: Pki) -> Files:
    return Files(tmp_path / "tls", pki)


@pytest.fixture
def config(tmp_path: Path, files: Files) -> Path:
    path = tmp_path / "arraybridged.toml"
    path.write_text('server.listen = ["tcp://127.0.0.1:0"]\n' + TLS.format(files.folder))
    return path


def test_valid_files_are_accepted(config: Path) -> None:
    assert check(config) == (0, "")


Spoil = Callable[[Files, Pki, Authority], object]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda files, *_: (files.folder / "cert.pem").unlink(), "cert.pem: No such file or directory"),
        (lambda files, *_: (files.folder / "key.pem").chmod(0o644), "key.pem: other users may read or write it (chmod o-rw)"),
        (lambda files, *_: (files.folder / "cert.pem").chmod(0o646), "cert.pem: other users may write it (chmod o-w)"),
        (lambda files, *_: (files.folder / "client_ca.pem").write_text("-"), "client_ca.pem: holds no certificate in PEM"),
        (lambda files, *_: (files.folder / "key.pem").write_text("-"), "key.pem: holds no private key in PEM"),
        (
            lambda files, pki, _: (files.folder / "key.pem").write_bytes(pki.bob.key.read_bytes()),
            "key.pem: the private key does not match the certificate in ",
        ),
        (
            lambda files, pki, _: openssl("ec", "-in", pki.server.key, "-aes128", "-passout", "pass:x", "-out", files.folder / "key.pem"),
            "key.pem: the private key needs a password, which the daemon cannot ask for",
        ),
        (
            lambda files, pki, _: (files.folder / "cert.pem").write_text(pki.server.cert.read_text() + "-----BEGIN CERTIFICATE-----\n"),
            "cert.pem: the text after certificate 1 is not PEM",
        ),
        (
            lambda files, _, authority: files.put(authority.issue_server("past", days=-1)),
            "cert.pem: the certificate expired on 20",
        ),
        (
            lambda files, _, authority: files.put(authority.issue("client", usage="clientAuth")),
            "cert.pem: the certificate is not for servers",
        ),
        (lambda files, *_: [(files.folder / "key.pem").unlink(), (files.folder / "key.pem").mkdir()], "key.pem: is not a file"),
    ],
    ids=["missing", "public key file", "public cert file", "no CA", "no key", "other key", "locked", "cut", "expired", "client's", "folder"],
)  # fmt: skip
def test_the_error_names_the_file_and_its_defect(config: Path, files: Files, pki: Pki, spoil: Spoil, told: str) -> None:
    spoil(files, pki, pki.authority)
    code, text = check(config)
    assert code == 2
    assert told in text
    if "expired" not in told:
        assert f"{config}:2:" in text  # line and column of the setting that names the file


def test_a_daemon_whose_certificate_has_expired_serves_its_own_host(start_remote: Start, pki: Pki, tmp_path: Path) -> None:
    remote = start_remote()
    remote.files.put(pki.authority.issue_server("over", days=-1))
    remote.reload()
    assert "cert.pem: the certificate expired on" in remote.log.read_text()
    assert ctl("-H", remote.directory, "ping").returncode == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "tcp://127.0.0.1:0 needs server.tls.cert (a file): the TCP door accepts only TLS with client certificates"),
        ('server.tls.cert = "/a"\nserver.tls.key = "/b"\n', "needs server.tls.client_ca"),
        ('server.tls.cert = "a.pem"\n', "'a.pem' is not an absolute path"),
        ('server.tls.certificate = "/a"\n', "server.tls.certificate is unknown"),
    ],
)
def test_no_tcp_without_tls(tmp_path: Path, text: str, told: str) -> None:
    config = tmp_path / "arraybridged.toml"
    config.write_text('server.listen = "tcp://127.0.0.1:0"\n' + text)
    code, said = check(config)
    assert (code, told in said) == (2, True), said
    assert f"{config}:" in said


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("tcp://localhost:1", "'localhost' is not a numeric address"),
        ("tcp://::1:9443", "'::1:9443' is not HOST:PORT"),
        ("tcp://127.0.0.1", "is not HOST:PORT"),
        ("tcp://127.0.0.1:70000", "is not HOST:PORT"),
        ("http://127.0.0.1:1", "is neither unix:///path nor tcp://HOST:PORT nor off"),
        ("off,tcp://127.0.0.1:1", "'off' is neither"),
        ("unix:///a,unix:///b", "'unix:///b' is a second Unix socket"),
        ("tcp://127.0.0.1:1,tcp://127.0.0.1:1", "is listed twice"),
    ],
)
def test_listen_addresses_are_checked(config: Path, listen: str, told: str) -> None:
    code, text = check(config, "--listen", listen)
    assert (code, told in text, "--listen: " in text) == (2, True, True), text


def test_flags_and_environment_set_the_same_values(config: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = [f"--tls-{name.replace('_', '-')}={files.folder}/{name}.pem" for name in ("cert", "key", "client_ca")]
    config.write_text("")
    several = ["--listen", "unix:///x/broker.sock", "--listen", "tcp://[::1]:9443", "--listen", "tcp://0.0.0.0:9443"]
    assert check(config, *several, *flags) == (0, "")
    for name in ("CERT", "KEY", "CLIENT_CA"):
        monkeypatch.setenv(f"ARRAYBRIDGED_SERVER__TLS__{name}", f"{files.folder}/{name.lower()}.pem")
    monkeypatch.setenv("ARRAYBRIDGED_SERVER__LISTEN", "tcp://127.0.0.1:1")
    assert check(config) == (0, "")
    printed = subprocess.run([DAEMON, "--config", str(config), "--print-config"], capture_output=True, text=True, check=True).stdout
    assert 'listen = "tcp://127.0.0.1:1"' in printed
    again = config.with_name("printed.toml")
    again.write_text(printed)
    for name in ("TLS__CERT", "TLS__KEY", "TLS__CLIENT_CA", "LISTEN"):
        monkeypatch.delenv(f"ARRAYBRIDGED_SERVER__{name}")
    assert check(again) == (0, "")
    assert "an embedded broker does not listen on TCP" in check(config, "--embedded", "--listen", "tcp://127.0.0.1:1", *flags)[1]


@pytest.mark.parametrize("who", ["subject:alice", "token:/dev/null"])
def test_administrators_are_local_users(config: Path, who: str) -> None:
    config.write_text(f'access.admins = ["{who}"]\n')
    assert check(config)[0] == 2


# ---- arraybridgectl ----


def test_the_tool_connects_over_tcp(remote: RemoteDaemon, pki: Pki) -> None:
    address = f"tcp://{remote.host}:{remote.port}"
    done = ctl("-H", address, *pki.alice.flags(), "ping")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    environment = {
        f"ARRAYBRIDGE_TLS_{name}": str(path)
        for name, path in zip(("CERT", "KEY", "CA"), (pki.alice.cert, pki.alice.key, pki.alice.ca), strict=True)
    }
    listed = ctl("ls", "sessions", "-o", "json", ARRAYBRIDGE_ADDRESS=address, **environment)
    assert [row["subject"] for row in json.loads(listed.stdout)["sessions"]] == ["alice"]
    assert "alice" in ctl("ls", "sessions", ARRAYBRIDGE_ADDRESS=address, **environment).stdout
    named = ctl("-H", address, *pki.alice.flags(), "--tls-name", "broker.test", "info")
    assert named.returncode == 0
    assert ctl("-H", address, *pki.alice.flags(), "-n", "lab", "show", "nothing").returncode == NOT_FOUND
    assert ctl("-H", address, *pki.alice.flags(), "-n", "plant", "show", "nothing").returncode == PERMISSION
    assert ctl("-H", address, *pki.alice.flags(), "doctor").returncode == 0


def test_the_tool_reports_why_it_was_refused(remote: RemoteDaemon, pki: Pki, tmp_path: Path) -> None:
    address = f"tcp://{remote.host}:{remote.port}"

    def told(*flags: object, address: str = address) -> tuple[int, str]:
        done = ctl("-H", address, *flags, "--timeout", "30s", "ping")
        return done.returncode, done.stderr

    assert told(*pki.nobody.flags()) == (
        PERMISSION,
        "arraybridgectl: no access list of a namespace names subject 'nobody'\n",
    )
    for who in (pki.expired, pki.stranger):
        code, text = told(*who.flags(ca=pki.authority.cert))
        assert (code, "refuses this certificate" in text) == (PERMISSION, True), text
    code, text = told(*pki.alice.flags(ca=pki.other.cert))
    assert (code, "its certificate is not trusted" in text) == (CANNOT_CONNECT, True), text
    code, text = told(*pki.alice.flags(), "--tls-name", "another.test")
    assert (code, "hostname mismatch" in text) == (CANNOT_CONNECT, True), text
    with socket.create_server(("127.0.0.1", 0)) as nobody_speaks:
        port = nobody_speaks.getsockname()[1]
        assert ctl("-H", f"tcp://127.0.0.1:{port}", *pki.alice.flags(), "--timeout", "500ms", "ping").returncode == TIMEOUT
    code, text = told(*pki.alice.flags(), address=f"tcp://127.0.0.1:{port}")
    assert (code, "Connection refused" in text) == (CANNOT_CONNECT, True), text


def test_invalid_tls_arguments_are_a_usage_error(remote: RemoteDaemon, pki: Pki, tmp_path: Path) -> None:
    address = f"tcp://{remote.host}:{remote.port}"
    empty = tmp_path / "empty.pem"
    empty.touch()
    flags = pki.alice.flags()
    for wrong, text in (
        ([], "--tls-cert (or $ARRAYBRIDGE_TLS_CERT) must name a file"),
        (flags[:4], "--tls-ca (or $ARRAYBRIDGE_TLS_CA)"),
        (["--tls-cert", empty, *flags[2:]], "contains no certificate in PEM"),
        ([*flags[:2], "--tls-key", empty, *flags[4:]], "contains no private key in PEM"),
        ([*flags[:2], "--tls-key", pki.bob.key, *flags[4:]], "does not fit the certificate"),
        (["--tls-cert", tmp_path / "nowhere", *flags[2:]], "nowhere: No such file"),
    ):
        done = ctl("-H", address, *wrong, "ping")
        assert (done.returncode, text in done.stderr) == (USAGE, True), done.stderr
    assert ctl("-H", "tcp://127.0.0.1", *flags, "ping").returncode == USAGE
    for command in (["reload"], ["ls", "--all"], ["quota", "get", "lab"]):
        done = ctl("-H", address, *flags, *command)
        assert (done.returncode, "not served over TCP" in done.stderr) == (USAGE, True), done.stderr
