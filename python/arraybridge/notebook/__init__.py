# SPDX-License-Identifier: Apache-2.0
"""How objects show themselves in a notebook: tables of facts, and small pictures of arrays that this process has mapped."""
