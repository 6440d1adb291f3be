"""Candidates of a search that use several ranks at once, together with others that use one rank: each has the result of a
training of its own, to the bit, also after interruptions; the bytes moved are those planned."""
import functools
import json
import os
import shutil
import subprocess

from mesh import BATCH, TEXT, TOKENS
from mesh import MODEL as GPT
from run import RANKS, command, events, folder, main, mpirun, ranks, stargrad, wait_until
from search import board, kill, same, schedule, write

GPTS = {"model": GPT, "batch": BATCH, "epochs": 1, "seed": 3, "optimizer": "adamw", "candidates": [
    {"name": "line", "mesh": "tensor=1d:2"}, {"name": "one", "lr": 0.002}, {"name": "stages", "mesh": "pipe=2", "micro-batch": 1}]}
MIXED = {"model": "mlp", "batch": 64, "epochs": 2, "partitions": 4, "stop": {"rule": "halving", "first": 1, "factor": 2}, "candidates": [
    {"name": "stages", "model": "convnet", "mesh": "pipe=2", "lr": 0.05}, {"name": "one", "lr": 0.05}, {"name": "lost", "mesh": "pipe=2", "lr": 1e6},
    {"name": "data", "mesh": "data=2", "lr": 0.02}]}


def words(path, data, out, *more):
    return ("search", path, "--data", data, "--out", out, *more)


def last(said):
    return json.loads(said.strip().splitlines()[-1])


def moved(said, out):
    """What was planned, and no state by half."""
    rounds = schedule(out, "round")
    assert (said["hops"], said["bytes"]) == tuple(sum(r[k] for r in rounds) for k in ("hops", "bytes")), (said, rounds)


def apart(out):
    """In no round has a rank two visits at a time."""
    with open(os.path.join(out, "schedule.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    for i, a in enumerate(lines):
        for b in reversed(lines[:i]):
            if "round" in (a["event"], b["event"]):
                break
            if set(range(a["rank"], a["rank"] + a["ranks"])) & set(range(b["rank"], b["rank"] + b["ranks"])):
                assert a["begin"] >= b["end"] - 1e-9, (a, b)


def test_language():
    """Layers split, and stages: over several partitions, replayed on two ranks alone."""
    out = folder("language")
    said = mpirun(4, [*command(*words(write("gpt.json", GPTS), f"text:{TEXT},{TOKENS}", out, "--json", "--together", 1)), "--cpus", "1"])
    moved(last(said), out)
    apart(out)
    assert {v["name"]: v["ranks"] for v in schedule(out, "visit")} == {"line": 2, "one": 1, "stages": 2}
    assert all(c["status"] == "finished" for c in board(out)), board(out)
    for name, count in (("line", 2), ("stages", 2), ("one", 1)):
        assert "the losses and weights are identical" in ranks(count, "search", "--replay", os.path.join(out, name)), name
    assert "requires 2 ranks, but there is 1" in stargrad("search", "--replay", os.path.join(out, "line"), status=2)


@functools.cache
def mixed_on_two():
    out = folder("two")
    ranks(2, *words(write("mixed.json", MIXED), "digits", out, "--together", 1))
    return out


def test_on_ranks():
    """On two ranks and on four, side by side: the same; one that diverges stops on all of its ranks."""
    path, two, four = write("mixed.json", MIXED), mixed_on_two(), folder("four")
    said = mpirun(4, [*command(*words(path, "digits", four, "--json", "--together", 2)), "--cpus", "1"])
    moved(last(said), four)
    apart(two)
    same(two, four)
    status = {c["name"]: c["status"] for c in board(two)}
    assert status["lost"] == "diverged" and "failed" not in status.values(), status
    for c in board(two):
        if c["status"] == "finished":
            assert "the losses and weights are identical" in ranks(2, "search", "--replay", os.path.join(two, c["name"]))


def test_killed():
    """A part of the state on each rank, and going on with more ranks or with fewer."""
    path, reference = write("mixed.json", MIXED), mixed_on_two()
    for before, after, steps in ((4, 2, 30), (2, 4, 50)):
        out = folder("killed")
        process = subprocess.Popen(["mpirun", "-n", str(before), *command(*words(path, "digits", out, "--cpus", 1))], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env={**os.environ, **RANKS})
        wait_until(lambda: sum(len(events(os.path.join(out, c["name"]))) for c in MIXED["candidates"]) >= steps, process)
        kill(process)
        ranks(after, *words(path, "digits", out, "--resume"))
        same(reference, out)
    shutil.rmtree(os.path.join(out, "stages", "part-1"))
    os.remove(os.path.join(out, "stages", "model.safetensors"))
    ranks(2, *words(path, "digits", out, "--resume"))       # of a part that is lost the candidate begins anew
    same(reference, out)


def test_refused():
    def refused(candidate, says, status=2, count=2):
        said = ranks(count, *words(write("no.json", {"model": "mlp", "epochs": 1, "candidates": [candidate]}), "digits", folder("no")), status=status)
        assert says in said, (candidate, said)
    refused({"mesh": "pipe=4"}, "requires 4 ranks, but there are 2; use mpirun -n 4")
    refused({"mesh": "auto"}, "mesh auto is not supported; give the numbers of ranks")
    refused({"mesh": "pipe=3"}, "requires 3 ranks, but the number of ranks of a candidate must be a power of 2", count=3)
    refused({"mesh": "tensor=1d:2"}, "every candidate has failed", status=1)


if __name__ == "__main__":
    main(globals())
