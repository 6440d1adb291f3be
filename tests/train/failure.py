"""If a rank dies or stalls, no rank hangs, and only the steps since the newest checkpoint are lost."""
import functools
import os
import random
import re
import signal
import subprocess

from run import RANKS, REFERENCE, by_rank, children_of, command, content, events, folder, losses, main, ranks, ranks_of, resuming, stargrad, wait_for_steps

RUN = ("train", "--model", "convnet", "--data", "synthetic:16x16x3,10,512", "--batch", 64, "--epochs", 3, "--lr", 0.05, "--bn-group", "global",
       "--deterministic", "--checkpoint-every", "3s", "--cpus", 1)
LONG = (*RUN, "--epochs", 1000)
FAILING = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/engine/failing")
LIMIT = 600     # seconds: what has not ended by then hangs


def start(*words):
    return subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **RANKS})


def mpirun(count, *arguments):
    return start("mpirun", "-n", count, *command(*arguments))


def launch(count, *arguments, options=()):
    return start(*command("launch", "-n", count, *options, "--"), *arguments)


def end(process):
    """Exit status and what was said."""
    try:
        said = process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        raise
    return process.returncode, said


def strike(process, rank, number):
    """Sends a rank a signal, if there is one yet, or still."""
    victim = ranks_of(process.pid).get(rank)
    if victim:
        os.kill(victim, number)
    return victim


@functools.cache
def whole():
    out = folder("whole")
    stargrad(*RUN, "--out", out)
    return out


def same(out, reference):
    return (losses(out), content(out)) == (losses(reference), content(reference))


def test_killed_at_any_moment():
    """Runs on four ranks and on two, in turn, each of which loses one somewhere, from its start on; the last one ends."""
    reference, out = whole(), folder("killed")
    seed = random.randrange(1000)
    print(f"         seed {seed}")
    dice = random.Random(seed)
    for count in (4, 2, 4, 2):
        run = mpirun(count, *RUN, "--out", out, *resuming(out))
        wait_for_steps(out, dice.randrange(24), run)
        victim = strike(run, dice.randrange(count), signal.SIGKILL)
        status, said = end(run)
        assert status or not victim or os.path.exists(os.path.join(out, "model.safetensors")), said
    ranks(2, *RUN, "--out", out, *resuming(out))
    assert same(out, reference), f"seed {seed}"
    assert not [f for f in os.listdir(out) if ".part" in f], os.listdir(out)


def stall(count, rank, seconds):
    """What the others say when RANK was stopped, and the run's folder."""
    out = folder("stalled")
    run = mpirun(count, *LONG, "--batch", 48, "--stall-timeout", seconds, "--out", out)
    wait_for_steps(out, 4, run)
    strike(run, rank, signal.SIGSTOP)
    status, said = end(run)
    assert status == 1 and f"nothing has happened for {seconds} s" in said, (status, said)
    return said, out


def test_a_stopped_rank_is_named():
    for count, rank in ((3, 1), (2, 0)):
        names = rf"no answer from rank {rank}; rank \d+ waits (in (step \d+|an evaluation) )?for "
        said, out = stall(count, rank, 3)
        if not re.search(names, said):      # a machine so busy that others seem to stand still, too
            said, out = stall(count, rank, 60)
        assert re.search(names, said), said
        assert [f for f in os.listdir(out) if re.match(r"checkpoint-\d+\.safetensors$", f)], os.listdir(out)


def test_a_failed_step_is_no_checkpoint():
    """What a rank whose kernel has failed sends is not what it should be: nothing that came of it is kept."""
    for trial in range(3):
        out = folder("failed")
        status, said = end(start("mpirun", "-n", 2, FAILING, out))
        kept = sorted(int(f[11:-12]) for f in os.listdir(out) if re.fullmatch(r"checkpoint-\d+\.safetensors", f))
        # the abort of one rank may end the other while it writes the last checkpoint
        assert status and kept in ([1, 2, 3], [1, 2]), (status, kept, said)


def test_an_evaluation_that_fails_on_one_rank_ends():
    out, run = folder("weights"), ("--model", "mlp", "--data", "synthetic:4x4x1,3,64")
    stargrad("train", *run, "--batch", 32, "--steps", 1, "--out", out)
    good, bad = (command("eval", *run, "--cpus", 1, "--weights", os.path.join(out, name)) for name in ("model.safetensors", "none"))
    status, said = end(start("mpirun", "-n", 2, *by_rank(good, bad)))
    assert status and "none: No such file or directory" in said and "nothing has happened" not in said, (status, said)


