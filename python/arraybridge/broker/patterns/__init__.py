# SPDX-License-Identifier: Apache-2.0
"""What pipelines are built from beside arrays in a channel: metadata that is a tree, the choice among several channels,
results in the order of their frames, calls of event loops.
"""
