"""Check that the example notebook runs from start to end, and displays its report."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("torch")

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_the_notebook_runs_from_the_root() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear its outputs: a report is large"
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(NOTEBOOK.parents[1])}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    text = "".join(output.get("text", "") for output in outputs)
    assert "without the profiler" in text
    assert "overhead-bound data-loading" in text
    shown = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    reports = [html for html in shown if "Trace analysis" in html]
    assert len(reports) == 2, "that of the sample, and that of the cell under %%analyze"
    assert all("timeline" in report for report in reports)
    assert [html for html in shown if "embed_document" in html or ("bokeh" in html and not html.startswith("<iframe"))]
    scripts = [str(output["data"].get("application/javascript")) for output in outputs if "data" in output]
    assert not any("cdn.bokeh.org" in script or "cdn.holoviz.org" in script for script in scripts), (
        "plots need no network"
    )
    assert "advice:data-loading Load data in parallel" in text
    assert "of the main thread" in text, "the cell runs on the CPU"
