# SPDX-License-Identifier: Apache-2.0
"""The parts of this package's 0.2 line besides conversions: scaling, stacking, cleanup of caches."""
