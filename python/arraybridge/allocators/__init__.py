# SPDX-License-Identifier: Apache-2.0
"""The allocators of frameworks on GPUs, which take broker memory while a block of `Broker.born` is open.

scope        Allocator, that of one framework in a block
pool         Pool, the memory that they take
cupy_hook, numba_hook, cuda_core_hook, torch_hook
             how each framework is told, and what it does without memory
"""
