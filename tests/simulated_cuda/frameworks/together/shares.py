# SPDX-License-Identifier: Apache-2.0
"""Shares as the packages of these tests get them."""

from typing import Any

import arraybridge


def view_of(broker: arraybridge.Broker, name: str) -> Any:
    (share,) = (each.share for each in broker.list(name) if each.share.name == name)
    return broker.views(share)[0]


def of_a_framework(framework: str, broker: arraybridge.Broker, name: str, wishes: dict[str, Any]) -> tuple[Any, str]:
    """The share's array, and its plan's way."""
    array, plan = broker.get(name, framework, explain=True, **wishes)
    assert plan.zero_copy == (plan.copies == 0) == plan.via.startswith("zero-copy"), plan
    return array, plan.via
