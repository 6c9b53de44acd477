"""python -m arraybridge: selftest, bench, explain, doctor."""

import sys

from arraybridge.commands import main

sys.exit(main())
