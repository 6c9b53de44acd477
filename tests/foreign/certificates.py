# SPDX-License-Identifier: Apache-2.0
"""Authorities and certificates, created by openssl for one test run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*arguments: object) -> str:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Certificate:
    cert: Path
    key: Path
    ca: Path  # of the authority that signed it

    def pem(self) -> tuple[bytes, bytes]:
        return self.cert.read_bytes(), self.key.read_bytes()

    def flags(self, ca: Path | None = None) -> list[object]:
        """The flags of arraybridgectl."""
        return ["--tls-cert", self.cert, "--tls-key", self.key, "--tls-ca", ca or self.ca]


class Authority:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.cert = folder / "ca.pem"
        subject = f"/CN={folder.name}"
        openssl("req", "-x509", *CURVE, "-keyout", folder / "ca.key", "-out", self.cert, "-days", "30", "-subj", subject)

    def issue(self, name: str, *, common: str | None = None, san: str = "", usage: str = "", days: int = 30) -> Certificate:
        """`common`: the common name if it differs from the file's name; empty: none. `days` below 0: it has expired."""
        cert, key, request = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        extensions = [line for line in (f"subjectAltName={san}" * bool(san), f"extendedKeyUsage={usage}" * bool(usage)) if line]
        (self.folder / f"{name}.ext").write_text("\n".join(extensions))
        called = name if common is None else common
        subject = f"/CN={called}" if called else "/"
        openssl("req", *CURVE, "-keyout", key, "-out", request, "-subj", subject)
        signer = ["-CA", self.cert, "-CAkey", self.folder / "ca.key", "-CAcreateserial"]
        openssl("x509", "-req", "-in", request, *signer, "-days", days, "-extfile", self.folder / f"{name}.ext", "-out", cert)
        os.chmod(key, 0o600)
        return Certificate(cert, key, self.cert)

    def issue_server(self, name: str, **wishes: object) -> Certificate:
        return self.issue(name, san="IP:127.0.0.1,IP:::1,DNS:broker.test", **wishes)  # type: ignore[arg-type]
