# SPDX-License-Identifier: Apache-2.0
"""Gets the image as a tensor of PyTorch, and says what was copied."""

from arraybridge import Broker

tensor, plan = Broker().get("image", "torch", wait=60, explain=True)
print(f"got {tuple(tensor.shape)} {tensor.dtype}, mean {tensor.mean():.3f}")
print(plan)
