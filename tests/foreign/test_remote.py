# SPDX-License-Identifier: Apache-2.0
"""The gRPC door over TCP: access by certificates, and the rights of their subjects."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificate
from foreign_client import PATIENCE_S, Lifeline, Refused, Session, eventually, refused
from remote import Files, Pki, RemoteDaemon

Start = Callable[..., RemoteDaemon]
Open = Callable[..., Session]
DENIED, UNAVAILABLE = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE
NOT_FOUND, EXHAUSTED = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def start_remote(tmp_path: Path, pki: Pki) -> Iterator[Start]:
    daemons: list[RemoteDaemon] = []

    def started(**wishes: Any) -> RemoteDaemon:
        number = len(daemons)
        files = Files(tmp_path / f"tls{number}", pki)
        daemons.append(RemoteDaemon(tmp_path / f"remote{number}", files, uid=os.getuid(), **wishes))
        return daemons[-1]

    yield started
    assert [daemon.terminate() for daemon in daemons] == [0] * len(daemons)


@pytest.fixture
def remote(start_remote: Start) -> RemoteDaemon:
    return start_remote()


def info(remote: RemoteDaemon, who: Certificate | None, generated: tuple[Any, Any]) -> Any:
    messages, service = generated
    with remote.over_tcp(who).channel() as channel:
        return service.BrokerStub(channel).GetServerInfo(messages.GetServerInfoRequest(), timeout=PATIENCE_S)


def publish(session: Session, name: str, namespace: str) -> Any:
    """The bytes of a share that no client could write: zero."""
    handle = session.call("Allocate", namespace=namespace, size=4096).handle
    session.call("Mapped", arena=handle.arena)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [4096], "size": 4096}
    where = {"arena": handle.arena, "arena_generation": handle.generation, "size": 4096}
    return session.call("Publish", namespace=namespace, name=name, specs={"arrays": [spec]}, **where)


# ---- rights of a subject ----


def test_a_subject_has_metadata_and_unusable_tickets(
    remote: RemoteDaemon, pki: Pki, generated: tuple[Any, Any], open_session: Open
) -> None:
    assert info(remote, pki.alice, generated).version
    alice = open_session(remote.over_tcp(pki.alice), capabilities={"kinds": [1, 2, 3]})
    publish(alice, "frame", "lab")
    shares = alice.call("List", kind="SHARES").shares
    assert [(each.share.namespace, each.share.name) for each in shares] == [("lab", "frame")]
    acquired = alice.call("Acquire", namespace="lab", shares=[{"name": "frame"}])
    allocated = alice.call("Allocate", namespace="lab", size=4096)
    assert not allocated.handle.opaque and not acquired.shares[0].share.handle.opaque
    assert len(acquired.tickets) == 1
    # No local client can act as that subject, neither with its session's token nor with its tickets.
    with pytest.raises(Refused) as why:
        Lifeline(remote, alice.messages, alice.opened.token)
    assert why.value.code == NOT_FOUND.value[0]
    local = Lifeline(remote, alice.messages)
    for ticket in (allocated.ticket, acquired.tickets[0]):
        with pytest.raises(Refused) as why:
            local.redeem(ticket)
        assert why.value.code == NOT_FOUND.value[0]
    local.socket.close()


def test_subjects_are_distinguished_by_their_names(remote: RemoteDaemon, pki: Pki, open_session: Open) -> None:
    alice, reader = open_session(remote.over_tcp(pki.alice)), open_session(remote.over_tcp(pki.reader))
    publish(alice, "frame", "lab")
    assert reader.call("Acquire", namespace="lab", shares=[{"name": "frame"}]).shares
    with refused(DENIED, "subject 'spiffe://lab/reader' may only read namespace 'lab'"):
        publish(reader, "other", "lab")
    [row] = alice.call("List", kind="SESSIONS").sessions
    assert (row.subject, row.door, row.process_id) == ("alice", "tcp", 0)
    for namespace in ("", "default", "mine", "hall", "plant"):
        with refused(DENIED, "subject 'alice' may not use namespace"):
            alice.call("Allocate", namespace=namespace, size=4096)


def test_two_subjects_cannot_learn_each_others_names(remote: RemoteDaemon, pki: Pki, open_session: Open) -> None:
    alice, bob = open_session(remote.over_tcp(pki.alice)), open_session(remote.over_tcp(pki.bob))
    publish(alice, "secret", "lab")
    publish(bob, "own", "plant")
    assert [each.share.name for each in bob.call("List", kind="SHARES").shares] == ["own"]
    assert [each.namespace for each in bob.call("List", kind="NAMESPACES").namespaces] == ["plant"]
    assert len(bob.call("List", kind="SESSIONS").sessions) == 1
    told = []
    for name in ("secret", "secreT"):
        with refused(DENIED) as seen:
            bob.call("Acquire", namespace="lab", shares=[{"name": name}])
        told.append(seen["text"])
    assert told[0] == told[1]
    # A session's token does not work with another certificate.
    bob.metadata = alice.metadata
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        bob.call("List", kind="SHARES")


def test_a_subject_in_a_shared_namespace_does_not_become_a_local_user(
    start_remote: Start, pki: Pki, generated: tuple[Any, Any], open_session: Open
) -> None:
    shared = f'[namespace.both]\naccess = ["subject:alice", "uid:{os.getuid()}"]\n'
    remote = start_remote(also=shared)
    local, alice = open_session(remote), open_session(remote.over_tcp(pki.alice))
    _, mapping = local.publish("frame", b"content", namespace="both")
    mapping.close()
    local.publish("frame", b"private")[1].close()
    assert [each.share.namespace for each in alice.call("List", kind="SHARES").shares] == ["both"]
    [row] = alice.call("List", kind="SHARES").shares
    assert (row.maker, row.maker_process_id) == (0, 0)


# ---- refused clients ----


@pytest.mark.parametrize("who", [None, "expired", "stranger"])
def test_clients_without_a_valid_certificate_are_refused(
    remote: RemoteDaemon, pki: Pki, generated: tuple[Any, Any], who: str | None
) -> None:
    with refused(UNAVAILABLE):
        info(remote, getattr(pki, who) if who else None, generated)
    assert info(remote, pki.alice, generated).version
    eventually("it is logged", lambda: "grpc: Handshake failed" in remote.log.read_text())


def test_plain_text_is_refused(remote: RemoteDaemon, pki: Pki, generated: tuple[Any, Any]) -> None:
    messages, service = generated
    with grpc.insecure_channel(f"127.0.0.1:{remote.port}") as channel, refused(UNAVAILABLE):
        service.BrokerStub(channel).GetServerInfo(messages.GetServerInfoRequest(), timeout=PATIENCE_S)
    with socket.create_connection((remote.host, remote.port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.settimeout(PATIENCE_S)
        assert b"HTTP" not in plain.recv(1000)
    assert info(remote, pki.alice, generated).version


def test_a_subject_without_rights_gets_an_error(remote: RemoteDaemon, pki: Pki, generated: tuple[Any, Any], open_session: Open) -> None:
    with refused(DENIED, "no access list of a namespace names subject 'nobody'"):
        info(remote, pki.nobody, generated)
    with refused(DENIED, "subject 'nobody'"):
        open_session(remote.over_tcp(pki.nobody))
    assert "no access list of a namespace names subject 'nobody'" in remote.log.read_text()
    assert open_session(remote.over_tcp(pki.alice)).call("List", kind="SHARES").shares == []


def test_other_services_are_not_offered(remote: RemoteDaemon, pki: Pki) -> None:
    for address in (remote, remote.over_tcp(pki.alice)):
        with address.channel() as channel:
            assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=PATIENCE_S) == b"\x08\x01"
            for method in ("grpc.channelz.v1.Channelz/GetServers", "arraybridge.v1.Admin/GetConfig"):
                with refused(grpc.StatusCode.UNIMPLEMENTED):
                    channel.unary_unary(f"/{method}")(b"", timeout=PATIENCE_S)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_it_uses_a_recent_tls_version_and_http2(remote: RemoteDaemon, pki: Pki) -> None:
    def spoken(most: ssl.TLSVersion) -> tuple[str | None, str | None]:
        context = ssl.create_default_context(cafile=str(pki.authority.cert))
        context.load_cert_chain(pki.alice.cert, pki.alice.key)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = most
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((remote.host, remote.port)) as plain:
            plain.settimeout(PATIENCE_S)
            with context.wrap_socket(plain, server_hostname=remote.host) as tls:
                return tls.version(), tls.selected_alpn_protocol()

    assert spoken(ssl.TLSVersion.TLSv1_3) == ("TLSv1.3", "h2")
    assert spoken(ssl.TLSVersion.TLSv1_2) == ("TLSv1.2", "h2")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        spoken(ssl.TLSVersion.TLSv1_1)


def test_ipv6_has_brackets(start_remote: Start, pki: Pki, generated: tuple[Any, Any]) -> None:
    if not socket.has_ipv6:
        pytest.skip("IPv6 is not available")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("IPv6 is not available on loopback")
    remote = start_remote(host="[::1]")
    assert info(remote, pki.alice, generated).version


# ---- limits between clients ----


def test_unfinished_handshakes_affect_no_other_client(start_remote: Start, pki: Pki, generated: tuple[Any, Any]) -> None:
    remote = start_remote(tcp_connections_per_address="8", hello_timeout="2s")
    greedy = [socket.create_connection((remote.host, remote.port), source_address=("127.0.0.2", 0)) for _ in range(40)]
    assert info(remote, pki.alice, generated).version
    for one in greedy:
        one.settimeout(PATIENCE_S)
        try:
            assert one.recv(1) == b""  # at once or after its timeout
        except ConnectionError:
            pass
        one.close()
    eventually("the log tells", lambda: "limit tcp_connections_per_address (8) is reached" in remote.log.read_text())
    assert info(remote, pki.alice, generated).version


def test_an_unidentified_connection_makes_room_for_a_new_one(start_remote: Start, pki: Pki, open_session: Open) -> None:
    remote = start_remote(tcp_connections="3", hello_timeout="60s")
    silent = [socket.create_connection((remote.host, remote.port)) for _ in range(3)]
    alice = open_session(remote.over_tcp(pki.alice))
    more = [socket.create_connection((remote.host, remote.port)) for _ in range(5)]
    assert alice.call("List", kind="SHARES").shares == []
    for one in silent:
        one.settimeout(PATIENCE_S)
        assert one.recv(1) == b""
    for one in (*silent, *more):
        one.close()


def test_connections_of_a_subject_are_limited(start_remote: Start, pki: Pki, generated: tuple[Any, Any], open_session: Open) -> None:
    remote = start_remote(tcp_connections_per_subject="1")
    first = open_session(remote.over_tcp(pki.alice))
    with refused(EXHAUSTED, "limit tcp_connections_per_subject (1)"):
        info(remote, pki.alice, generated)
    assert info(remote, pki.bob, generated).version
    first.close()
    eventually("there is room again", lambda: _gets_in(remote, pki.alice, generated))


def _gets_in(remote: RemoteDaemon, who: Certificate, generated: tuple[Any, Any]) -> bool:
    try:
        return bool(info(remote, who, generated).version)
    except grpc.RpcError:
        return False


def test_limits_per_user_apply_to_subjects(start_remote: Start, pki: Pki, open_session: Open) -> None:
    remote = start_remote(sessions_per_uid="1", arenas_per_uid="1", watchers_per_uid="1")
    alice = open_session(remote.over_tcp(pki.alice))
    with refused(EXHAUSTED, "sessions_per_uid"):
        open_session(remote.over_tcp(pki.alice))
    bob = open_session(remote.over_tcp(pki.bob))
    publish(alice, "frame", "lab")
    with refused(EXHAUSTED, "arenas_per_uid"):
        alice.call("Allocate", namespace="lab", size=4096)
    publish(bob, "frame", "plant")
    watching = []
    for each in (alice, bob):  # the broker serves calls that come together in any order: each is open before the next
        watching.append(each.stub.Watch(each.messages.WatchRequest(), metadata=each.metadata))
        next(watching[-1])
        with refused(EXHAUSTED, "watchers_per_uid"):
            next(each.stub.Watch(each.messages.WatchRequest(), metadata=each.metadata))
    open_session(remote)


def test_subjects_and_their_names_are_limited(start_remote: Start, pki: Pki, generated: tuple[Any, Any], open_session: Open) -> None:
    remote = start_remote(subjects="1", subject_bytes_max="16")
    with refused(EXHAUSTED, "limits.subject_bytes_max"):
        info(remote, pki.reader, generated)
    with refused(DENIED):
        info(remote, pki.nobody, generated)  # it is not stored
    alice = open_session(remote.over_tcp(pki.alice))
    publish(alice, "frame", "lab")
    with refused(EXHAUSTED, "limit subjects (1)"):
        info(remote, pki.bob, generated)
    assert info(remote, pki.alice, generated).version
    alice.call("Withdraw", namespace="lab", shares=[{"name": "frame"}])
    alice.close()
    eventually("nothing of it is left, and it makes room", lambda: _gets_in(remote, pki.bob, generated))
    assert info(remote, pki.alice, generated).version, "and back"


def test_the_message_size_limit_is_that_of_the_other_door(remote: RemoteDaemon, pki: Pki, open_session: Open) -> None:
    alice = open_session(remote.over_tcp(pki.alice))
    with refused(EXHAUSTED):
        alice.call("Acquire", namespace="lab", shares=[{"name": "x" * 70_000}])
    assert alice.call("List", kind="SHARES").shares == []


class Pipe:
    """A network between two hosts: it forwards data until it is cut, and then sends nothing to either side."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.cut = threading.Event()
        self.ends: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.serve, args=(target,), daemon=True)]
        self.threads[0].start()

    def serve(self, target: tuple[str, int]) -> None:
        here, _ = self.server.accept()
        there = socket.create_connection(target)
        self.ends = [here, there]
        for one, other in ((here, there), (there, here)):
            threading.Thread(target=self.forward, args=(one, other), daemon=True).start()

    def forward(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while chunk := one.recv(65536):
                if not self.cut.is_set():
                    other.sendall(chunk)
        except OSError:
            pass

    def close(self) -> None:
        for each in (self.server, *self.ends):
            each.close()


def test_a_failed_host_of_a_peer_is_detected(start_remote: Start, pki: Pki, open_session: Open) -> None:
    remote = start_remote(tcp_keepalive="500ms")
    pipe = Pipe((remote.host, remote.port))
    through = remote.over_tcp(pki.alice)
    through.target = f"127.0.0.1:{pipe.port}"
    open_session(through)
    local = open_session(remote)
    assert local.call("GetStats").sessions == 2
    pipe.cut.set()
    eventually("its session ends", lambda: local.call("GetStats").sessions == 1)
    pipe.close()


# ---- changes at run time ----


def shown(remote: RemoteDaemon, who: Certificate) -> bytes:
    """The certificate that the server presents."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(who.cert, who.key)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((remote.host, remote.port)) as plain:
        plain.settimeout(PATIENCE_S)
        with context.wrap_socket(plain) as tls:
            return tls.getpeercert(binary_form=True) or b""


def der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.cert.read_text())


def test_new_certificates_are_adopted_and_invalid_ones_are_refused(remote: RemoteDaemon, pki: Pki, open_session: Open) -> None:
    alice = open_session(remote.over_tcp(pki.alice))
    assert shown(remote, pki.alice) == der(pki.server)
    renewed = pki.authority.issue_server("renewed")
    remote.files.put(renewed)
    remote.reload()
    assert shown(remote, pki.alice) == der(renewed)
    # With a key that does not match, the whole reload is refused and the log names the reason.
    (remote.files.folder / "key.pem").write_bytes(pki.bob.key.read_bytes())
    remote.reload()
    log = remote.log.read_text()
    assert "reload refused" in log and f"{remote.config}:4:" in log and "does not match the certificate" in log
    assert shown(remote, pki.alice) == der(renewed)
    assert alice.call("List", kind="SHARES").shares == []


def test_changed_files_are_read_without_a_reload(remote: RemoteDaemon, pki: Pki) -> None:
    assert shown(remote, pki.alice) == der(pki.server)
    (remote.files.folder / "cert.pem").write_text("no certificate")
    eventually("it is told", lambda: shown(remote, pki.alice) and "the old ones stay in use" in remote.log.read_text())
    assert shown(remote, pki.alice) == der(pki.server)
    later = pki.authority.issue_server("later")
    remote.files.put(later)
    eventually("the new one is shown", lambda: shown(remote, pki.alice) == der(later))


def test_clients_of_another_authority_are_accepted_after_it_is_trusted(remote: RemoteDaemon, pki: Pki, generated: tuple[Any, Any]) -> None:
    with refused(UNAVAILABLE):
        info(remote, pki.stranger, generated)
    (remote.files.folder / "client_ca.pem").write_bytes(pki.other.cert.read_bytes())
    remote.reload()
    assert info(remote, pki.stranger, generated).version  # alice, certified by another authority
    with refused(UNAVAILABLE):
        info(remote, pki.alice, generated)


def test_a_subject_that_loses_its_rights_loses_its_session(remote: RemoteDaemon, pki: Pki, open_session: Open) -> None:
    alice, bob = open_session(remote.over_tcp(pki.alice)), open_session(remote.over_tcp(pki.bob))
    remote.write(remote.directory, replace=('"subject:alice", ', ""))
    remote.reload()
    with refused(grpc.StatusCode.CANCELLED):
        next(alice.stream)
    with refused(DENIED):
        open_session(remote.over_tcp(pki.alice))
    assert bob.call("List", kind="SHARES").shares == []


def test_a_subject_continues_its_session_and_keeps_its_number(start_remote: Start, pki: Pki, open_session: Open) -> None:
    """The next daemon knows the subjects of the killed one, in whatever order they come back."""
    remote = start_remote(keeper=True)
    alice = open_session(remote.over_tcp(pki.alice))
    publish(alice, "a", "lab")
    (before,) = alice.call("List", namespace="lab").shares
    remote.kill_below_keeper()
    with refused(UNAVAILABLE):
        list(alice.stream)

    def bob_comes() -> Session | None:
        try:
            return open_session(remote.over_tcp(pki.bob))
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call) and error.code() == UNAVAILABLE, error
            return None

    eventually("the next daemon serves", bob_comes)
    with refused(NOT_FOUND):
        open_session(remote.over_tcp(pki.bob), join=alice.opened.token)
    again = open_session(remote.over_tcp(pki.alice), join=alice.opened.token)
    (after,) = again.call("List", namespace="lab").shares
    assert (after.maker, after.share.name) == (before.maker, "a")
    assert again.opened.session == alice.opened.session
