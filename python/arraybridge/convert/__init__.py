"""Conversions inside one process. Nothing in here knows a broker."""

from arraybridge.convert.memory import convert_memory
from arraybridge.detect import Converter, get_converter

__all__ = ["Converter", "convert_memory", "get_converter"]
