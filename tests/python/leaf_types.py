# SPDX-License-Identifier: Apache-2.0
"""Classes of the leaves that broker/test_leaves.py puts: its clients import them, or not."""

import collections
import dataclasses
import enum
from typing import Any


class Kind(enum.Enum):
    RAW = "raw"
    DARK = "dark"


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Frame:
    image: Any
    kind: Kind
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a frame has a name")


Pair = collections.namedtuple("Pair", "first second")
