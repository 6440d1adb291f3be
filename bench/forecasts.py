"""Steps as they are on this machine, and as `stargrad plan` has them: what bench/prediction and bench/scaling share.

A rank is a host with one core (cluster.py). What the plan knows is measured before, and apart, by `stargrad doctor --machine`:

    what tasks take     on as many ranks, each with its share of the batch, which exchange over links or within one host as in the
                        steps that are to be told, but by another strategy; what each costs beside its work; and what workers spend
                        on a byte of messages
    the network         by messages alone, between the same ranks"""
import json
import pathlib
import shutil
import statistics

from cluster import Cluster
from machine import ROOT, steps_s


class Study(Cluster):
    def __init__(self, folder, hosts, stargrad=ROOT / "build/stargrad", simulated=True):
        super().__init__(folder, hosts)
        self.stargrad = pathlib.Path(stargrad).resolve()
        self.simulated = simulated

    def started(self, ranks, linked, words):
        """RANKS of it, over the links or within one host."""
        if ranks == 1:
            return self.on(0, words)
        if linked:
            return self.mpirun(ranks, words)
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *words]

    def step(self, ranks, linked, what, steps):
        """Seconds of a step of rank 0: the mean of STEPS, after as many as are in flight and then some, and before the last, beside
        which its evaluation begins. What ends an epoch is not to fall among them."""
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        warm = 3
        words = [self.stargrad, "train", "--no-augment", "--cpus", 1, "--steps", warm + steps + 1, "--lr", 0.001, "--out", out, *what]
        self.run([self.started(ranks, linked, words)], {})
        batch = json.loads((out / "config.json").read_text())["options"]["batch"]
        return statistics.mean(steps_s(out, batch)[-1 - steps:-1])

    def calibrated(self, ranks, linked, what, strategy):
        """A machine as rank 0 sees it while it exchanges with the others by STRATEGY."""
        file = self.folder / "machine.json"
        self.run([self.started(ranks, linked, [self.stargrad, "doctor", "--machine", file, *what, "--strategy", strategy])], {})
        return json.loads(file.read_text())

    def predicted(self, machine, ranks, what):
        """Seconds of a step: simulated, and by the formulas."""
        file = self.folder / "plan.json"
        file.write_text(json.dumps(machine))
        words = [self.stargrad, "plan", "--json", "--machine", file, "--nodes", ranks, "--no-augment", *what,
                 *(["--simulate"] if self.simulated else [])]
        said, = self.run([words], {})
        point = json.loads(said[said.index("{"):])["points"][0]
        return point["step_seconds"], point.get("formula_step_seconds", point["step_seconds"])


def another(strategy, ranks):
    """By which a machine is calibrated for steps of STRATEGY; a rank alone has nobody to exchange with."""
    return "ps" if strategy == "sync" and ranks > 1 else "sync"


def without_rate(machine):
    return machine | {"measured": []}


def typical_task(machine):
    """Milliseconds: the middle of all kinds of tasks that take any of a step's time to speak of."""
    seconds = sorted((call["seconds"]["value"] for call in machine["calls"]), reverse=True)
    most, seen = sum(seconds), 0
    for each in seconds:
        seen += each
        if seen >= most / 2:
            return 1000 * each
    return 0
