"""The tests of this folder run the program of the emulator."""
import os

import pytest
import run
from emulation import HOME, PROGRAMS


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    """The program of the emulator. What StarPU measures of these devices is worth nothing elsewhere. Every tensor has memory of its own, which
    begins as NaNs."""
    monkeypatch.setattr(run, "STARGRAD", os.path.join(PROGRAMS, "stargrad"))
    monkeypatch.setenv("STARPU_HOME", HOME)
    monkeypatch.setenv("STARPU_SUBALLOCATOR", "0")
