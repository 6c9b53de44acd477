# SPDX-License-Identifier: Apache-2.0
"""A private daemon, and sessions at its gRPC door."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from foreign_client import Daemon, Session, generate
from users import Place, User, needs_root

# Tests that are started in the background, or by nohup, would ignore the signals that tests send to commands.
for each, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(each) == signal.SIG_IGN:
        signal.signal(each, handler)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return generate(tmp_path_factory.mktemp("generated"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    daemons: list[Daemon] = []

    def started(*flags: str, **limits: str) -> Daemon:
        daemons.append(Daemon(tmp_path / f"daemon{len(daemons)}", *flags, **limits))
        return daemons[-1]

    yield started
    assert [daemon.terminate() for daemon in daemons] == [0] * len(daemons)


@pytest.fixture
def daemon(start: Callable[..., Daemon]) -> Daemon:
    return start()


@pytest.fixture
def open_session(generated: tuple[Any, Any]) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def opened(daemon: Daemon, **hello: Any) -> Session:
        sessions.append(Session(daemon, *generated, **hello))
        return sessions[-1]

    yield opened
    for session in sessions:
        session.close()


@pytest.fixture
def session(daemon: Daemon, open_session: Callable[..., Session]) -> Session:
    return open_session(daemon)


@pytest.fixture
def place() -> Iterator[Place]:
    needs_root()
    place = Place()
    yield place
    place.remove()


@pytest.fixture
def user(place: Place) -> Iterator[Callable[..., User]]:
    """Starts a process of this user, in these groups. REQUIRES: the daemon runs."""
    users: list[User] = []

    def make(uid: int, groups: Sequence[int] = ()) -> User:
        users.append(User(place, uid, groups))
        return users[-1]

    yield make
    for user in users:
        user.close()
