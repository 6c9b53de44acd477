"""The broker, as Python sees it: its verbs, shares, channels and watches, and the connection below them."""

from arraybridge import _conflict

_conflict.refuse_mixed()  # before anything below is read, which may be another's

from arraybridge.broker.broker import Broker

__all__ = ["Broker"]
