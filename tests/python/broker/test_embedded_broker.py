# SPDX-License-Identifier: Apache-2.0
"""Finding a broker, starting one, and its end."""

import os
import pickle
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from processes import daemons_of, environment, run_client, start_daemon, stop_daemon

import arraybridge
from arraybridge import BrokerTimeout, BrokerUnavailable, InvalidDevice, ShareExists, _bin
from arraybridge.broker import child, discovery

USE = """
import os, sys, arraybridge, numpy
broker = arraybridge.Broker()
broker.put(numpy.arange(3), "a", replace=True)
assert broker.get("a").tolist() == [0, 1, 2]
"""


@pytest.fixture
def runtime(monkeypatch):
    """An XDG_RUNTIME_DIR of the test's own; what was started there ends with the test."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        monkeypatch.setenv("ARRAYBRIDGED_SERVER__EXIT_WHEN_IDLE", "300ms")
        monkeypatch.setenv("ARRAYBRIDGE_LINGER", "0s")  # arrays that these tests leave unread keep no broker
        monkeypatch.setattr(discovery, "SYSTEM_DIRECTORY", f"{directory}/system")
        yield Path(directory) / "arraybridge"


def wait_for_end(process_id):
    """Returns when a process that is no child of ours has ended, or if it has ended before."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    with open(descriptor, "rb"):
        assert select.select([descriptor], [], [], 120)[0], f"process {process_id} does not end"


def state_of(process_id):
    """R, S, Z, ... or None if there is no such process."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def test_the_first_starts_it_and_the_second_finds_it(runtime):
    with arraybridge.Broker() as broker:
        broker.put(np.arange(3), "a")
        [daemon] = daemons_of(runtime)
        assert os.getpgid(daemon) not in (os.getpgid(0), 0)  # its keeper leads the group
        run_client("import arraybridge; assert arraybridge.Broker().get('a').tolist() == [0, 1, 2]")
        assert daemons_of(runtime) == [daemon]
        assert runtime.stat().st_mode & 0o777 == 0o700
    wait_for_end(daemon)
    with arraybridge.Broker() as broker:
        assert broker.list() == []


@pytest.mark.parametrize(("where", "why"), [("/nonexistent", "No such file or directory"), ("/dev/null", "Not a directory")])
def test_a_directory_that_cannot_be_made_is_named_with_the_reason(runtime, monkeypatch, where, why):
    monkeypatch.setenv("XDG_RUNTIME_DIR", where)
    with pytest.raises(BrokerUnavailable) as caught:
        arraybridge.Broker().list()
    assert f"{where}/arraybridge" in str(caught.value) and why in str(caught.value)


BARE = """
import contextlib, os, stat, sys, arraybridge
from arraybridge.broker import discovery
discovery.SYSTEM_DIRECTORY = "/nonexistent"
with arraybridge.Broker(start=sys.argv[1]) as broker:
    share = broker.put(bytearray(b"abc"))
    for number in range(3):
        with contextlib.suppress(OSError):
            assert not stat.S_ISSOCK(os.fstat(number).st_mode), number
    assert bytes(memoryview(share.view())) == b"abc"
"""


@pytest.mark.parametrize("closed", ["0<&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("start", ["private", "auto"])
def test_a_process_without_standard_descriptors_starts_one(runtime, start, closed):
    """Its pipes to the daemon would have their numbers, which the daemon has of its own; and what is printed into them
    must not go to the daemon."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", BARE, start]
    assert subprocess.run(command, env=environment(), check=False).returncode == 0


def test_two_starters_get_one_daemon(runtime):
    command = [sys.executable, "-c", USE.replace('"a"', "str(os.getpid())") + "print(broker.address); sys.stdin.read()"]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True) for _ in range(4)]
    assert {starter.stdout.readline().strip() for starter in starters} == {str(runtime)}
    [daemon] = daemons_of(runtime)
    for starter in starters:
        starter.communicate("")
        assert starter.returncode == 0
    wait_for_end(daemon)


