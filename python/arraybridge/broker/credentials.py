# SPDX-License-Identifier: Apache-2.0
"""The token that a process states. It may open namespaces that are not open to the user.

It appears in no message, no repr and no pickle: another process states its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from arraybridge.errors import InvalidRequest

_BYTES_MAX = 256


def stated(token: str | None) -> str:
    """The argument, $ARRAYBRIDGE_TOKEN, or the content of the file $ARRAYBRIDGE_TOKEN_FILE; "" without any.

    Raises:
        InvalidRequest: it cannot be a token, or its file cannot be read.
    """
    if token is None:
        token = os.environ.get("ARRAYBRIDGE_TOKEN") or _read(os.environ.get("ARRAYBRIDGE_TOKEN_FILE"))
    if not isinstance(token, str):
        raise InvalidRequest(f"a token is a str, not a {type(token).__name__}")
    try:
        size = len(token.encode())
    except UnicodeEncodeError:
        raise InvalidRequest("the token cannot be encoded as UTF-8") from None
    if size > _BYTES_MAX:
        raise InvalidRequest(f"the token has {size} bytes: pass a token of at most {_BYTES_MAX}")
    return token


def _read(path: str | None) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"$ARRAYBRIDGE_TOKEN_FILE cannot be read: {error}") from error
