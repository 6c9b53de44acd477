# SPDX-License-Identifier: Apache-2.0
"""The names of clients: what `arraybridgectl ls sessions` calls processes that state one, and those that do not."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import environment

from arraybridge import Broker, BrokerUnavailable, InvalidRequest
from arraybridge.broker import client_name

CTL = Path(os.environ["ARRAYBRIDGE_DAEMON"]).parents[1] / "client/ctl/arraybridgectl"


def sessions(address: str) -> dict[int, str]:
    """The names of the clients of all sessions, by their PIDs."""
    done = subprocess.run([CTL, "-H", address, "-o", "json", "ls", "sessions"], capture_output=True, text=True, check=True)
    return {int(row["process_id"]): row["client"] for row in json.loads(done.stdout)["sessions"]}


def named(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", arguments)
    return client_name.of_process()


COMMANDS = [
    (["/opt/jobs/prep.py", "--size", "4"], "prep.py --size 4"),
    ([""], "python"),
    (["-c", "x"], "python -c x"),
    (["/usr/lib/python3/gunicorn/__main__.py", "app:app"], "gunicorn app:app"),
    (["a.py", "--token=hunter2", "b"], "a.py --token=*** b"),
    (["a.py", "--token", "hunter2", "b"], "a.py --token *** ***"),
    (["a.py", "-api_key", "hunter2"], "a.py -api_key ***"),
    (["a.py", "--PASSWORD", "hunter2", "--size", "4"], "a.py --PASSWORD *** --size 4"),
    (["a.py", "--password", "-hunter2", "b"], "a.py --password *** ***"),
    (["a.py", "--tokens", "hunter2", "hunter2", "-b", "c"], "a.py --tokens *** *** -b c"),
    (["a.py", "--define=token=hunter2"], "a.py --define=token=***"),
    (["a.py", "-H", "Authorization: Bearer hunter2"], "a.py -H Authorization: ***"),
    (["a.py", '{"password": "hunter2"}'], 'a.py {"password": ***'),
    (["a.py", "--pwd", "hunter2", "--pass=hunter2"], "a.py --pwd *** --pass=***"),
    (["a.py", "https://hunter2@github.com/x", "https://h/?a=1&sig=hunter2"], "a.py https://***@github.com/x https://h/?a=1&sig=***"),
    (["a.py", "--api-key", "", "hunter2"], "a.py --api-key *** ***"),
    (["a.py", "--tokenize", "--password", "hunter2"], "a.py --tokenize --password ***"),
    (["a.py", "client_secret=hunter2", "tokens.npy"], "a.py client_secret=*** tokens.npy"),
    (["a.py", "--keys", "hunter2=hunter2"], "a.py --keys ***"),
    (["a.py", "--db=postgres://me:hunter2@host/db"], "a.py --db=postgres://***@host/db"),
    (["a.py", "http://host:8080/a@b"], "a.py http://host:8080/a@b"),
    (["a.py", "\x1b[31m\nred"], "a.py \\x1b[31m red"),
    (["a.py", os.fsdecode(b"caf\xe9")], "a.py caf\\udce9"),
    (["a.py", 5], "a.py 5"),
]


@pytest.mark.parametrize(("arguments", "name"), COMMANDS, ids=[name for _, name in COMMANDS])
def test_a_name_is_the_script_and_its_arguments_without_secrets(arguments, name, monkeypatch):
    assert named(arguments, monkeypatch) == name and "hunter2" not in name


@pytest.mark.parametrize("arguments", [["ä" * 100], ["a.py", *["ä"] * 100], ["a.py", "€" * 40], ["€" * 21 + "ab"]])
def test_a_long_name_is_cut_between_characters(arguments, monkeypatch):
    name = named(arguments, monkeypatch)
    assert 60 <= len(name.encode()) <= 64 and name[:-1] == " ".join(arguments)[: len(name) - 1]
    assert name.endswith("…") == (" ".join(arguments) != name)


def test_a_program_without_arguments_of_its_own_has_a_name(monkeypatch):
    monkeypatch.delattr(sys, "argv")
    assert client_name.of_process() == "python"


REFUSED = [("", "non-empty"), (5, "str"), ("\ud800", "UTF-8"), ("a\nb", "control"), ("a\x1b[0m", "control"), ("ä" * 33, "66 bytes")]


@pytest.mark.parametrize(("client", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_a_name_that_cannot_be_shown_is_refused(client, told):
    with pytest.raises(InvalidRequest, match=told):
        Broker(client=client)


def test_a_stated_name_is_what_the_tool_and_peers_see(address):
    name = "prep-1 ä" + "x" * 55
    assert len(name.encode()) == 64
    with Broker(address, start="never", client=name) as broker, broker.channel("named") as channel:
        broker.list()
        assert sessions(address)[os.getpid()] == name
        channel.send(b"x")
        assert channel.receive(info=True).sender.client == name


def test_without_a_daemon_a_name_changes_nothing(tmp_path):
    with pytest.raises(BrokerUnavailable):
        Broker(tmp_path, start="never", client="prep-1").list()


# Each writes its PID, and ends when its input does. `print` writes a line and its end by two calls when
# output is unbuffered, and several processes write here.
PROCESSES = """
import os, sys
from arraybridge import Broker
broker = Broker(sys.argv[1], start="never")
def use():
    broker.list()
    os.write(1, f"{os.getpid()}\\n".encode())
    sys.stdin.readline()
