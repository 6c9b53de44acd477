# SPDX-License-Identifier: Apache-2.0
"""The house does not grow: no count of counts.py is above its ceiling, and no ceiling was ever raised."""

import subprocess
import tomllib
from pathlib import Path

import counts
import pytest

ROOT = Path(__file__).resolve().parents[2]
CEILINGS = "tests/house/ceilings.toml"
# Names of ceilings that were raised for a reason, each with the subject of the commit that did it.
BORN = ("client/born/", "client/include/arraybridge/born/", "python/bindings/born/", "python/arraybridge/broker/born/")
IN_PLACE = ("python/arraybridge/tables/", "python/arraybridge/broker/one_memory/")  # bundles, columns, conversions
TIERS = (
    "proto/arraybridge/v1/tiers.proto", "daemon/broker/verbs/tiers/", "daemon/service/verbs/tiers/", "client/tiers/", "client/ctl/tiers/",
    "python/arraybridge/broker/tiers/", "daemon/mover/", "daemon/config/tiers/", "daemon/broker/objects/tiers/", "daemon/broker/tables/tiers/",
    "client/include/arraybridge/tiers/", "python/bindings/tiers/",
)  # fmt: skip
EXCHANGED = ("client/born/", "python/bindings/born/")  # fences
TABLES = ("python/arraybridge/tables/", "python/bindings/tables/")
ONE_MEMORY = ("client/one_memory/", "client/include/arraybridge/one_memory/", "python/bindings/one_memory/", *IN_PLACE[1:])
CPP_SERVICES = ("client/services/", "client/include/arraybridge/services/")
C_SERVICES = ("client/c_api/", "client/include/arraybridge/c/")
PYTHON_SERVICES = (
    "python/arraybridge/broker/services/", "python/arraybridge/broker/patterns/", "python/arraybridge/broker/taking/",
    "python/arraybridge/broker/sequences/", "python/arraybridge/broker/batches/", "python/arraybridge/recording/",
)  # fmt: skip
RAISED = {
    (f"{what} {folder}", f"Merge branch '{branch}'")
    for what in ("lines of", "class names in")
    for branch, folders in {
        "born45": BORN,  # torch, JAX and pyarrow beside NumPy
        "gpuborn": BORN,  # arrays on GPUs
        # keep_writing, and followers among modules that are alike
        "born45b": (*BORN, "client/joints/", "python/arraybridge/broker/patterns/", "python/arraybridge/integrations/follow/"),
        "tables48": TABLES,  # descriptions are read in C++
        # bundles on GPUs are followed; Checkpoints of several ranks
        "follow45": ["client/windows/", "client/include/arraybridge/swap_window.h", "python/bindings/windows/", "python/arraybridge/keep/"],
        "services47": ["python/arraybridge/broker/patterns/"],  # further verbs for event loops
        "tiers2": TIERS,  # a fair mover, and pins
        "om2": ONE_MEMORY,  # what a review found
        "me4": (*TIERS, "client/joints/"),  # watermarks, durable namespaces; a method that knew ranges only by name moved
        "me5": (*TIERS, "client/joints/"),  # what clang-tidy found
        "fin": (*TIERS, "python/arraybridge/keep/"),  # what a review found
        "rv": (*CPP_SERVICES, "python/arraybridge/broker/services/", "python/arraybridge/broker/patterns/"),  # the same of services
        "sv47": (*CPP_SERVICES, *PYTHON_SERVICES, *C_SERVICES),  # what a second review found; streams in C++ and C
        "arm": (*IN_PLACE, *EXCHANGED, "python/arraybridge/integrations/follow/"),
    }.items()
    for folder in folders
} | {
    (f"{what} {folder}", subject)
    for what in ("lines of", "class names in")
    for subject, folders in {
        "A GPU reads bundles, columns and arrays of shares in place": IN_PLACE,
        "Exchanged allocators see what was stored before their addresses": EXCHANGED,
        "One user's wish for memory moves no share of another": TIERS,
        "A plan registers no arena": ONE_MEMORY,
        "CuPy and Numba read in place without the name of a device": ONE_MEMORY,
        "Arrays of a share are the GPU's unless all lie on the host": ONE_MEMORY,
        "C++ calls and serves services": CPP_SERVICES,  # of the letters alone before
        "Reads and room for a put wait for no verification of a large share": TIERS,
        'get(require="resident") raises instead of reading a file': TIERS,
        "Pins and priorities say which shares leave memory first": TIERS,
    }.items()
    for folder in folders
}


