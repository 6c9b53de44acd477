# SPDX-License-Identifier: Apache-2.0
"""Reads frames as they come, where they lie, and withdraws each: viewer.py ADDRESS COUNT."""

import sys

from arraybridge import Broker

broker = Broker(sys.argv[1], start="never")
for number in range(int(sys.argv[2])):
    frame = broker.get(f"frame {number}", wait=60)
    assert frame[0, 0] == number and not frame.flags.writeable, "another frame"
    broker.withdraw(f"frame {number}")
print(f"the viewer read {number + 1} frames")
