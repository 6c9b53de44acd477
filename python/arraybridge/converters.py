# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.conversion and arraybridge.detect."""

from arraybridge.conversion import convert_memory
from arraybridge.detect import Converter, detect_memory_type

__all__ = ["Converter", "convert_memory", "detect_memory_type"]
