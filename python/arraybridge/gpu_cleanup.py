# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.compat.cleanup."""

from arraybridge.compat import cleanup
from arraybridge.compat.cleanup import *  # noqa: F403

__all__ = []
__all__ += cleanup.__all__
