# SPDX-License-Identifier: Apache-2.0
"""Numba's kernels as PTX, which the simulated driver interprets. Numba links them to machine code, which it refuses."""

from typing import Any


def link_ptx() -> None:
    """Makes Numba load the PTX that its linker is given."""
    from cuda.core import ObjectCode
    from numba.cuda.cudadrv import driver

    def complete(linker: Any) -> ObjectCode:
        return ObjectCode.from_ptx(linker.get_linked_ptx())

    driver._Linker.complete = complete
