# SPDX-License-Identifier: Apache-2.0
"""An alias of arraybridge.adapters."""

from arraybridge.adapters import (
    ensure_module,
    ensure_module as _ensure_module,
    get_device_id,
    get_device_id as _get_device_id,
    optional_import,
    supports_cuda_array_interface,
    supports_cuda_array_interface as _supports_cuda_array_interface,
    supports_dlpack,
    supports_dlpack as _supports_dlpack,
)

__all__ = [
    "_ensure_module",
    "_get_device_id",
    "_supports_cuda_array_interface",
    "_supports_dlpack",
    "ensure_module",
    "get_device_id",
    "optional_import",
    "supports_cuda_array_interface",
    "supports_dlpack",
]
