# SPDX-License-Identifier: Apache-2.0
"""A container engine: podman with images and containers of its own, apart from the user's; or the one that $ENGINE names."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import debian
import pytest
from machine import ALONE

ROOT = Path(__file__).resolve().parents[2]
STORE = debian.CACHE / "engine"
STATE = Path("/run/arraybridge-tests")
(VERSION,) = re.findall(r"^project\(arraybridge VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
# Names of Docker Hub's images, which Debian's own packages stand for here.
SLIM, FULL, PYTHON = (f"docker.io/library/{name}" for name in ("debian:12-slim", "debian:12", "python:3.11-slim"))
DESCRIPTORS = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)  # that a container may have open
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES")  # ccache counts them
# A container like that of deploy/container/compose.yaml: no right, no network, nothing to write to.
RESTRICTED = ["--user=1000:1000", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"]


class Engine:
    """`own`: podman, whose store is in the cache. Its images stay; its containers and volumes end with the tests."""

    def __init__(self, words: Sequence[str], own: bool) -> None:
        self.words = [*words]
        self.own = own
        self.environment = {**os.environ, "ENGINE": shlex.join(words)}
        self.run_flags = shlex.split(os.environ.get("ENGINE_RUN_FLAGS", ""))
        if own:
            self.environment |= configure()

    def try_(self, *words: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*self.words, *map(str, words)]
        return subprocess.run(command, input=text or "", capture_output=True, text=True, env=self.environment, cwd=ROOT)

    def do(self, *words: object, text: str | None = None) -> str:
        """The output of a command that must succeed."""
        done = self.try_(*words, text=text)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def run(self, image: str, *words: object, flags: Sequence[object] = ()) -> list[str]:
        """The words that run a restricted container."""
        return [*self.words, *map(str, ("run", *self.run_flags, *RESTRICTED, *flags, image, *words))]

    def image(self, *flags: str) -> str:
        """arraybridged, of deploy/container/Containerfile: of the archive $ARRAYBRIDGE_IMAGE, else by deploy/image with these flags."""
        tag = f"arraybridged:{VERSION}"
        if "ARRAYBRIDGE_IMAGE" in os.environ:
            self.try_("rmi", "--force", tag)
            self.do("load", "--input", os.environ["ARRAYBRIDGE_IMAGE"])
            return tag
        variables = dict(self.environment)
        if self.own:
            self.base_images()
            if flags:
                self.base_images_of_aarch64()
            cache = os.environ.get("CCACHE_DIR") or str(debian.CACHE / "ccache")
            variables["ENGINE_BUILD_FLAGS"] = f"--layers=false --network=none --volume={cache}:/root/.cache/ccache"
        with debian.locked(ROOT / "build/logs/build.lock"):
            built = subprocess.run(
                [*ALONE, ROOT / "deploy/image", *flags], capture_output=True, text=True, env=variables, stdin=subprocess.DEVNULL
            )
        assert built.returncode == 0, built.stdout + built.stderr
        return tag

    def base_images(self) -> None:
        """Those that the Containerfiles name. In the full one deploy/setup has run, which keeps its layer until it changes."""
        setup = ["deploy/setup", "deploy/lib.sh", "deploy/requirements/build.txt", "deploy/requirements/torch-cpu.override"]
        copies = "".join(f"COPY {path} {Path(path).parent}/\n" for path in setup)
        ccache = r"printf '%s\n' 'base_dir = /source' 'hash_dir = false' 'ignore_options = -Werror' >/etc/ccache.conf"
        variables = "".join(f"ENV {name}={os.environ[name]}\n" for name in LOCALE if name in os.environ)
        self.build(
            FULL, f"FROM {self.slim()}\nWORKDIR /source\n{copies}RUN {trust()}deploy/setup build && {ccache}\n{variables}", online=True
        )

    def base_images_of_aarch64(self) -> None:
        """In the full one, of this machine, is the cross compiler. The slim one has Debian's essential packages, not configured."""
        steps = f"COPY deploy/aarch64 deploy/aarch64\nRUN {trust()}deploy/setup build aarch64 && deploy/aarch64/root\n"
        self.build(FULL, f"FROM {FULL}\nWORKDIR /source\n{steps}", online=True)
        essential = debian.root(["?essential"], "--variant=extract", "--architectures=arm64")
        self.imported(SLIM, essential, "--os=linux", "--arch=arm64", "--variant=v8")

    def slim(self) -> str:
        return self.imported(SLIM, debian.root(()))

    def python(self) -> str:
        """Debian's own Python, with the NumPy that the wheel needs."""
        packages = ("python3", "python3-pip", "python-is-python3", "libstdc++6")
        base = self.imported("localhost/debian-python", debian.root(packages))
        pip = "rm /usr/lib/python3*/EXTERNALLY-MANAGED && pip install --no-cache-dir 'numpy>=1.26.4'"
        return self.build(PYTHON, f"FROM {base}\nRUN {trust()}{pip}\n", online=True)

    def imported(self, tag: str, root: Path, *flags: str) -> str:
        kept = f"localhost/debian-root:{root.name}"
        if self.try_("image", "exists", kept).returncode != 0:
            words = [*self.words, "import", *flags, "-", kept]
            with subprocess.Popen(["tar", "-C", root, "--numeric-owner", "-c", "."], stdout=subprocess.PIPE) as tar:
                done = subprocess.run(words, stdin=tar.stdout, capture_output=True, text=True, env=self.environment)
            assert tar.returncode == done.returncode == 0, done.stderr
        self.do("tag", kept, tag)
        return tag

    def build(self, tag: str, containerfile: str, context: Path = ROOT, online: bool = False) -> str:
        flags = ["--network=host", *settings_of_pip()] if online else ["--network=none"]
        words = [*ALONE, *self.words, "build", *flags, "--tag", tag, "--file", "-", str(context)]
        built = subprocess.run(words, input=containerfile, capture_output=True, text=True, env=self.environment)
        if online and built.returncode != 0:
            pytest.skip(f"{tag}, which needs the network, cannot be built here: {' '.join(built.stderr.splitlines()[-3:])}")
        assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
        return tag

    def clean(self) -> None:
        """Ends what is left, also of a run that was killed."""
        if self.own:
            for words in (("pod", "rm", "-fa"), ("rm", "-fa", "-t", "0"), ("volume", "rm", "-fa"), ("system", "prune", "--external", "-f")):
                self.try_(*words)
            self.try_("image", "prune", "-f")


