"""Another path to the same names: arraybridge.cleanup."""

from arraybridge import cleanup
from arraybridge.cleanup import *  # noqa: F403

__all__ = []
__all__ += cleanup.__all__
