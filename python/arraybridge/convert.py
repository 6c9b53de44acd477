# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.conversion. An import of it leaves `arraybridge.convert` a function: it replaces this module."""

import sys

from arraybridge.conversion import Converter, convert, convert_memory, get_converter

__all__ = ["Converter", "convert", "convert_memory", "get_converter"]

vars(convert).update({name: globals()[name] for name in ["__all__", *__all__]})
sys.modules[__name__] = convert  # type: ignore[assignment]
