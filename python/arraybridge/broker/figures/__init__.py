# SPDX-License-Identifier: Apache-2.0
"""Figures: what each server of a service publishes of its work, for `arraybridgectl service`."""
