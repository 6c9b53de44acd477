"""Another path to the same names: arraybridge.compat.stacking."""

from arraybridge.compat.stacking import process_slices

__all__ = ["process_slices"]
