# SPDX-License-Identifier: Apache-2.0
"""Peers that pass messages: iceoryx2, Zenoh with shared memory, ZeroMQ, vineyard, torch.multiprocessing. The interface:
transports.py.
"""

from __future__ import annotations

import ctypes
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from transports import PATIENCE_S, CopyingSender, Frame, Pipe, Transport, retried


class Iceoryx2(Transport):
    """Publish and subscribe with an additional event, so that a receiver sleeps; its state lies under the scratch
    folder.
    """

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        import iceoryx2

        self.library = iceoryx2
        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        config = iceoryx2.config.default()
        config.global_cfg.prefix = iceoryx2.FileName.new(f"{self.prefix}_")
        config.global_cfg.root_path = iceoryx2.Path.new(str(scratch))
        self.node = iceoryx2.NodeBuilder.new().config(config).create(iceoryx2.ServiceType.Ipc)

    def service(self, name: str, depth: int, history: int = 0) -> Any:
        builder = self.node.service_builder(self.library.ServiceName.new(name))
        frames = builder.publish_subscribe(self.library.Slice[ctypes.c_uint8]).enable_safe_overflow(False)
        frames = frames.subscriber_max_buffer_size(depth).subscriber_max_borrowed_samples(depth + 2)
        return retried(frames.history_size(history).max_subscribers(16).open_or_create)

    def event(self, name: str) -> Any:
        return retried(self.node.service_builder(self.library.ServiceName.new(f"{name}-sent")).event().open_or_create)

    def publisher(self, service: Any, size: int) -> Any:
        builder = service.publisher_builder().initial_max_slice_len(size).max_loaned_samples(4)
        return builder.backpressure_strategy(self.library.BackpressureStrategy.RetryUntilDelivered).create()

    def sender(self, name: str, size: int, depth: int) -> Any:
        return IceoryxSender(self.publisher(self.service(name, depth), size), self.event(name), size)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        return IceoryxReceiver(self.service(name, depth).subscriber_builder().create(), self.event(name))

    def hold(self, size: int, fill: Callable[[Frame], None]) -> Any:
        service = self.service("large", 8, history=1)
        publisher = self.publisher(service, size)
        sample = publisher.loan_slice_uninit(size)
        fill(np.frombuffer(sample.payload().as_memory_view(), dtype="u1"))
        sample.assume_init().send()
        return service, publisher

    def keep(self, held: Any) -> None:
        while True:  # the publisher delivers a history; the pipeline ends this process
            held[1].update_connections()
            time.sleep(0.001)

    def attach(self, size: int) -> Frame:
        self.subscriber = self.service("large", 8, history=1).subscriber_builder().create()
        until = time.monotonic() + PATIENCE_S
        while (sample := self.subscriber.receive()) is None:
            if time.monotonic() > until:
                raise TimeoutError("the history did not come")
        self.sample = sample
        return np.frombuffer(sample.payload().as_memory_view(), dtype="u1")


class IceoryxSender(CopyingSender):
    def __init__(self, publisher: Any, event: Any, size: int) -> None:
        self.publisher, self.size, self.notifier = publisher, size, event.notifier_builder().create()

    def room(self) -> tuple[Frame, Any]:
        sample = self.publisher.loan_slice_uninit(self.size)
        return np.frombuffer(sample.payload().as_memory_view(), dtype="u1"), sample

    def send(self, handle: Any) -> None:
        handle.assume_init().send()
        self.notifier.notify()


class IceoryxReceiver:
    passes_on = False

    def __init__(self, subscriber: Any, event: Any) -> None:
        self.subscriber, self.listener = subscriber, event.listener_builder().create()

    def receive(self) -> tuple[Frame, Any]:
        while (sample := self.subscriber.receive()) is None:
            self.listener.blocking_wait()
        return np.frombuffer(sample.payload().as_memory_view(), dtype="u1"), sample

    def release(self, handle: Any) -> None:
        handle.delete()


