# SPDX-License-Identifier: Apache-2.0
"""Packages that are built once for all tests."""

from packages import packages

__all__ = ["packages"]
