# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.compat.stacking."""

from arraybridge.compat.stacking import process_slices

__all__ = ["process_slices"]
