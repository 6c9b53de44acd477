"""Another path to the same names: arraybridge.scaling."""

from arraybridge.scaling import SCALING_FUNCTIONS, scale_dtype

__all__ = ["SCALING_FUNCTIONS", "scale_dtype"]
