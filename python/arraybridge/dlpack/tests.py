# SPDX-License-Identifier: Apache-2.0
"""pydlpack's way to test an installation: `import arraybridge.dlpack.tests; arraybridge.dlpack.tests.run()`."""

from __future__ import annotations

from arraybridge import commands


def run() -> int:
    """`python -m arraybridge selftest`: prints its table, and returns its exit status, 0 if no conversion failed."""
    return commands.main(["selftest"])
