# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.detect."""

from arraybridge.detect import Converter, get_converter

__all__ = ["Converter", "get_converter"]
