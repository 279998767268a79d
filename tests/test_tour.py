"""The notebook of the tour runs, and prints what is stored in it.

`python -m tests.test_tour` runs it and stores what it prints now.
"""

import json
import re
import tempfile

import pytest

from irsppl.shipped import listing

from .test_docs import ROOT, check_printed

PATH = ROOT / "examples" / "tour.ipynb"


def printed(notebook):
    """[what each cell printed], and [each picture]."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    text = [
        "".join("".join(o["text"]) for o in cell["outputs"] if o.get("name") == "stdout")
        for cell in cells
    ]
    outputs = [output for cell in cells for output in cell["outputs"]]
    return text, [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]


def executed(folder):
    """The notebook, run in a folder: its outputs less warnings and progress."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(PATH, as_version=4)
    nbformat.validate(notebook)
    options = {"timeout": 300, "kernel_name": "python3", "coalesce_streams": True}
    where = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, resources=where, **options).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    return notebook


def test_the_tour_prints_what_is_stored(tmp_path):
    fresh = executed(tmp_path)
    (here, pictures), (there, kept) = printed(fresh), printed(json.loads(PATH.read_text()))
    assert len(pictures) == len(kept) == 1
    for now, then in zip(here, there, strict=True):
        check_printed(now, then)

    # What the text between the cells says of the numbers.
    told = "".join(here)
    (ideal,) = set(re.findall(r"ideal: ([\d.]+) \(exact\)", told))
    assert float(ideal) == pytest.approx(15.3889, abs=5e-5)
    earns, bound = map(float, re.findall(r"(?:earns|more than) (\d+\.\d+) \(s", told)[:2])
    assert 0.98 * bound < earns < bound and float(ideal) < bound
    table = re.search(r"^policy\s*\n(random .*)", told, re.M | re.S)[1].splitlines()[:5]
    regret = {row.split()[0]: float(row.split()[3]) for row in table}
    assert regret["irs.index"] < regret["greedy"] < regret["irs.fh"] < regret["ts"]
    prompt, late = map(float, re.findall(r"(?:prompt|late): +irs.ff: ([\d.]+)", told))
    assert late < prompt


def test_the_stored_tour_has_no_warning_and_no_path():
    text = PATH.read_text()
    assert "stderr" not in text and "site-packages" not in text and "/tmp" not in text
    assert len(text) < 100_000
    cells = json.loads(text)["cells"]
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")


def test_the_tour_is_among_the_examples():
    told, text = listing()
    assert told["examples"]["tour"]["what"] == "A tour of irsppl, a notebook"
    assert "tour" in text


if __name__ == "__main__":
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(folder), PATH)
