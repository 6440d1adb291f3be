"""Signals and time limits end a run soon and in order, with a checkpoint, from which it continues to the same bits."""
import os
import random
import re
import signal
import struct
import time

from resume import RUN, SHORT, history, options, start, whole
from run import command, content, events, folder, long, losses, main, mpirun, ranks_of, resuming, stargrad, wait_for_steps, wait_until


def test_signals_end_with_a_checkpoint():
    reference = whole()
    for number, steps in ((signal.SIGINT, 7), (signal.SIGTERM, 8), (signal.SIGHUP, 9)):    # an epoch has 8
        out = folder("stopped")
        process = start(*RUN, "--out", out)
        wait_for_steps(out, steps, process)
        for _ in range(3):          # batch systems ask more than once
            process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode == 1 and "checkpoint written" in said and said.count("\n") == 1, (process.returncode, said)
        stargrad("train", "--out", out, "--resume")
        assert content(out) == content(reference) and history(out) == history(reference)


def test_a_stop_cancels_steps_in_flight():
    """Of four steps in flight none takes place, or the first, that has nearly ended."""
    out = folder("cancelled")
    run = ("train", "--model", "resnet20", "--data", "synthetic:32x32x3,10,1024", "--batch", 512, "--micro-batch", 32, "--steps", 50, "--window", 4,
           "--deterministic")
    process = start(*run, "--out", out)
    wait_for_steps(out, 1, process)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert "stopped after step" in said and len(losses(out)) <= 2, (said, len(losses(out)))


