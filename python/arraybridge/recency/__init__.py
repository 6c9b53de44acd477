# SPDX-License-Identifier: Apache-2.0
"""Which results were used last, by all processes, and which of them leave when they exceed their budget.

uses       Uses: when each result was last used
eviction   evict: moves or withdraws the least recently used ones
"""
