# SPDX-License-Identifier: Apache-2.0
"""NumPy's own tests in a block: those that allocate, resize, index and copy most."""

import importlib.util
import os
import time

import pytest
from processes import Client

PROGRAM = """
import sys
import pytest
from arraybridge import Broker

broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
with broker.born("numpy", everywhere=True, min_bytes=4096) as born:
    words = "-q -p no:cacheprovider -c /dev/null -x --pyargs".split()
    code = pytest.main([*words, "numpy._core.tests." + sys.argv[3], "-k", sys.argv[4]])
assert code == 0, code
assert born.arrays > int(sys.argv[5]), born
print("ok")
"""

# The tests of a module, and the arrays of 4 KiB and more that they make at least.
MODULES = {
    "test_multiarray": ("TestResize or TestCreation or TestMethods and not large", 50),
    "test_item_selection": ("not large", 0),
    "test_indexing": ("not large", 0),
    "test_regression": ("not large and not leak and not memory", 10),
}
if os.environ.get("ARRAYBRIDGE_LONG"):
    MODULES |= {"test_numeric": ("not large and not parallel", 50), "test_ufunc": ("not large", 50), "test_einsum": ("not large", 10)}


@pytest.mark.skipif(not importlib.util.find_spec("numpy._core.tests"), reason="NumPy is installed without its tests")
@pytest.mark.parametrize("module", MODULES)
def test_they_pass(client: Client, module: str) -> None:
    tests, least = MODULES[module]
    assert client(PROGRAM, f"numpys-own-{time.time_ns()}", module, tests, str(least)).endswith("ok\n")
