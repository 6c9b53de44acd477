# SPDX-License-Identifier: Apache-2.0
"""The keeper holds the daemon's descriptors and starts the next daemon; so does a service manager, for which a stand-in is used."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BUILD, CLIENT, DAEMON, PATIENCE_S, ROOT, Client, Refused, eventually, is_fork, lingering_socket
from holder import Holder

GUARD = BUILD / "tests/faults/libmalloc_guard.so"
STUB = ROOT / "tests/faults/stub_daemon.py"
_PIDFD_GETFD = 438  # the number of the system call, on all machines
AT_ONCE = {"KEEPER_SHORT_LIFE_MS": "0"}  # no death delays the next start


class Keeper:
    """`arraybridged --keeper`, from a copy of the program that a test may replace."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        prefix: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        ready: bool = True,
    ) -> None:
        self.folder = folder
        self.directory = folder / "broker"
        self.program = folder / "arraybridged"
        if not self.program.exists():
            shutil.copy2(DAEMON, self.program)
        self.log = folder / "log"
        self.prefix = prefix
        read, write = os.pipe()
        self.life, life = os.pipe()[::-1]
        common = [
            "--directory",
            str(self.directory),
            "--backend",
            "host",
            "--host-capacity",
            "16777216",
            "--cache",
            "0",
            "--log-format",
            "text",
        ]
        descriptors = ["--ready-fd", str(write), f"--life-fd={life}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, str(self.program), "--keeper", *common, *descriptors, *flags],
                pass_fds=[write, life],
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        os.close(write)
        os.close(life)
        self.ready = os.fdopen(read)
        if ready:
            assert self.ready.readline() == "ready\n", self.log_text()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The keeper's."""
        return children_of(self.process.pid)[0] if self.prefix else self.process.pid

    @property
    def daemon(self) -> int:
        """The process id of the daemon; 0 if none runs."""
        running = [child for child in children_of(self.pid) if state_of(child) != "Z" and not is_fork(child)]
        return running[0] if running else 0

    def next_daemon(self, last: int) -> int:
        return int(eventually("the next daemon", lambda: self.daemon not in (0, last) and self.daemon))

    def kill_daemon(self, number: int = signal.SIGKILL) -> int:
        """Returns the process id of the next daemon."""
        last = self.daemon
        os.kill(last, number)
        return self.next_daemon(last)

    def replace_program(self, other: Path | str) -> None:
        new = self.folder / "new"
        if isinstance(other, Path):
            shutil.copy2(other, new)
        else:
            new.write_text(other)
            new.chmod(0o755)
        new.rename(self.program)

    def run_stub(self, *plan: str) -> None:
        """The next daemons are stubs; the first one executes the first line of the plan, and so on."""
        (self.folder / "plan").write_text("\n".join(plan))
        self.replace_program(f"#!{sys.executable}\n{STUB.read_text()}")
        self.kill_daemon()

    def lives(self, count: int) -> list[dict[str, object]]:
        """What the first `count` stubs were started with."""
        file = self.folder / "lives"
        eventually(f"{count} lives\n{self.log_text()}", lambda: file.exists() and len(file.read_text().splitlines()) >= count)
        return [json.loads(line) for line in file.read_text().splitlines()[:count]]

    def stranger(self) -> socket.socket:
        """The daemon's end of their socket, in this process: only a process that may trace the daemon gets it."""
        text = Path(f"/proc/{self.daemon}/environ").read_bytes().decode()
        (name,) = [each.partition("=")[2] for each in text.split("\0") if each.startswith("NOTIFY_SOCKET=")]
        process = os.pidfd_open(self.daemon)
        taken = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, int(name.removeprefix("fd:")), 0)
        os.close(process)
        assert taken >= 0, os.strerror(ctypes.get_errno())
        return socket.socket(fileno=taken)

    def close(self) -> None:
        os.close(self.life)
        self.ready.close()
        daemon = self.daemon if self.process.poll() is None else 0
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        if daemon:
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_files(pid: int) -> list[str]:
    names = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(file))
    return names


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    running = Keeper(tmp_path, environment=AT_ONCE)
    yield running
    running.close()