def settings_of_pip() -> list[str]:
    """What pip of a RUN needs here: the authorities that this host trusts, and its settings."""
    mounted = {CERTIFICATES: "/ca.crt", Path("/etc/pip.conf"): "/etc/pip.conf"}
    return [f"--volume={path}:{place}:ro" for path, place in mounted.items() if path.exists()]


def trust() -> str:
    """The beginning of a RUN; --env is for the image alone."""
    return "export PIP_CERT=/ca.crt SSL_CERT_FILE=/ca.crt && " if CERTIFICATES.exists() else ""


def configure() -> dict[str, str]:
    """podman's settings. Its default limits are high, and where root lacks CAP_SYS_RESOURCE no container starts with them."""
    STORE.mkdir(parents=True, exist_ok=True)
    ulimits = [f"nofile={DESCRIPTORS}:{DESCRIPTORS}", "nproc=4096:4096"]
    runtime = '\nruntime = "runc"' if shutil.which("runc") else ""  # crun refuses a mixture of both versions of control groups
    (STORE / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = {ulimits}\n[engine]{runtime}\ntmp_dir = "{STATE}/libpod"\nlock_type = "file"\nevents_logger = "file"\n'
    )
    (STORE / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{STORE}/storage"\nrunroot = "{STATE}/run"\n')
    return {"CONTAINERS_CONF": str(STORE / "containers.conf"), "CONTAINERS_STORAGE_CONF": str(STORE / "storage.conf")}


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """The only user of the store. Skips where no container runs."""
    if "ENGINE" in os.environ:
        yield Engine(shlex.split(os.environ["ENGINE"]), own=False)
        return
    if shutil.which("podman") is None and shutil.which("docker") and "ARRAYBRIDGE_IMAGE" in os.environ:  # deploy/image takes it, too
        yield Engine(["docker"], own=False)
        return
    debian.needs("podman")
    with debian.locked(STORE / "lock"):
        found = Engine(["podman"], own=True)
        found.clean()
        try:
            if (tried := found.try_("info")).returncode != 0:
                pytest.skip(f"podman does not work here: {' '.join(tried.stderr.splitlines()[-1:])}")
            tried = found.try_("run", "--rm", "--network=none", found.slim(), "true")
            if tried.returncode != 0:
                pytest.skip(f"podman runs no container here: {' '.join(tried.stderr.splitlines()[-1:])}")
            yield found
        finally:
            found.clean()


if __name__ == "__main__":  # ends what a run that was killed has left
    if os.geteuid() == 0 and shutil.which("podman") and STORE.exists():
        with debian.locked(STORE / "lock"):
            Engine(["podman"], own=True).clean()
