# SPDX-License-Identifier: Apache-2.0
"""Pictures of arrays in a notebook: small, bounded, and without a text of another process."""

import base64
import io
import re
import zlib

import numpy as np
import pytest

from arraybridge.notebook.pictures import SAMPLES_MAX, picture_of


def points_of(svg):
    [points] = re.findall(r'points="([^"]*)"', svg)
    return [tuple(map(float, point.split(","))) for point in points.split()]


def png_of(svg):
    [data] = re.findall(r"base64,([^\"]*)", svg)
    return base64.b64decode(data)


def test_a_line_has_few_points():
    for size, count in ((1, 1), (2, 2), (64, 64), (65, 33), (1_000_000, 64)):
        points = points_of(picture_of(np.arange(size)))
        assert len(points) == count <= SAMPLES_MAX
        heights = [height for _, height in points]
        assert heights == sorted(heights, reverse=True) and 0 <= min(heights) and max(heights) <= 24


def test_a_large_array_is_not_read_whole(tmp_path):
    size = 1 << 36
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(size)
    mapped = np.memmap(tmp_path / "sparse", "u1", "r", shape=(size,))
    assert len(points_of(picture_of(mapped))) == SAMPLES_MAX
    assert picture_of(mapped.reshape(1 << 18, 1 << 18)).startswith("<svg")


@pytest.mark.parametrize("values", [
    [np.nan, np.inf, -np.inf], [1.0, np.nan, 3.0], [5, 5, 5], [True, False], [1.7e308, -1.7e308],
    np.array([2**64 - 1, 0], "u8"), np.array([1.5, 2.5], "f2"),
], ids=["no number", "nan", "constant", "flags", "the largest", "u8", "f2"])  # fmt: skip
def test_any_numbers_have_a_line(values):
    points = points_of(picture_of(np.array(values)))
    assert len(points) == len(values) and all(0 <= height <= 24 for _, height in points)


def test_an_image_is_a_png_of_its_pixels():
    image = np.zeros((2, 3, 3), "u1")
    image[0, 0] = 255, 0, 128
    png = png_of(picture_of(image))
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    start = png.index(b"IDAT") + 4
    size = int.from_bytes(png[start - 8 : start - 4], "big")
    assert zlib.decompress(png[start : start + size]) == b"\0" + image[0].tobytes() + b"\0" + image[1].tobytes()
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    assert np.array_equal(np.asarray(pillow.open(io.BytesIO(png))), image)
    shrunk = pillow.open(io.BytesIO(png_of(picture_of(np.zeros((1000, 70), "f4")))))
    assert shrunk.size == (35, 63) and shrunk.mode == "L"


@pytest.mark.parametrize("array", [
    np.float64(3)[None][0:0], np.array(5.0), np.zeros((2, 3, 4, 5)), np.zeros((3, 3, 2)), np.zeros(3, "c8"), np.array(["<b>"]),
    np.array([b"<b>"], object), np.zeros(2, [("<b>", "f4")]), np.zeros((0, 3)),
], ids=["empty", "scalar", "4-D", "two channels", "complex", "text", "objects", "struct", "no rows"])  # fmt: skip
def test_what_has_no_picture(array):
    assert picture_of(np.asarray(array)) == ""
