# SPDX-License-Identifier: Apache-2.0
"""Services: processes that ask, and processes that answer. A request is executed at most once, whichever process dies.

A service is four kinds of channels, and the caller decides which server executes its request:

    tickets     queue, callers to servers    one ticket a request: a free server takes it
    answers     queue, servers to a caller   "ask": may I? Later the answer
    requests    queue, callers to a server   "go" with the arrays, to one server for each request; or "no"
    presence    broadcast, nothing is sent   its notices tell callers which server has died

A ticket may be lost with a server, and sent again: it has no effect but an "ask". The caller knows to which server it said
"go", and the notices of its answers tell when this server dies.
"""

from arraybridge.broker.services.errors import RequestFailed, ServerGone
from arraybridge.broker.services.request import Request
from arraybridge.broker.services.service import Service

__all__ = ["Request", "RequestFailed", "ServerGone", "Service"]
