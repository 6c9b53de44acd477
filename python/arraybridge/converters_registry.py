"""An alias of arraybridge.convert."""

from arraybridge.convert import Converter, get_converter

__all__ = ["Converter", "get_converter"]
