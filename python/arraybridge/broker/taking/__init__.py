# SPDX-License-Identifier: Apache-2.0
"""Taking: how a server gets its requests: in a loop, one call at a time, in batches, or ahead of its calls, for selectors."""
