"""Conversions inside one process. This package does not use a broker."""

from arraybridge.convert.memory import convert_memory
from arraybridge.detect import Converter, get_converter

__all__ = ["Converter", "convert_memory", "get_converter"]
