# SPDX-License-Identifier: Apache-2.0
"""Puts tables whose description or buffers were changed: many in one run, all of them of one seed.

The structure of a put is what Python wrote; this program replaces it and the bytes before the extension gets them, as a
process of a user with a client of its own could.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import numpy as np
import table_cases

import arraybridge
from arraybridge.conversion import tree
from arraybridge.tables import incoming, leaves

NUMBERS = (0, 1, 2, 7, 12, 13, 14, 100, 2**31 - 1, 2**31, 2**40, 2**62, 2**63, -1)
FORMATS = "n b c S i l g u U vu z Z vz +s +l +L +vl +vL +m +r +w:2 w:3 d:9,2 tsu:UTC +us:0,1 +ud:0,1 nonsense".split()


def changed(node: Any, random_: random.Random) -> Any:
    """The node with one part of it replaced."""
    places = [(node, index) for index in range(4)]

    def visit(each: list[Any]) -> None:
        for index, part in enumerate(each):
            places.append((each, index))
            if type(part) is list:
                visit(part)

    visit(node)
    holder, index = random_.choice(places)
    part = holder[index]
    if type(part) is int:
        holder[index] = random_.choice((*NUMBERS, part + 1, part - 1))
    elif type(part) is str:
        holder[index] = random_.choice((*FORMATS, "", "AAAA", "\0", "/////w==", 5))
    elif type(part) is list:
        holder[index] = random_.choice(([], None, part * 2, part[:-1], part[::-1], {"a": 1}))
    else:
        holder[index] = random_.choice((0, 1, [], "x"))
    return node


def scrambled(leaf: Any, random_: random.Random) -> Any:
    """The leaf with some bytes changed, or of another size or dtype."""
    array = np.array(leaves.array_of(leaf))
    way = random_.randrange(4)
    if way == 0 and array.nbytes:
        data = array.view(np.uint8)
        for _ in range(random_.randrange(1, 4)):
            data[random_.randrange(data.size)] = random_.choice((0, 1, 127, 128, 255))
    elif way == 1:
        array = array[: array.size // 2]
    elif way == 2:
        array = array.view(np.uint8)
    return array


def main() -> None:
    address, namespace, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    random_ = random.Random(seed)
    tables = [table_cases.table_of(table_cases.forms(array)["whole"]) for array in table_cases.arrays().values()]
    apart: list[tuple[list[Any], list[Any]]] = [incoming.taken_apart(table) for table in tables]
    with arraybridge.Broker(address, namespace=namespace, start="never") as broker:
        for number in range(count):
            [kind, node], buffers = random_.choice(apart)
            node, parts = json.loads(json.dumps(node)), list(buffers)
            if random_.random() < 0.6:
                node = changed(node, random_)
            if random_.random() < 0.6:
                place = random_.randrange(len(parts))
                parts[place] = scrambled(parts[place], random_)
            setattr(incoming, "taken_apart", lambda _, made=([kind, node], parts): made)
            assert tree.incoming is incoming
            broker.put(tables[0], f"table {number}")
    print("put")


main()
