# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.detect, and of DtypeConversion in arraybridge.decorators."""

from arraybridge import detect
from arraybridge.decorators import DtypeConversion
from arraybridge.detect import *  # noqa: F403

__all__ = ["DtypeConversion"]
__all__ += detect.__all__
