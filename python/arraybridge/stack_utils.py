# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.compat.stacking."""

from arraybridge.compat.stacking import is_2d as _is_2d, is_3d as _is_3d, stack_slices, unstack_slices

__all__ = ["_is_2d", "_is_3d", "stack_slices", "unstack_slices"]
