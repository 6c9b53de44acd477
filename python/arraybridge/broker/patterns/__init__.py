# SPDX-License-Identifier: Apache-2.0
"""Parts of pipelines beside channels: metadata that is a tree, the choice among several channels, results in the order of
their frames, calls of event loops.
"""