def connected(directory: Path, name: str = "lifeline.sock", kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, kind)
    line.settimeout(PATIENCE_S)
    line.connect(str(directory / name))
    return line


def put_and_get(directory: Path) -> None:
    assert CLIENT.exists()
    client = Client(directory)
    client.ask("put frame 4096 7")
    client.ask("get frame 7")
    client.ask("withdraw frame")
    client.leave()


def test_the_next_daemon_serves_on_the_same_sockets(keeper: Keeper) -> None:
    files = {path.name: path.stat().st_ino for path in keeper.directory.glob("*.sock")}
    assert set(files) == {"lifeline.sock", "broker.sock", "admin.sock"}
    for _ in range(3):
        keeper.kill_daemon()
        put_and_get(keeper.directory)
    assert {path.name: path.stat().st_ino for path in keeper.directory.glob("*.sock")} == files


def test_connecting_during_the_outage_waits_for_the_next_daemon(keeper: Keeper) -> None:
    last = keeper.daemon
    os.kill(keeper.pid, signal.SIGSTOP)  # nothing starts the next daemon
    os.kill(last, signal.SIGKILL)
    eventually("the daemon has ended", lambda: state_of(last) == "Z")
    lines = [connected(keeper.directory) for _ in range(20)]
    stream = connected(keeper.directory, "broker.sock", socket.SOCK_STREAM)
    os.kill(keeper.pid, signal.SIGCONT)
    assert stream.recv(9)[3:4] == b"\x04"  # HTTP/2 SETTINGS
    for line in lines:
        line.send(b"no frame")
        assert line.recv(64)  # the error comes from a daemon
        line.close()
    stream.close()
    put_and_get(keeper.directory)


def test_a_socket_whose_file_was_deleted_is_bound_again(keeper: Keeper) -> None:
    (keeper.directory / "lifeline.sock").unlink()
    keeper.kill_daemon()
    eventually("the socket is back", (keeper.directory / "lifeline.sock").exists)
    keeper.kill_daemon()
    put_and_get(keeper.directory)


def test_the_metrics_keep_their_port(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "--http", "127.0.0.1:0", environment=AT_ONCE)
    try:
        (port,) = [int(line.rsplit(" ", 1)[1]) for line in keeper.log_text().splitlines() if "at http port" in line]
        keeper.kill_daemon()
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as page:
            page.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            assert page.recv(12).endswith(b"200")
    finally:
        keeper.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_both_and_leaves_nothing(keeper: Keeper, number: int) -> None:
    keeper.kill_daemon()
    put_and_get(keeper.directory)
    daemon = keeper.daemon
    os.kill(keeper.pid, number)
    assert keeper.process.wait(PATIENCE_S) == 0
    assert state_of(daemon) == "Z"
    assert [path.name for path in keeper.directory.iterdir()] == ["lock"]


def test_a_signal_during_an_outage_waits_for_the_next_daemon(keeper: Keeper) -> None:
    """SIGTERM reaches a daemon that has just been started when it can end in order."""
    last = keeper.daemon
    os.kill(keeper.pid, signal.SIGSTOP)
    os.kill(last, signal.SIGKILL)
    eventually("the daemon has ended", lambda: state_of(last) == "Z")
    os.kill(keeper.pid, signal.SIGCONT)
    next_one = keeper.next_daemon(last)
    os.kill(keeper.pid, signal.SIGTERM)
    assert keeper.process.wait(PATIENCE_S) == 0
    assert state_of(next_one) == "Z"
    assert [path.name for path in keeper.directory.iterdir()] == ["lock"]


