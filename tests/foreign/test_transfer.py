# SPDX-License-Identifier: Apache-2.0
"""arraybridgectl put and get: an array of a .npy file is put into a share and written again; invalid files are refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy
import pytest
from cuda_client import PATTERN
from foreign_client import BUILD, CTL, PATIENCE_S, Daemon, Session, eventually

ERROR, USAGE, CANNOT_CONNECT, PERMISSION, NOT_FOUND, EXHAUSTED = 1, 2, 3, 4, 5, 6
MiB = 1 << 20


def ctl(daemon: Daemon, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [str(CTL), "-H", str(daemon.directory), "--timeout", f"{PATIENCE_S:.0f}s", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})


def refusal(daemon: Daemon, code: int, *arguments: object) -> str:
    answer = ctl(daemon, *arguments)
    assert (answer.returncode, answer.stdout) == (code, ""), answer.stderr
    return answer.stderr


def shares(daemon: Daemon) -> dict[str, dict[str, Any]]:
    listed = json.loads(ctl(daemon, "-o", "json", "ls").stdout)["shares"]
    return {info["share"]["name"]: info for info in listed}


ARRAYS = {
    "matrix": numpy.arange(12, dtype="f4").reshape(3, 4),
    "scalar": numpy.array(2.5),
    "empty": numpy.zeros((0, 3), "i2"),
    "truth": numpy.array([True, False]),
    "complex": numpy.arange(5, dtype="c16"),
    "bytes": numpy.arange(256, dtype="u1"),
    "half": numpy.arange(7, dtype="f2"),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_a_dumped_array_equals_the_array_put(daemon: Daemon, tmp_path: Path, name: str, version: tuple[int, int]) -> None:
    array = ARRAYS[name]
    with (tmp_path / f"{name}.npy").open("wb") as file:
        numpy.lib.format.write_array(file, array, version=version)
    assert ctl(daemon, "put", tmp_path / f"{name}.npy").returncode == 0
    (spec,) = shares(daemon)[name]["share"]["specs"]["arrays"]
    assert (spec["dtype"], spec["shape"]) == (array.dtype.name, [str(size) for size in array.shape])
    done = ctl(daemon, "get", name, "-f", tmp_path / "out.npy")
    assert done.returncode == 0, done.stderr
    out = numpy.load(tmp_path / "out.npy")
    assert (out.dtype, out.shape) == (array.dtype, array.shape)
    assert (out == array).all()


# Prints the command's peak memory in bytes.
PEAK_OF = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def test_large_files_are_in_memory_once(daemon: Daemon, tmp_path: Path) -> None:
    size = 192 * MiB
    array = numpy.random.default_rng(7).integers(0, 1 << 60, size // 8)
    numpy.save(tmp_path / "big.npy", array)
    for words in (["put", str(tmp_path / "big.npy")], ["get", "big", "-f", str(tmp_path / "out.npy")]):
        # Through a small process: a child's peak includes its parent's memory at the fork, and this process is large.
        started = [sys.executable, "-c", PEAK_OF, str(CTL), "-H", str(daemon.directory), *words]
        peak = int(subprocess.run(started, check=True, stdout=subprocess.PIPE, text=True).stdout)
        # The share's pages count after they are mapped.
        assert size // 2 < peak < size * 3 // 2, words
    assert (numpy.load(tmp_path / "out.npy", mmap_mode="r") == array).all()


def test_the_answer_describes_the_lifetime_of_the_share(start: Callable[..., Daemon], tmp_path: Path) -> None:
    config = tmp_path / "arraybridged.toml"
    config.write_text('[namespace.goes]\non_publisher_exit = "withdraw"\n[namespace.short]\nshare_lifetime = "1h"\n')
    daemon = start("--config", str(config))
    file = tmp_path / "frame.npy"
    numpy.save(file, ARRAYS["matrix"])

    def then(*arguments: object) -> str:
        answer = ctl(daemon, "-o", "csv", "put", file, *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.splitlines()[1]

    assert then().endswith("it stays until it is withdrawn: arraybridgectl withdraw frame")
    assert then("-n", "elsewhere").endswith("arraybridgectl -n elsewhere withdraw frame")
    assert then("brief", "--lifetime", "2min").endswith(("it is withdrawn in 119 s", "it is withdrawn in 2 min"))
    assert then("-n", "short").endswith(("it is withdrawn in 59 min", "it is withdrawn in 60 min"))
    told = refusal(daemon, ERROR, "-n", "goes", "put", file)
    assert "on_publisher_exit" in told and "'frame' ended with this command" in told and "--hold" in told
    assert set(shares(daemon)) == {"frame", "brief"}  # the shares of three namespaces
    told = json.loads(ctl(daemon, "-o", "json", "put", file, "as-json").stdout)
    assert (told["share"]["name"], told["goes_with_maker"], told["expires"]) == ("as-json", False, False)


@pytest.mark.parametrize("namespace", ["default", "goes"])
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_share_is_held_as_long_as_the_command_runs(
    start: Callable[..., Daemon], tmp_path: Path, namespace: str, by: signal.Signals
) -> None:
    config = tmp_path / "arraybridged.toml"
    config.write_text('[namespace.goes]\non_publisher_exit = "withdraw"\n')
    daemon = start("--config", str(config))
    numpy.save(tmp_path / "frame.npy", ARRAYS["matrix"])
    words: list[str | Path] = [CTL, "-H", daemon.directory, "-n", namespace, "--no-header", "put", tmp_path / "frame.npy", "--hold"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdout is not None
    assert process.stdout.readline().endswith("it is withdrawn when this command ends\n")
    assert shares(daemon)["frame"]["maker_process_id"] == str(process.pid)
    assert ctl(daemon, "-n", namespace, "get", "frame", "-f", tmp_path / "out.npy").returncode == 0
    process.send_signal(by)
    assert process.wait(PATIENCE_S) == 0
    assert shares(daemon) == {}


SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pread(int fd, void* to, size_t count, off_t at) {
  if (at >= 128) {  // after the header: blocks forever
    (void)!write(2, "reads\n", 6);
    for (;;) pause();
  }
  return ((ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread"))(fd, to, count, at);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_hold_can_be_interrupted_while_it_reads(daemon: Daemon, tmp_path: Path, by: signal.Signals) -> None:
    (tmp_path / "slow.c").write_text(SLOW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "slow.so", tmp_path / "slow.c"], check=True)
    file = save(tmp_path / "frame.npy", ARRAYS["matrix"])
    process = subprocess.Popen(
        [CTL, "-H", daemon.directory, "put", file, "--hold"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "LD_PRELOAD": str(tmp_path / "slow.so")},
    )  # fmt: skip
    assert process.stderr is not None and process.stderr.readline() == "reads\n"
    assert ended(process, by) == (-by, "")
    nothing_is_left(daemon)


def ended(process: subprocess.Popen[str], by: signal.Signals) -> tuple[int, str]:
    """Ends it by this signal: its status and its output. It has ended in any case."""
    process.send_signal(by)
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out
    finally:
        process.kill()


def nothing_is_left(daemon: Daemon) -> None:
    assert shares(daemon) == {}

    def settled() -> bool:
        stats = json.loads(ctl(daemon, "-o", "json", "stats").stdout)
        return stats["sessions"] == "1" and stats["leases"] == "0"  # the command that asks

    eventually("only who asks is there", settled)


def test_a_hold_can_be_interrupted_while_it_waits_for_memory(daemon: Daemon, tmp_path: Path) -> None:
    assert ctl(daemon, "quota", "set", "default", "--uid", os.getuid(), "--bytes", "6MiB").returncode == 0
    full = save(tmp_path / "full.npy", numpy.zeros(4 * MiB, "u1"))
    assert ctl(daemon, "put", full).returncode == 0
    words: list[str | Path] = [CTL, "-H", daemon.directory, "--timeout", "60s", "put", full, "second", "--hold"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually("it waits", lambda: json.loads(ctl(daemon, "-o", "json", "stats").stdout)["waiting"] == "1")
    assert ended(process, signal.SIGINT) == (-signal.SIGINT, "")
    assert set(shares(daemon)) == {"full"}


class Contrary:
    """A gRPC door beside a real daemon's lifeline: it opens sessions and reports no share."""

    def __init__(self, folder: Path, daemon: Daemon, messages: Any, service: Any, before: Callable[[], None]) -> None:
        folder.mkdir()
        (folder / "lifeline.sock").symlink_to(daemon.directory / "lifeline.sock")

        class Door(service.BrokerServicer):  # type: ignore[misc, name-defined]
            def OpenSession(self, request: Any, context: Any) -> Iterator[Any]:
                opened = messages.OpenSessionResponse(token=bytes(16), protocol=1)
                yield messages.SessionEvent(opened=opened)
                ended = threading.Event()
                context.add_callback(ended.set)
                ended.wait()

            def Inspect(self, request: Any, context: Any) -> None:
                before()
                context.abort(grpc.StatusCode.INTERNAL, "out of order")

        self.server = grpc.server(ThreadPoolExecutor(4))
        service.add_BrokerServicer_to_server(Door(), self.server)
        self.server.add_insecure_port(f"unix:{folder}/broker.sock")
        self.server.start()


