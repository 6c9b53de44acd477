# SPDX-License-Identifier: Apache-2.0
"""A program controlled by its input: each line has a function's name and its arguments, each output line is an answer."""

import sys
import traceback
from collections.abc import Callable


def serve(*functions: Callable[..., str]) -> None:
    """Answers until the input ends; the answer of a function that raises is its exception."""
    known = {function.__name__: function for function in functions}
    for line in sys.stdin:
        verb, *arguments = line.split()
        try:
            print(known[verb](*arguments), flush=True)
        except Exception as error:
            traceback.print_exc()
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
