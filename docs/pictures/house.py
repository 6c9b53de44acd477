# SPDX-License-Identifier: Apache-2.0
"""The picture of the house: its floors with their rooms, and the four connections between a client and the daemon."""

from __future__ import annotations

from typing import Final, NamedTuple

from svg import Drawing


class Box(NamedTuple):
    name: str
    about: str


class Floor(NamedTuple):
    name: str
    about: str
    rooms: list[Box]


class Link(NamedTuple):
    """`goes`: both ways, up, down, or only between clients."""

    name: str
    about: list[str]
    goes: str


CLIENT: Final = [
    Floor("python/", "brokers frameworks: NumPy, PyTorch, JAX, TensorFlow, …", [
        Box("adapters", "one per framework"), Box("convert", "inside one process"), Box("broker", "put · get · channel"),
        Box("bindings", "client as extension"),
    ]),
    Floor("client/", "brokers arrays, inside the user's process", [
        Box("sessions", "connection, queue"), Box("arenas", "written, mapped"), Box("shares", "publish, acquire"),
        Box("channels", "send, receive"), Box("memory", "host · cuda mappers"),
    ]),
]  # fmt: skip
LINKS: Final = [
    Link("lifeline", ["one socket: identity,", "descriptors, doorbells"], "both"),
    Link("session queue", ["requests, completions,", "in shared memory"], "both"),
    Link("catalogue", ["names and places,", "read by clients"], "up"),
    Link("hazard page", ["slots that a client", "is reading"], "down"),
    Link("direct channel", ["from client to client;", "the daemon may revoke"], "clients"),
]
DAEMON: Final = [
    Floor("daemon/service", "messages become calls; requests wait here", [
        Box("lifeline door", "one thread"), Box("gRPC door", "any language"), Box("HTTP", "health, metrics"),
        Box("verbs", "limits, waiting line"),
    ]),
    Floor("daemon/broker", "brokers bytes, names, quotas: no socket, no thread, no log", [
        Box("shares", "names, leases"), Box("arenas", "owners, sealing"), Box("sessions", "rights, accounts"),
        Box("channels", "queues of shares"), Box("events", "watches, history"),
    ]),
    Floor("daemon/memory", "one backend per kind of memory", [
        Box("host", "sealed memfd"), Box("cuda_vmm", "CUDA descriptors"), Box("cuda_ipc", "cudaIpcMemHandle"),
        Box("pages", "catalogue, queues"),
    ]),
]  # fmt: skip
AGREEMENT: Final = [
    Box("messages", "broker.proto"), Box("wire", "as C++ structs"), Box("frames", "on the lifeline"), Box("layouts", "of shared pages"),
    Box("Result", "errors, descriptors"),
]  # fmt: skip

WIDTH: Final = 960.0
LEFT: Final = 20.0
HOUSE: Final = 748.0  # the floors; the agreement stands beside them
GAP: Final = 12.0
FLOOR: Final = 92.0
NAME: Final = 155.0
BAND: Final = 150.0  # between the processes


def _rooms(drawing: Drawing, x: float, y: float, width: float, boxes: list[Box]) -> None:
    each = (width - GAP * (len(boxes) - 1)) / len(boxes)
    for number, box in enumerate(boxes):
        left = x + number * (each + GAP)
        drawing.box(left, y, each, 46, "room", "line", rounded=4)
        drawing.text(left + each / 2, y + 19, box.name, bold=True, anchor="middle", room=each)
        drawing.text(left + each / 2, y + 36, box.about, "soft", 11, "middle", room=each)


def _floor(drawing: Drawing, y: float, floor: Floor) -> None:
    drawing.box(LEFT, y, HOUSE, FLOOR, "panel", "line", rounded=6)
    drawing.text(LEFT + GAP, y + 22, floor.name, "ours", 14, bold=True, room=NAME)
    drawing.text(LEFT + GAP + NAME, y + 22, floor.about, "soft", 12)
    _rooms(drawing, LEFT + GAP, y + 34, HOUSE - 2 * GAP, floor.rooms)


def _links(drawing: Drawing, y: float) -> None:
    each = (HOUSE - 2 * GAP - GAP * (len(LINKS) - 1)) / len(LINKS)
    top, bottom = y + 34, y + BAND - 34
    for number, link in enumerate(LINKS):
        left = LEFT + GAP + number * (each + GAP)
        middle = left + each / 2
        drawing.text(middle, top + 24, link.name, bold=True, anchor="middle", room=each + GAP)
        for line, about in enumerate(link.about):
            drawing.text(middle, top + 42 + 15 * line, about, "soft", 11, "middle", room=each + GAP)
        if link.goes == "clients":
            drawing.arrow(middle - 24, top + 6, y + 4)
            drawing.arrow(middle + 24, y + 4, top + 6)
            drawing.arrow(middle, bottom + 30, bottom - 12, dashed=True)
            continue
        ends = (top + 6, y + 4) if link.goes == "up" else (y + 4, top + 6)
        drawing.arrow(middle, *ends, both=link.goes == "both")
        ends = (bottom + 30, bottom - 12) if link.goes == "up" else (bottom - 12, bottom + 30)
        drawing.arrow(middle, *ends, both=link.goes == "both")


def _agreement(drawing: Drawing, height: float) -> None:
    x, width = LEFT + HOUSE + GAP, WIDTH - 2 * LEFT - HOUSE - GAP
    drawing.box(x, LEFT, width, height, "panel", "line", rounded=6)
    drawing.text(x + GAP, LEFT + 22, "proto/", "ours", 14, bold=True)
    drawing.text(x + GAP, LEFT + 42, "the agreement:", "soft", 12)
    drawing.text(x + GAP, LEFT + 58, "both sides compile it", "soft", 12, room=width)
    each = (height - 70) / len(AGREEMENT)
    for number, box in enumerate(AGREEMENT):
        _rooms(drawing, x + GAP, LEFT + 70 + number * each + (each - 46) / 2, width - 2 * GAP, [box])


def picture() -> str:
    processes = (len(CLIENT) + len(DAEMON)) * FLOOR + (len(CLIENT) + len(DAEMON) - 2) * GAP + BAND
    drawing = Drawing(WIDTH, processes + 2 * LEFT, "The house: python and client in each process, the daemon's floors below")
    y = LEFT
    for floor in CLIENT:
        _floor(drawing, y, floor)
        y += FLOOR + GAP
    y -= GAP
    _links(drawing, y)
    y += BAND
    for floor in DAEMON:
        _floor(drawing, y, floor)
        y += FLOOR + GAP
    _agreement(drawing, processes)
    return str(drawing)
