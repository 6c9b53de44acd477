# SPDX-License-Identifier: Apache-2.0
"""Conversions inside one process. This package does not use a broker."""

from arraybridge.conversion.memory import convert, convert_memory

__all__ = ["convert", "convert_memory"]
