# SPDX-License-Identifier: Apache-2.0
"""Modules that stand for frameworks whose GPU arrays cannot be run here: the interface that adapters use, the exact dialect
of each, over memory of the simulated driver. They are as strict as the real ones: what would abort the process aborts it.
"""
