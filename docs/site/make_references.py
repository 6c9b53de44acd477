# SPDX-License-Identifier: Apache-2.0
"""The references of the site, each made from its one source: Python from docstrings, C++ and C from the public headers, the
commands from the manual pages, the configuration and the metrics from a daemon, the messages from the .proto files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import manuals
import metrics
import protocol

import arraybridge
from arraybridge import _bin

# The public names of the package by what a reader looks for. Names that are in none are listed at the end.
GROUPS: Final[dict[str, str]] = {
    "Broker": "Broker Share Table Got Listed Outcome ArraySpec View Record Born cache CachedFunction Checkpoints Checkpoint capturing",
    "Channels": "Channel Sender Received select reorder CallCancelled",
    "Services": "Service Request",
    "Watching": "Watch Event",
    "Bundles": "Bundle BundleSpec BundleWriter load save",
    "Conversion": (
        "convert convert_memory detect_memory_type Converter Converted get_converter Plan MemoryType asdlpack array_namespace "
        "from_bytes to_bytes scale_dtype SCALING_FUNCTIONS stack_slices unstack_slices process_slices"
    ),
    "Decorators": "memory_types DtypeConversion numpy torch jax tensorflow cupy pyclesperanto",
    "Errors and warnings": " ".join(
        sorted(name for name in arraybridge.__all__ if isinstance(of := getattr(arraybridge, name), type) and issubclass(of, Exception))
    ),
    "Counts": "conversion_counts ConversionCount metrics Metric",
    "Frameworks that are installed": "ensure_module optional_import get_device_id supports_dlpack supports_cuda_array_interface",
    "Memory of GPUs": (
        "cleanup_all_gpu_frameworks cleanup_numpy_gpu cleanup_torch_gpu cleanup_jax_gpu cleanup_tensorflow_gpu cleanup_cupy_gpu "
        "cleanup_pyclesperanto_gpu MEMORY_TYPE_CLEANUP_REGISTRY clear_cache execute_with_oom_recovery is_oom_error"
    ),
}
OTHERS: Final = "Constants"
# Modules for other packages. Their functions import these packages, so the site needs none of them.
INTEGRATIONS: Final[dict[str, str]] = {
    "multiprocessing": "install uninstall",
    "data": "collate",
    "recording": "Recorder ChannelCounts replay Replayed tee Tee",
    "integrations.torch": "publish attach Follower FollowerStats",
    "integrations.transformers": "from_broker",
    "integrations.vllm": "register trainer_info",
    "integrations.ray": "put empty share_of near start stop register Share",
    "integrations.dask": "put empty share_of start register",
    "integrations.jupyter": "load",
    "array_api": "array_namespace namespace_of to_device dtype_of",
}


def groups() -> dict[str, list[str]]:
    """The names of each group that the package has, and of a last one."""
    known = {*arraybridge.__all__, *dir(arraybridge)}
    found = {title: [name for name in names.split() if name in known] for title, names in GROUPS.items()}
    grouped = {name for names in found.values() for name in names}
    return found | {OTHERS: [name for name in arraybridge.__all__ if name not in grouped]}


def python() -> str:
    """Directives for autodoc. Data has no docstring of its own, so its value is shown."""
    lines = []
    for title, names in groups().items():
        lines += [f"## {title}", "", "```{eval-rst}"]
        for name in names:
            of = getattr(arraybridge, name)
            if isinstance(of, type):
                lines += [f".. autoclass:: arraybridge.{name}", "   :members:", "   :inherited-members: Exception, tuple", ""]
            elif callable(of) and getattr(of, "__name__", "") == name:
                lines += [f".. autofunction:: arraybridge.{name}", ""]
            elif isinstance(of, str | frozenset | set | tuple):
                value = repr(sorted(map(str, of)) if isinstance(of, frozenset | set) else str(of))
                lines += [f".. py:data:: arraybridge.{name}", "", f"   ``{value}``", ""]
            else:
                lines += [f".. py:data:: arraybridge.{name}", "", f"   {type(of).__name__}", ""]
        lines += ["```", ""]
    return "\n".join(lines)


def integrations() -> str:
    lines = []
    for module, names in INTEGRATIONS.items():
        lines += [f"## arraybridge.{module}", "", "```{eval-rst}", f".. automodule:: arraybridge.{module}", "   :no-members:", ""]
        for name in names.split():
            kind = "class" if name[0].isupper() else "function"
            lines += [f".. auto{kind}:: arraybridge.{module}.{name}", *(["   :members:"] if kind == "class" else []), ""]
        lines += ["```", ""]
    return "\n".join(lines)


SECTION: Final = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Example|Examples):$")


def docstring(lines: Iterable[str]) -> list[str]:
    """A docstring for Sphinx. Docstrings are written for a terminal: code in them is indented or in single backticks, and stars,
    bars and trailing underscores are themselves."""
    section, code, done = "", False, list[str]()
    for line in lines:
        indented = line.startswith("    ")
        if line and not indented:
            found = SECTION.match(line)
            section, code = found[1] if found else "", False
            if section.startswith("Example"):
                done += ["", ".. rubric:: Example", ""]
                continue
        if indented and not code and (not section or section.startswith("Example")):
            done += ["", ".. code-block:: python", ""]
            code = True
        done.append(line if code else in_prose(line))
    return done


def in_prose(line: str) -> str:
    parts = line.split("`")
    parts[::2] = [re.sub(r"[*|]|(?<=\w)_(?=\W|$)", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def doxygen(root: Path, folder: Path) -> None:
    """Doxygen's XML of the public headers, for breathe."""
    settings = {
        "PROJECT_NAME": "arraybridge",
        "OUTPUT_DIRECTORY": folder,
        "INPUT": f'"{root / "client/include/arraybridge"}" "{root / "proto/boundary/one_memory/host_reach.h"}"',
        "RECURSIVE": "YES",
        "GENERATE_HTML": "NO",
        "GENERATE_LATEX": "NO",
        "GENERATE_XML": "YES",
        "XML_PROGRAMLISTING": "NO",
        "QUIET": "YES",
        "WARNINGS": "YES",
        "WARN_IF_UNDOCUMENTED": "NO",
        "WARN_AS_ERROR": "FAIL_ON_WARNINGS",
        "EXTRACT_ALL": "YES",
        "MARKDOWN_SUPPORT": "NO",
        "AUTOLINK_SUPPORT": "NO",
        "ENABLE_PREPROCESSING": "YES",
        "TYPEDEF_HIDES_STRUCT": "YES",
        "MACRO_EXPANSION": "YES",
        "EXPAND_ONLY_PREDEF": "YES",
        "PREDEFINED": '"AB_API=" "AB_GUARDED_BY(mutex)="',
        "STRIP_FROM_PATH": root / "client/include",
        "INPUT_FILTER": f'"{sys.executable} {root / "docs/site/doxygen_filter.py"}"',
    }
    text = "\n".join(f"{name} = {value}" for name, value in settings.items())
    subprocess.run(["doxygen", "-"], input=text, text=True, check=True)


def printed(program: str, *words: str) -> str:
    return subprocess.run([_bin.path(program), *words], capture_output=True, text=True, check=True).stdout


def write(root: Path, folder: Path) -> None:
    """Writes all of them into a folder; pages include them."""
    folder.mkdir(parents=True, exist_ok=True)
    doxygen(root, folder / "doxygen")
    pages = {
        "python.md": python(),
        "integrations.md": integrations(),
        "configuration.md": manuals.markdown(printed("arraybridged", "--print-reference", "man"), level=0),
        "arraybridged.toml": printed("arraybridged", "--print-reference", "toml"),
        "protocol.md": protocol.markdown(root / "proto"),
        "metrics.md": metrics.markdown(metrics.served()),
    }
    for page in ("arraybridge.7", "arraybridgectl.1", "arraybridged.8"):
        source = (root / f"deploy/man/{page}.scd").read_text(encoding="utf-8")
        pages[f"{page}.md"] = manuals.markdown(source, level=2)
    for name, text in pages.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
