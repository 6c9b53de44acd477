# SPDX-License-Identifier: Apache-2.0
"""A recorder that stands still, is killed, has no disk left, or loses its broker: the pipeline goes on, and the file is readable."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import environment, start_daemon, stop_daemon
from recordings import (
    PATIENCE_S,
    Taken,
    arrays_of,
    command,
    events_of,
    eventually,
    file_size,
    messages_of,
    recording_process,
    records_of,
    sender,
)  # fmt: skip

import arraybridge
from arraybridge import Broker, PeerGone
from arraybridge.recording import Recorder, replay
from arraybridge.recording.reading import Recording

MIB = 1 << 20


def test_a_recorder_that_stands_still_delays_no_sender_and_says_what_it_missed(broker: Broker, address: str, tmp_path: Path) -> None:
    out = sender(broker, "frames", capacity=4)
    with recording_process(
        "-o", str(tmp_path / "run.mcap"), "--output=json", "frames", address=address, namespace=broker.namespace
    ) as process:
        out.send(np.zeros(10), timeout=PATIENCE_S)
        eventually("the first message was written", lambda: file_size(tmp_path / "run.mcap") > 1000)
        process.send_signal(signal.SIGSTOP)
        eventually("it stands still", lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        for number in range(1, 101):
            out.send(np.full(10, number), timeout=PATIENCE_S)  # a sender that had to wait would wait in vain
        process.send_signal(signal.SIGCONT)
        out.close()
        text, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    counts = json.loads(text)["frames"]
    numbers = [int(arrays_of(each)["array"][0]) for each in messages_of(tmp_path / "run.mcap", "frames")]
    missed = [each for each in events_of(tmp_path / "run.mcap") if each["event"] == "missed"]
    assert numbers[0] == 0 and numbers == sorted(set(numbers)) and numbers[-1] == 100, "the newest are kept"
    assert counts["missed"] > 0 and counts["missed"] + counts["messages"] == 101 and counts["messages"] == len(numbers)
    there = {number for each in missed for number in range(each["first"] - 1, each["first"] - 1 + each["count"])}
    assert there == set(range(101)) - set(numbers)


def paced(out: arraybridge.Channel, over: Callable[[], bool]) -> None:
    """Sends frames that fill a chunk each, as a camera does, until then. Each has the number before its sequence, modulo 251."""
    number = 0
    limit = time.monotonic() + PATIENCE_S
    while not over():
        assert time.monotonic() < limit, "the recorder stands still"
        out.send(np.full(MIB + 1, number % 251, "u1"), timeout=PATIENCE_S)
        number += 1
        time.sleep(0.01)


def frames_of(path: Path) -> tuple[list[Any], bool]:
    """The messages of the first channel that mcap's own reader finds, and whether the file has its end."""
    records, whole = records_of(path)
    return [each for each in records if type(each).__name__ == "Message" and each.channel_id == 2], whole


