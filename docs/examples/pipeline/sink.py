# SPDX-License-Identifier: Apache-2.0
"""The last stage: checks each frame, and prints its number, and "end" when the stream has ended."""

from arraybridge import Broker

broker = Broker()
with broker.channel("small", on_peer_death="wait") as small:
    for frame, number, *_ in small.receiver("numpy", info=True):
        if frame.shape != (135, 240, 3) or (frame != 255 - int(number) % 256).any():
            raise SystemExit(f"frame {int(number)} is wrong: shape {frame.shape}, first pixel {frame[0, 0]}")
        print(int(number), flush=True)
    print("end", flush=True)  # before `small` is closed: the next process would not be told of the end any more
