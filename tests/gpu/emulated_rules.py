"""The emulated GPU enforces the rules of CUDA's driver: each is broken by a separate program (tests/gpu/emulator/rules.cc)."""
import os
import subprocess

import pytest
from emulation import PROGRAMS, needs
from run import main

RULES = os.path.join(PROGRAMS, "rules")
UNSUPPORTED, IMPLICIT = "cudaErrorStreamCaptureUnsupported", "cudaErrorStreamCaptureImplicit"
# Rule: what the call returns; then the capture is lost.
WHILE_CAPTURED = {
    "allocation": UNSUPPORTED, "free": UNSUPPORTED, "host allocation": UNSUPPORTED, "synchronous copy": UNSUPPORTED,
    "synchronous set": UNSUPPORTED, "wait for the stream": UNSUPPORTED, "question to the stream": UNSUPPORTED,
    "wait for the device": UNSUPPORTED, "question to an event": UNSUPPORTED, "foreign event": "cudaErrorStreamCaptureIsolation",
    "copy on the default stream": IMPLICIT, "launch on the default stream": IMPLICIT,
}
# Rule: how the program ends.
ENDS = {
    "another thread's default stream": "the default stream is given work while a stream that waits for it is captured",
    "destroyed stream": "is no stream, or one that was destroyed",
    "destroyed event": "is no event, or one that was destroyed",
    "destroyed handle": "is no handle, or one that was destroyed",
    "handle of another device": "a handle of device 0 is used while device 1 is current",
    "handle with another device's stream": "a handle of device 1 has a stream of device 0",
    "cuBLAS's handle with another device's stream": "a handle of device 1 has a stream of device 0",
    "load that is not aligned": "16 bytes at once at",
    "store that is not aligned": "16 bytes at once at",
    "copy that is not waited for": "a thread ends without waiting for its copies",
    "copy that is not aligned": "which are no multiples of 16",
    "lanes apart": "lanes of a warp wait for different instructions",
}
RETURNS = {
    "event of another device": "cudaErrorInvalidResourceHandle", "event without an end": "cudaErrorInvalidResourceHandle",
    "launch on another device's stream": "cudaErrorInvalidResourceHandle",
}
KEPT = ["none", "aligned", "copy that is waited for"]


def rule(name):
    needs("rules")
    return subprocess.run([RULES, name], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", WHILE_CAPTURED)
def test_capture(name):
    done = rule(name)
    assert done.stdout == f"{WHILE_CAPTURED[name]}\ncapture: cudaErrorStreamCaptureInvalidated\nend\n", done
    assert done.returncode == 0, done


@pytest.mark.parametrize("name", ENDS)
def test_ends(name):
    done = rule(name)
    assert done.returncode == -6 and ENDS[name] in done.stderr, done


@pytest.mark.parametrize("name", RETURNS)
def test_returns(name):
    assert rule(name).stdout == f"{RETURNS[name]}\nend\n"


def test_kept():
    assert rule("none").stdout == "cudaSuccess\ncapture: cudaSuccess\nend\n"
    assert rule("aligned").stdout == rule("copy that is waited for").stdout == "end\n"


def test_all_are_tested():
    needs("rules")
    names = subprocess.run([RULES], capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted(names) == sorted([*WHILE_CAPTURED, *ENDS, *RETURNS, *KEPT])


if __name__ == "__main__":
    main(globals())
