# SPDX-License-Identifier: Apache-2.0
"""One process of a pipeline: `channel_client.py ADDRESS NAMESPACE WHAT ...`."""

import os
import sys
import time

import numpy as np

import arraybridge

ELEMENTS = 256  # of an item, int32


def item(number: int) -> np.ndarray:
    return np.full(ELEMENTS, number, dtype="int32")


def number_of(array) -> int:
    """Of an item that is whole; fails if its bytes are of two."""
    numbers = np.asarray(array)
    assert numbers.shape == (ELEMENTS,) and (numbers == numbers[0]).all(), numbers
    return int(numbers[0])


def send(broker, name, first, count, capacity="0"):
    """`count` items, numbered from `first`; says so."""
    with broker.channel(name, int(capacity) or None) as channel:
        for number in range(int(first), int(first) + int(count)):
            channel.send(item(number))
    print("sent", flush=True)


def receive(broker, name, framework="numpy"):
    """All items until the stream ends: their numbers."""
    channel = broker.channel(name)
    for array in channel.receiver(framework):
        print(number_of(array))
    channel.close()


def double(broker, source, target, framework):
    """What comes from one channel goes, twice as much, into another."""
    with broker.channel(target) as out:
        for array in broker.channel(source).receiver(framework):
            out.send(array + array)


def send_and_hang(broker, name, count):
    channel = broker.channel(name)
    for number in range(int(count)):
        channel.send(item(number))
    print("hangs", flush=True)
    time.sleep(600)


def receive_and_hang(broker, name):
    channel = broker.channel(name)
    array = channel.receive()
    print(number_of(array), flush=True)
    time.sleep(600)


def fork(broker, name):
    """A child does not send on its parent's end, and does not close it either."""
    channel = broker.channel(name).open("sender")
    child = os.fork()
    if child == 0:
        channel.send(item(1))
        channel.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    channel.send(item(2))
    channel.close()


if __name__ == "__main__":
    address, namespace, what, *arguments = sys.argv[1:]
    with arraybridge.Broker(address, namespace=namespace, start="never") as own:
        globals()[what](own, *arguments)
