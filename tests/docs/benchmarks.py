"""docs/performance/benchmarks.md and its charts equal the output of bench/page for bench/results/*.json. Each record has all
fields, and each command names scripts that exist."""
import datetime
import glob
import json
import os
import re
import subprocess
import sys

from markdown import SOURCE, main, pytest, read

FIELDS = {"title", "summary", "columns", "rows", "command", "commit", "machine", "date", "peer", "missed", "notes", "charts"}


def records():
    """(name, record) of every record: "speed 1"."""
    found = []
    for file in sorted(glob.glob(os.path.join(SOURCE, "bench/results/*.json"))):
        found += [(f"{os.path.basename(file)[:-5]} {number}", record) for number, record in enumerate(json.loads(read(file)), 1)]
    return found


RECORDS = records()


def test_page():
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "bench/page"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_records():
    assert len(RECORDS) > 30


@pytest.mark.parametrize("record", [record for _, record in RECORDS], ids=[name for name, _ in RECORDS])
def test_fields(record):
    assert set(record) == FIELDS
    assert set(record["machine"]) == {"processor", "cores", "level", "os"} and all(record["machine"].values())
    assert record["peer"] is None or record["peer"]["name"] and record["peer"]["version"]
    assert datetime.date.fromisoformat(record["date"])
    assert all(set(column) >= {"name", "unit"} for column in record["columns"])
    assert record["rows"] and all(len(row) == len(record["columns"]) for row in record["rows"])
    assert record["command"]


@pytest.mark.parametrize("record", [record for _, record in RECORDS], ids=[name for name, _ in RECORDS])
def test_scripts(record):
    """Scripts that a command, a note or a missed target names are there. What is in build/ is made of a source of the same name."""
    text = "\n".join(record["command"] + record["notes"] + record["missed"] + [record["summary"]])
    for build, path in re.findall(r"(build/)?\b((?:bench|tests|examples)/[\w./-]*\w)", text):
        assert glob.glob(os.path.join(SOURCE, path) + (".*" if build and path.startswith("tests/") else "")), f"{path}: no such file"


def test_charts_are_installed():
    makefile = read("Makefile.am")
    charts = [chart["file"] for _, record in RECORDS for chart in record["charts"]]
    assert len(charts) == len(set(charts))
    missing = [chart for chart in charts if f"\tdocs/images/bench-{chart}.svg \\\n" not in makefile]
    assert not missing, f"nobase_dist_pages_DATA in Makefile.am does not have the charts {missing}"


if __name__ == "__main__":
    main(globals())
