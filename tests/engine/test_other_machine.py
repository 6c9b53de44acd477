# SPDX-License-Identifier: Apache-2.0
"""The image for aarch64 that x86-64 makes: what it has, and that its broker serves under emulation and outlives its daemon."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import emulated
import numpy as np
import pytest
from engine import VERSION, Engine

TAG = f"arraybridged:{VERSION}"
# The interpreter of aarch64's programs, in a user namespace of its own (Linux 6.7): the rest of the machine does not get it.
# F opens qemu now, so that it is there in the image's root.
FORMAT = (
    r":aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:{qemu}:OCF"
)
ENTER = """set -e
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' "$2" >/proc/sys/fs/binfmt_misc/register
mount --bind "$1" /mnt && mount --rbind /dev /mnt/dev && mount -t proc proc /mnt/proc && mount -t tmpfs tmpfs /mnt/run/arraybridge
mount --bind "$3" /mnt/tmp
exec chroot /mnt bash -ec "$4"
"""
SERVE = """
wait_for() { for _ in $(seq 300); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.1; done; "$@"; }
arraybridgectl() { command arraybridgectl -H /run/arraybridge "$@"; }
life() { arraybridgectl -o json info | tr -d ' \\n' | grep -q '"number":"'"$1"'"'; }
arraybridged --keeper --directory /run/arraybridge &
wait_for arraybridgectl ping
uname -m
arraybridgectl put /tmp/in.npy kept >&2
daemon=$(cut -d" " -f1 </proc/$!/task/$!/children)
kill -9 "$daemon"
wait_for life 2
arraybridgectl dump kept -f /tmp/out.npy >&2
kill $! && wait $!
"""


@pytest.fixture(scope="module")
def image(engine: Engine) -> Iterator[str]:
    """It gets the tag of this machine's image, which other tests use: that one has it again afterwards."""
    if platform.machine() != "x86_64":
        pytest.skip("only x86-64 makes the image of another machine")
    before = engine.try_("inspect", "--type=image", "--format={{.Id}}", TAG)
    engine.image("--machine", "aarch64")
    engine.do("tag", TAG, "arraybridged-of-aarch64")
    if before.returncode == 0:
        engine.do("tag", before.stdout.strip(), TAG)
    yield "arraybridged-of-aarch64"
    engine.try_("rmi", "--force", "arraybridged-of-aarch64")


@pytest.fixture
def root(engine: Engine, image: str) -> Iterator[Path]:
    """Its files."""
    mounted = engine.try_("image", "mount", image)
    if mounted.returncode != 0:
        pytest.skip(f"this engine mounts no image: {mounted.stderr.strip()}")
    yield Path(mounted.stdout.strip())
    engine.try_("image", "umount", image)


def test_it_is_for_arm64_and_its_user_and_directory_are_those_of_the_other_image(engine: Engine, image: str, root: Path) -> None:
    told = engine.do("inspect", "--type=image", "--format={{.Architecture}} {{.Config.User}} {{.Config.Entrypoint}}", image)
    assert told.strip() == "arm64 arraybridge [arraybridged --keeper --directory /run/arraybridge]"
    assert re.search(r"^arraybridge:x:64128:64128:", (root / "etc/passwd").read_text(), re.MULTILINE)
    state = (root / "run/arraybridge").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (64128, 64128, 0o755)


def test_its_programs_are_of_aarch64_and_have_their_notices(root: Path) -> None:
    for name in ("arraybridged", "arraybridgectl"):
        header = subprocess.run(["readelf", "-hS", root / "usr/bin" / name], capture_output=True, text=True, check=True).stdout
        assert re.search(r"Machine: +AArch64", header) and ".symtab" not in header, name
    notices = (root / "usr/share/doc/arraybridge/THIRD_PARTY_NOTICES").read_text()
    assert len(notices) > 10_000 and "found no notice" not in notices


def test_emulated_its_broker_has_the_same_bytes_after_a_kill_of_the_daemon(root: Path, tmp_path: Path) -> None:
    if why := emulated.missing():
        pytest.skip(why)
    np.save(tmp_path / "in.npy", np.arange(1000.0))
    words = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "bash"]
    command = [*words, str(root), FORMAT.format(qemu=shutil.which(emulated.QEMU)), str(tmp_path), SERVE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **emulated.VARIABLES})
    if "binfmt_misc" in done.stderr and done.returncode == 32:
        pytest.skip(f"this kernel has no binfmt_misc in a user namespace: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (0, "aarch64\n"), done.stdout + done.stderr
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "in.npy").read_bytes()