def test_a_killed_recorder_leaves_a_file_that_is_read_up_to_its_last_chunk(broker: Broker, address: str, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    out = sender(broker, "frames")
    with recording_process("-o", str(path), "frames", address=address, namespace=broker.namespace) as process:
        paced(out, lambda: file_size(path) > 20 * MIB)
        process.kill()
        process.wait()
    out.close()
    frames, whole = frames_of(path)
    found = [arrays_of(each)["array"] for each in frames]
    assert not whole and len(found) >= 19
    sequences = [each.sequence for each in frames]
    assert sequences == sorted(set(sequences))
    assert all((array == (sequence - 1) % 251).all() for array, sequence in zip(found, sequences, strict=True))
    test = broker.channel("test", 64).open("receiver")
    done = replay(path, broker=broker, speed=float("inf"), rename={"frames": "test"}, timeout=PATIENCE_S)
    assert done.messages == {"test": len(found)} and not done.whole
    again = [test.receive(timeout=PATIENCE_S) for _ in found]
    assert all(np.array_equal(one, other) for one, other in zip(again, found, strict=True))
    with pytest.raises(PeerGone):
        test.receive(timeout=PATIENCE_S)
    test.close()


def test_what_is_a_second_old_outlives_a_kill(broker: Broker, address: str, tmp_path: Path) -> None:
    """Messages that fill no chunk are written all the same."""
    path = tmp_path / "run.mcap"
    out = sender(broker, "labels")
    with recording_process("-o", str(path), "labels", address=address, namespace=broker.namespace) as process:
        before = file_size(path)
        out.send(np.arange(4), metadata=b"cat")
        eventually("it was written", lambda: file_size(path) > before)
        process.kill()
        process.wait()
    out.close()
    taken = Taken(broker, "test", on_peer_death="wait")
    replay(path, broker=broker, rename={"labels": "test"}, timeout=PATIENCE_S)
    eventually("it came", lambda: len(taken.received) == 1)
    assert taken.received[0].metadata == b"cat" and taken.received[0].array.tolist() == [0, 1, 2, 3]
    taken._channel.close()


def test_a_file_can_be_cut_anywhere(broker: Broker, tmp_path: Path) -> None:
    """Each cut leaves the messages of the whole chunks before it, and no error."""
    path, cut = tmp_path / "run.mcap", tmp_path / "cut.mcap"
    out = sender(broker, "frames", capacity=64)
    with Recorder(path, ["frames"], broker=broker, compression="zstd") as recorder:
        for number in range(12):
            out.send(np.random.default_rng(number).integers(0, 255, 300_000, "u1"))
        out.close()
        assert recorder.wait(PATIENCE_S)
    whole = path.read_bytes()
    messages = counted(path)
    assert messages == 13  # and the event
    seen = set()
    for end in range(8, len(whole), len(whole) // 101):
        cut.write_bytes(whole[:end])
        seen.add(counted(cut))
    assert len(seen) >= 3 and max(seen) == messages


def counted(path: Path) -> int:
    with Recording(str(path)) as recording:
        return sum(1 for _ in recording.messages())


RECORD_WITH_LITTLE_DISK = """
import resource, sys
import arraybridge
from arraybridge.recording import Recorder
address, namespace, path, limit = sys.argv[1:]
with arraybridge.Broker(address, namespace=namespace, start="never") as broker:
    recorder = Recorder(path, ["frames"], broker=broker)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    print("open", flush=True)
    for each in (recorder.wait, recorder.close):
        try:
            each()
            print("no error")
        except OSError as error:
            print(type(error).__name__, error.filename == path, error.strerror)
"""


def test_a_full_disk_is_an_error_and_the_file_is_readable_up_to_there(broker: Broker, address: str, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    out = sender(broker, "frames")
    words = [sys.executable, "-c", RECORD_WITH_LITTLE_DISK, address, broker.namespace, str(path), str(5 * MIB)]
    with subprocess.Popen(words, env=environment(), cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        paced(out, lambda: process.poll() is not None)  # the sender goes on, whatever the recorder does
        text = process.stdout.read()
    out.close()
    lines = text.splitlines()
    assert len(lines) == 2 and all(line.startswith("OSError True ") for line in lines), text
    assert "bytes, up to which the recording can be read; free space, and record again" in lines[0]
    found, whole = frames_of(path)
    assert not whole and len(found) == 4
    assert all((arrays_of(each)["array"] == (each.sequence - 1) % 251).all() for each in found)
    assert file_size(path) < 5 * MIB, "the chunk that did not fit was taken back"
    assert len([each for each in records_of(path)[0] if type(each).__name__ == "Message"]) == counted(path)


def test_the_end_of_the_broker_ends_the_recording_with_its_error(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "error")
        with Broker(directory, start="never") as broker:
            out = sender(broker, "frames")
            recorder = Recorder(tmp_path / "run.mcap", ["frames"], broker=broker)
            out.send(np.arange(3))
            eventually("it was recorded", lambda: recorder.stats()["frames"].messages == 1)
            stop_daemon(daemon)
            for call in (recorder.wait, recorder.close):
                with pytest.raises(ConnectionError):
                    call()
    assert counted(tmp_path / "run.mcap") == 2
    assert [each["event"] for each in events_of(tmp_path / "run.mcap")] == ["stopped"]


def test_recorders_come_and_go_while_the_pipeline_runs(broker: Broker, tmp_path: Path) -> None:
    over, sent, failures = threading.Event(), [0], list[BaseException]()
    out = sender(broker, "frames")

    def send() -> None:
        try:
            while not over.is_set():
                out.send(np.full(1000, sent[0]), timeout=PATIENCE_S)
                sent[0] += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    for number in range(5):
        path = tmp_path / f"{number}.mcap"
        with Recorder(path, ["frames"], broker=broker) as recorder:
            eventually("some were recorded", lambda r=recorder: r.stats()["frames"].messages > 20)  # type: ignore[misc]
        counts = recorder.close()["frames"]
        sequences = [each.sequence for each in messages_of(path, "frames")]
        assert len(sequences) == counts.messages and sequences[-1] - sequences[0] + 1 == counts.messages + counts.missed
    over.set()
    thread.join()
    out.close()
    assert failures == []


def test_commands(broker: Broker, address: str, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    outs = {name: sender(broker, name) for name in ("frames", "labels")}
    with recording_process("-o", str(path), *outs, address=address, namespace=broker.namespace) as process:
        for name, out in outs.items():
            out.send(np.full(3, len(name)))
            out.close()
        text, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert [line.partition(",")[0] for line in text.splitlines()] == ["frames: 1 messages", "labels: 1 messages"]
    taken = Taken(broker, "test")
    words = [str(path), "frames", "--speed=inf", "--from=0s", "--to=1min", "--rename=frames=test", "--output=json"]
    text, errors = said(*words, address=address, namespace=broker.namespace)
    assert json.loads(text)["messages"] == {"test": 1}, errors
    assert [each.array.tolist() for each in taken.all()] == [[6.0] * 3]


def said(*words: str, address: str, namespace: str) -> tuple[str, str]:
    process = command("replay", *words, address=address, namespace=namespace)
    return process.communicate(timeout=PATIENCE_S)


def test_an_interrupted_recorder_completes_its_file(broker: Broker, address: str, tmp_path: Path) -> None:
    for number, end in enumerate((signal.SIGINT, signal.SIGTERM)):
        path = tmp_path / f"{number}.mcap"
        out = sender(broker, "frames")
        with recording_process("-o", str(path), "frames", address=address, namespace=broker.namespace) as process:
            before = file_size(path)
            out.send(np.arange(3))
            eventually("it was written", lambda p=path, b=before: file_size(p) > b)  # type: ignore[misc]
            process.send_signal(end)
            text, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0 and "1 messages" in text and "not ended" in text, errors
        assert len(messages_of(path, "frames")) == 1
        out.close()


def test_messages_of_the_commands(address: str, broker: Broker, tmp_path: Path) -> None:
    cases: list[tuple[list[str], str]] = [
        ([str(tmp_path / "absent.mcap")], "No such file"),
        ([__file__], "does not begin as an MCAP file does"),
        ([__file__, "--speed=0"], "must be above 0"),
        ([__file__, "--from=ten"], "must be a time such as 500ms, 10s or 2min, not 'ten'"),
        ([__file__, "--rename=frames"], "must be OLD=NEW, not 'frames'"),
    ]
    started = [command("replay", *words, address=address, namespace=broker.namespace) for words, _ in cases]
    for process, (words, text) in zip(started, cases, strict=True):
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2 and text in errors, (words, errors)
