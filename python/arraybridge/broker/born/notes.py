# SPDX-License-Identifier: Apache-2.0
"""Notes on arrays that became shares without a copy."""

from arraybridge.broker.notes import cut


def of_birth(framework: str, keep_writing: bool) -> str:
    """How the bytes of such a share came there. `keep_writing`: the pages of the writer are its own from then on."""
    return cut(f"{framework} identity: born in broker memory{', copy-on-write' if keep_writing else ''}")
