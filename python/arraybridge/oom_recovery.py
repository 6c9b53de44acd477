# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.compat.cleanup."""

from arraybridge.compat.cleanup import (
    clear_cache,
    clear_cache as _clear_cache_for_memory_type,
    execute_with_oom_recovery,
    execute_with_oom_recovery as _execute_with_oom_recovery,
    is_oom_error,
    is_oom_error as _is_oom_error,
)

__all__ = [
    "_clear_cache_for_memory_type",
    "_execute_with_oom_recovery",
    "_is_oom_error",
    "clear_cache",
    "execute_with_oom_recovery",
    "is_oom_error",
]
