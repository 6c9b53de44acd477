# SPDX-License-Identifier: Apache-2.0
"""The counts of counts.py are correct."""

from pathlib import Path

import counts
import pytest
from check_house import Source


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_units_that_reach_each_other_are_a_cycle(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        **{
            "client/a.h": '// A.\n#include "client/b.h"\n',
            "client/b.h": "// B.\n",
            "client/b.cc": '#include "client/b.h"\n#include "client/c.h"\n',
            "client/c.h": '// C.\n#include "client/a.h"\n',
            "client/d.h": '// D.\n#include "client/a.h"\n',
        },
    )
    assert counts.cycles(counts.edges(counts.production(root))) == [["client/a", "client/b", "client/c"]]


def test_python_cycles_are_found_in_functions_and_not_for_type_checkers(tmp_path: Path) -> None:
    package = "python/arraybridge/"
    root = tree(
        tmp_path,
        **{
            package + "__init__.py": "from arraybridge import c\n",
            package + "_core.pyi": "",
            package + "a.py": "def f():\n    from .b import g\n",
            package + "b.py": "from arraybridge import a\n",
            package + "c.py": "from typing import TYPE_CHECKING\nfrom . import a\nif TYPE_CHECKING:\n    from .d import D\n",
            package + "d.py": "from . import c\nfrom arraybridge import _core\n",
        },
    )
    assert counts.cycles(counts.edges(counts.production(root))) == [[package + "a", package + "b"]]


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("client/a.h", 'class A {\nstruct B final : C {\nclass D;\nenum class E {\n  class AB_CAPABILITY("m") M {\n', {"A", "B", "M"}),
        ("client/a.h", "// class A {\ntemplate <class T>\nstruct B : std::vector<T> {\n", {"B"}),
        ("python/arraybridge/a.py", "class A:\n    class B: ...\n", {"A", "B"}),
    ],
)
def test_class_names(path: str, text: str, found: set[str]) -> None:
    assert counts.classes(Source(path, text)) == found


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("client/a.h", "// Who asks waits.\nint a;  // Nobody reads it.\n", 2),
        ("client/a.h", "// The client asks. What comes is read.\n", 1),
        ("client/a.h", "// The client knows who asks, and\n// whoever comes.\nauto s = 'Who';\n", 0),
        ("python/arraybridge/a.py", '"""Those are few."""\n# Somebody asks: Nobody answers.\nx = "Who"\n', 3),
    ],
)
def test_sentences_without_a_named_subject(path: str, text: str, found: int) -> None:
    assert len(list(counts.unnamed_subjects(Source(path, text)))) == found