def test_a_signal_does_not_wait_for_a_start_that_is_stuck(keeper: Keeper) -> None:
    keeper.run_stub("await never")
    keeper.lives(1)
    os.kill(keeper.pid, signal.SIGTERM)
    assert keeper.process.wait(PATIENCE_S) == 0
    assert "signal 15 waits until the daemon is ready, 5 s at most" in keeper.log_text()


def test_the_end_of_the_starting_program_ends_both(keeper: Keeper) -> None:
    keeper.kill_daemon()
    os.close(keeper.life)
    keeper.life = os.open(os.devnull, os.O_RDONLY)
    assert keeper.process.wait(PATIENCE_S) == 0


def test_the_reader_of_the_ready_line_sees_its_end(keeper: Keeper) -> None:
    assert keeper.ready.read() == ""
    keeper.kill_daemon()
    put_and_get(keeper.directory)  # the later daemon's ready line goes nowhere


def test_sighup_reaches_the_daemon(keeper: Keeper) -> None:
    os.kill(keeper.pid, signal.SIGHUP)
    eventually("it reloads", lambda: "configuration" in keeper.log_text() or "reload" in keeper.log_text())


@pytest.mark.parametrize(("flags", "status"), [(["--no-such-flag"], 2), (["--http", "192.0.2.1:9464", "--http-public"], 1)])
def test_a_daemon_that_cannot_start_ends_the_keeper_with_its_status(tmp_path: Path, flags: list[str], status: int) -> None:
    keeper = Keeper(tmp_path, *flags, ready=False)
    assert keeper.process.wait(PATIENCE_S) == status
    assert keeper.ready.read() == ""
    assert not list(tmp_path.glob("broker/*.sock"))
    keeper.close()


def test_an_upgrade_starts_the_program_that_is_on_the_disk(keeper: Keeper, tmp_path: Path) -> None:
    files = {path.name: path.stat().st_ino for path in keeper.directory.glob("*.sock")}
    keeper.replace_program(f'#!/bin/sh\ntouch {tmp_path}/upgraded\nexec {DAEMON} "$@"\n')
    keeper.kill_daemon(signal.SIGUSR2)
    put_and_get(keeper.directory)
    assert (tmp_path / "upgraded").exists()
    assert "asked to be started anew" in keeper.log_text()
    assert {path.name: path.stat().st_ino for path in keeper.directory.glob("*.sock")} == files


def test_daemons_that_die_at_once_are_started_later_each_time_and_at_last_not_at_all(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, environment={"KEEPER_DELAY_MS": "1", "KEEPER_SHORT_LIFE_MS": "3600000"})
    try:
        files = {path.name: path.stat().st_ino for path in keeper.directory.glob("*.sock")}
        keeper.replace_program(f"#!/bin/sh\necho life >> {tmp_path}/lives\nexit 3\n")
        os.kill(keeper.daemon, signal.SIGKILL)
        eventually("no other is started", lambda: "no other is started" in keeper.log_text())
        assert len((tmp_path / "lives").read_text().splitlines()) == 19  # the killed daemon was the first of 20
        log = keeper.log_text()
        assert log.count("starts in 0 ms") == 4
        assert [log.count(f"starts in {delay} ms") for delay in (1, 2, 4, 8, 16, 32, 64)] == [1] * 7
        assert log.count("starts in 100 ms") == 8
        waiting = connected(keeper.directory)
        keeper.replace_program(DAEMON)
        os.kill(keeper.pid, signal.SIGHUP)
        put_and_get(keeper.directory)
        waiting.close()
        assert {path.name: path.stat().st_ino for path in keeper.directory.glob("*.sock")} == files
    finally:
        keeper.close()


