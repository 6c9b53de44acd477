# SPDX-License-Identifier: Apache-2.0
"""What happens is told: in order, to its own user, while other calls go on; and a share knows how it was made and read."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from processes import environment, start_daemon, stop_daemon

import arraybridge
from arraybridge import errors


def own(event: arraybridge.Event) -> bool:
    """Sessions of other tests are this user's, too."""
    return event.pid == os.getpid() and event.kind not in ("session_begin", "session_end")


def until(watch: arraybridge.Watch, kind: str) -> list[arraybridge.Event]:
    """What is told of this process, up to the first event of this kind."""
    told = []
    for event in watch:
        if own(event):
            told.append(event)
        if own(event) and event.kind == kind:
            break
    return told


def test_the_life_of_a_share(broker, client):
    with broker.watch() as watch:
        broker.put(np.arange(6, dtype="f4"), "frame")
        out = client(
            "import sys, os, arraybridge\n"
            "broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
            "array = broker.get('frame')\n"
            "del array\n"
            "broker.flush()\n"
            "print(os.getpid())",
            broker.namespace,
        )
        broker.withdraw("frame")
        told = []
        while not told or told[-1].kind != "withdraw":
            told.append(watch.next(timeout=60))
    reader = int(out)
    published = next(event for event in told if event.kind == "publish")
    assert (published.name, published.namespace, published.pid) == ("frame", broker.namespace, os.getpid())
    assert (published.uid, published.device, published.session > 0) == (os.getuid(), "cpu", True)
    assert published.nbytes >= 24 and published.note == "numpy place: not in memory of this namespace"
    assert abs(published.time_ns - time.time_ns()) < 3600e9
    assert [event.kind for event in told if event.pid == reader] == [
        "session_begin", "acquire", "release", "session_end",
    ]  # fmt: skip
    acquired = next(event for event in told if event.kind == "acquire")
    assert (acquired.note, acquired.generation) == ("numpy hand_over", published.generation)
    assert (told[-1].reason, told[-1].share) == ("withdrawn", published.share)
    assert told == sorted(told, key=lambda event: event.time_ns)


def test_only_what_was_asked_for(broker):
    with broker.watch(kinds="publish", names="a/") as watch:
        for name in ("b/1", "a/1", "a/2"):
            broker.put(np.ones(2), name)
        assert [watch.next(timeout=60).name for _ in range(2)] == ["a/1", "a/2"]
        with pytest.raises(arraybridge.BrokerTimeout, match="received no event within"):
            watch.next(timeout=0)


def test_refusals_are_told(broker):
    with broker.watch(kinds=["refusal"]) as watch:
        with pytest.raises(arraybridge.ShareNotFound):
            broker.get("never")
        (told,) = until(watch, "refusal")
    assert (told.code, told.reason, told.verb) == (5, "SHARE_NOT_FOUND", "Acquire")
    assert "has no share named 'never'" in told.note


def test_a_quota_is_told(address, broker):
    with broker.watch(kinds=["quota"]) as watch:
        with pytest.raises(arraybridge.OutOfMemory):
            broker.empty(2**50, "uint8")
        (told,) = until(watch, "quota")
    assert (told.code, told.verb) == (8, "Allocate")


def test_other_calls_go_on_while_a_thread_waits(broker):
    with broker.watch(kinds="publish", names="wanted") as watch:
        told: list[arraybridge.Event] = []
        waits = threading.Thread(target=lambda: told.append(watch.next()))
        waits.start()
        for index in range(50):
            broker.put(np.full(3, index), f"other {index}")
            assert broker.get(f"other {index}")[0] == index
        assert not told
        broker.put(np.ones(1), "wanted")
        waits.join()
    assert told[0].name == "wanted"


def test_closing_ends_the_loop_of_another_thread(broker):
    watch = broker.watch(kinds="publish", names="never")
    ended = []
    waits = threading.Thread(target=lambda: ended.append(list(watch)))
    waits.start()
    watch.close()
    waits.join()
    assert ended == [[]] and watch.closed
    watch.close()
    with pytest.raises(arraybridge.WatchClosed, match="closed"):
        watch.next()
    assert "closed" in repr(watch)


