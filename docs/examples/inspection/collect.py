# SPDX-License-Identifier: Apache-2.0
"""Gets the results of all workers in the order of the frames, and says which are missing.

collect.py FIRST    FIRST is the sequence of the first frame that no earlier process has had
"""

import sys

from arraybridge import Broker, Gap, reorder

broker = Broker()
with broker.channel("tiles", on_peer_death="wait") as tiles:
    results = reorder(tiles.receiver("numpy", info=True), window=32, first=int(sys.argv[1]))
    while True:
        try:
            result = next(results)
            print(result.metadata["sequence"], result.metadata["number"], result.array.max(), flush=True)
        except Gap as gap:  # they were in the hands of a process that was killed
            print("missing", *gap.missing, flush=True)
        except StopIteration:
            break
    print("end", flush=True)  # before `tiles` is closed: the next process would not be told of the end any more
