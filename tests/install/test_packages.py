"""The Debian packages: built, looked at by lintian, laid into a bare root, and started from there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from test_install import BUILD

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    command = ["cpack", "-G", "DEB", "--config", str(BUILD / "CPackConfig.cmake"), "-B", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}


@pytest.fixture(scope="module")
def root(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    bare = tmp_path_factory.mktemp("root")
    for package in packages.values():
        subprocess.run(["dpkg-deb", "-x", str(package), str(bare)], check=True)
    return bare


def field(package: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", str(package), name], capture_output=True, text=True, check=True).stdout.strip()


def test_there_are_four_that_need_the_runtime_and_debians_tls_alone(packages: dict[str, Path]) -> None:
    assert set(packages) == {"arraybridged", "arraybridge-tools", "libarraybridge1", "libarraybridge-dev"}
    library = {each.split()[0] for each in field(packages["libarraybridge1"], "Depends").split(",")}
    assert library == {"libc6", "libgcc-s1", "libstdc++6"}
    assert field(packages["libarraybridge-dev"], "Depends").startswith("libarraybridge1 (= ")
    for program in ("arraybridged", "arraybridge-tools"):
        needed = {each.split()[0] for each in field(packages[program], "Depends").split(",")}
        assert needed == {"libc6", "libgcc-s1", "libssl3", "zlib1g"}
    assert field(packages["arraybridged"], "Recommends").startswith("arraybridge-tools (= ")


def test_the_tool_can_be_had_without_the_daemon(packages: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", str(packages["arraybridge-tools"]), str(tmp_path)], check=True)
    assert {path.name for path in (tmp_path / "usr/bin").iterdir()} == {"arraybridgectl"}
    told = subprocess.run([tmp_path / "usr/bin/arraybridgectl", "completion", "bash"], capture_output=True, text=True)
    assert told.returncode == 0 and "arraybridgectl" in told.stdout


def test_nothing_lies_where_it_should_not(root: Path) -> None:
    assert {path.name for path in root.iterdir()} == {"usr"}
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    for wanted in (
        "usr/bin/arraybridged",
        "usr/bin/arraybridgectl",
        "usr/lib/systemd/system/arraybridged.service",
        "usr/lib/systemd/system/arraybridged-admin.socket",
        "usr/lib/systemd/system/arraybridged-lifeline.socket",
        "usr/lib/systemd/user/arraybridged.service",
        "usr/lib/systemd/catalog/arraybridged.catalog",
        "usr/lib/sysusers.d/arraybridge.conf",
        "usr/lib/tmpfiles.d/arraybridge.conf",
        "usr/share/arraybridge/arraybridged.toml",
        "usr/share/arraybridge/conf.d/gpus.toml.example",
        "usr/include/arraybridge/arraybridge.h",
        "usr/share/doc/libarraybridge1/copyright",
        "usr/share/doc/arraybridge-tools/changelog.gz",
    ):
        assert wanted in found
    pages = {"man8/arraybridged.8", "man1/arraybridgectl.1", "man5/arraybridged.toml.5", "man7/arraybridge.7"}
    made = pages if (BUILD / "arraybridged.8.gz").exists() else set()  # without scdoc there are none
    assert {path for path in found if path.startswith("usr/share/man/")} == {f"usr/share/man/{page}.gz" for page in made}
    assert not [path for path in found if "simulated" in path or "gtest" in path]


def test_what_was_laid_down_serves(root: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    read, write = os.pipe()
    config = root / "usr/share/arraybridge/arraybridged.toml"
    daemon = subprocess.Popen(
        [root / "usr/bin/arraybridged", "--config", config, "--directory", directory, "--http", "off", "--ready-fd", str(write)],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as lines:
        assert lines.readline() == "ready\n"
    ping = subprocess.run([root / "usr/bin/arraybridgectl", "-H", directory, "ping"], capture_output=True, text=True)
    assert (ping.returncode, ping.stdout) == (0, "ok\n")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait() == 0


INSTALLED = """Package: {0}
Status: install ok installed
Architecture: amd64
Version: {1}
Maintainer: nobody <nobody@localhost>
Description: of the host

"""


def lay_into(root: Path, *files: str) -> None:
    for name in files:
        there = root / name.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(name).resolve(), there)


@pytest.fixture
def bare_root(tmp_path: Path) -> Path:
    """A shell, what the packages depend on, and dpkg's word that it is installed; nothing else."""
    root = tmp_path / "bare"
    for usual in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / usual).mkdir(parents=True)
        (root / usual).symlink_to(f"usr/{usual}")
    for folder in ("dev", "etc", "run", "tmp"):
        (root / folder).mkdir()
    (root / "dev/null").touch()  # a file will do: scripts write to it, and devices cannot be made everywhere
    needed = subprocess.run(["ldd", BUILD / "daemon/of_debian/arraybridged", "/bin/sh"], capture_output=True, text=True, check=True)
    libraries = {word for word in needed.stdout.split() if word.startswith("/") and not word.endswith(":")}
    lay_into(root, "/bin/sh", *libraries)
    for script_needs in ("ldconfig", "start-stop-daemon", "update-rc.d"):  # dpkg will not begin without them on its PATH
        program = shutil.which(script_needs, path="/sbin:/usr/sbin:/bin:/usr/bin")
        if program is not None:
            lay_into(root, program)
    database = root / "var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (database / folder).mkdir(parents=True)
    status = []
    for package in ("libc6", "libgcc-s1", "libstdc++6", "libssl3", "zlib1g"):
        query = ["dpkg-query", "-W", "-f=${Version}", package]
        version = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        status.append(INSTALLED.format(package, version))
        (database / "info" / f"{package}.list").touch()
    (database / "status").write_text("".join(status))
    (database / "available").touch()
    return root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run maintainer scripts in a bare root")
def test_dpkg_installs_them_into_a_bare_root_where_they_serve_and_takes_them_out_again(
    packages: dict[str, Path], bare_root: Path
) -> None:
    dpkg = ["dpkg", f"--root={bare_root}", f"--log={bare_root}/dpkg.log"]
    done = subprocess.run([*dpkg, "--install", *map(str, packages.values())], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    query = ["dpkg-query", f"--admindir={bare_root}/var/lib/dpkg", "-W", "-f=${Status}\n", *packages]
    states = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    assert states == ["install ok installed"] * len(packages)
    read, write = os.pipe()
    inside = ["chroot", str(bare_root), "/usr/bin/arraybridged", "--host-capacity", "16MiB", "--http", "off"]
    daemon = subprocess.Popen([*inside, "--ready-fd", str(write)], pass_fds=[write], stderr=subprocess.PIPE, text=True)
    os.close(write)
    with os.fdopen(read) as lines:
        ready = lines.readline()
    try:
        assert ready == "ready\n"
        ping = subprocess.run(["chroot", bare_root, "/usr/bin/arraybridgectl", "ping"], capture_output=True, text=True)
        assert (ping.returncode, ping.stdout) == (0, "ok\n"), ping.stderr
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0, daemon.communicate()
    done = subprocess.run([*dpkg, "--purge", *packages], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    left = [path for path in bare_root.rglob("*") if "arraybridge" in path.name and "/run/" not in str(path)]
    assert left == []


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is not installed")
def test_lintian_finds_nothing_wrong(packages: dict[str, Path], tmp_path: Path) -> None:
    copies = [str(shutil.copy(package, tmp_path)) for package in packages.values()]
    flags = ["--fail-on", "error,warning"]
    if os.geteuid() == 0:
        flags.append("--allow-root")
    done = subprocess.run(["lintian", *flags, *copies], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