@pytest.fixture(scope="module")
def counted() -> list[counts.Count]:
    return counts.all_counts(ROOT)


def test_no_count_is_above_its_ceiling(counted: list[counts.Count]) -> None:
    ceilings = counts.ceilings_of(ROOT)
    assert {count.name for count in counted} == set(ceilings), "run tests/house/counts.py --write"
    above = [f"{count.name}: {count.value}, at most {ceilings[count.name]} ({count.where})" for count in counted
             if count.value > ceilings[count.name]]  # fmt: skip
    assert not above, "make room first: a number may only fall (CONTRIBUTING.md)"


def test_the_architecture_page_has_the_ceilings() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    assert counts.table(counts.ceilings_of(ROOT)) in page, "run tests/house/counts.py --write"


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout


def is_shallow() -> bool:
    try:
        return git("rev-parse", "--is-shallow-repository").strip() != "false"
    except (OSError, subprocess.CalledProcessError):
        return True


@pytest.mark.skipif(is_shallow(), reason="the history is not here: no clone, or a shallow one")
def test_no_ceiling_was_raised() -> None:
    raised = []
    before: dict[str, int] = {}
    for commit in git("log", "--reverse", "--first-parent", "--format=%H", "--", CEILINGS).split():
        ceilings = tomllib.loads(git("show", f"{commit}:{CEILINGS}"))
        subject = git("log", "-1", "--format=%s", commit).strip()
        raised += [f"{name} by '{subject}'" for name, most in ceilings.items()
                   if most > before.get(name, most) and (name, subject) not in RAISED]  # fmt: skip
        before = {**before, **ceilings}
    assert not raised


@pytest.mark.skipif(is_shallow(), reason="the history is not here: no clone, or a shallow one")
def test_subjects_of_commits_are_short() -> None:
    """Of those since the ceilings exist."""
    first = git("log", "--reverse", "--format=%H", "--", CEILINGS).split()[:1]
    subjects = git("log", "--no-merges", "--format=%s", f"{first[0]}..HEAD").splitlines() if first else []
    assert [subject for subject in subjects if len(subject) > 72] == []


def test_arrows_that_run_up_are_counted() -> None:
    assert counts.upward({"a": {"b"}, "b": {"c"}, "c": set()}) == 0
    assert counts.upward({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == 1
    assert counts.upward({"a": {"b"}, "b": {"a", "c"}, "c": {"a", "b"}}) == 2


def test_the_boxes_of_a_room_are_its_folders_and_the_units_beside_them() -> None:
    graph = {"d/b/x/one": {"d/b/x/two", "d/b/y/one", "d/c/z"}, "d/b/x/two": {"d/b/top"}, "d/b/y/one": set(), "d/b/top": {"d/b/x/one"},
             "d/c/z": set()}  # fmt: skip
    assert counts.boxes(graph, "d/b") == {"x": {"y", "top"}, "y": set(), "top": {"x"}}


def test_a_ceiling_falls_with_its_count(tmp_path: Path) -> None:
    page = tmp_path / "docs/explanation/architecture.md"
    for path in (page, tmp_path / CEILINGS):
        path.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"# A page\n\n{counts.BEGIN}old\n{counts.END}the rest\n")
    counts.write(tmp_path, [counts.Count("lines", 90), counts.Count("files", 12)], {"lines": 100, "files": 10})
    assert counts.ceilings_of(tmp_path) == {"lines": 90, "files": 10}
    text = page.read_text()
    assert "| lines | 90 |" in text and "old" not in text and text.endswith("the rest\n")
