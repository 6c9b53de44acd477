# SPDX-License-Identifier: Apache-2.0
"""A private daemon, clients that execute commands, raw sockets, and the ledger that ends every fault test."""

from __future__ import annotations

import array
import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hardened import prefix as restrictions

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev"))
SANITIZED = BUILD.name != "dev"
DAEMON = Path(os.environ.get("ARRAYBRIDGE_DAEMON", BUILD / "daemon/arraybridged"))
CLIENT = BUILD / "tests/faults/fault_client"
SIMULATED_CUDA = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"
HELPERS = 2  # threads that start when they are first needed, and stay: the closer keeps one
# The threads of gRPC's pools, as the kernel cuts their names. gRPC starts more of them under load and keeps most of them.
GRPC_POOLS = {"default-executo", "event_engine", "grpc_global_tim", "resolver-execut", "timer_manager"}
PATIENCE_S = 90.0  # a watchdog against hangs, not a limit on speed

# The memory that an allocator may keep. AddressSanitizer keeps all freed memory for a while.
GROWTH_KIB = (1024 << 10) if BUILD.name == "asan" else (16 << 10)

HEADER = struct.Struct("<HHIQ")
OPEN_SESSION, GET_STATS, ALLOCATE, MAPPED, PUBLISH, ACQUIRE, EXPORT, RELEASE, WITHDRAW, REDEEM = 1, 11, 3, 4, 5, 6, 7, 8, 9, 12
BROWSE, DOORBELL = 13, 17
client_flags: list[str] = []  # arguments of every client; ["calls"]: every acquire is a call
hardened = False  # every daemon without a prefix of its own runs under the restrictions of the shipped unit
spin_us = 0  # of every daemon; if not 0, it polls session queues before it sleeps
kept = False  # every daemon has a keeper, so it can be killed
CALLS_BEFORE_QUEUE = 20  # more calls than client/lifeline/lifeline_queue.cc makes by the socket


class Memory:
    """The memory of a test's arrays: host memory, or the simulated GPU, shared as descriptors or as handles."""

    def __init__(self, kind: str, folder: Path | None = None) -> None:
        self.kind = kind
        self.folder = folder  # in which the processes of a simulated machine find each other

    @property
    def is_host(self) -> bool:
        return self.kind == "host"

    def machine(self, capacity: int | None) -> dict[str, str]:
        """The environment of the daemon and of every client: the same machine for all."""
        if self.is_host:
            return {}
        assert self.folder is not None
        self.folder.mkdir(exist_ok=True)
        words = ["devices=1", f"dir={self.folder}", f"memory={capacity or 1 << 30}"]
        if self.kind == "cuda_ipc":
            words.append("off=103")  # a driver that exports no descriptors
        return {"SIMULATED_CUDA": ";".join(words), "FAULT_CLIENT_GPU": str(SIMULATED_CUDA)}

    def flags(self, capacity: int | None) -> list[str]:
        if self.is_host:
            return ["--host-capacity", str(capacity)] if capacity else []
        return ["--cuda-driver", str(SIMULATED_CUDA), "--cuda-capacity", "100%"]


HOST = Memory("host")


class Refused(Exception):
    """An answer that is not OK: code name, reason, message."""

    def __init__(self, text: str) -> None:
        self.code, self.reason, self.message = text.split(" ", 2)
        super().__init__(text)

    @property
    def is_late(self) -> bool:
        """A machine that stalls can use up a client's timeout. That a channel stayed empty or full has other causes."""
        return self.code == "DEADLINE_EXCEEDED" and not self.reason.startswith("CHANNEL_")


def first_to_answer(clients: Iterable[Client]) -> Client:
    """The objects that have input."""
    by_pipe = {client.process.stdout: client for client in clients}
    ready, _, _ = select.select(list(by_pipe), [], [], PATIENCE_S)
    assert ready, "no process answers"
    return by_pipe[ready[0]]


