# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.compat.scaling."""

from arraybridge.compat.scaling import SCALING_FUNCTIONS, scale_dtype

__all__ = ["SCALING_FUNCTIONS", "scale_dtype"]
