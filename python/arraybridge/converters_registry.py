# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.conversion."""

from arraybridge.conversion import Converter, get_converter

__all__ = ["Converter", "get_converter"]
