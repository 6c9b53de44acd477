# SPDX-License-Identifier: Apache-2.0
"""Writes notebook.ipynb beside it: ``python notebook.py``. A test runs the notebook, and compares it with this program."""

import json
from pathlib import Path
from typing import Any

CELLS = [
    "# Arrays that outlive the kernel\n\nA kernel that restarts loses its variables. The arrays that it has put into the broker are still there.",
    "%load_ext arraybridge\nimport numpy as np",
    "table = np.random.default_rng(0).normal(size=(1000, 3))   # stands for an hour of work\n%ab_keep table results 1",
    "Restart the kernel here, and go on below: nothing above has to run again.",
    "%load_ext arraybridge\n%ab_list",
    "%ab_get results torch\nresults.mean(dim=0)",
    "Other processes have it, too: `Broker().get('results', 'jax')`. `%ab_drop` ends it.",
    "%ab_drop results",
]


def notebook() -> dict[str, Any]:
    cells = []
    for number, source in enumerate(CELLS):
        code = source.startswith(("%", "table"))
        cell: dict[str, Any] = {"id": f"cell-{number}", "cell_type": "code" if code else "markdown", "metadata": {}, "source": source}
        cells.append(cell | ({"execution_count": None, "outputs": []} if code else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


if __name__ == "__main__":
    Path(__file__).with_suffix(".ipynb").write_text(json.dumps(notebook(), indent=1) + "\n", encoding="utf-8")
