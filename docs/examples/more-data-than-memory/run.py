# SPDX-License-Identifier: Apache-2.0
"""Ten arrays of 16 MiB in a broker that hands out 64 MiB."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from arraybridge import Broker, Share

DAYS = 10
READER = """
import sys
from arraybridge import Broker

broker = Broker(sys.argv[1], start="never")
on_disk = [row.name for row in broker.stored() if not row.in_memory]
days = broker.get("day/0", wait=30)
print(f"another process found {len(on_disk)} arrays on disk; day/0 begins with {days[0]:.0f}")
"""


def put_all(broker: Broker) -> list[Share]:
    shares = []
    for day in range(DAYS):
        share = broker.put(np.full(2 << 20, day, "float64"), f"day/{day}")
        shares.append(share.demote())  # its bytes are in a file; the memory is free for the next day
    return shares


def main() -> None:
    # The broker of this program alone. An operator writes this into its configuration.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ARRAYBRIDGED_TIERS__DIRECTORY"] = str(Path(folder) / "files")
        os.environ["ARRAYBRIDGED_MEMORY__HOST__CAPACITY"] = "64MiB"
        with Broker(start="private") as broker:
            shares = put_all(broker)
            held = sum(share.nbytes for share in shares) >> 20
            print(f"the broker has {held} MiB of arrays in files, and {broker.stats()['capacity_bytes'] >> 20} MiB of memory")
            subprocess.run([sys.executable, "-c", READER, broker.address], check=True)
            for share in shares:
                array = share.to("numpy")
                print(f"{share.name}: mean {array.mean():.1f}, {share.residency}")
                del array
                share.demote()


if __name__ == "__main__":
    main()
