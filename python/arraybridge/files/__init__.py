# SPDX-License-Identifier: Apache-2.0
"""Files of arrays, such as the weights of a model: read into bundles (`load`), and written (`save`)."""
