# SPDX-License-Identifier: Apache-2.0
"""The site of the documents: Sphinx reads the pages of this folder, and references that are made from their sources.

`deploy/docs` builds it. `docs/site` has the programs that make the references: each from its one source, when the site is built.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs/site"))
import links
import make_references

import arraybridge

project = "arraybridge"
author = "The arraybridge authors"
copyright = author
# A header opens the namespace again, and a name may be in several modules.
suppress_warnings = ["duplicate_declaration.cpp", "ref.python"]
version = release = re.findall(r"project\(arraybridge VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[0]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.intersphinx", "sphinx_copybutton", "breathe"]
root_doc = "index"
source_suffix = {".md": "markdown"}
exclude_patterns = ["pictures/*.py", "site"]

html_theme = "furo"
html_title = f"arraybridge {release}"
html_copy_source = False
html_show_copyright = False
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["deflist", "attrs_inline"]
myst_heading_anchors = 4
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# Docstrings are plain text with the headings Args, Raises, Returns, Example, and code in single backticks.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
intersphinx_mapping: dict[str, tuple[str, str | None]] = {}  # the site is built without the network

MADE: Final = ROOT / "build/docs/made"
breathe_projects = {"arraybridge": str(MADE / "doxygen/xml")}
breathe_default_project = "arraybridge"
breathe_domain_by_file_pattern = {"*/arraybridge.h": "c", "*/ab_*.h": "c"}
breathe_default_members = ("members",)
breathe_show_include = False
cpp_id_attributes = ["AB_API"]


def marked_up(_app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = make_references.docstring(lines)


def public(_app: Any, _what: str, name: str, of: Any, skip: bool, _options: Any) -> bool | None:
    """Members without a docstring have nothing to say in a reference, and none with an underscore is public."""
    return True if name.startswith("_") or not getattr(of, "__doc__", None) else None


def setup(app: Any) -> None:
    assert Path(arraybridge.__file__).is_relative_to(ROOT), f"the references would be those of {arraybridge.__file__}"
    make_references.write(ROOT, MADE)
    app.connect("source-read", links.of_the_repository)
    app.connect("autodoc-process-docstring", marked_up, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", public)