def test_async(broker):
    async def run() -> list[str]:
        async with broker.watch(kinds="publish", names="async") as watch:
            with pytest.raises(arraybridge.BrokerTimeout):
                await watch.anext(timeout=0)
            waits = asyncio.ensure_future(watch.anext())
            await asyncio.sleep(0)
            waits.cancel()  # what comes for it is the next one's
            with pytest.raises(asyncio.CancelledError):
                await waits
            for index in range(3):
                broker.put(np.ones(1), f"async {index}")
            names = [(await watch.anext()).name]
            async for event in watch:
                names.append(event.name)
                if len(names) == 3:
                    watch.close()
            return names

    assert asyncio.run(run()) == ["async 0", "async 1", "async 2"]


def test_who_reads_too_slowly_is_told_how_much_it_lost():
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn", "--limit", "events_per_watcher=4")
        with arraybridge.Broker(directory, start="never") as broker:
            watch = broker.watch(kinds="publish")
            for index in range(10):
                broker.put(np.ones(1), f"share {index}")
            told = []
            with pytest.raises(arraybridge.EventsLost, match="lost 6 events") as lost:
                for event in watch:
                    told.append(event.name)
            assert told == [f"share {index}" for index in range(4)]
            assert (lost.value.reason, lost.value.code) == ("WATCH_CUT", 8)
            assert isinstance(lost.value, errors.BrokerError)
            assert broker.stats()["events_dropped_total"] == 6
        assert stop_daemon(daemon) == 0


def test_watchers_are_limited():
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn", "--limit", "watchers=1")
        with arraybridge.Broker(directory, start="never") as broker:
            with broker.watch(), pytest.raises(arraybridge.OutOfMemory, match="limit watchers \\(1\\)"):
                broker.watch()
            broker.watch().close()
            watch = broker.watch()
            del watch  # who lets go of one closes it
            broker.flush()
            broker.watch()
        assert stop_daemon(daemon) == 0


def test_the_end_of_the_daemon_is_an_error():
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn")
        with arraybridge.Broker(directory, start="never") as broker:
            watch = broker.watch(kinds="publish")
            failed = []

            def loop() -> None:
                try:
                    failed.append(list(watch))
                except arraybridge.BrokerUnavailable as error:
                    failed.append(str(error))

            waits = threading.Thread(target=loop)
            waits.start()
            daemon.kill()
            daemon.wait()
            waits.join()
            assert isinstance(failed[0], str)
            with pytest.raises(arraybridge.BrokerUnavailable, match="open it again"):
                watch.next()


def test_a_forked_child_watches_anew(broker):
    with broker.watch(kinds="publish", names="forked") as watch:
        code = (
            "import os, sys, numpy as np, arraybridge\n"
            "broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
            "watch = broker.watch(kinds='publish', names='child')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    watch2 = broker.watch(kinds='publish', names='child')\n"
            "    broker.put(np.ones(1), 'child')\n"
            "    ok = watch2.next(timeout=60).name == 'child'\n"
            "    try:\n"
            "        watch.next(timeout=0)\n"
            "        ok = False\n"
            "    except arraybridge.BrokerTimeout:\n"  # its own watch, which began just now
            "        pass\n"
            "    os._exit(0 if ok else 1)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "assert watch.next(timeout=60).name == 'child'\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, broker.address, broker.namespace],
            capture_output=True, text=True, env=environment(), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with pytest.raises(arraybridge.BrokerTimeout):
            watch.next(timeout=0)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"kinds": ["publishes"]}, "a kind of event must be one of"),
        ({"kinds": [3]}, "a kind of event must be one of"),
        ({"names": 3}, r"names \(their prefix\) must be a str, not 3"),
        ({"names": "\ud800"}, "surrogate"),
    ],
)
def test_what_makes_no_sense_is_refused(broker, arguments, what):
    with pytest.raises(arraybridge.InvalidRequest, match=what):
        broker.watch(**arguments)


def test_notes_are_as_short_as_brokers_take_them():
    from arraybridge.broker import notes

    assert len(notes.cut("ü" * 100).encode()) == notes.BYTES_MAX
    assert notes.cut("x" + "ü" * 100).encode()[-2:] == "ü".encode()
