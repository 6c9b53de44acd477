"""python -m arraybridge: selftest, bench, explain."""

import sys

from arraybridge.commands import main

sys.exit(main())
