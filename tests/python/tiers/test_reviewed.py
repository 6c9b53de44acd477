# SPDX-License-Identifier: Apache-2.0
"""Files that a keep writes beside a spill, that somebody removes, or that outlive the lifetime of their share."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tier_cases import MIB, Tier, eventually, pattern

from arraybridge import Broker, BrokerError, OutOfMemory

ROOM = ("--host-capacity", "150MiB", "--namespace-quota", "100%")


def refused(folder: Path, files: Path) -> str:
    """What a daemon says that does not use this directory."""
    tier = Tier.__new__(Tier)
    tier.folder, tier.files, tier.flags = folder, files, ["--log-level", "error"]
    tier.settings = {"directory": str(files)}
    tier.start()
    try:
        tier.broker.put(pattern(0), "a")
        with pytest.raises(BrokerError) as error:
            tier.broker.list("a")[0].share.demote()
        return str(error.value)
    finally:
        tier.stop()


def test_a_keep_beside_a_spill_keeps_the_right_bytes(tmp_path: Path) -> None:
    tier = Tier(tmp_path, ROOM, disk_max="4GiB")
    try:
        with Broker(tmp_path / "broker", start="never") as other:
            for number in range(8):
                share = tier.broker.put(np.full(100 * MIB, number + 1, "uint8"), "kept", replace=True)
                wait, kept = number * 0.02, []

                def keep(share=share, wait=wait, kept=kept) -> None:
                    time.sleep(wait)
                    try:
                        kept.append(other.list("kept")[0].share.keep())
                    except OutOfMemory as error:  # the other share has all memory
                        kept.append(error)

                thread = threading.Thread(target=keep)
                thread.start()
                tier.broker.put(np.full(100 * MIB, 200, "uint8"), "beside", replace=True, wait=True)
                thread.join()
                tier.broker.withdraw("beside")
                assert len(kept) == 1
                assert (tier.broker.get("kept") == number + 1).all(), (number, kept, share.generation)
    finally:
        tier.stop()


def test_a_kept_share_whose_file_is_gone_stays_in_memory_or_gets_another_one(tier: Tier) -> None:
    share = tier.broker.put(pattern(1), "a").keep()
    tier.file().unlink()
    share.keep()
    assert tier.file().exists()
    tier.file().unlink()
    share.demote()
    assert (tier.broker.get("a") == pattern(1)).all()
    share = tier.broker.put(pattern(2), "b").keep()
    (tier.files / next(name for name in tier.names())).unlink()
    tier.broker.close()
    tier.daemon.kill()
    tier.daemon.wait()
    tier.start()


def test_the_lifetime_of_a_kept_share_is_not_longer_for_a_restart(tier: Tier) -> None:
    tier.broker.put(pattern(1), "short", lifetime=2).keep()
    tier.broker.put(pattern(2), "long", lifetime=600).keep()
    tier.broker.put(pattern(3), "middle", lifetime=9).keep()
    began = time.monotonic()
    tier.broker.close()
    tier.daemon.terminate()
    tier.daemon.wait()
    time.sleep(max(0.0, began + 3 - time.monotonic()))
    tier.start()
    assert sorted(each.share.name for each in tier.broker.list()) == ["long", "middle"]
    assert (tier.broker.get("long") == pattern(2)).all()
    eventually(lambda: [each.share.name for each in tier.broker.list()] == ["long"])


def test_a_pipe_in_the_directory_holds_no_start(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "files" / ("0" * 32 + ".safetensors"))
    tier = Tier(tmp_path)
    try:
        tier.broker.put(pattern(1), "a").demote()
        assert (tier.broker.get("a") == pattern(1)).all()
    finally:
        tier.stop()


def test_a_directory_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files").chmod(0o777)
    assert "others may write there" in refused(tmp_path, tmp_path / "files")
    (tmp_path / "files").chmod(0o700)
    if os.geteuid() == 0:
        os.chown(tmp_path / "files", 65534, 65534)
        assert "belongs to uid 65534" in refused(tmp_path, tmp_path / "files")


def test_many_reads_that_find_no_room_cost_no_processor(tmp_path: Path) -> None:
    tier = Tier(tmp_path, ("--host-capacity", "40MiB", "--namespace-quota", "100%"))
    try:
        for number in range(120):
            tier.broker.put(np.zeros(3 * MIB, "uint8"), f"n/{number}").demote()
        tier.broker.put(np.zeros(38 * MIB, "uint8"), "big").pin("hard")
        asked = [threading.Thread(target=ask, args=(tier, number)) for number in range(100)]
        for each in asked:
            each.start()
        for each in asked:
            each.join()
        before = used(tier.daemon)
        time.sleep(3)
        assert used(tier.daemon) - before < 1.5, "seconds of a processor in 3 seconds"
    finally:
        tier.broker.close()
        tier.daemon.kill()
        tier.daemon.wait()


def ask(tier: Tier, number: int) -> None:
    with pytest.raises(BrokerError):
        tier.broker.get(f"n/{number}", wait=0.001)


def used(daemon: subprocess.Popen[bytes]) -> float:
    """Seconds of a processor."""
    facts = Path(f"/proc/{daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")