@pytest.mark.parametrize("hold", [[], ["--hold"]], ids=["", "hold"])
@pytest.mark.parametrize("stops", [False, True], ids=["", "stops"])
def test_a_late_failure_of_a_put_leaves_nothing_or_is_reported(
    daemon: Daemon, generated: tuple[Any, Any], tmp_path: Path, hold: list[str], stops: bool
) -> None:
    file = save(tmp_path / "frame.npy", ARRAYS["matrix"])

    def before() -> None:
        assert set(shares(daemon)) == {"frame"}
        if stops:
            daemon.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)  # until then it may still answer

    contrary = Contrary(tmp_path / "contrary", daemon, *generated, before)
    timeout = "4s" if stops else "30s"
    words = [CTL, "-H", tmp_path / "contrary", "--timeout", timeout, "put", file, *hold]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE_S)
    daemon.process.send_signal(signal.SIGCONT)
    then = "may still exist" if stops else "is withdrawn again"
    assert done.stderr == f"arraybridgectl: 'frame' was published as generation 1, and {then}: out of order\n"
    assert (done.returncode, done.stdout) == (ERROR, "")
    contrary.server.stop(None).wait()
    if not stops:
        nothing_is_left(daemon)


def test_a_put_whose_answer_cannot_be_written_leaves_nothing(daemon: Daemon, tmp_path: Path) -> None:
    file = save(tmp_path / "frame.npy", ARRAYS["matrix"])
    for hold in ([], ["--hold"]):
        with open("/dev/full", "wb") as full:
            words = [CTL, "-H", daemon.directory, "put", file, *hold]
            done = subprocess.run(list(map(str, words)), stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
        assert (done.returncode, "could not be written" in done.stderr) == (ERROR, True), done.stderr
        nothing_is_left(daemon)


def test_a_hold_ends_when_the_share_is_withdrawn(daemon: Daemon, tmp_path: Path) -> None:
    numpy.save(tmp_path / "frame.npy", ARRAYS["matrix"])
    words: list[str | Path] = [CTL, "-H", daemon.directory, "put", tmp_path / "frame.npy", "--hold"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    eventually("it is there", lambda: "frame" in shares(daemon))
    assert ctl(daemon, "withdraw", "frame").returncode == 0
    assert process.communicate(timeout=PATIENCE_S)[1] == "arraybridgectl: 'frame' has been withdrawn or replaced\n"
    assert process.returncode == NOT_FOUND


def test_a_taken_name_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    numpy.save(tmp_path / "frame.npy", ARRAYS["matrix"])
    assert ctl(daemon, "put", tmp_path / "frame.npy").returncode == 0
    assert "has a share 'frame' already" in refusal(daemon, ERROR, "put", tmp_path / "frame.npy")
    assert ctl(daemon, "put", tmp_path / "frame.npy", "--replace").returncode == 0
    assert shares(daemon)["frame"]["share"]["generation"] == "2"


def save(path: Path, array: Any) -> Path:
    numpy.save(path, array, allow_pickle=True)
    return path


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (numpy.zeros(3, ">f4"), "big-endian"),
        (numpy.asfortranarray(numpy.zeros((2, 3))), "Fortran"),
        (numpy.zeros(3, [("x", "f4"), ("y", "i8")]), "structures"),
        (numpy.array(["text"]), "texts"),
        (numpy.array([b"text"]), "texts"),
        (numpy.array([object()], object), "pickles"),
        (numpy.zeros(3, "M8[ns]"), "times"),
        (numpy.zeros(3, "V4"), "bytes without a type"),
        (numpy.zeros(3, "g"), "differs between machines"),
    ],
    ids=["big-endian", "fortran", "structure", "text", "bytes", "object", "time", "void", "longdouble"],
)
def test_arrays_that_cannot_be_shared_unchanged_are_refused(daemon: Daemon, tmp_path: Path, array: Any, why: str) -> None:
    file = save(tmp_path / "a.npy", array)
    told = refusal(daemon, ERROR, "put", file)
    assert told.startswith(f"arraybridgectl: {file}: ") and why in told
    assert shares(daemon) == {}