class Zenoh(Transport):
    """Two peers over a Unix socket, with payloads in its shared memory. Its Python buffers cannot be viewed, so a
    receiver copies, and a sender slices bytes in.
    """

    in_place = False
    attaches = False

    def session(self, listens: str = "", connects: str = "") -> Any:
        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("transport/shared_memory/enabled", "true")
        config.insert_json5("listen/endpoints", f'["{listens}"]' if listens else "[]")
        if connects:
            config.insert_json5("connect/endpoints", f'["{connects}"]')
        return zenoh.open(config)

    def endpoint(self, name: str) -> str:
        return f"unixsock-stream/{self.scratch}/{name}.sock"

    def sender(self, name: str, size: int, depth: int) -> Any:
        session = retried(lambda: self.session(connects=self.endpoint(name)))
        return ZenohSender(session, name, size, depth)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        return ZenohReceiver(self.session(listens=self.endpoint(name)), name, depth)


class ZenohSender(CopyingSender):
    def __init__(self, session: Any, name: str, size: int, depth: int) -> None:
        import zenoh

        self.session, self.size = session, size
        self.publisher = session.declare_publisher(name, congestion_control=zenoh.CongestionControl.BLOCK)
        self.memory = zenoh.shm.ShmProvider.default_backend((depth + 4) * (size + 4096))
        self.policy = zenoh.shm.BlockOn(zenoh.shm.GarbageCollect())
        until = time.monotonic() + PATIENCE_S
        while not self.publisher.matching_status.matching:
            if time.monotonic() > until:
                raise TimeoutError("no subscriber")
            time.sleep(0.01)

    def send_copy(self, frame: Frame) -> None:
        buffer = self.memory.alloc(self.size, self.policy)
        buffer[0 : self.size] = frame.base if isinstance(frame.base, bytearray) else frame.tobytes()
        self.publisher.put(buffer)

    def forward(self, array: Frame, handle: Any) -> None:
        self.publisher.put(handle.payload)


class ZenohReceiver:
    passes_on = False

    def __init__(self, session: Any, name: str, depth: int) -> None:
        import zenoh

        self.session = session
        self.subscriber = session.declare_subscriber(name, zenoh.handlers.FifoChannel(depth))

    def receive(self) -> tuple[Frame, Any]:
        sample = self.subscriber.recv()
        assert sample.payload.as_shm() is not None, "the payload did not come in shared memory"
        return np.frombuffer(bytes(sample.payload), dtype="u1"), sample

    def release(self, handle: Any) -> None:
        pass


