"""Additions to pytest: a failed test prints the command that repeats it; a test whose library the build lacks is skipped."""
import os
import re
import shlex
import signal
import sys
import zlib

import pytest

collect_ignore = ["docs/stand_ins.py", "gpu/counts.py", "gpu/parts.py"]


def pytest_configure():
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(number, handler)      # whoever starts the tests may ignore them (nohup, &), and hand that on


def pytest_collection_modifyitems(config, items):
    """Tests that are marked `long` run in check-long, which runs no others of their files, or where a test is chosen by name."""
    if config.option.keyword or any("::" in word for word in config.args):
        return
    wanted = bool(os.environ.get("STARGRAD_LONG"))
    with_long = {item.path for item in items if item.get_closest_marker("long")}
    left = [item for item in items if item.path in with_long and bool(item.get_closest_marker("long")) != wanted]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def pytest_assertrepr_compare(op, left, right):
    """Files of megabytes: pytest takes minutes to show how their bytes differ."""
    def large(value):
        return isinstance(value, bytes) and len(value) > 1000 or isinstance(value, (tuple, list)) and any(map(large, value))

    if op == "==" and large(left) and large(right):
        return [f"{short(left)} == {short(right)}"]


def short(value):
    if isinstance(value, bytes):
        return f"{len(value)} bytes of CRC {zlib.crc32(value):08x}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(short, value))})"
    return repr(value)


def repeat(item):
    known = [f"{key}={shlex.quote(os.environ[key])}" for key in ("STARGRAD", "srcdir", "builddir", "STARGRAD_MAX_ISA") if key in os.environ]
    return " ".join([*known, shlex.quote(sys.executable), shlex.quote(str(item.path)), shlex.quote(item.name)])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    lacks = report.failed and re.search(r"this build has (no|neither) [^;\n]*; install", f"{call.excinfo.value} {report.longreprtext}")
    if lacks:
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1], f"Skipped: {lacks[0].partition(';')[0]}")
    elif report.failed:
        report.sections.append(("repeat", repeat(item)))