def test_it_ends_when_idle_after_its_starter_was_killed(runtime):
    starter = subprocess.Popen(
        [sys.executable, "-c", USE + "print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert starter.stdout.readline() == "up\n"
    [daemon] = daemons_of(runtime)
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    wait_for_end(daemon)


def test_it_stays_while_an_array_is_unread(runtime, monkeypatch):
    monkeypatch.setenv("ARRAYBRIDGE_LINGER", "1m")
    run_client("import arraybridge, numpy; arraybridge.Broker().put(numpy.arange(3), 'a')")
    [daemon] = daemons_of(runtime)
    with arraybridge.Broker(start="never") as consumer, pytest.raises(InvalidDevice):
        consumer.get("a", device="gpu0")  # does not read it
    time.sleep(1)
    assert daemons_of(runtime) == [daemon]
    with arraybridge.Broker(start="never") as consumer:
        assert consumer.get("a").tolist() == [0, 1, 2]
    wait_for_end(daemon)


def test_an_array_with_a_lifetime_keeps_it_until_then(runtime):
    """What %ab_keep relies on: it stays although the array was read, and no process is left."""
    run_client("import arraybridge, numpy; b = arraybridge.Broker(); b.put(numpy.arange(3), 'a', lifetime=3); b.get('a')")
    [daemon] = daemons_of(runtime)
    time.sleep(1.5)  # it would have ended after 0.3 s
    assert daemons_of(runtime) == [daemon]
    run_client("import arraybridge; assert arraybridge.Broker(start='never').get('a').tolist() == [0, 1, 2]")
    wait_for_end(daemon)


SERVED = """
import os, arraybridge, numpy
broker = arraybridge.Broker(start="private")
assert broker.get(broker.put(numpy.arange(3))).tolist() == [0, 1, 2]
broker.close()
assert os.environ["NOTIFY_SOCKET"]
"""


def test_it_does_not_speak_for_the_service_that_started_it(runtime, monkeypatch, tmp_path):
    """A hanging application would look alive to its manager; descriptors that were passed to it are not the broker's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        for name, value in {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "100000",
            "LISTEN_FDS": "1",
            "LISTEN_PID": "1",
        }.items():
            monkeypatch.setenv(name, value)
        run_client(SERVED)
        with pytest.raises(BlockingIOError):
            manager.recv(100, socket.MSG_DONTWAIT)


def test_without_a_temporary_folder_the_systems_broker_is_found(runtime, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR")

    def none():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: none())
    for start in ("auto", "private"):
        with pytest.raises(BrokerUnavailable, match="no writable temporary folder; set "):
            arraybridge.Broker(start=start).list()
    system = Path(discovery.SYSTEM_DIRECTORY)
    system.mkdir(mode=0o700)
    daemon = start_daemon(system)
    assert arraybridge.Broker().list() == []
    stop_daemon(daemon)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_a_runtime_directory_of_another_user_is_not_used(runtime):
    """su without a dash, sudo -E: its owner could put a link where root writes."""
    os.chown(runtime.parent, 1000, 1000)
    with pytest.raises(BrokerUnavailable, match="belongs to another user .*unset it, or set it to"):
        arraybridge.Broker().list()
    assert list(runtime.parent.iterdir()) == []
    daemon = start_daemon(made_by_root(runtime))
    assert str(runtime) not in found_by_the_tool(), "the tool does not use it either"
    stop_daemon(daemon)


def made_by_root(directory):
    directory.mkdir(mode=0o700)
    return directory


@pytest.mark.skipif(os.geteuid() != 0, reason="a program of another user needs root")
def test_a_program_with_more_rights_than_its_user_takes_no_address_of_its_user(tmp_path):
    tool = tmp_path / "tool"
    tool.write_bytes(Path(_bin.path("arraybridgectl")).read_bytes())
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    said = {}
    for mode in (0o755, 0o4755):
        tool.chmod(mode)
        done = subprocess.run(
            [tool, "ping"], capture_output=True, text=True, env={"ARRAYBRIDGE_ADDRESS": "/of/the/user"}, user=1000, check=False
        )
        said[mode] = "/of/the/user" in done.stdout + done.stderr
    assert said == {0o755: True, 0o4755: False}


@pytest.mark.parametrize("start", ["auto", "private"])
def test_the_umask_of_a_program_is_its_own(runtime, start):
    """A umask of 0177 makes folders that nothing can be created in."""
    use = f"import os; os.umask(0o177)\nimport arraybridge\nbroker = arraybridge.Broker(start={start!r}); broker.list()\n"
    run_client(use + "assert os.stat(broker.address).st_mode & 0o777 == 0o700; broker.close()")  # root could use a folder of 0600


def test_names_that_are_no_utf8(runtime, monkeypatch, tmp_path):
    script = os.fsencode(tmp_path) + b"/caf\xe9.py"
    with open(script, "w") as file:
        file.write(USE)
    assert subprocess.run([sys.executable, script], env=environment(), check=False).returncode == 0
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.fsdecode(os.fsencode(tmp_path) + b"/run\xff"))
    with pytest.raises(BrokerUnavailable, match=r"run\\xff/arraybridge', is no UTF-8 text; .*set \$XDG_RUNTIME_DIR"):
        arraybridge.Broker().list()


FORKED_FIRST = """
import os, arraybridge, numpy
broker = arraybridge.Broker(start="private")
if os.fork() == 0:
    broker.put(numpy.arange(3), "a")
    broker.close()
    os._exit(0)
assert os.wait()[1] == 0
assert broker.get("a").tolist() == [0, 1, 2]
broker.close()
"""


def test_a_private_broker_that_is_forked_before_its_first_use_is_one(runtime):
    run_client(FORKED_FIRST)


def found_by_the_tool() -> str:
    """ "ok", or the tool's error."""
    tool = subprocess.run([_bin.path("arraybridgectl"), "ping"], capture_output=True, text=True, check=False)
    return tool.stdout + tool.stderr


def test_sockets_of_a_killed_daemon_hide_no_other_broker(runtime, monkeypatch, tmp_path):
    runtime.mkdir(mode=0o700)
    for name, kind in (("lifeline.sock", socket.SOCK_SEQPACKET), ("broker.sock", socket.SOCK_STREAM)):
        with socket.socket(socket.AF_UNIX, kind) as left:
            left.bind(str(runtime / name))
    (tmp_path / "arraybridge").mkdir()
    daemon = start_daemon(str(tmp_path / "arraybridge"))
    monkeypatch.setenv("NVIDIA_DRA_LOCAL_IPC_DIR", str(tmp_path))
    with arraybridge.Broker(start="never") as broker:
        assert broker.address == str(tmp_path / "arraybridge")
    assert found_by_the_tool() == "ok\n"
    assert stop_daemon(daemon) == 0


def test_a_directory_that_others_can_read_is_the_users_own(runtime):
    runtime.mkdir()
    runtime.chmod(0o755)
    with pytest.raises(BrokerUnavailable, match="none can be started"):
        arraybridge.Broker().list()
    daemon = start_daemon(str(runtime))
    with arraybridge.Broker(start="never") as broker:
        assert broker.list() == []
    assert found_by_the_tool() == "ok\n"
    assert stop_daemon(daemon) == 0
    runtime.chmod(0o777)
    daemon = start_daemon(str(runtime))
    with pytest.raises(BrokerUnavailable, match="open to others"):
        arraybridge.Broker().list()
    assert "cannot connect to /run/arraybridge" in found_by_the_tool()
    assert stop_daemon(daemon) == 0


def test_a_wait_in_vain_says_that_this_process_started_the_broker(runtime):
    with arraybridge.Broker() as starts:
        with pytest.raises(BrokerTimeout, match=r"This process started this broker \d+ s ago"):
            starts.get("nobody", wait=0.05)
        with arraybridge.Broker() as joins, pytest.raises(BrokerTimeout) as late:
            joins.get("nobody", wait=0.05)
    assert "started this broker" not in str(late.value)


def test_it_survives_its_starter_while_others_are_connected(runtime):
    with arraybridge.Broker() as probe:
        probe.list()
        daemon = daemons_of(runtime)
        run_client(USE)
        assert probe.get("a").tolist() == [0, 1, 2]
        assert daemons_of(runtime) == daemon
    wait_for_end(*daemon)


def test_a_killed_embedded_daemon_is_continued(runtime):
    with arraybridge.Broker() as broker:
        broker.put(np.arange(3), "a")
        held = broker.get("a")
        [daemon] = daemons_of(runtime)
        os.kill(daemon, signal.SIGKILL)
        with pytest.raises(ShareExists):
            broker.put(np.arange(4), "a")
        broker.put(np.arange(4), "a", replace=True)
        assert broker.get("a").tolist() == [0, 1, 2, 3] and held.tolist() == [0, 1, 2]
        assert daemons_of(runtime) != [daemon]


def test_a_gone_embedded_broker_is_started_again(runtime, monkeypatch):
    monkeypatch.setenv("ARRAYBRIDGE_KEEPER", "off")
    broker = arraybridge.Broker()
    broker.put(np.arange(3), "a")
    held = broker.get("a")
    [daemon] = daemons_of(runtime)
    os.kill(daemon, signal.SIGKILL)
    wait_for_end(daemon)
    share = broker.put(np.arange(4), "a")
    assert share.to("numpy").tolist() == [0, 1, 2, 3] and held.tolist() == [0, 1, 2]
    broker.close()


def test_never(runtime, monkeypatch):
    with pytest.raises(BrokerUnavailable, match='start="never"') as caught:
        arraybridge.Broker(start="never").list()
    assert caught.value.code == 14
    monkeypatch.setenv("ARRAYBRIDGE_START", "never")
    for start in ("auto", "private"):
        with pytest.raises(BrokerUnavailable, match="ARRAYBRIDGE_START=never"):
            arraybridge.Broker(start=start).list()
    assert not daemons_of(runtime)


def test_a_named_address_is_never_replaced(runtime, monkeypatch):
    monkeypatch.setenv("ARRAYBRIDGE_ADDRESS", str(runtime / "elsewhere"))
    with pytest.raises(BrokerUnavailable):
        arraybridge.Broker().list()
    with pytest.raises(BrokerUnavailable):
        arraybridge.Broker(runtime / "other").list()
    assert not daemons_of(runtime)


def test_a_system_broker_is_found_and_one_that_refuses_is_an_error(runtime):
    system = Path(discovery.SYSTEM_DIRECTORY)
    system.mkdir()
    daemon = start_daemon(str(system), "--log-level", "warn")
    with arraybridge.Broker() as broker:
        assert broker.list() == [] and broker.address == str(system)
    assert stop_daemon(daemon) == 0
    (system / "lifeline.sock").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(system / "lifeline.sock"))
    with pytest.raises(BrokerUnavailable, match="does not answer"):
        arraybridge.Broker().list()
    assert not daemons_of(runtime)


def test_the_environment_names_the_address(runtime, monkeypatch, address):
    monkeypatch.setenv("ARRAYBRIDGE_ADDRESS", address)
    with arraybridge.Broker() as broker:
        assert broker.address == address and broker.stats()["sessions"] >= 1
    assert not daemons_of(runtime)


def test_a_private_broker_is_nobody_elses_and_ends_with_its_broker(runtime):
    with arraybridge.Broker(start="private") as first, arraybridge.Broker(start="private") as second:
        share = first.put(np.arange(3), "a")
        assert second.list() == [] and first.address != second.address
        daemons = [*daemons_of(first.address), *daemons_of(second.address)]
        assert len(daemons) == 2 and not daemons_of(runtime)
        code = "import pickle, sys; assert pickle.loads(bytes.fromhex(sys.argv[1])).to('numpy').sum() == 3"
        run_client(code, pickle.dumps(share).hex())
        directory = first.address
    assert not any(state_of(daemon) for daemon in daemons)
    assert not Path(directory).exists()


def test_a_closed_private_broker_has_ended_and_is_reaped(runtime):
    with arraybridge.Broker(start="private") as broker:
        broker.list()
        [daemon] = daemons_of(broker.address)
    assert state_of(daemon) is None


FORKED = """
import os, arraybridge, numpy
broker = arraybridge.Broker(start="private")
broker.put(numpy.arange(3), "a")
stay, go = os.pipe()
used, tell = os.pipe()
child = os.fork()
if child == 0:
    os.close(go)
    assert broker.get("a").tolist() == [0, 1, 2]
    os.write(tell, b"1")
    os.read(stay, 1)
    broker.close()
    os._exit(0)
os.close(tell)
assert os.read(used, 1) == b"1"
directory = broker.address
if {ends}:
    os.write(go, b"1")
    assert os.waitpid(child, 0)[1] == 0
    assert broker.get("a").tolist() == [0, 1, 2]
broker.close()
assert not os.path.exists(directory)
if not {ends}:
    os.write(go, b"1")
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("ends", [True, False], ids=["child ends first", "child stays"])
def test_a_forked_child_neither_ends_nor_keeps_a_private_broker(runtime, ends):
    run_client(FORKED.replace("{ends}", str(ends)))


def test_a_forked_child_waits_for_no_thread_of_its_parent(runtime):
    # A thread of the parent is finding a broker, with the connection's lock, when the fork happens.
    run_client("""
import os, threading, arraybridge, numpy
from arraybridge.broker import discovery, references
broker = arraybridge.Broker(start="private")
find, inside, leave = discovery.find, threading.Event(), threading.Event()
def slow(*wishes):
    inside.set(); leave.wait()
    return find(*wishes)
discovery.find = slow
thread = threading.Thread(target=broker.list)
thread.start(); inside.wait()
references._lock.acquire()
child = os.fork()
if child == 0:
    discovery.find = find
    broker.put(numpy.arange(3), "a")
    arraybridge.Broker("/nowhere")
    good = broker.get("a").tolist() == [0, 1, 2]
    broker.close()
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
leave.set(); thread.join(); broker.close()
""")


def test_a_daemon_that_outlives_its_starter_is_no_leak_of_it(runtime):
    said = run_client("import os; os.dup2(1, 2)" + USE, PYTHONDEVMODE="1")
    assert "ResourceWarning" not in said, said


def test_a_share_pickles_after_its_broker_was_closed_and_starts_nothing(runtime):
    with arraybridge.Broker(start="private") as broker:
        share = broker.put(np.zeros(2))
        before, started = pickle.dumps(share), len(child.children)
    assert pickle.dumps(share) == before and len(child.children) == started
    with pytest.raises(BrokerUnavailable):
        pickle.loads(before).to("numpy")


def test_a_broker_is_started_by_a_process_with_many_descriptors(runtime):
    run_client("""
import os, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
import arraybridge
with arraybridge.Broker(start="private") as broker:
    assert broker.list() == []
""")


def test_ctrl_c_while_a_daemon_starts_leaves_none_behind(runtime, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "gets_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        arraybridge.Broker().list()
    assert child.children[-1].poll() is not None and not daemons_of(runtime)


def test_a_standing_broker_that_was_restarted_is_asked_again(tmp_path):
    directory = str(tmp_path)
    daemon = start_daemon(directory, "--log-level", "warn")
    broker = arraybridge.Broker(directory)
    born = broker.empty(4, "int64")
    born[:] = 5
    broker.put(np.arange(3), "a")
    for name, array in (("ours", np.arange(4)), ("born", born)):
        stop_daemon(daemon)
        daemon = start_daemon(directory, "--log-level", "warn")
        assert broker.put(array, name).to("numpy").tolist() == array.tolist()
    broker.close()
    assert stop_daemon(daemon) == 0


@pytest.mark.parametrize("keeper", ["on", "off"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, None])
def test_a_private_broker_ends_with_its_process_and_leaves_nothing(runtime, monkeypatch, keeper, number):
    monkeypatch.setenv("ARRAYBRIDGE_KEEPER", keeper)
    code = USE.replace("Broker()", "Broker(start='private')") + "print(broker.address, flush=True); sys.stdin.read()"
    starter = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True)
    directory = Path(starter.stdout.readline().strip())
    [daemon] = daemons_of(directory)
    assert (directory / "arraybridged.log").exists()
    if number is not None:
        starter.send_signal(number)
    starter.communicate()
    wait_for_end(daemon)
    assert not directory.exists()


def test_a_directory_open_to_others_is_refused(runtime):
    runtime.mkdir(mode=0o777)
    runtime.chmod(0o777)
    with pytest.raises(BrokerUnavailable, match="open to others"):
        arraybridge.Broker().list()


def test_a_relative_runtime_directory_is_none(monkeypatch, tmp_path):
    with tempfile.TemporaryDirectory(prefix="ab-") as base:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
        monkeypatch.setattr(tempfile, "tempdir", base)
        with arraybridge.Broker() as broker:
            assert broker.list() == [] and broker.address == f"{base}/arraybridge-{os.getuid()}"
            [daemon] = daemons_of(broker.address)
        assert list(tmp_path.iterdir()) == []
        os.kill(daemon, signal.SIGTERM)
        wait_for_end(daemon)


def test_a_directory_of_others_keeps_nobody_from_the_systems_broker(runtime, monkeypatch):
    """Under /tmp anybody can take the name of another user's directory."""
    with tempfile.TemporaryDirectory(prefix="ab-") as base:
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        monkeypatch.setattr(tempfile, "tempdir", base)
        taken = Path(base, f"arraybridge-{os.getuid()}")
        taken.symlink_to("/nonexistent")
        for start in ("auto", "never"):
            with pytest.raises(BrokerUnavailable, match=f"no broker is running.*{taken}, belongs to another user"):
                arraybridge.Broker(start=start).list()
        system = Path(base, "system")
        system.mkdir()
        monkeypatch.setattr(discovery, "SYSTEM_DIRECTORY", str(system))
        daemon = start_daemon(str(system), "--log-level", "warn")
        with arraybridge.Broker() as broker:
            assert broker.list() == [] and broker.address == str(system)
        assert stop_daemon(daemon) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's directory")
def test_a_directory_of_another_user_is_never_connected_to(runtime):
    runtime.mkdir(mode=0o700)
    daemon = start_daemon(str(runtime), "--log-level", "warn")
    os.chown(runtime, 12345, -1)
    try:
        with pytest.raises(BrokerUnavailable, match="belongs to another user"):
            discovery.find(None, "auto")
    finally:
        os.chown(runtime, 0, -1)
    assert discovery.find(None, "never").address == str(runtime)
    assert stop_daemon(daemon) == 0


def test_without_a_runtime_directory_it_is_a_private_one_under_tmp(runtime, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="ab-") as base:
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        monkeypatch.setattr(tempfile, "tempdir", base)
        with arraybridge.Broker() as broker:
            assert broker.address == f"{base}/arraybridge-{os.getuid()}" and broker.list() == []
            [daemon] = daemons_of(broker.address)
        wait_for_end(daemon)


@pytest.fixture
def no_daemon_of_its_own(monkeypatch):
    """As if the package had been installed without executables."""
    monkeypatch.setattr(_bin, "beside_package", lambda name: None)


@pytest.mark.usefixtures("no_daemon_of_its_own")
def test_a_daemon_that_does_not_start_says_why(runtime, monkeypatch, tmp_path):
    monkeypatch.setenv("ARRAYBRIDGE_DAEMON", str(tmp_path / "nothing"))
    with pytest.raises(BrokerUnavailable, match="could not be started"):
        arraybridge.Broker().list()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("ARRAYBRIDGE_DAEMON", str(broken))
    for start in ("auto", "private"):
        with pytest.raises(BrokerUnavailable, match="out of luck"):
            arraybridge.Broker(start=start).list()
    monkeypatch.delenv("ARRAYBRIDGE_DAEMON")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerUnavailable, match="could not be started"):
        arraybridge.Broker().list()


