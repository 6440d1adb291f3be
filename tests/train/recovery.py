"""Ranks that launch starts are lost at any moment. The run continues from a snapshot in memory, and ends with the bits of the undisturbed run."""
import functools
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading

from run import FOLDER, RANKS, Skip, by_rank, children_of, command, content, events, folder, has_open_mpi, long, losses, main, mpirun, ranks_of, stargrad, wait_for_steps, wait_until

BARE = ("train", "--model", "convnet", "--data", "synthetic:16x16x3,10,512", "--batch", 64, "--epochs", 5, "--lr", 0.05, "--deterministic",
        "--cpus", 1)
RUN = (*BARE, "--bn-group", "global")
STEPS = 40
MEMORY = os.path.join(FOLDER, "memory")     # of the host, instead of /dev/shm
LIMIT = 600     # seconds: what has not ended by then hangs
os.makedirs(MEMORY, exist_ok=True)
os.environ["STARGRAD_SNAPSHOTS"] = MEMORY


@functools.cache
def whole(*options):
    out = folder("whole-" + "-".join(map(str, options)).replace("/", "_"))
    stargrad(*RUN, *options, "--out", out)
    return out


def launch(count, out, *options, retries=1000):
    """Starts a run whose only checkpoint on disk is that of its end, so that it can continue only from memory."""
    words = [*command("launch", "-n", count, "--retries", retries, "--"), *map(str, (*RUN, "--checkpoint-every", 0, *options, "--out", out))]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env={**os.environ, **RANKS})


def recorded(out):
    """The number of the last step, also of one that is repeated later."""
    found = re.findall(rb'"step","step":(\d+)', content(out, "metrics.jsonl")) if os.path.exists(os.path.join(out, "metrics.jsonl")) else []
    return int(found[-1]) if found else 0


def strike(process, chosen, number=signal.SIGKILL):
    """Sends the signal to these of the ranks that there are, and returns them."""
    there = ranks_of(process.pid)
    victims = [there[rank] for rank in chosen if rank in there]
    for victim in victims:
        try:
            os.kill(victim, number)
        except ProcessLookupError:
            pass
    return victims


def starts(said):
    return sum("; retry " in line for line in said)


def listen(process):
    """A list of the lines on standard error, which grows while the process runs, and the thread that reads them."""
    said = []
    thread = threading.Thread(target=lambda: said.extend(iter(process.stderr.readline, "")))
    thread.start()
    return said, thread


def end(process, thread, said):
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        raise
    thread.join()
    return "".join(said)


def check(out, reference, said):
    """Each step counts once, with the loss of the undisturbed run; the weights have its bits; the memory is free."""
    assert [e["step"] for e in events(out)] == list(range(1, STEPS + 1)), said
    assert losses(out) == losses(reference) and content(out) == content(reference), said
    assert not os.listdir(MEMORY), os.listdir(MEMORY)
    for failure in events(out, "failure"):
        assert 0 <= failure["step"] < STEPS and failure["seconds"] >= 0 and failure["repeated"] >= 0, failure


def test_kills_at_any_moment():
    """Kills one rank, or two at once, at random steps, and some during the restart that follows."""
    out, seed = folder("killed"), random.randrange(1000)
    dice = random.Random(seed)
    print(f"         seed {seed}")
    process = launch(4, out, "--snapshot-every", 2)
    said, thread = listen(process)
    for _ in range(5):
        at = min(recorded(out) + dice.randrange(1, 8), STEPS - 1)
        wait_until(lambda at=at: recorded(out) >= at, process)
        before = starts(said)
        victims = strike(process, dice.sample(range(4), dice.choice((1, 1, 2))))
        if victims:
            wait_until(lambda before=before: starts(said) > before, process)
        if victims and dice.random() < 0.5:     # the next ones, as soon as they are there
            wait_until(lambda: ranks_of(process.pid), process)
            strike(process, dice.sample(range(4), 1))
    text = end(process, thread, said)
    assert process.returncode == 0, text
    check(out, whole(), text)
    assert starts(said) >= 3 and len(events(out, "failure")) >= 1


def test_rank_0_is_lost():
    """It writes the snapshots and the metrics. The report names the loss."""
    out = folder("rank-0")
    process = launch(2, out, "--snapshot-every", 3)
    said, thread = listen(process)
    wait_for_steps(out, 10, process)
    assert strike(process, [0])
    text = end(process, thread, said)
    check(out, whole(), text)
    failure, = events(out, "failure")
    assert failure["step"] in (6, 9, 12, 15) and failure["signal"] == 9 and failure["repeated"] <= 8, failure
    assert failure["rank"] == 0 or not has_open_mpi(), failure
    assert f"{failure['seconds']:.2f} s until the next step" in stargrad("report", out)


