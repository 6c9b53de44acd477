# SPDX-License-Identifier: Apache-2.0
"""check_house reports each kind of violation, and finds none in this tree."""

from pathlib import Path

import check_house
import pytest

ROOT = Path(__file__).resolve().parents[2]

# path, text, part of the finding (whose line is the last one of the text)
VIOLATIONS = [
    ("proto/boundary/frame.h", '// F.\n#pragma once\n#include "daemon/config/config.h"', "proto/boundary/ must not include"),
    ("proto/boundary/frame.cc", "#include <spdlog/spdlog.h>", "must not include spdlog"),
    ("daemon/broker/broker.cc", '#include "daemon/memory/host/host_backend.h"', "must not include daemon/memory/host/host_backend.h"),
    ("daemon/broker/broker.cc", '#include "arraybridge/v1/broker.pb.h"', "must not include arraybridge/v1"),
    ("daemon/broker/broker.cc", '#include "daemon/service/verbs/verbs.h"', "must not include daemon/service"),
    ("daemon/memory/host/memfd.cc", '#include "daemon/broker/broker.h"', "must not include daemon/broker"),
    ("daemon/service/verbs/verbs.cc", '#include "daemon/memory/host/memfd.h"', "must not include daemon/memory"),
    ("daemon/service/verbs/verbs.cc", '#include "client/lifeline/lifeline.h"', "must not include client"),
    ("client/broker.cc", '#include "daemon/config/config.h"', "must not include daemon"),
    ("daemon/config/config.h", '// C.\n#pragma once\n#include "daemon/memory/host/memfd.h"', "must not include daemon/memory"),
    ("client/broker.cc", "#include <google/protobuf/message.h>", "must not include google"),
    ("client/broker.cc", "#include <arraybridge/v1/broker.pb.h>", "must not include arraybridge/v1"),
    ("python/bindings/module.cc", '#include "client/lifeline/lifeline.h"', "must not include client/lifeline/lifeline.h"),
    ("daemon/main.cc", '#include "tests/unit/fake.h"', "only tests include tests"),
    ("daemon/main.cc", '#include "config.h"', "not written from the repository root"),
    ("client/arrays/view.cc", "void F() {\n  cuMemCreate();", "cuMemCreate"),
    ("daemon/service/verbs/verbs.cc", "CUresult status;", "CUresult"),
    ("daemon/service/lifeline/local_door.cc", "grpc::Status status;", "grpc::"),
    ("client/lifeline/lifeline.cc", "int level = SCM_RIGHTS;", "SCM_RIGHTS"),
    ("client/arrays/view.cc", "bool is_gpu = false;", "is_gpu"),
    ("client/arrays/view.cc", "#ifdef ARRAYBRIDGE_CUDA", "CUDA as a build option"),
    ("client/arrays/view.cc", "// TO" + "DO: later", "unfinished"),
    ("client/arrays/view.h", "#pragma once\nint x;", "header"),
    ("python/arraybridge/broker.py", '"""B."""\ndef f():\n    import torch', "torch is imported outside its adapter"),
    ("python/arraybridge/broker.py", '"""B."""\ndef f():\n    from jax.numpy import abs', "jax is imported outside"),
    ("python/arraybridge/adapters/torch.py", '"""T."""\nimport torch', "torch is imported when the module is"),
    ("python/arraybridge/adapters/torch.py", '"""T."""\ndef f():\n    import jax', "jax is imported outside its adapter"),
    (
        "python/arraybridge/adapters/jax.py",
        '"""J."""\nimport importlib\nx = importlib.import_module("jax.numpy")',
        "jax is imported when the module is",
    ),
    (
        "python/arraybridge/conversion/memory.py",
        '"""M."""\ndef f():\n    from arraybridge.broker.share import Share',
        "imports arraybridge.broker.share.Share, which is above it",
    ),
    ("python/arraybridge/adapters/numpy.py", '"""N."""\nfrom arraybridge import conversion', "imports arraybridge.conversion"),
    ("python/arraybridge/broker.py", '"""B."""\neval("1")', "eval()"),
    ("python/arraybridge/broker.py", "x = 1", "docstring"),
    ("proto/arraybridge/v1/a.proto", "message A {\n  uint64 size = 1;", "size says neither"),
    ("proto/arraybridge/v1/a.proto", "message A {\n  B b = 1;  // which\n           // of them\n  map<string, C> c = 2;", "c says neither"),
    ("proto/arraybridge/v1/a.proto", "// A.\nservice A {\n  rpc List(B) returns (stream C);", "List says neither"),
    ("client/ctl/put.cc", "// The file.\nint a;  // Nobody reads it.", "begins with Nobody"),
    ("client/include/arraybridge/view.h", "// A View.\n#pragma once\n// It is read. Whoever writes it waits.", "begins with Whoever"),
    ("proto/arraybridge/v1/a.proto", "message A {\n  // Who asks.\n  // The client. Those that wait", "begins with Those"),
    ("python/arraybridge/a.py", '"""A.\n\nWhat is left."""', "begins with What"),
    ("python/arraybridge/a.py", '"""A."""\nx = 1\n# Somebody asks.', "begins with Somebody"),
    ("vendored/thing.txt", "x", "layout"),
    ("notes.txt", "x", "layout"),
    ("tests/unit/client/view_test.cc", "int main() {}", "registration"),
]