def test_files_that_contradict_their_header_are_refused(daemon: Daemon, tmp_path: Path) -> None:
    whole = save(tmp_path / "whole.npy", ARRAYS["matrix"]).read_bytes()
    broken = tmp_path / "broken.npy"
    for content, why in [
        (b"", "not a .npy file"),
        (whole[:9], "truncated"),
        (whole[:100], "truncated: 100 bytes of 128"),
        (whole[:-1], "announces 48 bytes, and 47 follow"),
        (whole + b"\0", "announces 48 bytes, and 49 follow"),
        (whole.replace(b"(3, 4)", b"(3<<62"), "without a comma"),
        (whole.replace(b"(3, 4), }           ", b"(4611686018427387,)}"), "announces 18446744073709548 bytes, and 48 follow"),
        (whole.replace(b"\x01\0", b"\x09\0", 1), "format is 9.0"),
        (whole[:6] + b"\2\0" + struct.pack("<I", 1 << 31) + whole[10:], "the limit is 10012"),
    ]:
        broken.write_bytes(content)
        assert why in refusal(daemon, ERROR, "put", broken), why
    assert "not a regular file" in refusal(daemon, ERROR, "put", tmp_path)
    os.mkfifo(tmp_path / "pipe.npy")
    assert "not a regular file" in refusal(daemon, ERROR, "put", tmp_path / "pipe.npy")
    assert "No such file" in refusal(daemon, NOT_FOUND, "put", tmp_path / "nowhere.npy")
    assert shares(daemon) == {}