class Zmq(Transport):
    """PUSH and PULL over ipc://, copy=False: nothing is copied in Python; the socket copies everything."""

    attaches = False

    def socket(self, kind: str, depth: int) -> Any:
        import zmq

        self.context = zmq.Context()
        socket = self.context.socket(getattr(zmq, kind))
        socket.sndhwm = socket.rcvhwm = max(1, depth // 2)
        return socket

    def sender(self, name: str, size: int, depth: int) -> Any:
        socket = self.socket("PUSH", depth)
        socket.connect(f"ipc://{self.scratch}/{name}.zmq")
        return ZmqEnd(socket, size)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        socket = self.socket("PULL", depth)
        socket.bind(f"ipc://{self.scratch}/{name}.zmq")
        return ZmqEnd(socket, size)


class ZmqEnd(CopyingSender):
    """The sending or the receiving end."""

    def __init__(self, socket: Any, size: int) -> None:
        self.socket, self.size = socket, size

    def room(self) -> tuple[Frame, Any]:
        array = np.empty(self.size, "u1")  # the library reads it later, so each frame needs its own
        return array, array

    def send(self, handle: Any) -> None:
        self.socket.send(handle, copy=False)

    def forward(self, array: Frame, handle: Any) -> None:
        self.socket.send(handle, copy=False)

    def receive(self) -> tuple[Frame, Any]:
        frame = self.socket.recv(copy=False)
        return np.frombuffer(frame.buffer, dtype="u1"), frame

    def release(self, handle: Any) -> None:
        pass


class Vineyard(Transport):
    """Blobs of a vineyardd. Their ids are sent through a pipe, and the sender deletes released blobs."""

    environment = "vineyard"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import vineyard
        self.library, self.client = vineyard, vineyard.connect(str(scratch / "vineyard.sock"))

    def sender(self, name: str, size: int, depth: int) -> Any:
        return VineyardSender(self, name, size, depth)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        return VineyardReceiver(self, name)

    def array(self, text: str) -> Frame:
        found = self.client.get(self.library.ObjectID(text))
        return found if isinstance(found, np.ndarray) else np.frombuffer(memoryview(found), dtype="u1")

    def hold(self, size: int, fill: Callable[[Frame], None]) -> Any:
        blob = self.client.create_blob(size)
        fill(np.frombuffer(memoryview(blob), dtype="u1"))
        sealed = blob.seal(self.client)
        (self.scratch / "large").write_text(repr(sealed.id).strip('"'))
        return sealed

    def attach(self, size: int) -> Frame:
        return self.array((self.scratch / "large").read_text())


class VineyardSender(CopyingSender):
    def __init__(self, transport: Vineyard, name: str, size: int, depth: int) -> None:
        self.transport, self.name, self.size, self.room_left = transport, name, size, depth
        self.ids, self.released = transport.pipe(f"{name}.ids"), transport.pipe(f"{name}.released")

    def room(self) -> tuple[Frame, Any]:
        if self.room_left > 0:
            self.room_left -= 1
        else:
            self.transport.client.delete([self.transport.library.ObjectID(self.released.get())])
        blob = self.transport.client.create_blob(self.size)
        return np.frombuffer(memoryview(blob), dtype="u1"), blob

    def send(self, handle: Any) -> None:
        self.forward(None, (self.name, repr(handle.seal(self.transport.client).id).strip('"')))

    def forward(self, array: Frame, handle: Any) -> None:
        self.ids.put(" ".join(handle))


class VineyardReceiver:
    passes_on = True  # the process that made a blob deletes it after the last receiver has released it

    def __init__(self, transport: Vineyard, name: str) -> None:
        self.transport, self.ids = transport, transport.pipe(f"{name}.ids")
        self.released: dict[str, Pipe] = {}

    def receive(self) -> tuple[Frame, Any]:
        name, text = self.ids.get().split()
        return self.transport.array(text), (name, text)

    def release(self, handle: Any) -> None:
        name, text = handle
        if name not in self.released:
            self.released[name] = self.transport.pipe(f"{name}.released")
        self.released[name].put(text)


class TorchQueue(Transport):
    """torch.multiprocessing's tensors: each frame is a new one in shared memory, whose descriptor is sent. The processes
    are not each other's children, so the pickles go through a socket of multiprocessing, as in its queues; in a directory
    that only this user enters, without its handshake, in which a sender would wait for its receiver. A token for each
    frame bounds a channel.
    """

    environment = ""
    attaches = False

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        import multiprocessing

        import torch
        import torch.multiprocessing

        torch.set_num_threads(1)
        torch.multiprocessing.set_sharing_strategy("file_descriptor")
        multiprocessing.current_process().authkey = b"arraybridge"

    def sender(self, name: str, size: int, depth: int) -> Any:
        return TorchSender(self, name, size, depth)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        return TorchReceiver(self, name)


class TorchSender(CopyingSender):
    def __init__(self, transport: Transport, name: str, size: int, depth: int) -> None:
        from multiprocessing.connection import Client

        self.size, self.free = size, transport.pipe(f"{name}.free")
        for _ in range(depth):
            self.free.put()
        self.socket = retried(lambda: Client(str(transport.scratch / f"{name}.sock")), OSError)

    def room(self) -> tuple[Frame, Any]:
        import torch

        tensor = torch.empty(self.size, dtype=torch.uint8).share_memory_()
        return tensor.numpy(), tensor

    def send(self, handle: Any) -> None:
        from multiprocessing.reduction import ForkingPickler

        self.free.get()
        self.socket.send_bytes(ForkingPickler.dumps(handle))

    def forward(self, array: Frame, handle: Any) -> None:
        self.send(handle)


class TorchReceiver:
    passes_on = False

    def __init__(self, transport: Transport, name: str) -> None:
        from multiprocessing.connection import Listener

        self.free = transport.pipe(f"{name}.free")
        self.listener = Listener(str(transport.scratch / f"{name}.sock"), "AF_UNIX")
        self.socket: Any = None

    def receive(self) -> tuple[Frame, Any]:
        from multiprocessing.reduction import ForkingPickler

        if self.socket is None:
            self.socket = self.listener.accept()
        tensor = ForkingPickler.loads(self.socket.recv_bytes())
        return tensor.numpy(), tensor

    def release(self, handle: Any) -> None:
        self.free.put()
