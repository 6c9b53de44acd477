# SPDX-License-Identifier: Apache-2.0
"""Puts an image under a name; the process may end, and the image stays."""

import numpy as np

from arraybridge import Broker

image = np.linspace(0, 1, 1080 * 1920, dtype="float32").reshape(1080, 1920)
share = Broker().put(image, "image", replace=True)
print(f"put {share.name}: {share.nbytes:,} bytes, generation {share.generation}")
