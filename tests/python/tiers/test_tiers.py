# SPDX-License-Identifier: Apache-2.0
"""Shares whose bytes move between memory and files: the bytes, the names and the refusals."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from processes import environment, run_client, start_daemon, stop_daemon
from tier_cases import Tier, eventually, pattern

from arraybridge import Broker, BrokerError, ShareExists, ShareNotFound


def test_the_bytes_the_name_and_the_generation_stay(tier: Tier) -> None:
    share = tier.broker.put(pattern(1), "a")
    assert share.residency == "host"
    charged = tier.broker.stats()["charged_bytes"]
    assert share.demote() is share
    assert share.residency == "disk"
    assert tier.broker.stored() == [("a", share.generation, share.nbytes, False, False, False)]
    eventually(lambda: tier.broker.stats()["charged_bytes"] < charged)  # the memory is free
    got = tier.broker.get("a", info=True)
    assert (got.array == pattern(1)).all()
    assert got.share.generation == share.generation
    assert got.share.id == share.id
    assert share.residency == "host"
    assert (share.to("numpy") == pattern(1)).all(), "the share that put returned is the same one"
    del got


def test_another_process_gets_it_whatever_its_framework(tier: Tier) -> None:
    tier.broker.put(pattern(2), "a").demote()
    code = "import sys; from arraybridge import Broker; print(int(Broker(sys.argv[1], start='never').get('a', 'torch').sum()))"
    assert run_client(code, str(tier.folder / "broker")).strip() == str(int(pattern(2).astype("int64").sum()))


def test_a_file_goes_with_its_share_and_with_its_way_back(tier: Tier) -> None:
    share = tier.broker.put(pattern(3), "a").demote()
    assert len(tier.names()) == 1
    share.prefetch()
    eventually(lambda: tier.names() == [])
    share.demote()
    share.withdraw()
    eventually(lambda: tier.names() == [])
    with pytest.raises(ShareNotFound):
        tier.broker.get("a")
    tier.broker.put(pattern(4), "a").demote()
    with pytest.raises(ShareExists):
        tier.broker.put(pattern(5), "a")
    tier.broker.put(pattern(5), "a", replace=True)
    eventually(lambda: tier.names() == [])
    assert (tier.broker.get("a") == pattern(5)).all()


def test_what_is_read_stays_in_memory_and_the_error_says_why(tier: Tier) -> None:
    share = tier.broker.put(pattern(6), "a")
    held = tier.broker.get("a")
    with pytest.raises(BrokerError, match=r"share 'a' of namespace 'default' stays in memory") as refused:
        share.demote()
    assert refused.value.reason == "SHARE_IN_USE"
    assert (held == pattern(6)).all()
    del held
    share.demote()
    assert share.residency == "disk"


def test_refusals_name_the_share_and_the_remedy(tier: Tier) -> None:
    unnamed = tier.broker.put(pattern(7))
    with pytest.raises(BrokerError, match="its maker chose no name for it: put it with a name"):
        unnamed.demote()
    share = tier.broker.put(pattern(8), "a")
    with pytest.raises(BrokerError, match="share 'a' of namespace 'default' has no file"):
        share.verify()
    newer = tier.broker.put(pattern(9), "a", replace=True)
    with pytest.raises(ShareNotFound):
        share.demote()
    assert newer.residency == "host"


def test_a_broker_without_a_directory_says_so(tmp_path: Path) -> None:
    daemon = start_daemon(str(tmp_path / "broker"), "--log-level", "warn")
    with Broker(tmp_path / "broker", start="never") as broker:
        share = broker.put(pattern(1), "a")
        with pytest.raises(BrokerError, match=r"set tiers\.directory in its configuration"):
            share.demote()
        assert share.residency == "host"
    assert stop_daemon(daemon) == 0


def test_safetensors_reads_the_file(tier: Tier) -> None:
    """The package of that name opens it: arrays by shape and dtype, and our facts."""
    safetensors = pytest.importorskip("safetensors")
    one = np.arange(12, dtype="float64").reshape(3, 4)
    tier.broker.put(one, 'a "quoted" name').demote()
    with safetensors.safe_open(str(tier.file()), "np") as opened:
        assert (opened.get_tensor("array") == one).all()
        facts = opened.metadata()
    assert facts["name"] == 'a "quoted" name'
    assert facts["namespace"] == "default"
    assert facts["digest"].startswith("xxh3-128:")
    tier.broker.withdraw('a "quoted" name')
    eventually(lambda: tier.names() == [])
    tree = {"x": np.ones(3, "uint8"), "y": np.full((2, 2), 7, "float32"), "z": np.zeros(0), "when": np.array([1], "datetime64[s]")}
    share = tier.broker.put({key: tree[key] for key in ("x", "y", "z")}, "tree").demote()
    with safetensors.safe_open(str(tier.file()), "np") as opened:
        assert (opened.get_tensor("array.0") == tree["x"]).all()
        assert (opened.get_tensor("array.1") == tree["y"]).all()
    got = share.to("numpy")
    assert (got["y"] == tree["y"]).all()
    del got
    share.withdraw()
    eventually(lambda: tier.names() == [])
    tier.broker.put(tree["when"], "dates").demote()  # a dtype that the format does not have
    with safetensors.safe_open(str(tier.file()), "np") as opened:
        assert list(opened.keys()) == ["bytes"]
    assert (tier.broker.get("dates") == tree["when"]).all()


@pytest.mark.parametrize("where", ["first", "last", "header", "short", "gone"])
def test_damage_is_data_loss_and_never_wrong_bytes(tier: Tier, where: str) -> None:
    share = tier.broker.put(pattern(10), "a").demote()
    file = tier.file()
    content = bytearray(file.read_bytes())
    if where == "short":
        file.write_bytes(content[:-1])
    elif where == "gone":
        file.unlink()
    else:
        at = {"first": len(content) - share.nbytes, "last": len(content) - 1, "header": 60}[where]
        content[at] ^= 1
        file.write_bytes(content)
    with pytest.raises(BrokerError, match=r"the bytes of share 'a' of namespace 'default' are lost") as lost:
        tier.broker.get("a")
    assert lost.value.reason == "SHARE_LOST"
    assert share.residency == "lost"
    assert tier.names() == ([] if where == "gone" else [file.name + ".corrupt"]), "it is set aside"
    with pytest.raises(BrokerError, match="are lost"):
        tier.broker.get("a")
    tier.broker.put(pattern(11), "a", replace=True)
    assert (tier.broker.get("a") == pattern(11)).all()


def test_verify_finds_damage(tier: Tier) -> None:
    share = tier.broker.put(pattern(12), "a").demote()
    assert share.verify() is share
    content = bytearray(tier.file().read_bytes())
    content[-1] ^= 1
    tier.file().write_bytes(content)
    with pytest.raises(BrokerError, match="its bytes do not have the digest that it states"):
        share.verify()


def test_the_limit_of_a_user_and_of_all(tmp_path: Path) -> None:
    tier = Tier(tmp_path, disk_max="10MiB", disk_max_per_user="6MiB")
    first = tier.broker.put(pattern(1), "first").demote()
    second = tier.broker.put(pattern(2), "second")
    with pytest.raises(
        BrokerError, match=r"no room for 4194304 bytes in files: 4194304 of 6291456 bytes \(tiers.disk_max_per_user\)"
    ) as full:
        second.demote()
    assert full.value.reason == "DISK_FULL"
    assert (second.to("numpy") == pattern(2)).all(), "nothing is lost"
    first.withdraw()
    eventually(lambda: tier.names() == [])
    second.demote()
    tier.stop()


def test_a_full_disk_turns_the_tier_off_and_loses_nothing(tmp_path: Path) -> None:
    os.environ["ARRAYBRIDGE_FAILPOINT"] = "tier_write:error"
    try:
        tier = Tier(tmp_path)
    finally:
        del os.environ["ARRAYBRIDGE_FAILPOINT"]
    share = tier.broker.put(pattern(1), "a")
    with pytest.raises(BrokerError, match=r"the disk of \[tiers\] failed: the file cannot be written: No space left") as failed:
        share.demote()
    assert failed.value.reason == "DISK_FAILED"
    with pytest.raises(BrokerError, match="no bytes are moved to files: the disk of") as off:
        share.demote()
    assert off.value.reason == "TIER_OFF"
    assert tier.names() == []
    assert (tier.broker.get("a") == pattern(1)).all()
    tier.stop()


def test_two_daemons_do_not_share_a_directory(tier: Tier, tmp_path: Path) -> None:
    tier.broker.put(pattern(1), "a").demote()
    other = Tier(tmp_path / "other", directory=str(tier.files)) if (tmp_path / "other").mkdir() is None else None
    assert other is not None
    with pytest.raises(BrokerError, match="another daemon uses the directory"):
        other.broker.put(pattern(2), "b").demote()
    other.stop()
    assert (tier.broker.get("a") == pattern(1)).all()


def test_many_readers_wait_for_one_restore(tier: Tier) -> None:
    tier.broker.put(pattern(13), "a").demote()
    code = "import sys; from arraybridge import Broker; print(int(Broker(sys.argv[1], start='never').get('a').astype('int64').sum()))"
    command = [sys.executable, "-c", code, str(tier.folder / "broker")]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(4)]
    for reader in readers:
        out, _ = reader.communicate()
        assert out.strip() == str(int(pattern(13).astype("int64").sum()))


READ_ALL = """
import sys
import numpy as np
from arraybridge import Broker

