# SPDX-License-Identifier: Apache-2.0
"""python -m arraybridge: selftest, bench, explain, findings, load, record, replay; and doctor, which is that of arraybridgectl."""

import sys

from arraybridge import _conflict

_conflict.refuse_mixed()  # before the imports below, which may find another distribution's files

from arraybridge.commands import main

sys.exit(main())
