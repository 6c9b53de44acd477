# SPDX-License-Identifier: Apache-2.0
"""Record and replay: what goes through channels, written into a file of MCAP, and sent again from it into any framework.

`arraybridgectl record` and `arraybridgectl replay` do the same. docs/guides/record-and-replay.md has the rules.
"""

from __future__ import annotations

from typing import Final

from arraybridge.recording import record_command, replay_command
from arraybridge.recording.recorder import ChannelCounts, Recorder
from arraybridge.recording.replaying import Replayed, replay
from arraybridge.recording.tee import Tee, tee

COMMANDS: Final = {"record": record_command, "replay": replay_command}  # of `python -m arraybridge`
__all__ = ["ChannelCounts", "Recorder", "Replayed", "Tee", "replay", "tee"]
