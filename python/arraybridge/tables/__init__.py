# SPDX-License-Identifier: Apache-2.0
"""Tables: what has Arrow's C interfaces, and the data of other containers, as arrays of a tree."""
