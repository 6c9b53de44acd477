# SPDX-License-Identifier: Apache-2.0
"""A daemon with a TCP door, and its clients."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import grpc
from certificates import Authority, Certificate
from foreign_client import Address, Daemon, eventually

CONFIG = """
[server]
listen = ["unix://{directory}/broker.sock", "tcp://{host}:0"]
tls = {{ cert = "{folder}/cert.pem", key = "{folder}/key.pem", client_ca = "{folder}/client_ca.pem" }}
[memory.host]
capacity = "64MiB"
[log]
format = "text"
[namespace.lab]
access = ["subject:alice", "subject:spiffe://lab/reader:ro"]
[namespace.plant]
access = ["subject:bob"]
[namespace.hall]
access = ["anyone", "uid:{uid}", "gid:{uid}"]
"""


class Pki:
    """An authority that the daemon trusts, and another one."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        self.other = Authority(folder / "other")
        self.server = self.authority.issue_server("server")
        self.alice = self.authority.issue("alice")
        self.bob = self.authority.issue("bob", san="DNS:bob.test")
        self.reader = self.authority.issue("reader", common="", san="URI:spiffe://lab/reader")
        self.nobody = self.authority.issue("nobody")
        self.expired = self.authority.issue("expired", common="alice", days=-1)
        self.stranger = self.other.issue("stranger", common="alice")


class Files:
    """The folder of the daemon's certificates."""

    def __init__(self, folder: Path, pki: Pki) -> None:
        self.folder = folder
        folder.mkdir()
        self.put(pki.server)
        shutil.copy(pki.authority.cert, folder / "client_ca.pem")
        shutil.copy(pki.authority.cert, folder / "server_ca.pem")

    def put(self, certificate: Certificate) -> None:
        """Replaces each file atomically, as tools that renew certificates do."""
        for name, source in (("cert.pem", certificate.cert), ("key.pem", certificate.key)):
            fresh = self.folder / f"{name}.new"
            shutil.copy(source, fresh)
            fresh.chmod(0o600)
            fresh.rename(self.folder / name)


class RemoteDaemon(Daemon):
    """A daemon that also listens on TCP on loopback."""

    def __init__(
        self, directory: Path, files: Files, host: str = "127.0.0.1", also: str = "", uid: int = 0, keeper: bool = False, **limits: str
    ) -> None:
        self.config = directory.with_suffix(".toml")
        self.host = host
        self.files = files
        self.uid = uid
        self.write(directory, also)
        super().__init__(directory, *["--keeper"] * keeper, "--config", str(self.config), **limits)
        told = re.search(r"listening at tcp://(\S+):(\d+)", self.log.read_text())
        assert told and told[1] == host
        self.port = int(told[2])

    def write(self, directory: Path, also: str = "", replace: tuple[str, str] = ("", "")) -> None:
        text = CONFIG.format(directory=directory, host=self.host, folder=self.files.folder, uid=self.uid) + also
        self.config.write_text(text.replace(*replace))

    def reload(self) -> None:
        """Returns when the reload is finished."""
        count = self.log.read_text().count("reload")
        self.process.send_signal(signal.SIGHUP)
        eventually("the reload", lambda: self.log.read_text().count("reload") > count)

    def over_tcp(self, who: Certificate | None, ca: Path | None = None) -> Remote:
        return Remote(self, who, ca or self.files.folder / "server_ca.pem")


class Remote(Address):
    """A channel to the TCP door with this certificate."""

    def __init__(self, daemon: RemoteDaemon, who: Certificate | None, ca: Path) -> None:
        super().__init__(daemon.directory)
        self.target = f"{daemon.host}:{daemon.port}"
        cert, key = who.pem() if who else (None, None)
        self.credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key, cert)

    def channel(self) -> grpc.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        return grpc.secure_channel(self.target, self.credentials, options=options)