def test_a_keeper_that_has_given_up_ends_on_a_signal_or_with_its_starting_program(tmp_path: Path) -> None:
    for name, status in (("signal", 0), ("life", 1)):
        (tmp_path / name).mkdir()
        keeper = Keeper(tmp_path / name, environment={"KEEPER_DELAY_MS": "0", "KEEPER_SHORT_LIFE_MS": "3600000"})
        keeper.replace_program("#!/bin/sh\nexit 3\n")
        os.kill(keeper.daemon, signal.SIGKILL)
        eventually("no other is started", lambda: "no other is started" in keeper.log_text())
        assert keeper.process.poll() is None
        if name == "signal":
            os.kill(keeper.pid, signal.SIGTERM)
        else:
            os.close(keeper.life)
            keeper.life = os.open(os.devnull, os.O_RDONLY)
        assert keeper.process.wait(PATIENCE_S) == status
        keeper.close()


def test_the_daemon_serves_on_after_the_keeper_was_killed(keeper: Keeper) -> None:
    daemon = keeper.daemon
    os.kill(keeper.pid, signal.SIGKILL)
    keeper.process.wait(PATIENCE_S)
    eventually("it is reported", lambda: "the keeper has ended" in keeper.log_text())
    put_and_get(keeper.directory)
    os.kill(daemon, signal.SIGUSR2)
    eventually("it does not end", lambda: "SIGUSR2 is ignored" in keeper.log_text())
    put_and_get(keeper.directory)
    os.kill(daemon, signal.SIGTERM)
    eventually("the daemon ends", lambda: not Path(f"/proc/{daemon}").exists())
    assert [path.name for path in keeper.directory.iterdir()] == ["lock"]


@pytest.mark.parametrize("limit", ["-v 12000000", "-f 1000000"])
def test_a_process_that_may_map_no_journal_serves_without_a_store(tmp_path: Path, limit: str) -> None:
    keeper = Keeper(tmp_path, prefix=("sh", "-c", f'ulimit {limit} && exec "$@"', "sh"))
    try:
        put_and_get(keeper.directory)
        told = keeper.log_text()
        assert "everything that it holds is lost: " in told and "raise ulimit -v and ulimit -f" in told
    finally:
        keeper.close()


def test_no_other_user_can_send_it_a_datagram(keeper: Keeper) -> None:
    """A passed TCP socket that lingers would make its close sleep, and a flood would fill the queue of the daemon's."""
    own = {os.readlink(each) for each in Path(f"/proc/{keeper.pid}/fd").iterdir() if os.readlink(each).startswith("socket:")}
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    mine = [row for row in rows if f"socket:[{row[6]}]" in own]
    datagrams = [row for row in mine if row[4] == "0002"]
    assert len(datagrams) >= 1 and all(len(row) == 7 for row in datagrams), "a socket has a name"


def test_datagrams_of_other_processes_are_ignored(keeper: Keeper) -> None:
    stranger = keeper.stranger()
    memory = os.memfd_create("stranger")
    socket.send_fds(stranger, [b"FDSTORE=1\nFDNAME=a0\nFDPOLL=0"], [memory])
    for name in ("lifeline.sock", "broker.sock", "admin.sock"):
        file = (keeper.directory / name).stat()
        stranger.send(f"FDSTOREREMOVE=1\nFDNAME={name.removesuffix('.sock')}.{file.st_dev:x}.{file.st_ino:x}".encode())
    eventually("it is reported", lambda: f"process {os.getpid()} is ignored" in keeper.log_text())
    keeper.run_stub("wait")
    (told,) = keeper.lives(1)
    doors = sorted(name.partition(".")[0] for name in told["names"] if name != "j0")  # type: ignore[attr-defined]
    assert doors == ["admin", "broker", "lifeline"]
    stranger.close()
    os.close(memory)


