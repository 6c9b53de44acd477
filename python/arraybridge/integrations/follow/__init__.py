# SPDX-License-Identifier: Apache-2.0
"""The weights of a bundle in a module of torch: taken once, or followed from one generation to the next."""