def test_modified_headers_give_an_array_or_a_refusal(daemon: Daemon, tmp_path: Path) -> None:
    """Any change of a header gives an array with the file's bytes, or a refusal that names the file."""
    whole = save(tmp_path / "whole.npy", ARRAYS["matrix"]).read_bytes()
    dice = random.Random(7)
    for _ in range(60):
        changed = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            changed[dice.randrange(80)] = dice.choice(b"0123456789(),'<>| {}:FTdescrfu\0\xff")
        (tmp_path / "changed.npy").write_bytes(changed)
        answer = ctl(daemon, "put", tmp_path / "changed.npy", "--replace")
        assert answer.returncode in (0, ERROR), (bytes(changed[:80]), answer.stderr)
        if answer.returncode == ERROR:
            assert answer.stderr.startswith(f"arraybridgectl: {tmp_path}/changed.npy: "), answer.stderr


def test_an_error_about_a_quota_names_it(daemon: Daemon, tmp_path: Path) -> None:
    assert ctl(daemon, "quota", "set", "default", "--uid", os.getuid(), "--bytes", "1MiB").returncode == 0
    file = save(tmp_path / "a.npy", numpy.zeros(4 * MiB, "u1"))
    assert "quota" in refusal(daemon, EXHAUSTED, "put", file)


