"""docs/guides/python.ipynb: the cells of code run one after the other. With check-long also in a notebook's kernel, by nbclient."""
import json
import os
import sys
import traceback

from markdown import BUILD, SOURCE, main, pytest, run

PAGE = "docs/guides/python.ipynb"
os.environ.setdefault("STARGRAD_LIBRARY", os.path.join(BUILD, ".libs", "libstargrad.so"))
os.environ["PYTHONPATH"] = os.pathsep.join([os.path.join(SOURCE, "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.path.insert(0, os.path.join(SOURCE, "python"))
sys.dont_write_bytecode = True


def cells():
    with open(os.path.join(SOURCE, PAGE), encoding="utf-8") as file:
        return json.load(file)["cells"]


def sources():
    return ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]


def work(name):
    pytest.importorskip("numpy", reason="Python has no numpy")
    path = run.folder(name)
    os.makedirs(path)
    os.chdir(path)


def test_cells():
    work("cells")
    names = {"__name__": "__main__"}
    for number, source in enumerate(sources(), 1):
        try:
            exec(compile(source, f"{PAGE}, cell {number}", "exec"), names)      # pylint: disable=exec-used
        except Exception:
            pytest.fail(f"{PAGE}, cell {number}:\n{source}\n{traceback.format_exc()}", pytrace=False)
    assert names["disk"].result["test_top1"] > 0.8 and names["short"].result["epochs"] < 50
    assert os.path.exists("digits.onnx")


def test_has_no_outputs():
    """Outputs would show the folders of who ran it, and change with each run."""
    assert not [cell for cell in cells() if cell.get("outputs") or cell.get("execution_count")]


@run.long
def test_in_a_kernel():
    work("kernel")
    nbclient, nbformat = (pytest.importorskip(name, reason=f"Python has no {name}") for name in ("nbclient", "nbformat"))
    with open(os.path.join(SOURCE, PAGE), encoding="utf-8") as file:
        done = nbclient.NotebookClient(nbformat.read(file, as_version=4), timeout=300).execute()
    outputs = [output.get("text", "") for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("epoch 3/3" in text for text in outputs), outputs


if __name__ == "__main__":
    main(globals())
