# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.errors."""

from arraybridge import errors
from arraybridge.errors import *  # noqa: F403

__all__ = []
__all__ += errors.__all__
