# SPDX-License-Identifier: Apache-2.0
"""The broker's Python API: its verbs, shares, channels and watches, and the connection below them."""

from arraybridge import _conflict

_conflict.refuse_mixed()  # before the imports below, which may find another distribution's files

from arraybridge.broker.broker import Broker

__all__ = ["Broker"]