def test_an_existing_file_is_not_replaced(daemon: Daemon, tmp_path: Path) -> None:
    assert ctl(daemon, "put", save(tmp_path / "a.npy", ARRAYS["matrix"])).returncode == 0
    out = tmp_path / "out.npy"
    out.write_text("mine")
    assert f"{out}: already exists" in refusal(daemon, ERROR, "get", "a", "-f", out)
    assert f"{out}: already exists" in refusal(daemon, ERROR, "get", "a", out)
    assert f"{out}: already exists" in refusal(daemon, ERROR, "dump", "a", "-f", out)  # the command's earlier name
    assert out.read_text() == "mine"
    assert ctl(daemon, "get", "a", "-f", out, "--force").returncode == 0
    assert (numpy.load(out) == ARRAYS["matrix"]).all()
    assert "and is not a regular file" in refusal(daemon, ERROR, "get", "a", "-f", "/dev/null", "--force")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == ["a.npy", "out.npy"]
    assert "No such file" in refusal(daemon, ERROR, "get", "a", "-f", tmp_path / "no" / "out.npy")
    assert refusal(daemon, NOT_FOUND, "get", "b", "-f", tmp_path / "b.npy") and not (tmp_path / "b.npy").exists()
    assert refusal(daemon, NOT_FOUND, "get", "a", "--generation", 99, "-f", tmp_path / "b.npy")


def test_a_dump_that_does_not_fit_leaves_nothing(daemon: Daemon, tmp_path: Path) -> None:
    assert ctl(daemon, "put", save(tmp_path / "a.npy", numpy.zeros(MiB, "u1"))).returncode == 0
    words = ["prlimit", f"--fsize={MiB // 2}", CTL, "-H", daemon.directory, "get", "a", "-f", tmp_path / "out.npy"]
    done = subprocess.run(["env", "--ignore-signal=XFSZ", *map(str, words)], capture_output=True, text=True)
    assert (done.returncode, "File too large" in done.stderr) == (ERROR, True), done.stderr
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_a_dump_that_is_killed_leaves_nothing(daemon: Daemon, tmp_path: Path, options: list[str]) -> None:
    """The kernel kills it while it writes, so it cannot clean up."""
    assert ctl(daemon, "put", save(tmp_path / "a.npy", numpy.zeros(MiB, "u1"))).returncode == 0
    out = tmp_path / "folder" / "out.npy"
    out.parent.mkdir()
    if options:
        out.write_text("mine")
    words = ["prlimit", f"--fsize={MiB // 2}", "--core=0", CTL, "-H", daemon.directory, "get", "a", "-f", out, *options]
    assert subprocess.run(list(map(str, words)), capture_output=True).returncode == -signal.SIGXFSZ
    assert [path.read_text() for path in out.parent.iterdir()] == (["mine"] if options else [])
    assert ctl(daemon, "get", "a", "-f", out, *options).returncode == 0
    assert [path.name for path in out.parent.iterdir()] == ["out.npy"] and numpy.load(out).nbytes == MiB


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("options", [[], ["--force"]])
def test_an_interrupted_dump_leaves_nothing_without_unnamed_files(
    daemon: Daemon, tmp_path: Path, by: signal.Signals, options: list[str]
) -> None:
    """On file systems that do not support unnamed files, which a failpoint simulates."""
    if b"unnamed_temp_file" not in CTL.read_bytes():
        pytest.skip("the build has no failpoints")
    assert ctl(daemon, "put", save(tmp_path / "a.npy", numpy.zeros(MiB, "u1"))).returncode == 0
    out = tmp_path / "folder" / "out.npy"
    out.parent.mkdir()
    if options:
        out.write_text("mine")
    named = {"ARRAYBRIDGE_FAILPOINT": "unnamed_temp_file:error"}
    words = [str(CTL), "-H", str(daemon.directory), "get", "a", "-f", str(out), *options]
    # The signal is sent before it starts, and takes effect when it is unblocked.
    held = f"import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [{by:d}]); os.kill(os.getpid(), {by:d}); "
    held += "os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", held, *words], capture_output=True, text=True, env={**os.environ, **named})
    assert (done.returncode, done.stderr) == (ERROR, f"arraybridgectl: {out}: the command was ended\n")
    assert [path.read_text() for path in out.parent.iterdir()] == (["mine"] if options else [])
    assert ctl(daemon, "get", "a", "-f", out, *options, **named).returncode == 0
    assert [path.name for path in out.parent.iterdir()] == ["out.npy"] and numpy.load(out).nbytes == MiB


