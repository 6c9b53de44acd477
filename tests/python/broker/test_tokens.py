# SPDX-License-Identifier: Apache-2.0
"""Tokens: how a Broker comes by one, where it goes, and what it opens."""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from processes import start_daemon, stop_daemon

from arraybridge import Broker, errors

TOKEN = "0123456789abcdef"


@pytest.fixture
def team(tmp_path: Path) -> Iterator[str]:
    """The address of a broker with a namespace "team" for whoever states the token, and one for nobody here."""
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    config = tmp_path / "arraybridged.toml"
    config.write_text(f'[namespace.team]\naccess = ["token:{token}", "uid:4000000:ro"]\n[namespace.others]\naccess = ["uid:4000000"]\n')
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    daemon = start_daemon(str(directory), "--config", str(config))
    yield str(directory)
    assert stop_daemon(daemon) == 0


def test_a_token_opens_a_namespace(team: str) -> None:
    with Broker(team, namespace="team", token=TOKEN) as one, Broker(team, namespace="team", token=TOKEN) as other:
        one.put(np.arange(5), name="a")
        assert other.get("a").tolist() == [0, 1, 2, 3, 4]
        assert other.get("a").tolist() == [0, 1, 2, 3, 4]  # without a call
    for token in (None, "", "0123456789abcdee"):
        with Broker(team, namespace="team", token=token) as stranger:
            with pytest.raises(errors.PermissionDenied, match="may not use namespace 'team'"):
                stranger.get("a")
            with pytest.raises(PermissionError):
                stranger.put(np.arange(5), name="b")
            with pytest.raises(errors.PermissionDenied):
                stranger.get("a", wait=60)
            with pytest.raises(errors.PermissionDenied):
                stranger.channel("c").send(np.arange(5))
            assert stranger.list() == []


def test_what_is_put_without_waiting_is_refused_too(team: str) -> None:
    with Broker(team, namespace="others") as stranger, pytest.raises(errors.PermissionDenied):
        stranger.put(np.arange(5), name="b", wait=False)
        stranger.flush()


def test_the_environment_states_one(team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine"
    file.write_text(TOKEN + "\n")
    monkeypatch.setenv("ARRAYBRIDGE_TOKEN_FILE", str(file))
    with Broker(team, namespace="team") as broker:
        broker.put(np.arange(5), name="a")
    monkeypatch.setenv("ARRAYBRIDGE_TOKEN", TOKEN)
    monkeypatch.setenv("ARRAYBRIDGE_TOKEN_FILE", str(tmp_path / "not there"))
    with Broker(team, namespace="team") as broker:
        assert broker.get("a").shape == (5,)
    monkeypatch.delenv("ARRAYBRIDGE_TOKEN")
    with Broker(team, namespace="team") as broker, pytest.raises(errors.InvalidRequest, match="ARRAYBRIDGE_TOKEN_FILE"):
        broker.get("a")


def test_a_token_stays_in_its_process(team: str) -> None:
    with Broker(team, namespace="team", token=TOKEN) as broker:
        share = broker.put(np.arange(5), name="a")
        for thing in (broker, share):
            assert TOKEN.encode() not in pickle.dumps(thing)
            assert TOKEN not in repr(thing)


@pytest.mark.parametrize("token", [7, b"bytes", "x" * 257, "\ud800"])
def test_what_is_no_token_is_refused_at_once(token: object) -> None:
    with pytest.raises(errors.InvalidRequest, match="token"):
        Broker("/nowhere", token=token)  # type: ignore[arg-type]


def test_a_share_ends_with_the_lifetime_that_put_asks_for(team: str) -> None:
    deadline = time.monotonic() + 60
    with Broker(team) as broker:
        broker.put(np.arange(5), name="a", lifetime=0.05)
        broker.put(np.arange(5), name="entered", lifetime=0.05, wait=False)
        broker.put(np.arange(5), name="b", lifetime=3600)
        broker.flush()
        while {listed.share.name for listed in broker.list()} != {"b"}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for wrong in (0, -1, float("nan"), "long"):
            with pytest.raises(errors.InvalidRequest, match="lifetime"):
                broker.put(np.arange(5), name="c", lifetime=wrong)  # type: ignore[arg-type]
