"""Runs the notebooks and saves their outputs: `python run.py`, or `--check` to save nothing."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

for path in sorted(Path(__file__).parent.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=folder).execute()
    if "--check" in sys.argv:
        continue
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        # Times of execution and warnings of libraries are not saved.
        cell.metadata.pop("execution", None)
        cell.outputs = [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, path)
