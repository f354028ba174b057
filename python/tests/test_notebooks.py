"""The notebooks of the repository: their cells run, one after the other, without a program of notebooks."""

import contextlib
import io
import json
import os

from support import ROOT, Case, needs


class Notebooks(Case):
    @needs("pandas", "polars", "pyarrow", "duckdb")
    def test_all_cells_run(self):
        notebooks = sorted((ROOT / "python/examples").glob("*.ipynb"))
        self.assertTrue(notebooks)
        for notebook in notebooks:
            with self.subTest(notebook=notebook.name), self.folder(notebook.parent):
                names = {}
                for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
                    if cell["cell_type"] == "code":
                        with contextlib.redirect_stdout(io.StringIO()):
                            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)

    @contextlib.contextmanager
    def folder(self, path):
        before = os.getcwd()
        os.chdir(path)
        try:
            yield
        finally:
            os.chdir(before)