def test_options_of_many_kinds_of_state():
    """States of the optimizer that ranks share, pipelines, averages: a snapshot has all that a checkpoint has."""
    for options in (("--shard", "optimizer", "--optimizer", "adamw", "--lr", 0.002), ("--mesh", "pipe=2", "--micro-batch", 16),
                    ("--ema", 0.9, "--best", "--evaluate-every", 5)):
        reference, out = folder("reference"), folder("states")
        mpirun(2, command(*RUN, *options, "--out", reference))
        process = launch(2, out, "--snapshot-every", 4, *options)
        said, thread = listen(process)
        wait_for_steps(out, 9, process)
        strike(process, [1])
        text = end(process, thread, said)
        check(out, reference, text)
        assert [e["test_loss"] for e in events(out, "epoch")] == [e["test_loss"] for e in events(reference, "epoch")], options


def test_a_damaged_snapshot_is_not_used():
    """The one before it is, or the run begins again: after each kill, the newest file is damaged, before the next start can read it."""
    out = folder("damaged")
    process = launch(2, out, "--snapshot-every", 3)
    said, thread = listen(process)
    wait_for_steps(out, 10, process)
    strike(process, [0, 1], signal.SIGSTOP)
    place, = os.listdir(MEMORY)
    newest = max((f for f in os.listdir(os.path.join(MEMORY, place)) if f.endswith(".safetensors")), key=lambda f: int(re.search(r"\d+", f)[0]))
    with open(os.path.join(MEMORY, place, newest), "r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"damaged!")
    strike(process, [0])
    text = end(process, thread, said)
    assert f"{newest}: is incomplete or damaged, and is skipped" in text, text
    check(out, whole(), text)


def test_memory_that_cannot_be_used():
    """The run continues without snapshots, from its checkpoints on disk."""
    out = folder("unusable")
    process = subprocess.run([str(w) for w in command(*RUN, "--snapshot-every", 2, "--out", out)], capture_output=True, text=True,
                             env={**os.environ, "STARGRAD_SNAPSHOTS": "/proc/nowhere"})
    assert process.returncode == 0 and "this host stores no snapshots" in process.stderr, process.stderr
    check(out, whole(), process.stderr)


def begin_and_kill(out, steps):
    """Leaves the snapshots of a run that is killed after so many steps, as if launch had been killed with it."""
    run = subprocess.Popen([str(w) for w in command(*RUN, "--snapshot-every", 2, "--checkpoint-every", 0, "--out", out)], stdout=subprocess.DEVNULL)
    wait_for_steps(out, steps, run)
    run.kill()
    run.wait()
    assert os.listdir(MEMORY)


def continued(out):
    """The steps after which the run was continued."""
    return [entry["step"] for entry in json.loads(content(out, "config.json")).get("continued", [])]


def test_snapshots_of_a_launch_that_was_killed():
    """The run can be resumed from them. A new run in another folder of the same name does not use them."""
    out = folder("again")
    begin_and_kill(out, 7)
    stargrad("train", "--out", out, "--resume")
    check(out, whole(), out)
    assert continued(out)[0] >= 4, continued(out)
    shutil.rmtree(out)
    begin_and_kill(out, 7)
    shutil.rmtree(out)
    stargrad(*RUN, "--snapshot-every", 2, "--out", out)
    assert losses(out) == losses(whole()) and content(out) == content(whole())
    for place in os.listdir(MEMORY):        # of the folder that was removed
        shutil.rmtree(os.path.join(MEMORY, place))


def test_snapshots_of_steps_that_were_repeated():
    """A host that was lost returns, after the run has begun again without it. Its snapshots are those of abandoned steps."""
    out, aside = folder("returned"), os.path.join(FOLDER, "aside")
    begin_and_kill(out, 7)
    place, = os.listdir(MEMORY)
    os.rename(os.path.join(MEMORY, place), aside)
    run = subprocess.Popen([str(w) for w in command("train", "--out", out, "--resume")], stdout=subprocess.DEVNULL)
    wait_until(lambda: continued(out) == [0] and recorded(out) >= 1, run)
    run.kill()
    run.wait()
    shutil.rmtree(os.path.join(MEMORY, place), ignore_errors=True)
    os.rename(aside, os.path.join(MEMORY, place))
    said = subprocess.run(command("train", "--out", out, "--resume"), check=True, capture_output=True, text=True).stderr
    assert "has continued from an earlier step since, so this snapshot is removed" in said, said
    assert continued(out) == [0, 0], continued(out)
    check(out, whole(), said)


def test_a_launch_that_is_refused_removes_nothing():
    """The run directory is that of an earlier run, which can still be resumed from its snapshots."""
    out = folder("refused")
    begin_and_kill(out, 7)
    place, = os.listdir(MEMORY)
    kept = sorted(os.listdir(os.path.join(MEMORY, place)))
    process = launch(1, out, retries=1)
    said, thread = listen(process)
    text = end(process, thread, said)
    assert process.returncode and sorted(os.listdir(os.path.join(MEMORY, place))) == kept, text
    stargrad("train", "--out", out, "--resume")
    check(out, whole(), text)


def on_hosts(out, *options):
    """The run on two ranks that believe to be on two hosts, each with its own memory."""
    words = shlex.join(map(str, command(*RUN, "--snapshot-every", 2, "--checkpoint-every", 0, *options, "--out", out)))
    return ["mpirun", "-n", "2", *by_rank(*(["unshare", "--uts", "sh", "-c", f"hostname host{rank} && STARGRAD_SNAPSHOTS={MEMORY}/{rank} exec {words}"]
                                            for rank in range(2)))]


def begin_on_hosts(out, *options):
    if subprocess.run(["unshare", "--uts", "hostname", "other"], capture_output=True).returncode:
        raise Skip("unshare cannot rename the host")
    for rank in range(2):
        os.makedirs(f"{MEMORY}/{rank}", exist_ok=True)
    run = subprocess.Popen(on_hosts(out, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **RANKS})
    wait_for_steps(out, 7, run)
    return run


def continue_on_hosts(out, reference, *options):
    said = subprocess.run(on_hosts(out, *options, "--resume"), check=True, capture_output=True, text=True, env={**os.environ, **RANKS}).stderr
    assert continued(out)[0] >= 4, continued(out)
    for rank in range(2):
        os.rmdir(f"{MEMORY}/{rank}")
    check(out, reference, said)
    return said


def test_a_host_that_is_lost():
    """Its memory is empty then. The first rank of each host stores the whole state, and sends it to rank 0 when the run continues."""
    for options in ((), ("--shard", "optimizer", "--optimizer", "adamw", "--lr", 0.002)):
        reference, out = folder("reference"), folder("hosts")
        mpirun(2, command(*RUN, *options, "--out", reference))
        run = begin_on_hosts(out, *options)
        strike(run, [0, 1])
        run.wait(LIMIT)
        for place in os.listdir(f"{MEMORY}/0"):
            shutil.rmtree(f"{MEMORY}/0/{place}")
        continue_on_hosts(out, reference, *options)


def test_a_rank_that_launch_has_not_ended():
    """On a host that it does not reach, an old rank still holds the lock of the snapshots. The new rank there kills it."""
    out = folder("left")
    run = begin_on_hosts(out)
    strike(run, [0, 1])
    run.wait(LIMIT)
    place, = os.listdir(f"{MEMORY}/1")
    hold = f"import fcntl, signal; f = open('{MEMORY}/1/{place}/.lock', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); signal.pause()"
    old = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE)
    old.stdout.readline()
    said = continue_on_hosts(out, whole())
    assert f"process {old.pid}, of an earlier start of this run, still runs; it is killed" in said, said
    assert old.wait(LIMIT) == -signal.SIGKILL


