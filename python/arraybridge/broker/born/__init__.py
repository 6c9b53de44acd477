# SPDX-License-Identifier: Apache-2.0
"""Arrays that a framework itself makes in broker memory, so that their puts copy nothing: `Broker.born`.

block     Born, one `with` block of it, and its statistics
notes     what a trace says of their puts
births    Births, the part of Broker with the method
"""
