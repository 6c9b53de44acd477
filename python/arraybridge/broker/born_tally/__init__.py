# SPDX-License-Identifier: Apache-2.0
"""Tells the broker of the arrays that a framework makes in its memory on a GPU."""
