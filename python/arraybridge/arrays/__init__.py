# SPDX-License-Identifier: Apache-2.0
"""Facts about arrays of any framework: classes, devices, owners of their bytes, older interfaces, and sparse layouts.

These modules convert nothing and import no framework.
"""
