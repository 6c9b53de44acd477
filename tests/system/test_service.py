# SPDX-License-Identifier: Apache-2.0
"""The packages on a booted Debian: apt installs them, systemd starts, restarts, reloads, watches and stops the service."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Client, Refused
from machine import Machine, eventually
from service import SOCKETS, UNIT, Service

UNITS = "/usr/lib/systemd/system"
# numpy.save writes this for four float64.
NPY = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }".ljust(127) + b"\n" + bytes(range(32))


@pytest.fixture
def array(machine: Machine) -> str:
    """A file in the machine that the tool puts."""
    machine.path("/srv/array.npy").write_bytes(NPY)
    return "/srv/array.npy"


def dumped(service: Service, name: str, user: str = "ann") -> bytes:
    service.tool("dump", name, "-f", "/tmp/dumped.npy", "--force", user=user)
    found = service.machine.path("/tmp/dumped.npy").read_bytes()
    service.machine.path("/tmp/dumped.npy").unlink()
    return found[-32:]


def test_apt_installs_it_and_starts_nothing(installed: Machine) -> None:
    for unit in (UNIT, *SOCKETS):
        state = (installed.run("systemctl", verb, unit).stdout.strip() for verb in ("is-enabled", "is-active"))
        assert tuple(state) == ("disabled", "inactive"), unit
    assert "arraybridge" in installed.does("id", "arraybridge")
    assert installed.does("stat", "--format=%A %U %G", "/run/arraybridge").split() == ["drwxr-x--x", "arraybridge", "arraybridge"]
    assert "took over" in installed.does("journalctl", "--list-catalog", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f50b")


def test_the_package_brings_each_program_that_its_units_run(installed: Machine) -> None:
    """It, an essential package, or one that it depends on. systemd ignores the end of a program behind "-"."""
    shown = installed.does("dpkg-query", "--show", "--showformat=${Depends}, arraybridged", "arraybridged")
    depended = {each.split()[0] for each in shown.split(",")}
    listed = installed.does("dpkg-query", "--show", "--showformat=${Essential} ${Package}\n")
    usable = depended | {line.split()[1] for line in listed.splitlines() if line.startswith("yes ")}
    text = "\n".join(installed.does("cat", f"{UNITS}/{unit}") for unit in (UNIT, *SOCKETS))
    programs = [found for prefix, found in re.findall(r"^Exec\w+=([-+!@:]*)(\S+)", text, re.MULTILINE) if "-" not in prefix]
    assert "/usr/bin/arraybridged" in programs and len(programs) >= 2
    for program in programs:
        file = installed.does("realpath", program).strip()  # dpkg knows a file of /bin by its place before /usr was merged
        owners = {installed.run("dpkg", "--search", place).stdout.split(":")[0] for place in (file, file.removeprefix("/usr"))}
        assert owners & usable, f"{program} belongs to {owners}"


def test_the_first_connection_starts_it(service: Service) -> None:
    assert service.pid == 0
    assert service.tool("ping") == "ok\n"
    assert service.pid != 0 and service.shows("ActiveState") == "active"
    rights = {
        name: service.machine.does("stat", "--format=%A %U %G", f"/run/arraybridge/{name}.sock") for name in ("broker", "lifeline", "admin")
    }
    assert rights == {
        "broker": "srw-rw---- arraybridge arraybridge\n",
        "lifeline": "srw-rw---- arraybridge arraybridge\n",
        "admin": "srw-rw---- arraybridge arraybridge-admin\n",
    }


def test_only_members_may_connect_and_each_has_a_namespace(service: Service, array: str) -> None:
    service.tool("put", array, "mine", user="ann")
    assert "mine" not in service.tool("ls", user="bob")
    service.tool("put", array, "mine", user="bob")
    service.tool("withdraw", "mine", user="bob")
    assert dumped(service, "mine", user="ann") == NPY[-32:]
    refused = service.machine.run("arraybridgectl", "-H", "/run/arraybridge", "ping", user="eve")
    assert refused.returncode == 4, refused.stderr
    assert "limits.sessions" in service.tool("config", "show", user="ada")
    refused = service.machine.run("arraybridgectl", "config", "show", user="ann")
    assert refused.returncode == 4, refused.stderr


def test_kills_and_a_restart_lose_nothing(service: Service, array: str) -> None:
    service.tool("put", array, "kept")
    before = service.tool("-o", "json", "ls")
    for life, end in enumerate(("SIGKILL", "SIGKILL", "SIGSEGV", "restart"), start=2):
        last = service.pid
        if end == "restart":
            service.machine.does("systemctl", "restart", UNIT)
        else:
            service.machine.does("systemctl", "kill", f"--signal={end}", UNIT)
        service.next_life(last)
        assert dumped(service, "kept") == NPY[-32:], service.log()
        told = service.info()["life"]
        assert (told["number"], told["holder"]) == (str(life), "HOLDER_SERVICE_MANAGER")
        assert service.stored() >= 2  # the journal and the memory
    assert names(service.tool("-o", "json", "ls")) == names(before)


def names(listed: str) -> list[str]:
    return re.findall(r'"name": *"([^"]*)"', listed)


def test_its_clients_do_not_notice(service: Service, client: Callable[..., Client]) -> None:
    """Arrays that are held, and a call that waits, over kills and a restart."""
    writer, reader, waiter = client(), client(), client()
    writer.ask("put held 65536 1")
    reader.ask("get held 1")
    waiter.ask("stats")
    waiter.tell("get coming 5 wait 100000")
    for number, words in enumerate((("kill", "--signal=SIGKILL"), ("kill", "--signal=SIGKILL"), ("restart",))):
        last = service.pid
        service.machine.does("systemctl", *words, UNIT)
        reader.ask("check")
        service.next_life(last)
        reader.ask("get held 1")
        writer.ask(f"put next 4096 {number} replace")
        reader.ask(f"get next {number}")
    writer.ask("put coming 4096 5")
    waiter.answer()


def test_reload_reads_the_configuration_again(service: Service) -> None:
    service.tool("ping")
    first = service.pid
    service.configure("[limits]\nsessions = 77\n")
    service.machine.does("systemctl", "reload", UNIT)
    eventually(
        "the limit is in force",
        lambda: re.search(r"^limits.sessions +77 ", service.tool("config", "show", user="ada"), re.MULTILINE),
        service.log,
    )
    service.configure("[limits]\nsesions = 78\n")
    service.machine.does("systemctl", "reload", UNIT)
    eventually("the refusal is shown", lambda: "refused" in service.shows("StatusText"), service.log)
    assert "arraybridged.toml:2:1" in service.log()
    assert re.search(r"^limits.sessions +77 ", service.tool("config", "show", user="ada"), re.MULTILINE)
    assert service.pid == first


def test_an_upgrade_of_the_package_is_taken_over(service: Service, array: str, packages: dict[str, Path], tmp_path: Path) -> None:
    """apt replaces the files beneath the running daemon, which then executes the new one."""
    service.tool("put", array, "kept")
    running = service.pid
    unpacked, newer = tmp_path / "unpacked", tmp_path / "newer.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", packages["arraybridged"], unpacked], check=True)
    control = unpacked / "DEBIAN/control"
    control.write_text(re.sub(r"^(Version: .*)$", r"\1+next", control.read_text(), flags=re.MULTILINE))
    subprocess.run(["dpkg-deb", "-Znone", "--build", unpacked, newer], check=True, capture_output=True)
    service.machine.path("/srv/newer.deb").write_bytes(newer.read_bytes())
    service.machine.does("apt-get", "install", "-qy", "/srv/newer.deb")
    assert service.machine.does("dpkg-query", "--show", "--showformat=${Version}", "arraybridged").endswith("+next")
    assert service.pid == running
    assert " (deleted)" in service.machine.does("readlink", f"/proc/{running}/exe")
    service.tool("upgrade", user="ada")
    now = service.next_life(running)
    assert service.machine.does("readlink", f"/proc/{now}/exe") == "/usr/bin/arraybridged\n"
    assert dumped(service, "kept") == NPY[-32:]


def test_the_watchdog_ends_a_daemon_that_stands_still(service: Service, array: str) -> None:
    """With four seconds, instead of the thirty of the unit."""
    service.tool("put", array, "kept")
    assert service.shows("WatchdogUSec") == "30s"
    service.amend("[Service]\nWatchdogSec=4\n")
    service.machine.does("systemctl", "restart", UNIT)
    assert service.shows("WatchdogUSec") == "4s"
    stuck = service.pid
    service.machine.does("systemctl", "kill", "--signal=STOP", "--kill-whom=main", UNIT)
    service.next_life(stuck)
    assert "atchdog timeout" in service.log()
    assert dumped(service, "kept") == NPY[-32:]


def test_a_full_store_refuses_what_is_new_and_keeps_the_rest(service: Service, client: Callable[..., Client]) -> None:
    service.amend("[Service]\nFileDescriptorStoreMax=40\nEnvironment=FDSTORE=40\n")
    first = client("root")
    first.ask("put kept 4096 1")
    with pytest.raises(Refused) as full:
        for _ in range(40):
            client("root").ask("stats")
    assert "STORE_FULL" in str(full.value)
    assert service.stored() <= 40
    told = service.machine.run("arraybridgectl", "doctor").stdout
    assert re.search(r"FDSTORE|FileDescriptorStoreMax", told), told
    last = service.pid
    service.machine.does("systemctl", "kill", "--signal=SIGKILL", UNIT)
    service.next_life(last)
    first.ask("get kept 1")


def test_stop_frees_everything(service: Service, array: str, client: Callable[..., Client]) -> None:
    service.tool("put", array, "gone")
    holder = client()
    holder.ask("put also 4096 3")
    holder.ask("get also 3")
    service.machine.does("systemctl", "stop", UNIT)
    assert service.stored() == 0 and service.pid == 0
    holder.ask("check")  # its mapping stays
    assert "gone" not in service.tool("ls")
    assert service.info()["life"]["number"] == "1"


def test_the_daemon_makes_the_administration_socket_whose_unit_is_not_enabled(service: Service) -> None:
    """In its own group: members of arraybridge-admin need the unit."""
    service.machine.does("systemctl", "disable", "--now", "arraybridged-admin.socket")
    service.machine.does("rm", "/run/arraybridge/admin.sock")
    service.tool("ping")
    assert service.machine.does("stat", "--format=%G", "/run/arraybridge/admin.sock") == "arraybridge\n"
    assert "limits.sessions" in service.tool("config", "show", user="root")
    assert service.machine.run("arraybridgectl", "config", "show", user="ada").returncode == 4
