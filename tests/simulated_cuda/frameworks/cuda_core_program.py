# SPDX-License-Identifier: Apache-2.0
"""Uses real cuda.core on the simulated driver in one process."""

from cuda.core import Device, EventOptions, VirtualMemoryResource, VirtualMemoryResourceOptions
from cuda.core.utils import StridedMemoryView

device = Device()
device.set_current()
stream = device.create_stream()
resource = VirtualMemoryResource(device, config=VirtualMemoryResourceOptions(handle_type="posix_fd"))
one = resource.allocate(1 << 21, stream=stream)
other = resource.allocate(1 << 21, stream=stream)
one.copy_to(other, stream=stream)
stream.sync()
event = stream.record(options=EventOptions(ipc_enabled=True))
assert event.ipc_descriptor is not None
view = StridedMemoryView.from_dlpack(one, stream_ptr=-1)
assert view.shape == (1 << 21,)
assert view.is_device_accessible
print("done")
