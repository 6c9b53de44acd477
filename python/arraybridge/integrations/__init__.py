"""Integrations with other libraries: a namespace of the array API standard, a capture of CUDA graphs."""
