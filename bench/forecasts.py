"""Measured and predicted steps on this machine, for bench/prediction and bench/scaling.

A rank is a host with one core (cluster.py). `stargrad plan` predicts the steps from a machine file that `stargrad doctor
--machine` measures before, separately from the steps that are predicted:

    tasks           durations and overhead of tasks, and the processor time per byte of messages, on the same number of ranks with
                    the same local batch and the same links, but with another strategy
    network         only messages, between the same ranks"""
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
        """Returns the command that runs WORDS on RANKS ranks, over the links or within one host."""
        if ranks == 1:
            return self.on(0, words)
        if linked:
            return self.mpirun(ranks, words)
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *words]

    def step(self, ranks, linked, what, steps):
        """Returns the seconds of a step of rank 0, the mean of STEPS steps. The first three and the last step do not count: the
        pipeline of steps fills up, and the evaluation begins during the last one. The steps must be within one epoch."""
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        warm = 3
        words = [self.stargrad, "train", "--no-augment", "--cpus", 1, "--steps", warm + steps + 1, "--lr", 0.001, "--out", out, *what]
        self.run([self.started(ranks, linked, words)], {})
        batch = json.loads((out / "config.json").read_text())["options"]["batch"]
        return statistics.mean(steps_s(out, batch)[-1 - steps:-1])

    def calibrated(self, ranks, linked, what, strategy):
        """Returns the machine as rank 0 measures it while it exchanges messages with the other ranks by STRATEGY."""
        file = self.folder / "machine.json"
        self.run([self.started(ranks, linked, [self.stargrad, "doctor", "--machine", file, *what, "--strategy", strategy])], {})
        return json.loads(file.read_text())

    def predicted(self, machine, ranks, what):
        """Returns the predicted seconds of a step: simulated, and by the formulas."""
        file = self.folder / "plan.json"
        file.write_text(json.dumps(machine))
        words = [self.stargrad, "plan", "--json", "--machine", file, "--nodes", ranks, "--no-augment", *what,
                 *(["--simulate"] if self.simulated else [])]
        said, = self.run([words], {})
        point = json.loads(said[said.index("{"):])["points"][0]
        return point["step_seconds"], point.get("formula_step_seconds", point["step_seconds"])


def another(strategy, ranks):
    """Returns the strategy that calibrates a machine for steps of STRATEGY. A single rank exchanges no messages."""
    return "ps" if strategy == "sync" and ranks > 1 else "sync"


def without_rate(machine):
    return machine | {"measured": []}


def typical_task(machine):
    """Returns the weighted median of the durations of tasks, in milliseconds, weighted by their duration."""
    seconds = sorted((call["seconds"]["value"] for call in machine["calls"]), reverse=True)
    most, seen = sum(seconds), 0
    for each in seconds:
        seen += each
        if seen >= most / 2:
            return 1000 * each
    return 0
