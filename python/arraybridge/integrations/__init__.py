# SPDX-License-Identifier: Apache-2.0
"""Integrations with other libraries. Each module imports its library when it is first used."""