@long
def test_a_signal_after_thirty_seconds_ends_a_run_that_hangs():
    """A rank waits for another one, which stands still, so it cannot end in order. Signals of the first 30 seconds repeat the first."""
    out = folder("hangs")
    process = start(*SHORT, "--epochs", 100000, "--checkpoint-every", "1h", "--stall-timeout", 600, "--out", out, ranks=2)
    wait_for_steps(out, 10, process)
    running, still = ranks_of(process.pid).values()
    os.kill(still, signal.SIGSTOP)
    began = time.monotonic()
    os.kill(running, signal.SIGTERM)
    for second in (1, 10, 25):
        wait_until(lambda: time.monotonic() > began + second, process)
        os.kill(running, signal.SIGTERM)
    wait_until(lambda: time.monotonic() > began + 31.5, process)
    assert process.poll() is None, "a repeated signal ended the run"
    os.kill(running, signal.SIGTERM)
    wait_until(lambda: running not in ranks_of(process.pid).values(), process, limit=20)
    os.kill(still, signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode != 0


def catching(process, number):
    """Of a process and its children, one that runs stargrad and has a handler for the signal; None if there is none yet."""
    for pid in [process.pid, *ranks_of(process.pid).values()]:
        try:
            with open(f"/proc/{pid}/status") as f:
                said = f.read()
        except OSError:
            continue
        handled = re.search(r"^SigCgt:\s*(\w+)", said, re.M)
        if "Name:\tstargrad\n" in said and handled and int(handled[1], 16) >> (number - 1) & 1:
            return pid
    return None


def test_a_signal_before_the_first_step():
    """A process watches for signals before MPI starts and data are read. One that one rank gets then ends all in order. (mpirun may lose a
    signal that it is to hand on so early.)"""
    for count in (1, 2):
        out = folder("early")
        process = start(*SHORT, "--epochs", 100000, "--checkpoint-every", "1h", "--out", out, ranks=count)
        wait_until(lambda: catching(process, signal.SIGUSR1), process)
        os.kill(catching(process, signal.SIGUSR1), signal.SIGUSR1)
        said = process.communicate()[1]
        assert process.returncode == 1 and re.search("stopped (before the first|after) step", said), (process.returncode, said)


def test_a_job_ends_before_its_time():
    """Slurm's own end of the job, from its environment."""
    out = folder("job")
    soon = {"SLURM_JOB_END_TIME": str(int(time.time()) + 9)}
    said = stargrad(*SHORT, "--epochs", 100000, "--checkpoint-every", "1h", "--stop-before", "slurm-5s", "--out", out, status=1, env=soon)
    step = int(re.search(r"--stop-before slurm-5s: stopped after step (\d+); checkpoint written", said)[1])
    assert time.time() < int(soon["SLURM_JOB_END_TIME"]) and os.path.exists(f"{out}/checkpoint-{step}.safetensors"), said


def test_two_ranks_cancel_steps_in_flight():
    """The same ones. Of four in flight none takes place, or those that a rank has begun; and nothing of the cancelled ones is left."""
    run = ("train", "--model", "mlp", "--data", "digits", "--batch", 64, "--epochs", 100000, "--window", 8, "--deterministic", "--optimizer", "adam",
           "--checkpoint-every", "1h", "--cpus", 1)
    whole = folder("whole")
    mpirun(2, command(*run, "--steps", 3000, "--checkpoint-every", 3000, "--out", whole))
    for steps in (1, 40, 200):
        out = folder("cancelled")
        process = start(*run, "--out", out, ranks=2)
        wait_for_steps(out, steps, process)
        process.send_signal(signal.SIGUSR1)
        said = process.communicate()[1]
        done = int(re.search(r"stopped after step (\d+)", said)[1])
        assert done == len(losses(out)) and losses(out) == losses(whole)[:done], (said, done)
        stargrad("train", "--out", out, "--resume", "--steps", done + 20)
        assert losses(out) == losses(whole)[:done + 20], done


def test_by_the_clock():
    """Checkpoints by minutes, within epochs; an end before a time, on one rank and on two."""
    words = (*SHORT, "--epochs", 100000)
    out = folder("clock")
    process = start(*words, "--checkpoint-every", "0.01min", "--out", out)
    wait_until(lambda: any(int(f[11:].split(".")[0]) % 14 for f in os.listdir(out) if f.startswith("checkpoint-")), process)
    process.send_signal(signal.SIGUSR1)
    process.communicate()
    step = len(losses(out))
    stargrad("train", "--out", out, "--resume", "--steps", step + 1)
    assert options(out)["checkpoint_seconds"] == 0.6 and len(losses(out)) == step + 1
    for count in (1, 2):
        out = folder("clock")
        words = (*SHORT, "--epochs", 100000, "--checkpoint-every", "1h", "--stop-before", 3, "--out", out)
        said = stargrad(*words, status=1) if count == 1 else mpirun(count, command(*words), status=1)
        step = int(re.search(r"--stop-before 3: stopped after step (\d+); checkpoint written; continue with", said)[1])
        assert step == len(losses(out)) and os.path.exists(f"{out}/checkpoint-{step}.safetensors"), said
    soon = {"SLURM_JOB_END_TIME": str(int(time.time()) + 100000)}
    for before in ("slurm-5min", "slurm-90", "slurm-1h", "23:59", "00:01:30", "90min"):
        stargrad(*SHORT, "--stop-before", before, "--print", env=soon)
    for before, why in (("25:00", "must be a duration from now"), ("soon", "must be a duration"), ("slurm-5min", "SLURM_JOB_END_TIME is not set"),
                        ("2020-01-01T00:00", "is in the past"), ("slurm-", "must be a duration"), ("", "must be a duration")):
        assert why in stargrad(*SHORT, "--stop-before", before, "--print", status=2, env={"SLURM_JOB_END_TIME": ""}), before


def test_a_signal_does_not_wait_for_an_evaluation():
    run = ("train", "--model", "resnet20", "--data", "synthetic:32x32x3,10,40000", "--batch", 64, "--steps", 2)
    out = folder("evaluating")
    process = start(*run, "--out", out)
    wait_until(lambda: os.path.exists(os.path.join(out, "checkpoint-2.safetensors")), process)  # before 4000 samples are evaluated
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 1 and "stopped after step 2; checkpoint written" in said, said
    assert not events(out, "epoch")
    stargrad(*run, "--out", out, "--resume")        # its continuation owes the epoch's line
    assert [e["step"] for e in events(out, "epoch")] == [2] and events(out, "epoch")[0]["test_top1"] is not None


def much_to_evaluate():
    """A data set whose evaluation takes longer than an epoch's 8 steps of 32, at least if more is submitted with every step."""
    out = folder("much")
    os.mkdir(out)
    dice = random.Random(1)
    for part, count in (("train", 256), ("t10k", 4000)):
        for name, rank, size in (("images-idx3", 3, 64), ("labels-idx1", 1, 1)):
            with open(os.path.join(out, f"{part}-{name}-ubyte"), "wb") as f:
                f.write(struct.pack(">HBB", 0, 8, rank) + struct.pack(f">{rank}I", *(count, 8, 8)[:rank]))
                f.write(bytes(i % 10 for i in range(count)) if rank == 1 else dice.randbytes(count * size))
    return out


def test_what_ends_beside_an_evaluation():
    """Its line may come after those of later steps. A signal does not keep it from coming; killed, the run owes it no more than that step."""
    run = ("train", "--model", "convnet", "--data", "idx:" + much_to_evaluate(), "--batch", 32, "--epochs", 3, "--deterministic")
    reference, out = folder("told"), folder("beside")
    stargrad(*run, "--out", reference)
    for kind, steps in (("step", [*range(1, 25)]), ("classes", [8, 16, 24]), ("epoch", [8, 16, 24])):
        assert [event["step"] for event in events(reference, kind)] == steps, kind
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = start(*run, "--out", out, *resuming(out))
        wait_for_steps(out, 9 if number == signal.SIGTERM else 17, process)
        process.send_signal(number)
        _, said = process.communicate()
        assert number == signal.SIGKILL or ("checkpoint written" in said and [e["step"] for e in events(out, "epoch")][:1] == [8]), said
    stargrad(*run, "--out", out, "--resume")
    assert losses(out) == losses(reference) and history(out) == history(reference) and content(out) == content(reference)


if __name__ == "__main__":
    main(globals())