@pytest.mark.parametrize(("path", "text", "expected"), VIOLATIONS)
def test_a_violation_is_named_with_file_and_line(tmp_path: Path, path: str, text: str, expected: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")
    found = [finding for finding in check_house.check(tmp_path) if expected in str(finding)]
    assert found, [str(finding) for finding in check_house.check(tmp_path)]
    reported = path.split("/")[0] if found[0].rule == "layout" else path
    assert found[0].path == reported
    about_the_file = found[0].rule in ("layout", "registration", "header")
    assert found[0].line == (1 if about_the_file else text.count("\n") + 1)


ALLOWED = [
    ("daemon/service/grpc/grpc_door.cc", "#include <grpcpp/grpcpp.h>\ngrpc::Status status;"),
    ("daemon/broker/broker.cc", '#include "daemon/memory/memory_backend.h"\n#include <vector>'),
    ("client/broker.cc", "#include <arraybridge/broker.h>\n#include <sys/mman.h>"),
    ("client/arrays/view.cc", "// is_gpu and cuMemCreate are words of other rooms"),
    ("client/memory/cuda/cuda_vmm_mapper.cc", "cuMemMap();"),
    ("python/arraybridge/adapters/torch.py", '"""T."""\ndef f():\n    import torch'),
    (
        "python/arraybridge/adapters/torch.py",
        '"""T."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch',
    ),
    (
        "python/arraybridge/conversion/memory.py",
        '"""C."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch',
    ),
    ("client/ctl/put.cc", "// The client knows who asks, and\n// whoever comes.\nauto s = 'Who';\n#if What"),
    ("python/arraybridge/a.py", '"""A."""\nx = "Who"'),
    ("proto/arraybridge/v1/a.proto", "message A {\n  // Bytes.\n  optional uint64 a = 1;\n  repeated B b = 2;  // in order"),
    ("python/arraybridge/broker.py", '"""B."""\nimport os\nfrom .adapters import torch\nos.execv("x", [])'),
]


@pytest.mark.parametrize(("path", "text"), ALLOWED)
def test_what_the_house_allows_is_not_named(tmp_path: Path, path: str, text: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")
    assert check_house.check(tmp_path) == []


def test_a_registered_test_is_found_in_a_list_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "tests/unit/client"
    folder.mkdir(parents=True)
    (folder / "view_test.cc").write_text("int main() {}\n")
    (folder.parent / "CMakeLists.txt").write_text("ab_test(view_test SOURCES client/view_test.cc)\n")
    assert check_house.check(tmp_path) == []


def test_an_import_cycle_is_named_even_where_functions_import(tmp_path: Path) -> None:
    package = tmp_path / "python/arraybridge"
    package.mkdir(parents=True)
    (package / "a.py").write_text('"""A."""\nfrom arraybridge import b\n')
    (package / "b.py").write_text('"""B."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from arraybridge import a\n')
    assert check_house.check(tmp_path) == []
    (package / "b.py").write_text('"""B."""\ndef f():\n    from arraybridge.a import g\n')
    (found,) = check_house.check(tmp_path)
    assert found.rule == "cycle" and found.what.endswith("python/arraybridge/a, python/arraybridge/b")


def test_a_limit_without_a_test_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "daemon/config").mkdir(parents=True)
    (tmp_path / "daemon/config/config.h").write_text(
        "// C.\n#pragma once\nstruct Limits {\n  Reloadable<uint64_t> sessions = 1;\n  std::chrono::milliseconds patience{5};  // ms\n};\nint other = 1;\n"
    )
    test = tmp_path / "tests/unit/session_test.py"
    test.parent.mkdir(parents=True)
    test.write_text('"""Hits config.limits.sessions."""\n')
    assert [str(each) for each in check_house.check(tmp_path)] == ["daemon/config/config.h:5: limit: no test names patience"]
    test.write_text('"""Hits sessions, and patience=3ms."""\n')
    assert check_house.check(tmp_path) == []


def test_an_include_cycle_is_named(tmp_path: Path) -> None:
    texts = {
        "client/a.h": '// A.\n#pragma once\n#include "client/b.h"\n',
        "client/b.h": "// B.\n#pragma once\n",
        "client/b.cc": '#include "client/c.h"\n',
        "client/c.h": '// C.\n#pragma once\n#include "client/a.h"\n',
    }
    (tmp_path / "client").mkdir()
    for path, text in texts.items():
        (tmp_path / path).write_text(text)
    found = [str(each) for each in check_house.check(tmp_path)]
    assert found == ["client/a:1: cycle: leads back to itself: client/a, client/b, client/c"]
    (tmp_path / "client/b.cc").write_text("")
    assert check_house.check(tmp_path) == []


def test_a_file_without_its_licence_is_named(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    (tmp_path / "client/a.h").write_text("// A.\n#pragma once\n")
    (tmp_path / "client/b.h").write_text(f"// {check_house.LICENCE}\n// B.\n#pragma once\n")
    (tmp_path / "client/c.h").write_text(f"// {check_house.LICENCE}\n#pragma once\n")
    assert [each.path for each in check_house.unlicensed(tmp_path)] == ["client/a.h"]
    assert [(each.path, each.rule) for each in check_house.check(tmp_path)] == [("client/c.h", "header")]


def test_this_tree_keeps_the_rules() -> None:
    assert [str(finding) for finding in (*check_house.unlicensed(ROOT), *check_house.check(ROOT))] == []
