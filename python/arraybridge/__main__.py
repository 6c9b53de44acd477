"""python -m arraybridge: selftest, bench, explain, doctor."""

import sys

from arraybridge import _conflict

_conflict.refuse_mixed()  # before anything below is read, which may be another's

from arraybridge.commands import main

sys.exit(main())
