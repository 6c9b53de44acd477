# SPDX-License-Identifier: Apache-2.0
"""Batches: several requests of a service that its server answers together."""