"""
FORKED = """
if sys.argv[2] == "connected":
    broker.list()
children = []
for _ in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        use()
        os._exit(0)
use()
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""
# As a server without `preload` does: the package is imported, and the Broker made, after the fork.
LATE = """
import os, sys
children = []
for _ in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        exec(sys.argv[2])
        use()
        os._exit(0)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""
WORKERS = """
import multiprocessing
def work(barrier):
    broker.list()
    os.write(1, f"{os.getpid()}\\n".encode())
    barrier.wait()
if __name__ == "__main__":
    broker.list()
    context = multiprocessing.get_context(sys.argv[2])
    barrier = context.Barrier(3)
    workers = [context.Process(target=work, args=(barrier,), name=name) for name in (None, "loader")]
    for worker in workers:
        worker.start()
    use()
    barrier.wait()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
"""


@contextmanager
def running(script: Path, text: str, *arguments: str, processes: int) -> Iterator[list[int]]:
    """Runs a script; the PIDs that its processes have printed."""
    script.write_text(text)
    with subprocess.Popen(
        [sys.executable, script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as ran:
        assert ran.stdin is not None and ran.stdout is not None
        pids = [int(ran.stdout.readline()) for _ in range(processes)]
        yield pids
        ran.stdin.close()
    assert ran.returncode == 0


@pytest.mark.parametrize("when", ["connected", "unconnected"])
def test_forked_children_have_their_pids_in_their_names(address, tmp_path, when):
    with running(tmp_path / "prefork.py", PROCESSES + FORKED, address, when, processes=3) as pids:
        names = sessions(address)
        parent = next(pid for pid in pids if not names[pid].endswith(")"))
        assert names[parent] == client_name.first_bytes(f"prefork.py {address} {when}", 64)
        for child in {*pids} - {parent}:
            assert names[child].startswith("prefork.py ") and names[child].endswith(f" ({child})")


def test_children_that_load_the_package_after_the_fork_have_their_pids_too(address, tmp_path):
    with running(tmp_path / "server.py", LATE, address, PROCESSES, processes=2) as pids:
        names = sessions(address)
        assert [names[pid].rpartition(" ")[2] for pid in pids] == [f"({pid})" for pid in pids]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_have_their_names(address, tmp_path, method):
    with running(tmp_path / "prep.py", PROCESSES + WORKERS, address, method, processes=3) as pids:
        names = [sessions(address)[pid] for pid in pids]
        kind = {"fork": "Fork", "spawn": "Spawn", "forkserver": "ForkServer"}[method]
        assert all(name.startswith("prep.py ") for name in names)
        assert sum(name.endswith(f" ({kind}Process-1)") for name in names) == 1
        assert sum(name.endswith(" (loader)") for name in names) == 1
        assert sum(not name.endswith(")") for name in names) == 1


@pytest.mark.skipif(importlib.util.find_spec("gunicorn") is None, reason="gunicorn is not installed")
@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["loaded by workers", "preloaded"])
def test_workers_of_gunicorn_are_told_apart(address, tmp_path, preload):
    (tmp_path / "app.py").write_text(
        "import os\n"
        "from arraybridge import Broker\n"
        f"broker = Broker({address!r}, start='never')\n"
        "def app(environ, start):\n    start('200 OK', [])\n    return [b'']\n"
    )
    (tmp_path / "gunicorn.conf.py").write_text(
        "import os\n"
        "def post_worker_init(worker):\n"
        "    import app\n"
        "    app.broker.list()\n"
        "    os.write(int(os.environ['TELL']), b'ready\\n')\n"
    )
    ready, tell = os.pipe()
    command = [sys.executable, "-m", "gunicorn", "--workers=2", f"--bind=unix:{tmp_path}/http.sock", *preload, "app:app"]
    server = subprocess.Popen(command, cwd=tmp_path, env=environment(TELL=str(tell)), pass_fds=[tell], stderr=subprocess.DEVNULL)
    os.close(tell)
    try:
        with os.fdopen(ready) as pipe:
            assert [pipe.readline(), pipe.readline()] == ["ready\n"] * 2
            names = {pid: name for pid, name in sessions(address).items() if name.startswith("gunicorn ")}
            assert len(names) == 2 and all(name.endswith(f" ({pid})") for pid, name in names.items())
    finally:
        server.send_signal(signal.SIGTERM)
        ended = server.wait()
    assert ended == 0
