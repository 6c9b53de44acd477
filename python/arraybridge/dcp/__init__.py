# SPDX-License-Identifier: Apache-2.0
"""DCP: checkpoints of torch.distributed.checkpoint in broker memory at once, and on the disk soon after.

storage_writer   BrokerStorageWriter, for dcp.save and dcp.async_save
storage_reader   BrokerStorageReader, for dcp.load
rank_series      the Checkpoints of each rank, and the steps that all ranks have
metadata_text    what DCP must know to load a checkpoint, as text
"""

from arraybridge.dcp.storage_reader import BrokerStorageReader
from arraybridge.dcp.storage_writer import BrokerStorageWriter

__all__ = ["BrokerStorageReader", "BrokerStorageWriter"]