def test_an_mpirun_that_hangs_after_its_ranks():
    """It is killed, and the run continues. (Open MPI 4.1.4 sometimes waits forever for a lock when it ends.)"""
    out = folder("hangs")
    process = launch(2, out, "--snapshot-every", 2)
    said, thread = listen(process)
    wait_for_steps(out, 5, process)
    there = ranks_of(process.pid)
    mpirun_of_run, = children_of(process.pid)
    os.kill(mpirun_of_run, signal.SIGSTOP)
    for victim in there.values():
        os.kill(victim, signal.SIGKILL)
    text = end(process, thread, said)
    assert process.returncode == 0 and "mpirun did not answer: mpirun was killed; retry 1" in text, text
    check(out, whole(), text)


@long
def test_a_rank_that_is_stopped_during_the_start():
    """The start of MPI has no timeout, so launch kills the rank."""
    out = folder("start")
    process = launch(2, out, "--snapshot-every", 2, "--stall-timeout", 3)
    said, thread = listen(process)
    wait_until(lambda: strike(process, [1], signal.SIGSTOP), process)
    text = end(process, thread, said)
    assert process.returncode == 0 and starts(said) >= 1, text
    check(out, whole(), text)


@long
def test_a_stopped_rank_counts_as_dead():
    """It is killed, so that it cannot write when it is continued."""
    for rank in (0, 1):
        out = folder("stopped")
        process = launch(2, out, "--snapshot-every", 2, "--stall-timeout", 3)
        said, thread = listen(process)
        wait_for_steps(out, 5, process)
        victim, = strike(process, [rank], signal.SIGSTOP)
        text = end(process, thread, said)
        assert process.returncode == 0 and not os.path.exists(f"/proc/{victim}"), text
        check(out, whole(), text)
        failure, = events(out, "failure")
        assert failure["rank"] == rank or not has_open_mpi(), failure


