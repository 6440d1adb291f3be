"""The Markdown files of the tree, for the tests of the pages."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "train"))
import run  # noqa: E402
from run import main, pytest  # noqa: E402

if not pytest:
    main(())    # ends with the way to install it
SOURCE, STARGRAD = os.path.abspath(run.SOURCE), os.path.abspath(run.STARGRAD)
BUILD = os.path.abspath(os.environ.get("builddir", "build"))


def files():
    """All, without those of builds and downloads."""
    found = []
    for folder, folders, names in os.walk(SOURCE):
        folders[:] = [name for name in folders if name == ".github" or not name.startswith(".") and name != "build"]
        found += [os.path.relpath(os.path.join(folder, name), SOURCE) for name in names if name.endswith(".md")]
    return sorted(found)


def pages():
    """Those that are maintained and describe how to use and to change Stargrad."""
    return [file for file in files() if file in ("README.md", "CONTRIBUTING.md") or file.startswith("docs/") and "/archive/" not in file]


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def prose(page):
    """The text of a page without its blocks of code."""
    return re.sub(r"^(```|~~~).*?^\1", "", read(page), flags=re.S | re.M)