def eventually(what: str, test: Any, seen: Any = None) -> Any:
    """Repeats the query until the answer is true. The error after PATIENCE_S shows what `seen` returns."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = test()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never happened: {what}" + (f"; seen: {seen()}" if seen else "")
        time.sleep(0.01)


class Client:
    """An exec'd fault_client."""

    def __init__(
        self,
        address: Path,
        namespace: str = "default",
        timeout_ms: int = 30_000,
        prefix: list[str] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*(prefix or []), str(CLIENT), str(address), namespace, str(timeout_ms), *client_flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **(environment or {})},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        if line.startswith("ok"):
            return line[3:]
        if line.startswith("error "):
            raise Refused(line[6:])
        raise EOFError(f"the client died: {line!r}")

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.answer()

    def insist(self, line: str) -> str:
        """After the daemon has ended, the first call may fail; the next one finds the new daemon."""
        try:
            return self.repeat(line)
        except Refused as error:
            if error.code != "UNAVAILABLE":
                raise
            return self.repeat(line)

    def repeat(self, line: str) -> str:
        """Asks again if the answer was late, unless the request was served after all."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.ask(line)
            except Refused as error:
                if not error.is_late or time.monotonic() > deadline:
                    raise
            with contextlib.suppress(Refused):
                if (outcome := self.ask("outcome 60000")).startswith("done"):
                    return outcome

    def has_answered(self) -> bool:
        """True if answer() does not wait."""
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def numbers(self, line: str) -> dict[str, int]:
        return {key: int(value) for key, value in (word.split("=") for word in self.ask(line).split())}

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def leave(self) -> None:
        """Ends the client in order."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


def is_fork(pid: int) -> bool:
    """Of a keeper: it closes descriptors, or is not a daemon yet."""
    try:
        return b"--keeper" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return True


def daemon_of(keeper: int) -> int:
    """The daemon of a keeper, which may be dead; the keeper itself if there is none."""
    children = map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split())
    return next((child for child in children if not is_fork(child)), keeper)


class Daemon:
    """A real arraybridged in its own directory. `warden` is a client that reads its numbers.

    `capacity`: bytes of `memory`, which holds the clients' arrays; None: all that there is.
    """

    def __init__(
        self,
        directory: Path,
        *flags: str,
        prefix: list[str] | None = None,
        environment: dict[str, str] | None = None,
        memory: Memory = HOST,
        capacity: int | None = None,
        keeper: bool | None = None,
    ) -> None:
        self.directory = directory
        self.has_keeper = kept if keeper is None else keeper
        self.memory = memory
        self.machine = memory.machine(capacity)
        self.flags = [*memory.flags(capacity), *flags]
        self.prefix = prefix or (restrictions(directory) if hardened else [])
        self.environment = {**(environment or {}), **self.machine}
        self.clients: list[Client] = []
        self.start()
        self.warden = Client(directory, "warden")
        self.warden.ask("stats")

    def start(self) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        read, write = os.pipe()
        self.log = (self.directory.parent / f"{self.directory.name}.log").open("ab")
        self.process = subprocess.Popen(
            [
                *self.prefix,
                str(DAEMON),
                *(["--keeper"] if self.has_keeper else []),
                "--directory",
                str(self.directory),
                "--ready-fd",
                str(write),
                "--cache",
                "0",
            ]
            + ["--arena-idle", "100ms", "--spin-us", str(spin_us), *self.flags],
            pass_fds=[write],
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, "KEEPER_SHORT_LIFE_MS": "0", **self.environment},
        )
        os.close(write)
        with os.fdopen(read) as lines:
            assert lines.readline() == "ready\n", f"arraybridged did not start:\n{self.log_text()}"

    def log_text(self) -> str:
        return Path(self.log.name).read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The daemon's, or a dead one's while the keeper starts the next one."""
        pid = child_of(self.process.pid) if self.prefix else self.process.pid
        return daemon_of(pid) if self.has_keeper else pid

    def kill(self) -> int:
        """Kills the daemon. REQUIRES: it has a keeper. Returns the process id of the next daemon, which may be starting."""
        last = self.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(last, signal.SIGKILL)
        return int(eventually("the next daemon starts", lambda: self.pid not in (last, self.process.pid) and self.pid))

    def client(self, namespace: str = "default", timeout_ms: int = 30_000, prefix: list[str] | None = None) -> Client:
        client = Client(self.directory, namespace, timeout_ms, prefix, self.machine)
        self.clients.append(client)
        return client

    def stats(self) -> dict[str, int]:
        return self.warden.numbers("stats")

    def links(self) -> list[str]:
        found = []
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/{self.pid}/fd/{fd}"))
        return found

    def memory_files(self) -> int:
        """The files of arenas that the daemon keeps open, by inode; both descriptors of an arena count as one."""
        inodes = set()
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{self.pid}/fd/{fd}").startswith("/memfd:arraybridge "):
                    inodes.add(os.stat(f"/proc/{self.pid}/fd/{fd}").st_ino)
        return len(inodes)

    def sockets(self) -> int:
        return sum(link.startswith("socket:") for link in self.links())

    def threads(self) -> list[str]:
        """The names of the daemon's threads, without those of gRPC's pools."""
        names = []
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                names.append((thread / "comm").read_text().strip())
        return [name for name in names if name not in GRPC_POOLS]

    def mappings(self) -> int:
        """The mappings of arenas' files; hazard pages of connected clients are mapped too."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return sum("/memfd:arraybridge" in line for line in lines)

    def private_kib(self) -> int:
        """The daemon's own memory, without the memory that it hands out."""
        return int(re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())[0])

    def stop(self) -> None:
        for client in self.clients:
            client.kill()
        self.warden.kill()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        assert code == 0, f"arraybridged ended with {code}:\n{self.log_text()}"
        left = sorted(path.name for path in self.directory.iterdir())
        assert left in ([], ["lock"]), f"left behind: {left}"
        self.log.close()