def test_as_many_entries_as_promised_reach_the_next_daemon(keeper: Keeper) -> None:
    keeper.run_stub("fill", "wait")
    keeper.lives(1)
    eventually("all are held", lambda: len(os.listdir(f"/proc/{keeper.pid}/fd")) > 8000)
    keeper.kill_daemon()
    before, told = keeper.lives(2)
    assert told["count"] == 8000 and told["ours"]
    assert told["names"] == [*before["names"], *(f"a{number:x}" for number in range(8000 - len(before["names"])))]  # type: ignore[arg-type, misc]
    assert told["a0"] == "filled"


def test_names_that_are_too_long_are_refused(keeper: Keeper) -> None:
    keeper.run_stub(f"store a1 {'a' * 32} {'b' * 31} a:1;remove none", "wait")
    keeper.lives(1)
    eventually("both are refused", lambda: keeper.log_text().count("a descriptor is not kept") == 2)
    keeper.kill_daemon()
    assert keeper.lives(2)[1]["names"][-2:] == ["a1", "b" * 31]  # type: ignore[index]


def test_what_a_daemon_stored_right_before_its_death_is_kept(keeper: Keeper) -> None:
    keeper.run_stub("await go; store a1; die", "wait")
    stub = keeper.next_daemon(0)
    keeper.lives(1)
    os.kill(keeper.pid, signal.SIGSTOP)
    eventually("the keeper is stopped", lambda: state_of(keeper.pid) == "T")
    os.kill(keeper.pid, signal.SIGHUP)  # the keeper then looks at signals first, and finds the death among them
    (keeper.folder / "go").touch()
    eventually("the stub is dead", lambda: state_of(stub) == "Z")
    os.kill(keeper.pid, signal.SIGCONT)
    assert keeper.lives(2)[1]["names"][4:] == ["a1"]  # type: ignore[index]


def test_one_file_under_one_name_is_one_entry(keeper: Keeper) -> None:
    keeper.run_stub("store a1 a1 a2 a1; remove a2 none; die", "wait")
    assert keeper.lives(2)[1]["names"][4:] == ["a1"]  # type: ignore[index]


def test_lifelines_of_clients_that_die_during_the_outage_are_dropped(keeper: Keeper) -> None:
    keeper.run_stub("lines; die", "wait")
    assert keeper.lives(2)[1]["names"][4:] in (["q1"], ["l1", "q1"])  # type: ignore[index]
    keeper.kill_daemon()  # at the latest now
    assert keeper.lives(3)[2]["names"][4:] == ["q1"]  # type: ignore[index]