def has_pending(process, number):
    """The signal waits until the stopped process continues."""
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return int(re.search(r"ShdPnd:\s*(\w+)", file.read())[1], 16) >> (number - 1) & 1


def resize(out, process, hosts, slots, said, step, lost=()):
    """Writes another number of slots to the file of hosts, after STEP at the earliest. The ranks are stopped until the request to end has reached
    them, so that the run does not end before. LOST: ranks that are killed then."""
    wait_until(lambda: recorded(out) >= step, process)
    changes = sum(" has changed; " in line for line in said)
    victims = strike(process, range(4), signal.SIGSTOP)
    with open(hosts, "w", encoding="ascii") as file:
        file.write(f"localhost slots={slots}\n")
    wait_until(lambda: sum(" has changed; " in line for line in said) > changes and all(has_pending(v, signal.SIGUSR1) for v in victims), process)
    for rank, victim in enumerate(victims):
        os.kill(victim, signal.SIGKILL if rank in lost else signal.SIGCONT)
    wait_until(lambda: sum("the run continues on" in line for line in said) > changes, process)
    return recorded(out)


def resized(slots, *options, run=RUN, lost=()):
    """The run of 2 ranks, whose hosts get each of the slots in turn. Returns its folder, what launch said, and the steps of the changes. LOST: as in
    resize."""
    out, hosts, at = folder("resized"), os.path.join(FOLDER, "hostfile"), []
    with open(hosts, "w", encoding="ascii") as file:
        file.write("localhost slots=2\n")
    words = [*command("launch", "-n", 2, "--hostfile", hosts, "--resize", "--"), *map(str, (*run, "--checkpoint-every", 0, *options, "--out", out))]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env={**os.environ, **RANKS})
    said, thread = listen(process)
    for number in slots:
        at.append(resize(out, process, hosts, number, said, (at[-1] if at else 0) + 4, lost))
    text = end(process, thread, said)
    assert process.returncode == 0, text
    assert [e["step"] for e in events(out)] == list(range(1, STEPS + 1)), text
    assert lost or at == continued(out), (at, continued(out), text)
    return out, text, at


def test_ranks_that_follow_the_hosts():
    """2, 4, 3, 2 ranks. The bits are the same until the run has 3, whose results agree to rounding, of which launch warns."""
    reference = whole("--batch", 48, "--steps", STEPS)
    out, said, at = resized((4, 3, 2), "--batch", 48, "--steps", STEPS)
    assert losses(out)[:at[1]] == losses(reference)[:at[1]], (at, said)
    assert all(abs(a - b) < 1e-3 * max(b, 0.01) for a, b in zip(losses(out), losses(reference))), (losses(out), losses(reference))
    assert "on 3 ranks, with 4 before; results agree to rounding" in said, said
    assert re.search("after step .*, on 4 ranks .was 2", stargrad("report", out)), said


def test_a_rank_that_is_lost_while_the_hosts_change():
    """The ranks have been asked to end with a checkpoint, which they cannot write. The run continues from a snapshot, and records the loss."""
    out, said, _ = resized((4,), "--snapshot-every", 2, lost=[1])
    check(out, whole(), said)
    failure, = events(out, "failure")
    assert failure["signal"] == 9 and (failure["rank"] == 1 or not has_open_mpi()), failure


@long
def test_1_2_and_4_ranks_in_turn():
    out, said, _ = resized((4, 1, 2), "--snapshot-every", 3)
    check(out, whole(), said)


def test_groups_of_batch_norm_that_depend_on_ranks():
    """Three ranks cannot have the groups with which two began, so the run continues on the hosts before. If the size of the groups is to follow the
    ranks, a warning states it."""
    grouped = ("--batch", 48, "--steps", STEPS)
    reference = folder("reference")
    mpirun(2, command(*BARE, *grouped, "--out", reference))
    out, said, _ = resized((3,), *grouped, run=BARE)
    assert "the run cannot continue on the hosts of" in said and "on those before, on 2 ranks" in said, said
    check(out, reference, said)
    _, said, _ = resized((3,), *grouped, "--bn-group", "rank", run=BARE)
    assert "groups of 16 samples from here on, instead of 24" in said, said


if __name__ == "__main__":
    main(globals())