class Ledger:
    """The daemon's state without any client; settle() waits until the daemon is in this state again."""

    def __init__(self, daemon: Daemon):
        self.daemon = daemon
        for _ in range(CALLS_BEFORE_QUEUE):
            daemon.warden.insist("stats")  # connected, even after a restart of the daemon
        if not daemon.memory.is_host:
            self.warm_up()
        self.files = daemon.memory_files()
        self.sockets = daemon.sockets()
        self.descriptors = len(daemon.links())
        self.mappings = daemon.mappings()
        self.threads = len(daemon.threads())
        self.private_kib = daemon.private_kib()
        self.warden_descriptors = len(os.listdir(f"/proc/{daemon.warden.pid}/fd"))

    def warm_up(self) -> None:
        """The one-time cost of the first array on a GPU: a context, and the driver's own files."""
        client = self.daemon.client("first")
        client.ask("put first 4096 1")
        client.ask("get first 1")
        assert client.ask("kinds") == self.daemon.memory.kind
        client.ask("withdraw first")
        client.leave()
        self.daemon.clients.remove(client)
        eventually("its bytes are back", lambda: self.daemon.stats()["allocated_bytes"] == 0)

    def settle(self, *, sessions: int = 0, shares: int = 0, leases: int = 0, arenas: int | None = None) -> None:
        """sessions: in addition to the warden's. Without shares and sessions, every byte must have been returned."""

        def right() -> bool:
            self.seen = self.daemon.stats()
            self.seen["leases"] += self.seen["hazard_slots"]  # both ways of acquiring
            wanted = {"sessions": sessions + 1, "shares": shares, "leases": leases, "withdrawn_shares": 0}
            wanted |= {"pinned_bytes": 0}
            wanted |= {"tickets": 0, "waiting": 0, "dying_arenas": 0}
            if arenas is not None:
                wanted["arenas"] = arenas
            if shares == 0 and sessions == 0:
                wanted |= {"arenas": 0, "charged_bytes": 0, "allocated_bytes": 0}
            return all(self.seen[key] == value for key, value in wanted.items())

        eventually("the ledger at its baseline", right, lambda: f"{self.seen}\n{self.daemon.log_text()[-2000:]}")
        assert self.seen["charged_bytes"] == self.seen["allocated_bytes"], self.seen
        if sessions == 0:
            eventually("no socket but the baseline's", lambda: self.daemon.sockets() <= self.sockets)
        if self.daemon.memory.is_host:  # a GPU's memory belongs to the driver
            eventually("one memory file an arena", lambda: self.daemon.memory_files() == self.files + self.seen["arenas"])
        if sessions == 0 and shares == 0:
            eventually("descriptors at the baseline", lambda: len(self.daemon.links()) <= self.descriptors)
            eventually("mappings at the baseline", lambda: self.daemon.mappings() <= self.mappings)
            eventually("threads at the baseline", lambda: len(self.daemon.threads()) <= self.threads + HELPERS, self.daemon.threads)
            eventually("memory near the baseline", lambda: self.daemon.private_kib() <= self.private_kib + GROWTH_KIB)
        fds = f"/proc/{self.daemon.warden.pid}/fd"
        eventually("who survives has what it had", lambda: len(os.listdir(fds)) <= self.warden_descriptors)


