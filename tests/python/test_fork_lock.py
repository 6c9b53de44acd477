# SPDX-License-Identifier: Apache-2.0
"""A lock of a module is free in a forked child."""

import os
import threading
from typing import Any

from arraybridge.broker.fork_lock import lock_of


def test_a_child_can_take_a_lock_that_its_parent_held() -> None:
    module: dict[str, Any] = {}
    module["_lock"] = lock_of(module, threading.Lock)
    with module["_lock"] as held:
        child = os.fork()
        if child == 0:
            os._exit(0 if module["_lock"].acquire(timeout=10) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert held and module["_lock"].locked(), "the parent's is as it was"
    assert not module["_lock"].locked()
