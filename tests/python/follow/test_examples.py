# SPDX-License-Identifier: Apache-2.0
"""The examples in the docstrings of a Follower work, and each public member has a docstring."""

from __future__ import annotations

import doctest
import inspect

import pytest

from arraybridge import Broker

pytest.importorskip("torch", reason="torch is not installed")

from arraybridge.integrations.torch import Follower, FollowerStats, attach

MEMBERS = [name for name in vars(Follower) if not name.startswith("_")]
TEXTS = {each.__name__: each.__doc__ or "" for each in (Follower, FollowerStats)}
TEXTS |= {name: inspect.getattr_static(Follower, name).__doc__ or "" for name in MEMBERS}


@pytest.mark.parametrize("name", TEXTS)
def test_it_has_a_docstring(name: str) -> None:
    assert len(TEXTS[name].split()) >= 3


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if ">>>" in text])
def test_an_example_works(name: str, broker: Broker) -> None:
    found = doctest.DocTestParser().get_doctest(inspect.cleandoc(TEXTS[name]), {"broker": broker, "attach": attach}, name, None, None)
    said: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(found, out=said.append)
    assert outcome.failed == 0 and outcome.attempted > 0, "".join(said)


def test_all_fields_of_the_statistics_are_explained() -> None:
    section = inspect.cleandoc(TEXTS["FollowerStats"]).partition("Attributes:")[2]
    assert [field for field in FollowerStats._fields if f"    {field}: " not in section] == []