def test_a_linger_that_is_no_time_is_named(runtime, monkeypatch):
    monkeypatch.setenv("ARRAYBRIDGE_LINGER", "abc")
    with pytest.raises(BrokerUnavailable, match=r"and ended .--linger is \$ARRAYBRIDGE_LINGER, 'abc'.*linger"):
        arraybridge.Broker().list()


@pytest.mark.usefixtures("no_daemon_of_its_own")
def test_a_daemon_that_never_gets_ready_is_ended(runtime, monkeypatch, tmp_path):
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho thinking >&2\nexec sleep 1000\n")
    silent.chmod(0o755)
    monkeypatch.setenv("ARRAYBRIDGE_DAEMON", str(silent))
    monkeypatch.setattr(child, "READY_SECONDS", 0.2)
    with pytest.raises(BrokerUnavailable, match="thinking"):
        arraybridge.Broker().list()
    assert child.children[-1].poll() is not None


WAITS = """
import os, threading, time, arraybridge, numpy
broker = arraybridge.Broker({address}, namespace=f"exit{{os.getpid()}}", start={start!r}, timeout_s=600)
full, waiting = broker.channel("full", 1).open("sender"), threading.Event()
full.send(numpy.ones(2))
watch, receiver = broker.watch("withdraw"), broker.channel("empty").receiver()
bundle = broker.bundle("bundle", {{"w": numpy.ones(3)}}, replace=True).fill().publish() and broker.open("bundle")
def wait():
    waiting.set()
    {call}
threading.Thread(target=wait, daemon=True).start()
waiting.wait()
time.sleep(0.2)  # the call is not seen to wait
"""


