# SPDX-License-Identifier: Apache-2.0
"""Conversions inside one process. This package does not use a broker."""

from arraybridge.conversion.memory import convert, convert_memory
from arraybridge.detect import Converter, get_converter

__all__ = ["Converter", "convert", "convert_memory", "get_converter"]
