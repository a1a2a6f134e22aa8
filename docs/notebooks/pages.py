"""Run the notebooks beside this file, and make pages of them with their outputs.

A notebook is Python with ``# %%`` between its cells. It runs in an empty folder; where an encoder
other than the default is to be used, ``NOTEBOOK_ENCODER`` names it.
"""

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

HERE = Path(__file__).parent
NAMES = ("photos", "comparison")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each notebook as a page, its figures, and as a file for Jupyter."""
    for name in NAMES:
        notebook = executed(cells(HERE / f"{name}.py"))
        place = f"notebooks/{name}"
        text, figures = page(notebook, name)
        files.append(File.generated(config, f"{place}.md", content=text))
        files.append(File.generated(config, f"{place}.ipynb", content=nbformat.writes(notebook)))
        for figure, content in figures.items():
            files.append(File.generated(config, f"notebooks/{figure}", content=content))
    return files


def cells(path: Path) -> Any:
    """Read a notebook, as Jupyter has it."""
    notebook = nbformat.v4.new_notebook()
    for cell in re.split(r"^# %%", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = cell.partition("\n")
        if "[markdown]" in head:
            text = re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)
            notebook.cells.append(nbformat.v4.new_markdown_cell(text))
        else:
            notebook.cells.append(nbformat.v4.new_code_cell(body.strip()))
    return notebook


def executed(notebook: Any) -> Any:
    """Run every cell; one that fails fails the build."""
    with TemporaryDirectory() as folder:
        settings = {
            **os.environ,
            "VISVM_PROGRESS": "off",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        }
        client = NotebookClient(
            notebook,
            timeout=900,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        return client.execute(env=settings)


def page(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """Write a notebook as Markdown, with its figures apart."""
    parts: list[str] = []
    figures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        shown = list(_outputs(cell, f"{name}-{len(parts)}", figures))
        if shown:
            parts.append("\n\n".join(['<div class="output" markdown>', *shown, "</div>"]))
        if len(parts) == 2:  # below the introduction
            link = f"[Download it for Jupyter]({name}.ipynb){{ .md-button }}"
            parts.insert(1, link)
    return "\n\n".join(parts) + "\n", figures


def _outputs(cell: Any, name: str, figures: dict[str, bytes]) -> Iterator[str]:
    for number, output in enumerate(cell.outputs):
        data = output.get("data", {})
        if output.output_type == "stream":
            yield f"```text\n{output.text.rstrip()}\n```"
        elif "image/png" in data:
            figure = f"{name}-{number}.png"
            figures[figure] = base64.b64decode(data["image/png"])
            yield f"![A figure that the cell above draws]({figure})"
        elif "text/html" in data:
            yield re.sub(r"\s*\n\s*", " ", data["text/html"])
        elif "text/plain" in data:
            yield f"```text\n{data['text/plain']}\n```"