@pytest.mark.parametrize("start", ["private", "never"])
@pytest.mark.parametrize(
    "call",
    [
        'broker.get("nobody", wait=600)', 'broker.get_many(["nobody"], "torch", wait=600)', 'broker.open("nobody", wait=600)',
        "bundle.wait_newer()", "watch.next()", "list(watch)", 'broker.channel("empty").receive()', "next(receiver)",
        "full.send(numpy.ones(2))", "while True: broker.put(numpy.ones(1 << 20), 'a', replace=True)",
    ],
)  # fmt: skip
def test_a_daemon_thread_that_waits_at_exit_says_nothing(runtime, address, start, call):
    code = WAITS.format(address=None if start == "private" else repr(address), start=start, call=call)
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def started_in(directory):
    """The processes whose arguments name the directory."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((process / "cmdline").read_bytes())
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return [line for line in lines if f"{directory}/".encode() in line]


LIMITED = """
import resource, sys, arraybridge
name, most, start = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if name == "RLIMIT_AS":
    most += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # this process has libraries of its own
resource.setrlimit(getattr(resource, name), (most, most))
print(most)
try:
    arraybridge.Broker(start=start).empty(most + (1 << 27), "uint8")
except arraybridge.BrokerError as error:
    print(error)
"""


@pytest.mark.parametrize("start", ["auto", "private"])
@pytest.mark.parametrize(
    ("limit", "most", "what"),
    [
        ("RLIMIT_AS", 600 << 20, "mapping of [0-9]+ bytes failed: Cannot allocate memory"),
        ("RLIMIT_FSIZE", 0, "there is no writable temporary folder"),
        ("RLIMIT_FSIZE", 1 << 20, "a file of [0-9]+ bytes failed: File too large"),
    ],
)
def test_a_limit_that_is_too_low_is_named(runtime, monkeypatch, limit, most, what, start):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    most, said = run_client(LIMITED, limit, str(most), start, TMPDIR=str(runtime.parent)).splitlines()
    assert re.search(what, said) and f"{limit} of " in said and f" is {most} bytes" in said and "raise it, as `ulimit" in said
    deadline = time.monotonic() + 60
    while started_in(runtime.parent) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not started_in(runtime.parent), "it ends in order, and its keeper with it"
