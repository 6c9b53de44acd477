# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.conversion."""

from arraybridge.conversion import Converter, convert_memory
from arraybridge.detect import detect_memory_type

__all__ = ["Converter", "convert_memory", "detect_memory_type"]