def test_one_of_several_arrays_and_types_without_a_name(daemon: Daemon, session: Session, tmp_path: Path) -> None:
    content = bytes(range(256)) * 3
    published, mapping = session.publish("first", content)
    arena = session.call("List").shares[0].share.handle
    specs = [
        {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [16], "size": 16},
        # Every other column of a matrix of bytes, as another program may publish it.
        {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [4, 8], "strides": [16, 2], "offset": 256, "size": 63},
        {"code": 4, "bits": 16, "lanes": 1, "dtype": "bfloat16", "shape": [4], "offset": 512, "size": 8},
    ]
    session.call("Withdraw", shares=[{"name": "first"}])
    allocated = session.call("Allocate", namespace="default", size=len(content))
    redeemed, descriptor = session.lifeline.redeem(allocated.ticket)
    os.pwrite(descriptor, content, 0)
    os.close(descriptor)
    session.call("Mapped", arena=redeemed.handle.arena)
    session.call(
        "Publish", namespace="default", name="three", arena=redeemed.handle.arena,
        arena_generation=redeemed.handle.generation, size=len(content), specs={"arrays": specs},
    )  # fmt: skip
    assert (published.generation, arena.size, len(mapping) >= arena.size) == (1, len(content), True)
    out = tmp_path / "out.npy"
    assert "has 3 arrays: choose one with --array 0 to 2" in refusal(daemon, ERROR, "get", "three", "-f", out)
    assert "none with index 3" in refusal(daemon, NOT_FOUND, "get", "three", "-f", out, "--array", 3)
    assert "'bfloat16'" in refusal(daemon, ERROR, "get", "three", "-f", out, "--array", 2)
    assert ctl(daemon, "get", "three", "-f", out, "--array", 0).returncode == 0
    assert numpy.load(out).tobytes() == content[:16]
    assert ctl(daemon, "get", "three", "-f", out, "--array", 1, "--force").returncode == 0
    matrix = numpy.frombuffer(content, "u1")[256:320].reshape(4, 16)[:, ::2]
    assert (numpy.load(out) == matrix).all()


def test_a_share_on_a_gpu_is_copied_out(start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"
    if not driver.exists():
        pytest.skip("the simulated driver is not built")
    (tmp_path / "libcuda.so.1").symlink_to(driver)
    monkeypatch.setenv("SIMULATED_CUDA", f"devices=1;dir={tmp_path};memory=67108864")
    daemon = start("--cuda-driver", str(driver))
    program = Path(__file__).with_name("cuda_client.py")
    maker = subprocess.Popen(
        [sys.executable, str(program), str(daemon.directory), str(driver), "put", "on-gpu"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert maker.stdout is not None and maker.stdout.readline() == "ok\n"
        done = ctl(daemon, "get", "on-gpu", "-f", tmp_path / "out.npy", LD_LIBRARY_PATH=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert numpy.load(tmp_path / "out.npy").tobytes() == PATTERN
        without = ctl(daemon, "get", "on-gpu", "-f", tmp_path / "none.npy", LD_LIBRARY_PATH="")
        if without.returncode != 0:  # a machine without a driver
            assert not (tmp_path / "none.npy").exists() and without.stderr
    finally:
        maker.communicate("\n", timeout=PATIENCE_S)


def test_no_daemon(tmp_path: Path) -> None:
    save(tmp_path / "a.npy", ARRAYS["matrix"])
    for words in (["put", str(tmp_path / "a.npy")], ["get", "a", "-f", str(tmp_path / "out.npy")]):
        done = subprocess.run([str(CTL), "-H", str(tmp_path), *words], capture_output=True, text=True)
        assert done.returncode == CANNOT_CONNECT, done.stderr
    assert subprocess.run([CTL, "put"], capture_output=True).returncode == USAGE
    assert subprocess.run([CTL, "get", "a"], capture_output=True).returncode == USAGE