def test_an_evaluation_that_fails_on_one_rank_ends_training():
    """It runs beside steps in which nothing fails."""
    out = folder("evaluating")
    status, said = end(start("mpirun", "-n", 2, FAILING, out, "evaluating"))
    kept = [f for f in os.listdir(out) if re.fullmatch(r"checkpoint-\d+\.safetensors", f)]
    assert status and set(kept) <= {"checkpoint-8.safetensors"} and not events(out, "epoch"), (status, kept, said)


def test_launch_goes_on():
    reference, out = whole(), folder("launched")
    run = launch(2, *RUN, "--out", out, options=("--retries", 2))
    wait_for_steps(out, 5, run)
    assert strike(run, 1, signal.SIGKILL)
    status, said = end(run)
    assert status == 0 and "signal 9" in said and f"retry 1 of 2, on 2 ranks, from the newest checkpoint in {out}" in said, said
    assert same(out, reference)
    assert [e["epoch"] for e in events(out, "epoch")] == [1, 2, 3]


def test_launch_begins_what_has_not_begun():
    """Data that come late, or weights, when the folder of the trace is there: nothing is written until then, so there is nothing to continue."""
    idx = os.path.abspath(os.path.join(REFERENCE, "idx"))
    out = folder("weights-run")
    stargrad("train", "--model", "lenet", "--data", f"idx:{idx}", "--batch", 8, "--steps", 1, "--out", out)
    for name, there, words in (("late", idx, ("--data", "idx:{}")),
                               ("late.safetensors", os.path.join(out, "model.safetensors"), ("--data", f"idx:{idx}", "--trace=1", "--init", "{}"))):
        late, out = folder(name), folder("late-run")
        words = [word.format(late) for word in words]
        run = launch(2, "train", "--model", "lenet", *words, "--batch", 8, "--steps", 2, "--out", out, options=("--retries", 4))
        said = ""
        for line in run.stdout:
            said += line
            if "retry 2 of 4, on 2 ranks, from the beginning" in line:
                os.symlink(there, late)
        assert run.wait(LIMIT) == 0 and os.path.exists(os.path.join(out, "model.safetensors")), said


def test_launch_leaves_out_a_host_that_is_gone():
    out = folder("gone")
    agents = dict.fromkeys(("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"), "/bin/false")     # no way to any other host
    os.environ.update(agents)
    try:
        run = launch(6, *RUN, "--steps", 3, "--out", out, options=("--retries", 1, "--host", "localhost:3,gone.invalid:3"))
        status, said = end(run)
    finally:
        for name in agents:
            del os.environ[name]
    assert status == 0 and "on 2 ranks" in said and "unreachable: gone.invalid" in said, said      # 3 do not share 64


def test_launch_ends_when_told():
    """A batch system repeats its signal, and sends it to every process of the job: to mpirun, too, which must not kill the ranks."""
    for signals in ((signal.SIGTERM,), (signal.SIGUSR1,), (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)):
        out = folder("told")
        run = launch(2, *LONG, "--out", out, options=("--retries", 2))
        wait_for_steps(out, 4, run)
        everybody = [*children_of(run.pid), *ranks_of(run.pid).values()] if len(signals) > 1 else []
        for number in signals:
            run.send_signal(number)
        for process in everybody:
            os.kill(process, signal.SIGTERM)
        status, said = end(run)
        assert status == 1 and "checkpoint written" in said and "retry" not in said, said


def test_launch_under_nohup():
    """A terminal that closes ends it with a checkpoint, but not where that was to be ignored."""
    for ignored in (False, True):
        out = folder("closed")
        words = command("launch", "-n", 2, "--", *(LONG if not ignored else RUN), "--out", out)
        run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **RANKS},
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL))
        wait_for_steps(out, 4, run)
        run.send_signal(signal.SIGHUP)
        status, said = end(run)
        assert (status == 0) == ignored and ("checkpoint written" in said) != ignored, (ignored, status, said)


def test_launch_does_not_repeat_what_would_fail_again():
    run = launch(2, *RUN, "--lr", 1e6, "--out", folder("nan"), options=("--retries", 2))
    status, said = end(run)
    assert status == 1 and "the loss is" in said and "retry" not in said, said
    run = launch(3, *RUN, "--out", folder("shared"), options=("--retries", 2))
    status, said = end(run)
    assert status == 2 and "cannot be divided among 3 ranks" in said and "retry" not in said, said


if __name__ == "__main__":
    main(globals())