@pytest.fixture
def client(keeper: Keeper) -> Iterator[socket.socket]:
    """The other end of lifeline l4711, of which only the keeper has the daemon's end. A socket whose close sleeps is unread in it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(keeper.folder / "peer"))
        door.listen()
        keeper.run_stub("connect l4711", "wait")  # as a session that no journal knows
        client, _ = door.accept()
    keeper.lives(1)
    with client, lingering_socket() as lingers:
        socket.send_fds(client, [b"unread"], [lingers.fileno()])
        os.close(lingers.detach())  # what is unread has the last reference
        yield client


def test_a_dead_client_whose_socket_sleeps_when_it_is_closed_stops_nobody(keeper: Keeper, client: socket.socket) -> None:
    """Before Linux 6.16 a lifeline takes descriptors, as this one does everywhere."""
    client.close()
    keeper.replace_program(DAEMON)
    keeper.kill_daemon()
    put_and_get(keeper.directory)
    eventually("the process that has closed it has ended", lambda: children_of(keeper.pid) == [keeper.daemon])


def test_a_lifeline_that_the_next_daemon_does_not_know_stops_nobody(keeper: Keeper, client: socket.socket) -> None:
    keeper.replace_program(DAEMON)
    keeper.kill_daemon()
    put_and_get(keeper.directory)
    client.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionResetError):  # with something unread
        assert client.recv(1) == b"", "both have closed it"
    put_and_get(keeper.directory)
    eventually("the process that has closed it has ended", lambda: children_of(keeper.pid) == [keeper.daemon])


def test_the_daemon_removes_what_it_does_not_know(keeper: Keeper) -> None:
    keeper.run_stub("store afff c0; remove none; die", "wait")  # an arena's number that the daemon below does not reach
    assert keeper.lives(2)[1]["names"][3:] == ["j0", "afff", "c0"]  # type: ignore[index]
    keeper.replace_program(DAEMON)
    keeper.kill_daemon()
    put_and_get(keeper.directory)
    keeper.run_stub("wait")
    names = keeper.lives(3)[2]["names"]
    assert "afff" not in names and "c0" not in names, names


JOURNALS = ROOT / "tests/faults/journals"  # what a daemon of each layout had stored when it was killed
JOURNAL_BYTES = 1 << 34


def store_what_was_left(keeper: Keeper, layout: str) -> None:
    journal, arena = (JOURNALS / f"{layout}.{what}.gz" for what in ("journal", "arena"))
    keeper.run_stub(f"remove j0;adopt j0 {JOURNAL_BYTES} {journal};adopt a1 {2 << 20} {arena}", "wait")
    eventually("both are stored", lambda: sum("memfd:stub" in name for name in open_files(keeper.pid)) == 2)


@pytest.mark.parametrize("layout", sorted(path.name.removesuffix(".journal.gz") for path in JOURNALS.glob("2.*.journal.gz")))
def test_the_journal_of_an_earlier_layout_is_read(keeper: Keeper, layout: str) -> None:
    """A daemon that is upgraded continues one of each minor version before it: share a, and a name that was withdrawn."""
    store_what_was_left(keeper, layout)
    for _ in range(2):  # what this daemon writes into that journal can be read, too
        keeper.replace_program(DAEMON)
        keeper.kill_daemon()
        client = Client(keeper.directory)
        client.ask("get a 7")
        with pytest.raises(Refused, match="NOT_FOUND"):
            client.ask("get b 8")
        client.ask("put c 4096 9 replace")
        client.leave()
    assert "lost 0 shares; 0 damaged records" in keeper.log_text()


def test_the_journal_of_another_major_layout_is_left_whole(keeper: Keeper) -> None:
    """A daemon that is upgraded to another layout says so and ends. The version that wrote the journal can continue it."""
    store_what_was_left(keeper, "1.0")
    keeper.replace_program(DAEMON)
    os.kill(keeper.daemon, signal.SIGKILL)
    refused = "the stored journal has layout 1.0; this daemon reads 2.x: start the version that wrote it, or stop it to drop"
    eventually("a refusal", lambda: keeper.log_text().count(refused) > 1)
    keeper.replace_program(f"#!{sys.executable}\n{STUB.read_text()}")
    assert {"j0", "a1"} <= set(keeper.lives(2)[1]["names"])  # type: ignore[call-overload]


@pytest.mark.skipif(not GUARD.exists(), reason="malloc_guard is not built")
def test_the_keeper_allocates_nothing_after_its_start(tmp_path: Path) -> None:
    guarded = {"LD_PRELOAD": str(GUARD)}
    bad = subprocess.run(
        [sys.executable, "-c", "import os; os.fork() or os._exit(0); list(range(10**6))"],
        env={**os.environ, **guarded},
        capture_output=True,
    )
    assert bad.returncode == -signal.SIGABRT, "the guard does not guard"
    keeper = Keeper(tmp_path, environment={**guarded, **AT_ONCE})
    try:
        keeper.kill_daemon()
        put_and_get(keeper.directory)
        os.kill(keeper.pid, signal.SIGHUP)
        stranger = keeper.stranger()
        stranger.send(b"READY=1")
        stranger.close()
        # Not replaced while it runs: a shell that has just started would read the new file.
        keeper.replace_program(f'#!/bin/sh\n[ -e {tmp_path}/repaired ] && exec {DAEMON} "$@"\nexit 3\n')
        os.kill(keeper.daemon, signal.SIGKILL)
        eventually("crashes", lambda: keeper.log_text().count("ended with status 3") > 3)
        (tmp_path / "repaired").touch()
        put_and_get(keeper.directory)
        assert keeper.process.poll() is None, keeper.log_text()
    finally:
        keeper.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_as_the_first_process_of_a_container_it_reaps_orphans(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"), environment=AT_ONCE)
    try:
        inside = ["nsenter", "--target", str(keeper.pid), "--pid", "--mount"]
        subprocess.run([*inside, "sh", "-c", "sleep 1000 & sleep 1000 &"], check=True, stdout=subprocess.DEVNULL)
        orphans = set(eventually("orphans", lambda: len(children_of(keeper.pid)) == 3 and children_of(keeper.pid))) - {keeper.daemon}
        daemon = keeper.daemon
        for orphan in orphans - {daemon}:
            os.kill(orphan, signal.SIGKILL)
        eventually("they are reaped", lambda: len(children_of(keeper.pid)) == 1)
        keeper.kill_daemon()
        put_and_get(keeper.directory)
        os.kill(keeper.pid, signal.SIGTERM)
        assert keeper.process.wait(PATIENCE_S) == 0
    finally:
        keeper.close()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    command = [str(DAEMON), "--directory", str(tmp_path / "broker"), "--backend", "host", "--host-capacity", "16777216", "--cache", "0"]
    stand_in = Holder(tmp_path, command)
    yield stand_in
    stand_in.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2])
def test_a_service_manager_keeps_the_sockets_after_every_end(holder: Holder, tmp_path: Path, number: int) -> None:
    holder.start()
    names = holder.names()
    assert [name.partition(".")[0] for name in names] == ["lifeline", "broker", "admin", "j0"]
    status = {signal.SIGKILL: -9, signal.SIGTERM: 0, signal.SIGUSR2: 75}[number]
    assert holder.kill(number) == status
    assert not any("STOPPING" in said for said in holder.said), "the manager would expect no further READY"
    early = connected(tmp_path / "broker")
    holder.start()
    assert holder.names() == names
    holder.during(lambda: put_and_get(tmp_path / "broker"))
    early.close()


def test_a_full_store_does_not_stop_the_daemon(tmp_path: Path) -> None:
    command = [str(DAEMON), "--directory", str(tmp_path / "broker"), "--backend", "host", "--host-capacity", "16777216"]
    holder = Holder(tmp_path, command, entries_max=1)
    holder.start()
    holder.during(lambda: put_and_get(tmp_path / "broker"))
    assert len(holder.names()) == 1 and "everything that it holds is lost" in holder.log.read_text()
    holder.during(lambda: os.kill(holder.pid, signal.SIGUSR2))
    eventually("it does not end", lambda: "SIGUSR2 is ignored" in holder.log.read_text())
    assert holder.kill(signal.SIGTERM) == 0
    assert any("STOPPING" in said for said in holder.said)
    holder.close()


def test_a_keeper_below_a_service_manager_passes_on_what_it_gets(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    directory.mkdir(mode=0o700)
    holder = Holder(tmp_path, [str(DAEMON), "--keeper", "--directory", str(directory), "--backend", "host", "--host-capacity", "16777216"])
    lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lifeline.bind(str(directory / "lifeline.sock"))
    lifeline.listen()
    holder.entries.append(("lifeline", os.dup(lifeline.fileno()), False))
    holder.start()  # the keeper forwards READY
    put_and_get(directory)
    last = children_of(holder.pid)[0]
    os.kill(last, signal.SIGKILL)
    put_and_get(directory)
    assert holder.names() == ["lifeline"]  # the keeper keeps the rest
    assert holder.kill(signal.SIGTERM) == 0
    assert any("STOPPING" in said for said in holder.said)
    assert {path.name for path in directory.iterdir()} == {"lifeline.sock", "lock"}
    lifeline.close()
    holder.close()