class RawLifeline:
    """A hand-written lifeline, which can send anything that a client in any language, or a hostile one, can."""

    def __init__(self, directory: Path, messages: Any):
        self.messages = messages
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(directory / "lifeline.sock"))
        self.next = 1

    def send(self, verb: int, payload: bytes = b"", descriptors: list[int] | None = None, flags: int = 0) -> int:
        number, self.next = self.next, self.next + 1
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self.socket.sendmsg([HEADER.pack(verb, flags, 0, number) + payload], rights)
        return number

    def receive(self) -> tuple[int, int, int, bytes, list[int]]:
        """verb, status, request, payload, descriptors; an empty datagram raises EOFError."""
        data, control, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(64))
        if not data:
            raise EOFError
        found = array.array("i")
        for level, kind, value in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found.frombytes(value[: len(value) // found.itemsize * found.itemsize])
        verb, _, status, request = HEADER.unpack_from(data)
        return verb, status, request, data[HEADER.size :], list(found)

    def call(self, verb: int, request: Any, answer: Any) -> tuple[Any, list[int]]:
        """The answer message and descriptors; Refused if the status is not OK."""
        number = self.send(verb, request.SerializeToString())
        _, status, echoed, payload, descriptors = self.receive()
        assert echoed == number
        if status != 0:
            error = self.messages.Error.FromString(payload)
            raise Refused(f"{status} {error.reason or '-'} {error.message}")
        return answer.FromString(payload), descriptors

    def hello(self) -> Any:
        request = self.messages.OpenSessionRequest(protocol_min=1, protocol_max=1, client="raw")
        return self.call(OPEN_SESSION, request, self.messages.OpenSessionResponse)[0]

    def close(self) -> None:
        self.socket.close()

    def ended(self) -> bool:
        """True after the daemon has closed this connection; discards remaining input."""
        try:
            while True:
                self.receive()
        except (EOFError, ConnectionError):
            return True


def raw_lifeline(daemon: Daemon, messages: Any) -> RawLifeline:
    """A lifeline with a session."""
    line = RawLifeline(daemon.directory, messages)
    line.hello()
    return line


@contextlib.contextmanager
def daemon_in(directory: Path, *flags: str, **more: Any) -> Iterator[Daemon]:
    daemon = Daemon(directory, *flags, **more)
    try:
        yield daemon
    except BaseException:
        for client in daemon.clients:
            client.kill()
        daemon.warden.kill()
        for pid in {daemon.pid, daemon.process.pid}:  # a daemon outlives its keeper
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.process.wait()
        print(daemon.log_text()[-4000:])
        raise
    daemon.stop()


@contextlib.contextmanager
def outage(daemon: Daemon) -> Iterator[None]:
    """Kills the daemon; its keeper starts the next one afterwards."""
    last = daemon.pid
    os.kill(daemon.process.pid, signal.SIGSTOP)
    os.kill(last, signal.SIGKILL)
    try:
        yield
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)


@contextlib.contextmanager
def stopped(daemon: Daemon) -> Iterator[None]:
    """Stops the daemon meanwhile."""
    daemon.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{daemon.pid}/stat")
    eventually("it is stopped", lambda: f"{daemon.pid} (arraybridged) T" in stat.read_text())
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def lingering_socket() -> Iterator[socket.socket]:
    """A socket whose last close() blocks until the other end, which is not read, has accepted all data."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        far_end, _ = server.accept()
        with far_end:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(bytes(65536))
            connection.setblocking(True)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 65535))
            yield connection
            if connection.fileno() >= 0:  # it was not accepted
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
