# SPDX-License-Identifier: Apache-2.0
"""Shares whose bytes are in files: more data than memory.

calls     the verb of the broker that moves bytes
tiered    Tiered, the part of Share with its methods
tiering   Tiering, the part of Broker that lists the files
"""