broker = Broker(sys.argv[1], start="never")
for number in range(12):
    expected = np.random.default_rng(number).integers(0, 2**32, 2 << 20, "uint32")
    array = broker.get(f"s{number}", wait=60)
    assert (array == expected).all(), number
    del array
    broker.flush()
print("right")
"""


def test_three_times_the_capacity_by_itself(tmp_path: Path) -> None:
    """Puts that find no room move out what nobody reads; a reader gets all of it, one after the other."""
    tier = Tier(tmp_path, flags=("--host-capacity", "32MiB"))
    for number in range(12):  # of 8 MiB
        tier.broker.put(pattern(number, 2 << 20), f"s{number}")
    assert sum(not row.in_memory for row in tier.broker.stored()) >= 8
    assert run_client(READ_ALL, str(tier.folder / "broker")).strip() == "right"
    held = tier.broker.get("s3", wait=60)
    for number in range(12, 18):
        tier.broker.put(pattern(number, 2 << 20), f"s{number}")
    assert (held == pattern(3, 2 << 20)).all(), "what is read stays"
    del held
    tier.stop()


def test_files_are_listed_among_many_shares_without_one(tier: Tier) -> None:
    for number in range(2500):  # more than one request looks at
        tier.broker.put(np.full(4, number), f"s{number}", wait=False)
    tier.broker.flush()
    away = [tier.broker.get(f"s{number}", info=True).share for number in (0, 1023, 1024, 1025, 2499)]
    for share in away:
        share.demote()
    assert sorted(row.name for row in tier.broker.stored()) == sorted(share.name for share in away)
    assert [share.residency for share in away] == ["disk"] * 5


OTHER_USER = """
import os, sys
import numpy as np
from arraybridge import Broker, BrokerError
os.setgid(65534), os.setuid(65534)
with Broker(sys.argv[1], start="never", timeout_s=2) as broker:
    refused = 0
    for number in range(6):
        try:
            broker.put(np.full(2 << 20, number, "uint32"), f"s{number}")
        except BrokerError as error:
            refused += 1
    print(refused, sum(not row.in_memory for row in broker.stored()))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_one_users_wish_for_memory_moves_no_share_of_another() -> None:
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        tier = Tier(Path(folder), flags=("--host-capacity", "48MiB"))
        for place in (tier.folder, tier.folder / "broker"):
            place.chmod(0o755)
        for door in (tier.folder / "broker").glob("*.sock"):
            door.chmod(0o666)
        mine = [tier.broker.put(pattern(number, 2 << 20), f"s{number}") for number in range(3)]
        refused, away = map(int, run_client(OTHER_USER, str(tier.folder / "broker")).split())
        assert away >= 1 or refused >= 1, "the memory was too small for the other's arrays"
        assert [share.residency for share in mine] == ["host"] * 3
        tier.stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_durable_names_come_back_after_the_broker(tmp_path: Path, end: str) -> None:
    tier = Tier(tmp_path)
    first = tier.broker.put(pattern(1), "a", metadata=b"mine").keep()
    assert first.residency == "host"
    away = tier.broker.put({"x": pattern(2), "y": pattern(3)}, "tree").keep().demote()
    tier.broker.put(pattern(4), "gone").demote()
    replaced = tier.broker.put(pattern(5), "b").keep()
    kept = tier.broker.put(pattern(6), "b", replace=True).keep()
    eventually(lambda: len(tier.names()) == 4)
    if end == "stop":
        tier.stop()
    else:
        tier.broker.close()
        tier.daemon.kill()
        tier.daemon.wait()
    tier.start()
    assert [row[:2] for row in tier.broker.stored()] == [("b", kept.generation), ("tree", away.generation), ("a", first.generation)]
    got = tier.broker.get("a", info=True)
    assert (got.array == pattern(1)).all()
    assert (got.share.generation, got.share.metadata) == (first.generation, b"mine")
    assert (tier.broker.get("b") == pattern(6)).all() and replaced.generation < kept.generation
    tree = tier.broker.get("tree")
    assert (tree["x"] == pattern(2)).all() and (tree["y"] == pattern(3)).all()
    with pytest.raises(ShareNotFound):
        tier.broker.get("gone")
    del got, tree
    newer = tier.broker.put(pattern(7), "a", replace=True)
    assert newer.generation > kept.generation, "generations go on"
    tier.broker.withdraw("b")
    tier.broker.withdraw("tree")
    eventually(lambda: tier.names() == [])
    tier.stop()


def test_a_stop_in_order_leaves_no_file(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    tier.broker.put(pattern(1), "a").demote()
    tier.stop()
    assert tier.names() == []


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "notes.txt").write_text("mine")
    damaged = files / f"ab-{'0' * 32}.safetensors"
    damaged.write_bytes(b"\x08" + b"\0" * 20)
    part = files / f"ab-{'1' * 32}.safetensors.part"
    part.write_bytes(b"half")
    tier = Tier(tmp_path)
    tier.stop()
    assert tier.names() == [damaged.name, "notes.txt"], "half of a file is the broker's own"
