# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.conversion, with Converter. After its import `arraybridge.convert` is still the function, which
replaces this module in `sys.modules`."""

import sys

from arraybridge.conversion import convert, convert_memory
from arraybridge.detect import Converter, get_converter

__all__ = ["Converter", "convert", "convert_memory", "get_converter"]

vars(convert).update({name: globals()[name] for name in ["__all__", *__all__]})
sys.modules[__name__] = convert  # type: ignore[assignment]
