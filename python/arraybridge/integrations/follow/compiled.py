# SPDX-License-Identifier: Apache-2.0
"""Makes compiled code call the hooks of a module. Modules that are alike share compiled code, and torch does not look whether
they have hooks: without this a follower would call the code of another module, which enters no Gate.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, Final

_COMPILER: Final = "torch._dynamo"
_FIRST: Final = "torch._dynamo.eval_frame"  # which compiles; the package imports it
_OPTION: Final = "skip_nnmodule_hook_guards"


class _BeforeTheCompiler(MetaPathFinder):
    """Finds nothing. It tells the compiler when the program imports it, which takes too long to do it for nothing."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name == _FIRST and self in sys.meta_path:
            sys.meta_path.remove(self)
            _tell(importlib.import_module(f"{_COMPILER}.config"))


def _tell(config: Any) -> bool:
    """For all threads; an option that is set holds for its thread alone. True: it was not told before."""
    entry: Any = getattr(config, "_config", {}).get(_OPTION)
    default = getattr(entry, "default", entry)  # the first releases have no entries, but values
    if not default:
        return False
    if entry is not default:
        entry.default = False
    setattr(config, _OPTION, False)
    return True


def call_hooks() -> None:
    """From now on code that was compiled for a module without hooks is not used for one that has some. Code that was
    compiled before is compiled again at its next call.
    """
    if _FIRST in sys.modules:
        compiler: Any = importlib.import_module(_COMPILER)
        if _tell(compiler.config):
            compiler.reset()
    elif not any(isinstance(each, _BeforeTheCompiler) for each in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTheCompiler())
