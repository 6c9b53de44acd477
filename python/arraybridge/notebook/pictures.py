# SPDX-License-Identifier: Apache-2.0
"""A picture is a small SVG of an array in host memory: a line for one dimension, pixels for an image or a matrix.

It reads at most 64 values of a line and 64 x 64 of an image, whatever the size of the array is. It has numbers alone, so that
no text of another process is in it.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, Final

from arraybridge.adapters import numpy as numpy_adapter

SAMPLES_MAX: Final = 64  # of each dimension
_HEIGHT: Final = 24  # of a line, in pixels
_COLOURS: Final = (3, 4)  # channels of an image: RGB, RGBA


def picture_of(array: Any) -> str:
    """The SVG of an ndarray of numbers or booleans; "": of its shape and dtype there is none."""
    if array.dtype.kind not in "biuf" or not array.size or not 1 <= array.ndim <= 3:
        return ""
    if array.ndim == 1:
        return _line(_sampled(array))
    colours = array.ndim == 3 and array.shape[2] in _COLOURS and array.dtype.name == "uint8"
    if array.ndim == 3 and not colours:
        return ""
    pixels = array[:: _step(array.shape[0]), :: _step(array.shape[1])]
    return _image(pixels if colours else _grey(pixels))


def _step(size: int) -> int:
    return -(-size // SAMPLES_MAX)


def _sampled(array: Any) -> Any:
    return array[:: _step(len(array))].astype("float64")


def _scaled(values: Any) -> Any:
    """Finite numbers as 0 to 1, the others as 0."""
    np = numpy_adapter.module()
    finite = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(finite).all():
        return np.zeros(values.shape)
    low, high = np.nanmin(finite), np.nanmax(finite)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = high / 2 - low / 2  # of halves, which cannot overflow
        return np.nan_to_num((finite / 2 - low / 2) / spread) if spread > 0 else np.zeros(values.shape)


def _line(values: Any) -> str:
    heights = _HEIGHT - 2 - _scaled(values) * (_HEIGHT - 4)
    points = " ".join(f"{2 * at},{height:.1f}" for at, height in enumerate(heights.tolist()))
    size = f'width="{2 * len(values) + 2}" height="{_HEIGHT}"'
    return f'<svg {size}><polyline points="{points}" fill="none" stroke="currentColor"/></svg>'


def _grey(values: Any) -> Any:
    return (_scaled(values.astype("float64")) * 255).astype("uint8")


def _image(pixels: Any) -> str:
    height, width = pixels.shape[:2]
    data = base64.b64encode(_png(pixels)).decode()
    size = f'width="{2 * width}" height="{2 * height}"'
    return f'<svg {size}><image {size} href="data:image/png;base64,{data}"/></svg>'


def _png(pixels: Any) -> bytes:
    """A PNG of (height, width) greys or (height, width, 3 or 4) colours. Source: https://www.w3.org/TR/png-3/."""
    np = numpy_adapter.module()
    height, width = pixels.shape[:2]
    kind = 0 if pixels.ndim == 2 else {3: 2, 4: 6}[pixels.shape[2]]
    rows = np.zeros((height, 1 + pixels[0].size), "uint8")  # each begins with its filter, 0
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
