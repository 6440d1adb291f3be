"""Functions that the tests of laws share. A law holds for every combination of valid options. Its check is a function of a Draw,
from which it takes a random combination. The tests of a law have the seeds 1, 2, 3, …; a seed always gives the same combination:

    python3 tests/laws/ranks.py                              ten seeds; with STARGRAD_LONG=1 those of a long check, two at a time
    python3 tests/laws/ranks.py 'test_ranks[17]' -rP         the combination of seed 17, with its commands
    STARGRAD_SEEDS=1:500 python3 tests/laws/ranks.py -n 2    those of seeds 1 to 500, two at a time

If the program itself refuses a combination, with a reason, the law does not apply: raise Refused, and the next combination of the
same seed is used."""
import importlib.util
import os
import random
import re
import shlex
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "train"))

import run  # noqa: E402
from run import RANKS, Skip, command  # noqa: E402

ATTEMPTS = 50


class Refused(Exception):
    """The program does not take the combination."""


class Broken(Exception):
    """The law does not hold."""


class Draw:
    """What is drawn by one seed, and the commands that were run with it."""

    def __init__(self, law, seed):
        self.random = random.Random(f"{law} {seed}")
        self.commands = []

    def chance(self, share):
        return self.random.random() < share

    def choice(self, values):
        return self.random.choice(list(values))

    def options(self, table):
        """Words from a TABLE of (chance, *values): by that chance, one of the values, each the words of an option, or a function of the
        Draw that returns them."""
        words = []
        for share, *values in table:
            if self.chance(share):
                value = self.choice(values)
                words += value(self) if callable(value) else value
        return [str(w) for w in words]

    def run(self, words, ranks=1, env=None, refusable=False):
        """Runs the program with these words, on so many ranks. REFUSABLE: where it ends with status 2, as for an option that is not valid, the
        combination is refused. Returns what it said."""
        words = command(*words)
        if ranks > 1:
            if not shutil.which("mpirun"):
                raise Skip("there is no mpirun")
            words = ["mpirun", "-n", str(ranks), *words]
        self.commands.append(shlex.join(words))
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", env={**os.environ, **RANKS, **(env or {})}, timeout=600)
        few = done.returncode == 1 and "cannot keep" in done.stderr     # stages busy, which is known once there is a network
        if (done.returncode == 2 or few) and refusable and done.stderr.startswith("stargrad: "):
            raise Refused(done.stderr.splitlines()[0])
        if done.returncode:
            raise Broken(f"exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def differ(one, other, limit):
    """By how much the numbers of two lists of the same length differ, relative to the larger ones of both; 0 where that is within LIMIT. Numbers
    that are not finite are the same if they are written alike."""
    if len(one) != len(other):
        return float("inf")
    pairs = [(a, b) for a, b in zip(one, other) if str(a) != str(b)]
    scale = max((max(abs(a), abs(b)) for a, b in zip(one, other)), default=0)
    worst = max((abs(a - b) / scale for a, b in pairs), default=0)
    return 0 if worst <= limit else worst       # a NaN is not


def seeds(check, long):
    """The seeds of a test: CHECK of them, with STARGRAD_LONG LONG of them, or those of STARGRAD_SEEDS, as 17 or 1:500."""
    chosen = os.environ.get("STARGRAD_SEEDS") or f"1:{long if os.environ.get('STARGRAD_LONG') else check}"
    if not re.fullmatch(r"\d+(:\d+)?", chosen):
        sys.exit(f"STARGRAD_SEEDS={chosen} is not a seed, such as 17, or a range, such as 1:500; correct or unset it")
    first, _, last = chosen.partition(":")
    return pytest.mark.parametrize("seed", range(int(first), int(last or first) + 1))


def main(tests):
    """As run.main; hundreds of combinations are tried two at a time."""
    run.main(tests, *(["-n", "2", "-q", "-q"] if os.environ.get("STARGRAD_LONG") and importlib.util.find_spec("xdist") else []))


def holds(name, check, seed):
    """The law holds for SEED's first combination that the program takes."""
    draw = Draw(name, seed)
    for _ in range(ATTEMPTS):
        draw.commands.clear()
        try:
            return check(draw)
        except Refused as why:
            print(f"refused: {why}")
        finally:
            print(*draw.commands, sep="\n")
    pytest.fail(f"seed {seed}: {ATTEMPTS} combinations were refused")
