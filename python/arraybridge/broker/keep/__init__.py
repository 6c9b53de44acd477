# SPDX-License-Identifier: Apache-2.0
"""Shares that one process makes and all use: `Broker.cached`.

claim     Claim, the right to make the share of a name
caching   Caching, the part of Broker with the method
"""
