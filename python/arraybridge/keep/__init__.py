# SPDX-License-Identifier: Apache-2.0
"""Results that outlive the process that computed them.

cached_function   cache and CachedFunction: a function whose results are shares
checkpoints       Checkpoints: the states of a program, in memory and on the disk
checkpoint_files  the files of these
digests           what tells one call of a function from another
"""
