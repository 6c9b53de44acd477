# SPDX-License-Identifier: Apache-2.0
"""Each message that a user can cause from Python says what happened, to what, and what to do now.

One row a cause: a call that raises, and a pattern for each of the three. A new error class needs a row, and so does a new
remedy of `arraybridge.errors`.
"""

import contextlib
import enum
import os
import pickle
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from processes import start_daemon, stop_daemon

import arraybridge
from arraybridge import Broker, MemoryType, _bin, adapters, convert_memory, decorators, errors
from arraybridge.arrays.classes import FRAMEWORKS
from arraybridge.broker import discovery
from arraybridge.broker.share import Share

torch = pytest.importorskip("torch", reason="torch is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

CONFIG = f"""
[limits]
events_per_watcher = 4
channel_capacity_max = 8
[namespace.small]
quota = "8MiB"
[namespace.tight]
quota = "6656KiB"
[namespace.others]
access = ["uid:4000000"]
[namespace.seen]
access = ["uid:4000000", "uid:{os.getuid()}:ro"]
"""


class Scene:
    """A broker, an array, and what else a row needs."""

    def __init__(self, address: str, directory: Path, monkeypatch: pytest.MonkeyPatch, namespace: str) -> None:
        self.address = address
        self.directory = directory
        self.patch = monkeypatch
        self.broker = Broker(address, namespace=namespace, start="never")
        self.array = np.ones((2, 3))

    def at(self, namespace: str, **options: Any) -> Broker:
        return Broker(self.address, namespace=namespace, start="never", **options)

    def share(self, name: str) -> Share:
        return self.broker.put(self.array, name)

    def gone(self, name: str) -> Share:
        share = self.share(name)
        share.withdraw()
        return share

    def ends(self, name: str, capacity: int | None = None, **wishes: Any) -> tuple[arraybridge.Channel, arraybridge.Channel]:
        """The two open ends of a channel: sender and receiver."""
        return self.broker.channel(name, capacity, **wishes).open("sender"), self.broker.channel(name).open("receiver")

    def nowhere(self) -> Broker:
        return Broker(self.directory / "nowhere", start="never")

    def unfound(self, start: discovery.Start = "never") -> Broker:
        """A Broker of a user without a broker."""
        self.patch.delenv("ARRAYBRIDGE_ADDRESS", raising=False)
        self.patch.setenv("XDG_RUNTIME_DIR", str(self.directory))
        self.patch.setattr(discovery, "SYSTEM_DIRECTORY", str(self.directory / "system"))
        return Broker(start=start)

    def ended(self) -> Broker:
        """A Broker whose daemon has ended."""
        directory = self.directory / "ended"
        directory.mkdir(mode=0o700)
        daemon = start_daemon(str(directory), "--log-level", "warn")
        broker = Broker(directory, start="never")
        broker.list()
        stop_daemon(daemon)
        return broker

    def draining(self) -> None:
        """A put in a daemon that an operator drains."""
        directory = self.directory / "draining"
        directory.mkdir(mode=0o700)
        daemon = start_daemon(str(directory), "--log-level", "warn", "--drain-timeout", "1h")
        try:
            broker = Broker(directory, start="never")
            broker.list()
            subprocess.run([_bin.path("arraybridgectl"), "-H", str(directory), "drain"], check=True, capture_output=True)
            broker.put(self.array, "late")
        finally:
            daemon.kill()
            daemon.wait()


def full(scene: Scene) -> None:
    sender = scene.broker.channel("full", 2).open("sender")
    for _ in range(3):
        sender.send(scene.array, timeout=0.02)


def after_receivers(scene: Scene, complete: bool = True) -> None:
    sender, receiver = scene.ends("left")
    receiver.close() if complete else receiver.abandon()
    sender.send(scene.array)


def after_senders(scene: Scene, complete: bool) -> None:
    sender, receiver = scene.ends("over")
    sender.close() if complete else sender.abandon()
    receiver.receive()


def closed(scene: Scene) -> arraybridge.Channel:
    channel = scene.broker.channel("closed")
    channel.close()
    return channel


def watch(scene: Scene) -> arraybridge.Watch:
    return scene.broker.watch("publish")


def closed_watch(scene: Scene) -> arraybridge.Watch:
    made = watch(scene)
    made.close()
    return made


def slow_watch(scene: Scene) -> None:
    made = watch(scene)
    for index in range(10):
        scene.share(f"share {index}")
    while True:
        made.next(timeout=60)


def twice_unwaited(scene: Scene) -> None:
    for _ in range(2):
        scene.broker.put(scene.array, "unwaited", wait=False)
    scene.broker.flush()


def without_descriptors(scene: Scene) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        scene.at("default").list()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def without(module: str, call: Callable[[Scene], object]) -> Callable[[Scene], object]:
    """The call in a process that cannot import this module."""

    def called(scene: Scene) -> object:
        scene.patch.setitem(sys.modules, module, None)
        adapter = getattr(sys.modules.get(f"arraybridge.adapters.{module}"), f"_{module}", None)
        if adapter is not None:
            adapter.cache_clear()
        return call(scene)

    return called


def pickled_elsewhere(scene: Scene) -> None:
    make, (address, fields) = scene.share("pickled").__reduce__()
    make(address, fields[1:])


def framework_that_fails(scene: Scene) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("not today")

    scene.patch.setattr("arraybridge.adapters.jax.importer", lambda: refuse, raising=False)
    scene.patch.setattr("arraybridge.adapters.jax.view", refuse)
    convert_memory(scene.array.astype("f4"), "numpy", "jax", None, copy=True)


def served(scene: Scene, answer: Callable[[Any], object]) -> Any:
    """A call whose server answers in this way, and ends."""
    return _served(scene, answer)[0]()


def told_to(scene: Scene, answer: Callable[[Any], object]) -> None:
    """An error of a server's own."""
    _served(scene, answer)[1]()


def _served(scene: Scene, answer: Callable[[Any], object]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The result of the caller, and that of the server."""
    service = scene.broker.service("served", queue=8).open()
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(scene.broker.call, "served", scene.array, timeout=60)
        server: Future[Any] = Future()
        try:
            server.set_result(answer(next(service.requests(timeout=60))))
        except errors.BrokerError as error:
            server.set_exception(error)
        finally:
            service.close()
    return called.result, server.result


def closed_service(scene: Scene) -> arraybridge.Service:
    with scene.broker.service("closed", queue=8) as service:
        return service


SERVICES = arraybridge.RequestFailed, arraybridge.ServerGone


class Colour(enum.Enum):
    ODD = object()


class MyDict(dict[str, Any]):
    pass


class Row(NamedTuple):
    """A cause of an error, and what its message must say."""

    cause: str
    error: type[Exception]
    call: Callable[[Scene], object]
    happened: str
    to_what: str
    now: str
    reason: str = ""  # of the broker


LIST = ".*".join(FRAMEWORKS)

ROWS = [
    # Finding and reaching a broker
    Row("no broker at an address", errors.BrokerUnavailable, lambda s: s.nowhere().list(),
        "no broker answers", "/nowhere'", r"arraybridged --directory \S+/nowhere.*Broker\(\) finds or starts one"),
    Row("no broker at $ARRAYBRIDGE_ADDRESS", errors.BrokerUnavailable,
        lambda s: (s.patch.setenv("ARRAYBRIDGE_ADDRESS", "/nowhere/x.sock"), Broker(start="never").list()),
        "no broker answers", "/nowhere/x.sock'", r"arraybridged --directory /nowhere`, or unset \$ARRAYBRIDGE_ADDRESS"),
    Row("no broker, and none may be started", errors.BrokerUnavailable, lambda s: s.unfound().list(),
        'no broker is running.*start="never" forbids', r"in \S+/arraybridge or \S+/system", 'run `arraybridged`.*start="auto"'),
    Row("a start that the environment forbids", errors.BrokerUnavailable,
        lambda s: (s.patch.setenv("ARRAYBRIDGE_START", "never"), s.unfound("auto").list()),
        "forbids to start one", "ARRAYBRIDGE_START=never", r"run `arraybridged`, or unset \$ARRAYBRIDGE_START"),
    Row("a directory that is open to others", errors.BrokerUnavailable,
        lambda s: ((s.directory / "arraybridge").mkdir(mode=0o755), s.unfound("auto").list()),
        "none can be started", r"\S+/arraybridge, belongs to another user or is open to others", "remove it, or set .XDG_RUNTIME_DIR"),
    Row("a daemon that is not there", errors.BrokerUnavailable,
        lambda s: (s.patch.setattr("arraybridge._bin.beside_package", lambda _: None), s.patch.setenv("PATH", ""),
                   s.patch.delenv("ARRAYBRIDGE_DAEMON"), Broker(start="private").list()),
        "could not be started", "no executable arraybridged", "install the wheel"),
    Row("a broker that has ended", errors.BrokerUnavailable, lambda s: s.ended().list(),
        "no broker answers|connection", r"'\S+/ended'", "start one there with"),
    Row("a broker that is draining", errors.BrokerUnavailable, lambda s: s.draining(),
        "is draining", "the broker", "call again when the broker has been started again", "DRAINING"),
    Row("no descriptor left", errors.OutOfDescriptors, without_descriptors,
        "no file descriptor is left", r"RLIMIT_NOFILE 3\)", "ulimit -n"),
    Row("an unknown start", errors.InvalidRequest, lambda s: Broker(start="maybe"),
        "start must be", "'maybe'", '"auto", "never" or "private"'),
    Row("a private broker at an address", errors.InvalidRequest, lambda s: Broker("/run/x", start="private"),
        "starts a new broker", 'start="private"', "do not pass an address"),
    Row("an empty namespace", errors.InvalidRequest, lambda s: Broker(namespace=""), "namespace must be", "''", "non-empty str"),
    Row("a long namespace", errors.InvalidRequest, lambda s: s.at("n" * 300).list(),
        "the namespace has 300 bytes", "maximum 255", "pass less"),
    Row("a timeout that is a text", errors.InvalidRequest, lambda s: Broker(timeout_s="soon"),
        "timeout_s must be", "'soon'", "0 or more seconds"),
    Row("a long token", errors.InvalidRequest, lambda s: Broker(token="x" * 300), "has 300 bytes", "the token", "at most 256"),
    Row("direct_channels that is a number", errors.InvalidRequest, lambda s: Broker(direct_channels=2),
        "direct_channels must be", "not 2", "True or False"),
    # Rights
    Row("a namespace of others", errors.PermissionDenied, lambda s: s.at("others").put(s.array, "x"),
        "may not use", "namespace 'others'", "token=.*another namespace=.*access list", "NAMESPACE_DENIED"),
    Row("a namespace that may only be read", errors.PermissionDenied, lambda s: s.at("seen").put(s.array, "x"),
        "may only read", "namespace 'seen'", "another namespace=.*access list", "NAMESPACE_READ_ONLY"),
    # Names and shares
    Row("a taken name", errors.ShareExists, lambda s: (s.share("frame"), s.share("frame")),
        "has a share 'frame' already", "namespace 't.*'frame'", "replace=True", "NAME_TAKEN"),
    Row("a name that was taken unwaited", errors.ShareExists, twice_unwaited,
        "failed|has a share", "'unwaited'", "replace=True"),
    Row("an unknown share", errors.ShareNotFound, lambda s: s.broker.get("nobody"),
        "has no share", "namespace 't.*'nobody'", r"Broker.list\(\).*wait=seconds", "SHARE_NOT_FOUND"),
    Row("a misspelt name", errors.ShareNotFound, lambda s: (s.broker.put(s.array, "camera_left"), s.broker.get("camera_lfet")),
        "has no share", "'camera_lfet'; did you mean 'camera_left'[?] Broker.list", r"wait=seconds", "SHARE_NOT_FOUND"),
    Row("a misspelt name among many", errors.ShareNotFound,
        lambda s: (s.broker.put(s.array, "depth", replace=True), s.broker.get_many(["depth", "detph"])),
        "has no share", "'detph'; did you mean 'depth'[?]", r"Broker.list\(\)"),
    Row("a misspelt name that does not come", errors.BrokerTimeout,
        lambda s: (s.broker.put(s.array, "mask", replace=True), s.broker.get("maks", wait=0.02)),
        "timed out", "'maks'.*did you mean 'mask'[?]", "check the name", "NAME_DID_NOT_COME"),
    Row("an unknown share among many", errors.ShareNotFound, lambda s: s.broker.get_many(["nobody"]),
        "has no share", "'nobody'", r"Broker.list\(\)"),
    Row("an unknown share to withdraw", errors.ShareNotFound, lambda s: s.broker.withdraw("nobody"),
        "has no share", "'nobody'", r"Broker.list\(\)"),
    Row("a withdrawn share", errors.ShareNotFound, lambda s: s.gone("gone").to("numpy"),
        "was withdrawn or replaced", "share 'gone'", "get its name", "SHARE_GONE"),
    Row("a share that is withdrawn twice", errors.ShareNotFound, lambda s: s.gone("gone twice").withdraw(),
        "was withdrawn or replaced", "share 'gone twice'", "get its name"),
    Row("a name that does not come", errors.BrokerTimeout, lambda s: s.broker.get("nobody", wait=0.02),
        r"timed out after \d+ ms", "no share named 'nobody'", "check the name and the namespace=.*larger wait=", "NAME_DID_NOT_COME"),
    Row("a share of another namespace", errors.InvalidRequest, lambda s: s.at("elsewhere").get(s.share("here")),
        "is of namespace 't", "share 'here'", "share.to.*Broker.namespace='t"),
    Row("a share of another version", errors.InvalidRequest, pickled_elsewhere,
        "was pickled by another version", r"12 facts.*has 13", "install the same version"),
    Row("a name that is a number", errors.InvalidRequest, lambda s: s.broker.get(7), "must be named", "not by 7", "non-empty str or a Share"),
    Row("an empty name", errors.InvalidRequest, lambda s: s.broker.put(s.array, ""), "a name must be", "not ''", "None lets the broker"),
    Row("a long name", errors.InvalidRequest, lambda s: s.broker.put(s.array, "n" * 256),
        "256 bytes", "the name.*name_bytes_max 255", "pass less"),
    Row("a control character in a name", errors.InvalidRequest, lambda s: s.broker.put(s.array, "a\nb"),
        "contains a control character", "share's name", "bytes of UTF-8, without control", "BAD_NAME"),
    Row("half a surrogate pair in a name", errors.InvalidRequest, lambda s: s.broker.put(s.array, "\ud800"),
        "half a surrogate pair", r"'\\ud800'", "encodable as UTF-8"),
    Row("one name for get_many", errors.InvalidRequest, lambda s: s.broker.get_many("frame"),
        "takes a sequence", "'frame'", "get takes one"),
    Row("a prefix that is a number", errors.InvalidRequest, lambda s: s.broker.list(5), "prefix must be", "not 5", "a str"),
    # Arguments
    Row("metadata with an array", errors.InvalidRequest, lambda s: s.broker.put(s.array, "m", metadata={"mask": s.array}),
        "holds plain values", r"^\['mask'\]: metadata.*not ndarray", "put arrays into the tree itself"),
    Row("metadata that looks like a tree's", errors.InvalidRequest,
        lambda s: s.broker.put(s.array, "m", metadata=b"arraybridge.metadata\n{}"),
        "must not begin with", "metadata of bytes", "pass the tree"),
    Row("long metadata", errors.InvalidRequest, lambda s: s.broker.put(s.array, "m", metadata=b"x" * 20_000),
        "has 20000 bytes", "metadata.*limits.metadata_bytes_max 16384", "pass less", "TOO_LARGE"),
    Row("a lifetime of 0", errors.InvalidRequest, lambda s: s.broker.put(s.array, "l", lifetime=0),
        "lifetime must be", "not 0", "at least 0.001 seconds"),
    Row("a negative lifetime", errors.InvalidRequest, lambda s: s.broker.put(s.array, "l", lifetime=-1),
        "lifetime must be", "not -1", "0 or more seconds"),
    Row("a wait that is a text", errors.InvalidRequest, lambda s: s.broker.get("x", wait="long"),
        "wait must be", "'long'", "0 or more seconds"),
    Row("an unwaited put without a name", errors.InvalidRequest, lambda s: s.broker.put(s.array, wait=False),
        "no process could find", "wait=False", "needs a name"),
    Row("replace that is a word", errors.InvalidRequest, lambda s: s.broker.put(s.array, "x", replace="yes"),
        "replace must be", "'yes'", "True or False"),
    Row("an unknown access", errors.InvalidRequest, lambda s: s.broker.get("x", access="mine"),
        "access must be", "'mine'", '"safe" or "shared"'),
    Row("an unknown require", errors.InvalidRequest, lambda s: s.broker.get("x", require="speed"),
        "require must be", "'speed'", 'None or "zero-copy"'),
    Row("a copy that contradicts", errors.InvalidRequest, lambda s: s.broker.get("x", copy=True, access="shared"),
        "contradict", 'copy=True and access="shared"', "pass one of the two"),
    Row("a copy that is a word", errors.InvalidRequest, lambda s: s.broker.convert(s.array, "torch", copy="yes"),
        "copy must be", "'yes'", "True, False or None"),
    Row("an unknown way", errors.InvalidRequest, lambda s: s.broker.convert(s.array, "torch", via="post"),
        "via must be", "'post'", "'dlpack', 'host', 'serialize'"),
    Row("a negative shape", errors.InvalidRequest, lambda s: s.broker.empty(-1, "f4"), "negative sizes", r"\(-1,\)", "must not"),
    Row("a shape that is a text", errors.InvalidRequest, lambda s: s.broker.empty("ab", "f4"),
        "a shape must be", "'ab'", "an integer or a sequence of integers"),
    Row("types that are no classes", errors.InvalidRequest, lambda s: s.broker.get("x", types=[5]),
        "types must contain", "not 5", "dataclasses, namedtuples and enums"),
    Row("an outcome of something else", errors.InvalidRequest, lambda s: s.broker.outcome(5),
        "outcome takes", "not 5", "the BrokerTimeout that a call raised"),
    # Memory
    Row("more than the device has", errors.OutOfMemory, lambda s: s.broker.empty(1 << 50, "u1"),
        "can never fit", "1125899906842624 bytes.*the device has", "put less at once", "DEVICE_TOO_SMALL"),
    Row("more than the quota", errors.OutOfMemory, lambda s: s.at("small").empty(16 << 20, "u1"),
        "can never fit", "namespace 'small': .*the quota is 8388608", "put less at once, or raise this limit", "QUOTA_TOO_SMALL"),
    Row("more than is left of the quota", errors.OutOfMemory,
        lambda s: fill(s.at("small", timeout_s=1)),
        r"no room for 3145728 bytes", r"namespace 'small' .*left of its quota of 8\.0 MiB\..*has 3\.0 MiB", "withdraw shares", "QUOTA_EXCEEDED"),
    # Arrays
    Row("a dtype of objects", errors.UnsupportedDtype, lambda s: s.broker.put(np.array([object()]), "x"),
        "cannot be shared.*Python objects", "numpy to share.*dtype object", r"astype\(float\).*as a list or dict"),
    Row("a dtype of text", errors.UnsupportedDtype, lambda s: s.broker.put(np.array(["a"]), "x"),
        "cannot be shared", "numpy to share.*<U1", r"put the text beside an array.*tolist\(\)"),
    Row("a dtype of long floats", errors.UnsupportedDtype, lambda s: convert_memory(np.ones(1, "longdouble"), "numpy", "torch", None),
        "cannot be shared", "numpy to torch.*float128", r"astype\(float\)"),
    Row("a dtype that the target lacks", errors.UnsupportedDtype,
        lambda s: convert_memory(np.zeros(1, "M8[s]"), "numpy", "torch", None),
        "torch has no dtype", r"numpy to torch.*datetime64\[s\]", "another dtype first"),
    Row("a dtype that the target would narrow", errors.UnsupportedDtype,
        lambda s: convert_memory(np.zeros(1), "numpy", "jax", None),
        "would narrow", "numpy to jax.*float64 to float32", "jax_enable_x64, or pass allow_downcast=True"),
    Row("an unknown dtype", errors.UnsupportedDtype, lambda s: s.broker.empty(1, "float33"),
        "^'float33' is not a dtype", "'float33'", "such as 'float32'"),
    Row("a value that does not fit", errors.MemoryConversionError,
        lambda s: convert_memory(np.array([1 << 40]), "numpy", "jax", None, allow_downcast=True),
        "does not fit", "int64 to int32.*1099511627776", "keep int64, or clip"),
    Row("a framework that fails", errors.MemoryConversionError, framework_that_fails,
        "RuntimeError", "numpy to jax", "not today"),
    Row("a mask", errors.UnsupportedArray, lambda s: s.broker.put(np.ma.array([1], mask=[1]), "x"),
        "mask would be lost", "numpy to share", r"\.data or \.filled\(\)"),
    Row("a tensor without memory", errors.UnsupportedArray, lambda s: s.broker.put(torch.empty(2, device="meta"), "x"),
        "no memory that can be shared", "torch to share.*a meta tensor", "a dense tensor"),
    Row("a tensor that requires grad", errors.UnsupportedArray, lambda s: arraybridge.asdlpack(torch.ones(1, requires_grad=True)),
        "requires grad", "torch to dlpack", r"tensor\.detach\(\)"),
    Row("a number", errors.UnsupportedArray, lambda s: s.broker.put(3.5, "x"),
        "no array protocol", "float to share", "numpy.asarray makes one of numbers"),
    Row("a target without writable arrays", errors.UnsupportedArray, lambda s: s.broker.empty(1, "f4", "jax"),
        "cannot be written", "arrays of jax", "compute the values, and put the result"),
    Row("a tree as one array", errors.UnsupportedArray, lambda s: s.broker.put([s.array, s.array]).view(),
        "is not an array", "share of 2 arrays", r"share\.to\(framework\)"),
    Row("a copy that was forbidden", errors.ZeroCopyUnavailable,
        lambda s: convert_memory(s.array[:, ::-1], "numpy", "torch", None, copy=False),
        "a copy is needed", "numpy to torch: layout", "drop copy=False"),
    # Several channels
    Row("a run of nothing", errors.InvalidRequest, lambda s: s.broker.channel("r", run=""),
        "must be a non-empty str", "run", "the same in each process of one run"),
    Row("a long run", errors.InvalidRequest, lambda s: s.broker.channel("r", run="x" * 65),
        "has 65 bytes", "run.*the most is 64", "pass a shorter text"),
    Row("fresh without a run", errors.InvalidRequest, lambda s: s.broker.channel("r", fresh=True),
        "drops what an earlier run left", "fresh=True", "state run="),
    Row("no channel to wait for", errors.InvalidRequest, lambda s: arraybridge.select([]),
        "would wait for nothing", "at least one channel, service or watch", "needs at least one"),
    Row("a name to wait for", errors.InvalidRequest, lambda s: arraybridge.select(["frames"]),
        "not for str", "str", "channels, services, watches and objects with a fileno"),
    Row("no array within the deadline", arraybridge.Late, lambda s: next(s.broker.channel("late").receiver(deadline=0.01)),
        "no array arrived", "channel 'late' within its deadline of 0.01 s", "pass a larger deadline=", "LATE"),
    Row("a deadline of nothing", errors.InvalidRequest, lambda s: s.broker.channel("late").receiver(deadline=0),
        "must be more than 0 seconds", "deadline", "try_receive does not wait"),
    Row("a frame that is missing", arraybridge.Gap, lambda s: next(arraybridge.reorder(iter([2]), key=int)),
        "frame 1 is missing", "frame 1", "the next call goes on with frame 2", "GAP"),
    Row("results that are a list", errors.InvalidRequest, lambda s: arraybridge.reorder([1]),
        "takes an iterator", "not list", r"pass channel\.receiver\(info=True\)"),
    Row("a window of nothing", errors.InvalidRequest, lambda s: arraybridge.reorder(iter([]), 0),
        "must be an integer", "window.*not 0", "at least 1"),
    Row("a result without a sequence", errors.InvalidRequest, lambda s: next(arraybridge.reorder(iter([2]))),
        "has no sequence", "a result", r"send metadata=received\.sequence"),
    # Services
    Row("a service without a server", errors.BrokerTimeout, lambda s: s.broker.call("nothing", s.array, timeout=0.01),
        "no server .* has taken the request", "service 'nothing'.*within 0.01 s", "start one with Broker.service", "NOT_TAKEN"),
    Row("a service without a caller", errors.BrokerTimeout, lambda s: next(s.broker.service("idle", queue=8).requests(timeout=0.01)),
        "no request", "service 'idle'.*within 0.01 s", "call it in another process", "NO_REQUEST"),
    Row("a service without a name", errors.InvalidRequest, lambda s: s.broker.call("", s.array),
        "must be a non-empty str", "service's name.*''", "must be a non-empty str"),
    Row("a service with a long name", errors.InvalidRequest, lambda s: s.broker.service("x" * 129),
        "has 129 bytes", "name.*the most is 128", "pass a shorter one"),
    Row("a service that was closed", errors.ChannelClosed, lambda s: closed_service(s).open(),
        "was closed here", "service 'closed'", r"make a new one with Broker\.service", "SERVICE_CLOSED"),
    Row("a queue of nothing", errors.InvalidRequest, lambda s: s.broker.service("idle", queue=0),
        "must be a number of requests", "queue.*not 0", "at least 1"),
    Row("a queue that is too long", errors.InvalidRequest, lambda s: s.broker.service("idle", queue=9).open(),
        "is refused: .*limits.channel_capacity_max is 8", "queue=9 of service 'idle'", "at most limits.channel_capacity_max", "QUEUE"),
    Row("a wait without batches", errors.InvalidRequest, lambda s: s.broker.service("idle", within=1),
        "is for batches", "within=1", "pass batch= too"),
    Row("a request without a result", arraybridge.RequestFailed, lambda s: served(s, lambda request: request.fail("it is dark: add light")),
        "has no result", "service 'served'", "it is dark: add light", "REQUEST_FAILED"),
    Row("a request without a reason", errors.InvalidRequest, lambda s: told_to(s, lambda request: request.fail("")),
        "fail takes a text", "not ''", "tells the caller why"),
    Row("a request that is answered twice", errors.InvalidRequest, lambda s: told_to(s, lambda request: [request.reply(s.array) for _ in range(2)]),
        "was answered", "this request", "each is answered once"),
    Row("a server that leaves", arraybridge.ServerGone, lambda s: served(s, lambda request: None),
        "ended with the request in its hands", r"service 'served', .*process \d+", "retry=True", "SERVER_GONE"),
    # Trees
    Row("a lock in a tree", errors.UnsupportedArray, lambda s: s.broker.put({"a": s.array, "lock": [threading.Lock()]}, "x"),
        "supports no array protocol", r"^\['lock'\]\[0\]: .*lock", "a tree may also contain numbers, text, bytes, None"),
    Row("a lock in a tree that is sent", errors.UnsupportedArray,
        lambda s: s.broker.channel("x").send({"a": s.array, "lock": threading.Lock()}),
        "supports no array protocol", r"^\['lock'\]: .*lock", "a tree may also contain numbers, text, bytes, None"),
    Row("a tree without an array that is converted", errors.InvalidRequest, lambda s: s.broker.convert([1, 2], "torch"),
        "nothing to convert", "a tree without any array", "numpy.asarray"),
    Row("a message of 9 MiB without an array", errors.InvalidRequest, lambda s: s.broker.put({"log": "x" * (9 << 20)}, "x"),
        "has .* bytes", "structure.*limits.structure_bytes_max 32768", "long text and bytes as arrays", "TOO_LARGE"),
    Row("a key that is a tuple", errors.InvalidRequest, lambda s: s.broker.put({"k": {(1, 2): s.array}}, "x"),
        "a key of a tree must be", r"^\['k'\]: .*not tuple", "a str, int, float, bool or None"),
    Row("a dict of a class of the user", errors.InvalidRequest, lambda s: s.broker.put([MyDict(a=s.array)], "x"),
        "would be read as another class", r"^\[0\]: MyDict", "pass a dict, list or tuple"),
    Row("an enum of objects", errors.InvalidRequest, lambda s: s.broker.put([Colour.ODD, s.array], "x"),
        "is not a plain value", r"^\[0\]: .*Colour\.ODD", "give the member a plain value"),
    Row("a large structure", errors.InvalidRequest, lambda s: s.broker.put({"a": s.array, "t": "x" * (9 << 20)}, "x"),
        "structure has 9", "limits.structure_bytes_max 32768", "put the tree in parts"),
    Row("many arrays", errors.InvalidRequest, lambda s: s.broker.put([np.zeros(1, "M8[s]")] * 1100, "x"),
        "1100 arrays in one request", "limits.arrays_per_share_max 1024", "pass fewer.*put the tree in parts", "TOO_MANY"),
    Row("a deep tree", errors.InvalidRequest, lambda s: s.broker.put(deep(s.array), "x"),
        "nested", r"^\[0\]\[0\].*64 deep", "put the inner parts"),
    # Frameworks
    *(
        Row(f"a wrong name for {where}", errors.InvalidMemoryType, call, "is not the name of a framework", "'pytorch'",
            f"did you mean 'torch'.*{LIST}")
        for where, call in {
            "get": lambda s: s.broker.get("x", "pytorch"),
            "convert": lambda s: s.broker.convert(s.array, "pytorch"),
            "receive": lambda s: s.broker.channel("x").receive("pytorch"),
            "convert_memory": lambda s: convert_memory(s.array, "numpy", "pytorch"),
            "a source": lambda s: convert_memory(s.array, "pytorch", "numpy"),
            "get_converter": lambda s: arraybridge.get_converter("pytorch"),
            "get_device_id": lambda s: arraybridge.get_device_id(s.array, "pytorch"),
            "stack_slices": lambda s: arraybridge.stack_slices([s.array], "pytorch"),
            "memory_types": lambda s: arraybridge.memory_types("numpy", "pytorch"),
            "a decorator": lambda s: decorators.numpy(output_type="pytorch")(len),
            "MemoryType": lambda s: MemoryType("pytorch"),
            "from_bytes": lambda s: arraybridge.from_bytes(arraybridge.to_bytes(s.array), "pytorch"),
        }.items()
    ),
    Row("a framework of a Broker only", errors.InvalidMemoryType, lambda s: convert_memory(s.array, "numpy", "pyarrow"),
        "is a framework of a Broker only", "'pyarrow'", f"Broker.convert.*{LIST}"),
    Row("a framework that is a number", errors.InvalidMemoryType, lambda s: s.broker.get("x", 5),
        "must be a str", "not 5", LIST),
    Row("an unreadable object", errors.InvalidMemoryType, lambda s: convert_memory({1}, None, "numpy"),
        "is not an array", "set", "pass an array of numpy, torch"),
    Row("a wrong source", errors.SourceTypeMismatch, lambda s: convert_memory(s.array, "torch", "numpy"),
        "the data is numpy", "not torch", "source_type=None detects it"),
    Row("a wrong type of a device question", errors.SourceTypeMismatch, lambda s: arraybridge.get_device_id(s.array, "torch"),
        "the data is numpy", "not torch", "pass 'numpy'"),
    Row("a missing framework", errors.FrameworkNotAvailable, without("cupy", lambda s: s.broker.get("x", "cupy")),
        "is not available", "cupy", "pip install 'cupy-cuda12x>=13'"),
    Row("a missing framework of convert_memory", errors.FrameworkNotAvailable,
        without("cupy", lambda s: convert_memory(s.array, "numpy", "cupy")),
        "is not available", "cupy", "pip install 'cupy-cuda12x>=13'"),
    Row("a placeholder", errors.FrameworkNotAvailable, lambda s: arraybridge.optional_import("no_such_framework").ndarray(),
        "is not available: it is not installed", "no_such_framework.ndarray", "install no_such_framework"),
    Row("an old framework", errors.FrameworkNotAvailable, lambda s: adapters.ensure_module("numpy", (99, 0)),
        "numpy 99.0 is not available", rf"this is {np.__version__}", "install a newer numpy"),
    Row("an unknown dtype to scale to", errors.UnsupportedDtype, lambda s: arraybridge.scale_dtype(s.array, "float33"),
        "not a numeric dtype", "'float33'", "such as 'uint8'"),
    Row("a dtype to scale to that JAX lacks", errors.UnsupportedDtype,
        lambda s: arraybridge.scale_dtype(jax.numpy.ones(2), "float64"),
        "has no dtype float64 in its present configuration", "jax", "another dtype, or an ndarray"),
    Row("truncated bytes", errors.InvalidRequest, lambda s: arraybridge.from_bytes(b"1234"),
        "not the bytes of one array", "4 bytes, less than the 8", "as to_bytes makes them"),
    Row("slices without a common dtype", errors.UnsupportedDtype,
        lambda s: arraybridge.stack_slices([s.array, s.array.astype("M8[s]")]),
        "no common dtype", r"datetime64\[s\].*float64", "to one dtype first"),
    # Devices
    Row("a wrong device", errors.InvalidDevice, lambda s: s.broker.get(s.share("d"), "torch", device="gpu0"),
        "is not a device", "'gpu0'", '"cpu", "cuda", "cuda:1".*sees .*cpu'),
    Row("a wrong gpu_id", errors.InvalidDevice, lambda s: convert_memory(s.array, "numpy", "torch", "gpu0"),
        "is not the number of a GPU", "gpu_id='gpu0'", "pass 0, 1, .* or None"),
    Row("a GPU that is not there", errors.DeviceUnavailable, lambda s: s.broker.get(s.share("e"), "torch", device="cuda:77"),
        "no CUDA device", "'cuda:77'", r"sees the devices \['cpu'"),
    Row("mapped memory of no GPU", errors.InvalidRequest, lambda s: s.broker.get(s.share("map"), "torch", mapped=True),
        "is for the GPU that reads", "mapped=True", 'pass device="cuda:0"'),
    Row("a wrong wish for mapped memory", errors.InvalidRequest, lambda s: s.broker.get(s.share("wish"), "torch", mapped="yes"),
        "must be True, False or None", "'yes'", "mapped must be True"),
    Row("a gpu_id that is not there", errors.DeviceUnavailable, lambda s: convert_memory(s.array, "numpy", "torch", 77),
        "has no CUDA device", "torch.* 77", r"can use \['cpu'"),
    # Channels
    Row("an empty channel", errors.BrokerTimeout, lambda s: s.broker.channel("empty").receive(timeout=0.02),
        "no array arrived", "channel 'empty'.* within 0.02 s", "send one.*larger timeout="),
    Row("a full channel", errors.BrokerTimeout, full, "is full", "channel 'full'.*2", "larger timeout= or capacity=", "CHANNEL_FULL"),
    Row("a channel that its receivers have closed", errors.ChannelClosed, after_receivers,
        "no receiver any more", "channel 'left'", "next send queues for the next receiver", "NO_RECEIVER"),
    Row("a receiver that is gone", errors.PeerGone, lambda s: after_receivers(s, False),
        "gave it up after 0 shares", "channel 'left'", "next send queues for the next receiver", "RECEIVER_ABANDONED"),
    Row("a sender that is gone", errors.PeerGone, lambda s: after_senders(s, False),
        "gave it up before its stream was complete", "channel 'over'", "next receive waits for the senders", "SENDER_ABANDONED"),
    Row("a stream that has ended", errors.ChannelClosed, lambda s: after_senders(s, True),
        "has ended", "channel 'over'", "next receive waits for the next stream", "CHANNEL_ENDED"),
    Row("a closed channel", errors.ChannelClosed, lambda s: closed(s).receive(),
        "was closed here", "channel 'closed'", "make a new one with Broker.channel", "CHANNEL_NOT_OPEN"),
    Row("a capacity without an end", errors.ChannelClosed, lambda s: s.broker.channel("unopened").capacity,
        "no end", "channel 'unopened'", "open, send and receive open one"),
    Row("another capacity", errors.InvalidRequest, lambda s: (s.ends("four", 4), s.broker.channel("four", 2).open("sender")),
        "has capacity 4", "channel 'four'.*not 2: the sender", "pass this number", "CHANNEL_CAPACITY"),
    Row("another mode", errors.InvalidRequest,
        lambda s: (s.ends("newest", None, mode="latest"), s.broker.channel("newest", mode="broadcast").open("sender")),
        "has mode latest", "channel 'newest'.*not broadcast: the sender", "pass the channel's mode", "CHANNEL_MODE"),
    Row("an unknown mode", errors.InvalidRequest, lambda s: s.broker.channel("odd", mode="every"),
        "mode must be", "'every'", "'queue', 'broadcast', 'latest'"),
    Row("a replay without a broadcast", errors.InvalidRequest, lambda s: s.broker.channel("odd", replay=2),
        "on_slow and replay are for", "mode=None", "mode='broadcast'"),
    Row("a channel that is not there", errors.InvalidRequest, lambda s: s.broker.channel("nowhere").drain(),
        "has no channel", "'nowhere'", "send into it first", "CHANNEL_NOT_FOUND"),
    Row("a capacity above the limit", errors.InvalidRequest, lambda s: s.broker.channel("large", 99).open("sender"),
        "a channel of 99 shares", "limits.channel_capacity_max is 8", "pass this number"),
    Row("a capacity of 0", errors.InvalidRequest, lambda s: s.broker.channel("none", 0),
        "capacity must be", "not 0", "at least 1"),
    Row("a channel without a name", errors.InvalidRequest, lambda s: s.broker.channel(""),
        "channel's name must be", "not ''", "a non-empty str"),
    Row("a wrong role", errors.InvalidRequest, lambda s: s.broker.channel("role").open("writer"),
        "role must be", "'writer'", "'sender', 'receiver'"),
    # Watches
    Row("no event", errors.BrokerTimeout, lambda s: watch(s).next(timeout=0.02),
        "received no event within 0.02 s", "watch of publish in namespace 't", "larger timeout="),
    Row("a closed watch", errors.WatchClosed, lambda s: closed_watch(s).next(),
        "was closed here", "watch of publish", "make a new one with Broker.watch", "WATCH_NOT_OPEN"),
    Row("lost events", errors.EventsLost, slow_watch, "lost 6 events", "limits.events_per_watcher 4", "read it faster", "WATCH_CUT"),
    Row("an unknown kind of event", errors.InvalidRequest, lambda s: s.broker.watch("birth"),
        "must be one of", "'birth'", "'publish'"),
]  # fmt: skip


def deep(array: Any) -> Any:
    for _ in range(70):
        array = [array]
    return array


def fill(broker: Broker) -> None:
    """Puts until there is no room. A stalled machine can use up the timeout of a put."""
    for i in range(10):
        with contextlib.suppress(errors.BrokerTimeout):
            broker.put(np.ones(3 << 20, "u1"), f"part {i}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with small limits and namespaces of others."""
    base = tmp_path_factory.mktemp("ab")
    (base / "config.toml").write_text(CONFIG)
    directory = base / "run"
    directory.mkdir(mode=0o700)
    daemon = start_daemon(str(directory), "--log-level", "warn", "--config", str(base / "config.toml"))
    yield str(directory)
    assert stop_daemon(daemon) == 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
def test_a_message_says_what_happened_to_what_and_what_to_do(row: Row, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(place, tmp_path, monkeypatch, f"t{ROWS.index(row)}")
    with scene.broker:
        with pytest.raises(row.error) as caught:
            row.call(scene)
        for pattern in (row.happened, row.to_what, row.now):
            caught.match(pattern)
        assert isinstance(caught.value, errors.BrokerError) and str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        assert row.reason in ("", caught.value.reason)
        # Words of this package's own code, and names of sides that are not known, help no user.
        assert not any(word in str(caught.value) for word in ("Reason:", "using detect", "from array", "to any", "in vain"))
        scene.patch.undo()


def test_a_put_waits_for_no_more_room_than_its_bytes(place: str) -> None:
    """Although arenas grow when there is room: the second would have 4 MiB."""
    with Broker(place, namespace="tight", start="never", timeout_s=10) as broker:
        for name in ("first", "second"):
            broker.put(np.ones(3 << 20, "u1"), name)


def test_a_broker_that_this_user_started_is_started_again() -> None:
    assert discovery.way_to_start("/run/x", None, "auto") == "start one there with `arraybridged --directory /run/x`"
    assert 'make a new Broker(start="private")' in discovery.way_to_start("/tmp/x", None, "private")


def test_the_question_whether_a_broker_listens_does_not_wait(tmp_path: Path) -> None:
    """A daemon that is stopped accepts nothing, and its queue fills."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(tmp_path / "lifeline.sock"))
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                one = waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                one.setblocking(False)
                one.connect(str(tmp_path / "lifeline.sock"))
        assert discovery.is_listening(tmp_path)
    assert not discovery.is_listening(tmp_path)


def test_each_class_and_each_remedy_has_a_row() -> None:
    named = [getattr(errors, name) for name in errors.__all__ if issubclass(getattr(errors, name), errors.BrokerError)]
    assert {row.error for row in ROWS} == {*named, arraybridge.Gap, arraybridge.Late, *SERVICES} - {errors.BrokerError}
    assert errors.REMEDIES.keys() <= {row.reason for row in ROWS}


def test_all_lists_of_frameworks_are_one() -> None:
    assert adapters.NAMES == FRAMEWORKS and set(FRAMEWORKS[:6]) == {member.value for member in MemoryType}
