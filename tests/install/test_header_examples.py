# SPDX-License-Identifier: Apache-2.0
"""The examples in the comments of the public headers compile without warnings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "client/include/arraybridge"
# What an example uses and does not make, before it and in its function.
NEEDED = {
    "arraybridge.h": ("#include <stdio.h>\n", "ab_view view = {0}; ab_array* array;"),
    "c/ab_select.h": (
        "#include <stdio.h>\n",
        "ab_channel* channel = NULL; ab_service* service = NULL; ab_request* request;",
    ),
    "c/ab_service.h": ("#include <stdio.h>\n", "ab_broker* broker = NULL; ab_content content = {0};"),
    "broker.h": ("", "arraybridge::View view;"),
    "bundle.h": ("", "std::vector<arraybridge::BundleArray> arrays; std::string fingerprint, metadata; arraybridge::Broker broker({});"),
    "channel.h": ("void Use(const std::vector<arraybridge::View>&);\n", "arraybridge::View view; arraybridge::Broker broker({});"),
    "one_memory/one_memory.h": ("using namespace arraybridge;\n", "arraybridge::Broker broker({});"),
    "select/select.h": ("void Use(std::optional<arraybridge::Result<arraybridge::Acquired>>);\n", "arraybridge::Broker broker({});"),
    "services/service.h": (
        "std::vector<arraybridge::View> Inverted(const std::vector<arraybridge::View>&);\nvoid Log(const arraybridge::Status&);\n"
        "void Use(const std::vector<arraybridge::View>&);\n",
        "arraybridge::View view; arraybridge::Broker broker({});",
    ),
    "patterns/batch.h": (
        "void Log(const arraybridge::Status&);\n",
        'arraybridge::Broker broker({}); auto service = *arraybridge::Service::Open(broker, "invert", {});',
    ),
    "patterns/reorder.h": (
        "void Log(const arraybridge::Status&);\nstd::vector<arraybridge::View> Processed(const std::vector<arraybridge::View>&);\n",
        'arraybridge::Broker broker({}); auto work = *broker.OpenChannel("work", arraybridge::Channel::Role::kReceiver);'
        ' auto done = *broker.OpenChannel("done", arraybridge::Channel::Role::kSender);',
    ),
    "swap_window.h": ("", "arraybridge::Broker broker({});"),
    "watch.h": ("void Show(const arraybridge::Event&);\n", "arraybridge::Broker broker({});"),
}


def examples_of(header: Path) -> list[str]:
    """Lines of code are indented below the first comment; an empty line separates what different processes do."""
    found: list[list[str]] = [[]]
    for line in header.read_text().split("#pragma once")[0].splitlines():
        code = line.removeprefix("//   ") if line.startswith("//   ") else ""
        if code and (found[-1] or ";" in code):
            found[-1].append(code)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]


def test_every_header_with_an_example_is_known() -> None:
    assert {str(header.relative_to(HEADERS)) for header in HEADERS.rglob("*.h") if examples_of(header)} == set(NEEDED)


@pytest.mark.parametrize("name", NEEDED)
def test_the_examples_of_a_header_compile_without_warnings(name: str, tmp_path: Path) -> None:
    before, inside = NEEDED[name]
    in_c = name == "arraybridge.h" or name.startswith("c/")
    header = "" if in_c else "#include <arraybridge/broker.h>\n"
    functions = [f"void Example{i}(void) {{\n{inside}\n{code}\n}}\n" for i, code in enumerate(examples_of(HEADERS / name))]
    declared = "".join(f"void Example{i}(void);\n" for i in range(len(functions)))
    source = tmp_path / ("example.c" if in_c else "example.cc")
    source.write_text(f"{header}#include <arraybridge/{name}>\n{before}{declared}{''.join(functions)}")
    language = ["cc", "-std=c99"] if in_c else ["c++", "-std=c++20"]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable"]
    command = [*language, *warnings, "-fsyntax-only", "-I", str(HEADERS.parent), "-I", str(ROOT), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
