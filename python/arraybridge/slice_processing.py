"""Another path to the same names: arraybridge.stacking."""

from arraybridge.stacking import process_slices

__all__ = ["process_slices"]
