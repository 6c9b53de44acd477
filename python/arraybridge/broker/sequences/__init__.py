# SPDX-License-Identifier: Apache-2.0
"""Sequences: answers of services that have several items, which the caller gets as the server sends them.

The caller says in its request for how many items it has room, and says "more" while it takes them. So a server waits for a
slow caller, and the answers of the other servers to the same caller do not.
"""
