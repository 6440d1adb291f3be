"""stargrad search: for any distribution of candidates over ranks, and after any interruption, each candidate has the result of a
training of its own."""
import json
import os
import random
import signal
import subprocess

from run import RANKS, command, content, events, folder, losses, main, mpirun, ranks, ranks_of, stargrad, wait_until
from split import tensors

FILE = {"model": "mlp", "epochs": 2, "batch": 32, "partitions": 2, "stop": {"rule": "halving", "first": 1, "factor": 2}, "candidates": [
    {"lr": 0.01}, {"lr": 0.1}, {"lr": 1e6}, {"name": "adam", "optimizer": "adam"}, {"lr": 0.05, "batch": 64}, {"batch": 10000}]}


LONG = bool(os.environ.get("STARGRAD_LONG"))      # make check-long


def write(name, file):
    path = os.path.join(folder("files"), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(file, f)
    return path


def words(path, out, *more):
    return ("search", path, "--data", "digits", "--out", out, *more)


def board(out):
    with open(os.path.join(out, "leaderboard.json")) as f:
        return json.load(f)


def schedule(out, event):
    with open(os.path.join(out, "schedule.jsonl")) as f:
        return [e for e in map(json.loads, f) if e["event"] == event]


def past(out, name):
    """What a candidate came to, but for times."""
    path = os.path.join(out, name)
    keys = ("step", "epoch", "train_loss", "test_loss", "test_top1")
    weights = content(path) if os.path.exists(os.path.join(path, "model.safetensors")) else None
    return losses(path), [[e[k] for k in keys] for e in events(path, "epoch")], weights


def orders(out):
    """The partitions that each candidate visits, in their order."""
    visits = schedule(out, "visit")
    return {name: [e["partition"] for e in visits if e["name"] == name] for name in {e["name"] for e in visits}}


def same(one, other):
    assert orders(one) == orders(other)
    assert board(one) == board(other)
    for c in board(one):
        if c["status"] != "failed":
            assert past(one, c["name"]) == past(other, c["name"]), c


def test_alone_and_on_ranks():
    path = write("a.json", FILE)
    alone, two = folder("alone"), folder("two")
    stargrad(*words(path, alone, "--together", "1"))
    ranks(2, *words(path, two, "--together", "3"))
    assert [e["together"] for e in schedule(alone, "round") + schedule(two, "round")] == [1, 1, 3, 3]
    same(alone, two)
    status = {c["name"]: c["status"] for c in board(alone)}
    assert status["3"] == "diverged" and status["6"] == "failed", status
    assert sorted(status.values()) == ["diverged", "failed", "finished", "finished", "stopped", "stopped"], status
    assert board(alone)[0]["test_top1"] > 0.8 and [e["partition"] for e in schedule(two, "visit")].count(0) > 0


def test_replayed_alone():
    """To the same bits; and a loss that is another one is seen."""
    for order, model, replays in (("open-shop", "convnet", ((3, "2"),)), ("ring", "mlp", ((1, "1"), (2, "3"))[:2 if LONG else 1])):
        out = folder("replayed")
        path = write("b.json", {**FILE, "order": order, "stop": {"rule": "none"}, "epochs": 1 + (order == "ring"),
                                "candidates": [{"lr": 0.05}, {"lr": 0.02, "model": model, "batch": 64}, {"optimizer": "adam"}]})
        said = json.loads(mpirun(2, [*command(*words(path, out, "--json", "--together", "2")), "--cpus", "1"]).strip().splitlines()[-1])
        plan = schedule(out, "round")[0]
        assert (said["hops"], said["bytes"]) == (plan["hops"], plan["bytes"]), (said, plan)     # moved what was planned
        assert plan["hops"] == 3 * (2 * 2 - 1) or order != "ring", plan
        for count, name in replays:
            arguments = ("search", "--replay", os.path.join(out, name))
            assert "the losses and weights are identical" in (stargrad(*arguments) if count == 1 else ranks(count, *arguments))
    metrics = os.path.join(out, "1", "metrics.jsonl")
    with open(metrics) as f:
        lines = f.read().replace('"step":20,"epoch":0,"loss":', '"step":20,"epoch":0,"loss":1')
    with open(metrics, "w") as f:
        f.write(lines)
    assert "step 20" in stargrad("search", "--replay", os.path.join(out, "1"), status=1)


def test_each_its_own_way():
    """What a candidate does to its images is not the others' matter; decompositions that are under way do not outlive their visit."""
    out, alone = folder("ways"), folder("way")
    convnet = {"model": "convnet", "epochs": 2, "batch": 64, "partitions": 1}
    candidates = [{"augment": "none"}, {"augment": "crop:2,cutmix"}, {"augment": "mixup"}, {"optimizer": "kfac", "kfac-eigen-every": 10}]
    stargrad(*words(write("w.json", {**convnet, "candidates": candidates}), out, "--together", "4"))
    stargrad(*words(write("v.json", {**convnet, "candidates": [{"name": "2", **candidates[1]}]}), alone))
    assert past(out, "2") == past(alone, "2")
    for name in "134":
        assert "the losses and weights are identical" in stargrad("search", "--replay", os.path.join(out, name)), name


def kill(process):
    """Without a word: the search's only rank, or one of mpirun's, which ends the others."""
    running = ranks_of(process.pid)
    if process.args[0] != "mpirun":
        process.kill()
    elif process.poll() is None and running:
        os.kill(running[max(running)], signal.SIGKILL)
    process.communicate(timeout=120)


def test_killed_at_any_moment():
    """And going on with more ranks or with fewer."""
    candidates = FILE["candidates"][:4]
    path = write("c.json", {**FILE, "candidates": candidates})
    reference = folder("reference")
    stargrad(*words(path, reference))
    dice = random.Random(1)
    for trial in range(1, 11 if LONG else 2):
        out, steps = folder("killed"), 0

        def done():
            return sum(len(events(os.path.join(out, c.get("name", str(i + 1))))) for i, c in enumerate(candidates))
        for attempt in range(2 if LONG else 1):
            resume = ["--resume"] if os.path.exists(os.path.join(out, "search.json")) else []
            launch = ["mpirun", "-n", "2"] if (trial + attempt) % 2 else []
            process = subprocess.Popen([*launch, *command(*words(path, out, *resume, "--cpus", 1))], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env={**os.environ, **RANKS})
            steps += dice.randrange(1, 90)
            wait_until(lambda: done() >= steps, process)
            kill(process)
        stargrad(*words(path, out, "--resume"))
        same(reference, out)


def test_counts_in_words():
    """One visit, one slot, one candidate: each noun agrees with its number."""
    for partitions, together, words_said in ((1, 1, "1 candidate: staggered, 1 visit in 1 slot,"), (2, 1, "2 visits in 2 slots,")):
        path = write("words.json", {"model": "mlp", "epochs": 1, "partitions": partitions, "candidates": [{}]})
        said = stargrad(*words(path, folder("words"), "--together", together))
        assert words_said in said, said


def test_changes_on_the_way():
    """What freezes within a visit stays as it is, other parameters train on; several views of an image at the end; all to the same bits alone."""
    out = folder("changes")
    path = write("h.json", {"model": "mlp", "batch": 32, "epochs": 2, "partitions": 2, "candidates": [
        {"name": "freezes", "freeze-after": "fc1.*=0.7"}, {"name": "views", "tta": "translate"}, {"name": "bias", "optimizer-of": "*.bias=adam"}]})
    stargrad(*words(path, out))
    steps = len(losses(os.path.join(out, "freezes")))
    before, after = (tensors(os.path.join(out, "freezes"), f"checkpoint-{step}.safetensors") for step in (steps // 4 * 3, steps))
    assert before["fc1.weight"] == after["fc1.weight"] and before["fc2.weight"] != after["fc2.weight"]
    assert [e.get("tta") for e in events(os.path.join(out, "views"), "epoch")] == [None, "translate"]
    for name in ("freezes", "views", "bias"):
        assert "the losses and weights are identical" in stargrad("search", "--replay", os.path.join(out, name))
    refused = stargrad(*words(write("l.json", {"model": "mlp", "candidates": [{"evaluate-last": True}]}), folder("late")), status=2)
    assert "evaluate-last cannot be set for candidates" in refused, refused


def test_wrong_files():
    for file, says in (({"candidates": [{"lr": "fast"}], "model": "mlp"}, r'candidates[0]: lr: "fast" is not a number from 0'),
                       ({"candidates": [{"momentun": 0.9}], "model": "mlp"}, "candidates[0]: unknown option 'momentun'; did you mean momentum?"),
                       ({"grid": {"lr": 0.1}, "model": "mlp"}, "grid: lr: must be a non-empty list of values"),
                       ({"random": {"count": 3, "lr": {"log": [0, 1]}}, "model": "mlp"}, "random: lr: must be a list, or"),
                       ({"candidates": [{}]}, "candidates[0]: the model is missing"),
                       ({"candidates": [{"patience": 2}], "model": "mlp"}, "candidates[0]: patience cannot be set for candidates"),
                       ({"candidates": [{"out": "x"}], "model": "mlp"}, "candidates[0]: out cannot be set for candidates"),
                       ({"candidates": [{"name": "../x"}], "model": "mlp"}, "candidates[0]: name: must consist of 1 to 99 letters"),
                       ({"candidates": [{}], "model": "mlp", "stop": {"rule": "never"}}, "stop: rule: must be none, halving or median"),
                       ({"candidates": [{}], "model": "mlp", "epochs": 1.5}, "epochs: must be a whole number"),
                       ({"model": "mlp"}, 'must have exactly one of "candidates", "grid" and "random"')):
        said = stargrad(*words(write("wrong.json", file), folder("wrong")), status=2)
        assert says in said and said.count("\n") == 1 and "wrong.json" in said, (file, said)
    out = folder("again")
    path = write("d.json", {"model": "mlp", "epochs": 1, "candidates": [{}]})
    assert "no search to continue" in stargrad(*words(path, out, "--resume"), status=2)
    stargrad(*words(path, out))
    assert "contains a search already" in stargrad(*words(path, out), status=2)
    os.unlink(os.path.join(out, "search.json"))
    assert "already contains files" in stargrad(*words(path, out), status=2)
    out = folder("other")
    stargrad(*words(path, out))
    other = write("e.json", {"model": "mlp", "epochs": 1, "candidates": [{"lr": 0.5}]})
    assert 'another "candidates"' in stargrad(*words(other, out, "--resume"), status=2)


def test_grid_and_random():
    out = folder("grid")
    stargrad(*words(write("g.json", {"model": "mlp", "epochs": 1, "grid": {"lr": [0.1, 0.01], "batch": [64, 128]}}), out))
    assert {(c["options"]["lr"], c["options"]["batch"]) for c in board(out)} == {(l, b) for l in (0.1, 0.01) for b in (64, 128)}
    assert os.path.exists(os.path.join(out, "report.html"))
    drawn = []
    for name in ("one", "two"):
        stargrad(*words(write("r.json", {"model": "mlp", "epochs": 1, "random": {"count": 3, "lr": {"log": [1e-3, 1]}, "batch": [64, 128],
                                                                                  "warmup": {"uniform": [0, 1]}}}), folder(name)))
        drawn.append([c["options"] for c in board(os.path.join(os.path.dirname(out), name))])
    assert drawn[0] == drawn[1] and all(1e-3 <= o["lr"] <= 1 and o["batch"] in (64, 128) for o in drawn[0]), drawn


if __name__ == "__main__":
    main(globals())
