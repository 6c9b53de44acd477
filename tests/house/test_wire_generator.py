# SPDX-License-Identifier: Apache-2.0
"""Refusals of proto/wire/generate.py. tests/unit/wire compares its output with libprotobuf."""

import subprocess
import sys
from pathlib import Path

import pytest

GENERATOR = Path(__file__).resolve().parents[2] / "proto/wire/generate.py"


def generate(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    source = folder / "a.proto"
    source.write_text('syntax = "proto3";\npackage a;\n' + text)
    command = [sys.executable, *map(str, (GENERATOR, "a", folder / "a.h", folder / "a.cc", source))]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("message A { double x = 1; }", "A.x: type double is not supported"),
        ("message A { Missing x = 1; }", "A.x: type Missing is not supported"),
        ("message A { B b = 1; } message B { A a = 1; }", "A contains itself"),
        ("message A { bool x = 1 [deprecated = true]; }", "'deprecated' found where one of ('lazy',) is expected"),
        ("message A { map<string, uint32> x = 1; }", "'uint32' found where one of ('string',) is expected"),
        ("option a = 1;", "'option' found where"),
        ("message A { bool x = 1;", "a.proto: ends too early"),
        ("service A { rpc B(C) returns (D);", "a.proto: ends too early"),
    ],
)
def test_what_it_does_not_know_is_an_error(tmp_path: Path, text: str, refusal: str) -> None:
    done = generate(tmp_path, text)
    assert done.returncode == 1
    assert refusal in done.stderr
    assert not (tmp_path / "a.h").exists()


def test_a_message_is_declared_after_those_that_it_holds(tmp_path: Path) -> None:
    done = generate(tmp_path, "message A { B b = 1; } // A's comment; { \nmessage B { optional uint32 x = 1; repeated string y = 2; }")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "a.h").read_text()
    assert text.index("struct B {") < text.index("struct A {")
    assert "std::optional<uint32_t> x{};" in text
    assert "std::vector<std::string_view> y{};" in text
