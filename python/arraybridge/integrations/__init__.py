"""Integrations with other libraries. Each module imports its library when it is first used."""
