"""Backup workers: updates do not wait for the slowest ranks, and no rank hangs. Without backup workers the bits are those of ps."""
import math
import os
import re
import signal
import time

from failure import end, mpirun, strike
from run import content, events, folder, losses, main, ranks, stargrad, wait_for_steps

RUN = ("train", "--model", "convnet", "--data", "digits", "--lr", 0.05, "--bucket", 0.1)
BACKUP = (*RUN, "--strategy", "backup")


def dropped(said):
    """Pushes that were dropped, all of them, and the rank of which the most were."""
    line = re.search(r"^dropped +(\d+) of (\d+) pushes .* most of rank (\d+): ", said, re.M)
    return tuple(map(int, line.groups())) if line else (0, 0, -1)


def test_none_is_ps():
    """The same updates, by the same sums; and the same as all ranks adding their gradients."""
    runs = {}
    for name, words in (("backup", (*BACKUP, "--backup", 0)), ("ps", (*RUN, "--strategy", "ps")), ("sync", (*RUN, "--allreduce", "halving"))):
        out = folder(name)
        said = ranks(3, *words, "--batch", 96, "--micro-batch", 16, "--steps", 9, "--schedule", "cosine", "--optimizer", "adam", "--lr", 0.002,
                     "--out", out, env={"STARGRAD_CPU_ALGORITHM": "rule"})     # what is measured may choose other kernels in each run
        assert not dropped(said)[0], said
        runs[name] = losses(out), content(out)
    assert runs["backup"] == runs["ps"]
    assert all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(runs["backup"][0], runs["sync"][0])), [run[0] for run in runs.values()]


def test_learns():
    """Three ranks and four, one gradient or more left out, continued; a step of every rank is counted."""
    for count, more in ((3, ()), (4, ("--backup", 2, "--staleness", 2, "--servers", 1))):
        out = folder("learns")
        ranks(count, *BACKUP, *more, "--batch", 96, "--epochs", 2, "--out", out)
        said = ranks(count, *BACKUP, *more, "--batch", 96, "--epochs", 5, "--out", out, "--resume")
        late, all_of_them, _ = dropped(said)
        assert 0 < late < all_of_them and all_of_them % (3 * 14 * count) == 0, said
        assert len(losses(out)) == 5 * 14
        top1 = events(out, "epoch")[-1]["test_top1"]
        assert top1 >= 0.9, f"{count} ranks: {top1}"
        again = re.search(r"test accuracy ([\d.]+)", stargrad("eval", "--weights", os.path.join(out, "model.safetensors"), *RUN[1:5]))
        assert abs(float(again[1]) / 100 - top1) < 0.001, (again[1], top1)


def test_slow_rank():
    """Rank 2 is stopped for a while, turns a step, is stopped again: meanwhile the others update, more than once.
    Ranks 0 and 1 serve alike: a rank that serves alone has the most to do, and is the slow one."""
    steps, out = 24, folder("slow")
    run = mpirun(3, *BACKUP, "--batch", 96, "--steps", steps, "--staleness", 3, "--servers", 2, "--out", out, "--cpus", 1)
    for step in range(2, steps):
        wait_for_steps(out, step, run)
        strike(run, 2, signal.SIGSTOP)
        time.sleep(0.2)     # how slow it is; what it leads to is waited for above
        strike(run, 2, signal.SIGCONT)
    status, said = end(run)
    late, _, whose = dropped(said)
    assert status == 0 and len(losses(out)) == steps, said
    assert late >= steps and whose == 2, said
    assert re.search(r"^staleness .* [2-9]: ", said, re.M), said


def test_ends_early():
    """After a signal, and a loss that is no number, ranks end together though servers hold pushes."""
    out = folder("signal")
    run = mpirun(3, *BACKUP, "--batch", 96, "--epochs", 1000, "--out", out, "--cpus", 1)
    wait_for_steps(out, 3, run)
    run.send_signal(signal.SIGUSR1)
    status, said = end(run)
    step = re.search(r"User defined signal 1: stopped after step (\d+); checkpoint written", said)
    assert status and step and os.path.exists(os.path.join(out, f"checkpoint-{step[1]}.safetensors")), said
    said = ranks(3, *BACKUP, "--batch", 96, "--lr", 1e6, "--epochs", 3, "--out", folder("nan"), status=1)
    assert said.count("the loss is not a number") == 1, said


def test_what_does_not_go_together():
    for words, why in ((("--strategy", "sync"), "--backup requires --strategy backup"), (("--strategy", "backup"), "--backup 1 must be less than the 1 rank"),
                       (("--strategy", "backup", "--deterministic"), "its result depends on timing")):
        said = stargrad(*RUN, "--batch", 96, "--steps", 1, *words, "--backup", 1, "--out", folder("wrong"), status=2)
        assert why in said and said.count("\n") == 1, said
    said = ranks(3, *BACKUP, "--batch", 96, "--steps", 1, "--bn-group", "global", "--out", folder("wrong"), status=2)
    assert "spans ranks that --strategy backup does not synchronise" in said, said


if __name__ == "__main__":
    main(globals())
