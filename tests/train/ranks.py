"""Several ranks train as one rank does: to the bit with --deterministic and 2^k ranks, to 1e-5 with any number and any allreduce
algorithm."""
import json
import os
import re
import signal
import subprocess

from run import (FOLDER, RANKS, Skip, by_rank, command, content, events, folder, long, losses, main, mpirun, ranks, stargrad,
                 wait_for_steps)

# Batch norm and augmentation; dropout and augmentation.
NETWORKS = {
    "resnet20": ("--model", "resnet20", "--data", "synthetic:16x16x3,10,256", "--augment", "crop:4,flip", "--lr", 0.02),
    "nin": ("--model", "nin", "--data", "synthetic:16x16x3,10,256", "--augment", "crop:4,flip", "--lr", 0.01),
}
REGULARIZED = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/train/regularized")
FIELDS = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/train/fields")
SMALL = ("train", "--model", "convnet", "--data", "synthetic:16x16x3,10,512", "--lr", 0.05, "--bn-group", "global")


def outcome(out):
    return losses(out), [(e["test_loss"], e["test_top1"]) for e in events(out, "epoch")], content(out)


def train(count, *words, name="out"):
    out = folder(f"{name}-{count}")
    if count > 1:
        ranks(count, *words, "--out", out)
    else:
        stargrad(*words, "--out", out, "--cpus", 1)
    return outcome(out)


def near(one, other):
    return len(one) == len(other) and all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(one, other))


def same_bits(name, *counts):
    run = ("train", *NETWORKS[name], "--batch", 64, "--steps", 3, "--bn-group", "global", "--deterministic")
    one = train(1, *run)
    for count in counts:
        assert train(count, *run) == one, f"{name} on {count} ranks"


def test_same_bits():
    same_bits("resnet20", 2, 4)
    same_bits("nin", 4)


@long
def test_same_bits_on_more_ranks():
    same_bits("resnet20", 8)
    same_bits("nin", 2, 8)


def test_same_bits_in_bf16():
    """Where a rank has a micro-batch or many, whose tasks take weights packed once a step."""
    run = ("train", *NETWORKS["resnet20"], "--batch", 32, "--steps", 2, "--bn-group", "global", "--deterministic", "--precision", "bf16")
    one = train(1, *run, "--micro-batch", 8)
    for count in (2, 4):
        assert train(count, *run, "--micro-batch", 8) == one, f"{count} ranks"


def test_several_micro_batches_a_lane():
    """Gradients are added in eight lanes over all ranks, here four micro-batches in each."""
    run = (*SMALL, "--batch", 64, "--micro-batch", 2, "--steps", 3, "--deterministic")
    one = train(1, *run)
    for count in (2, 8):
        assert train(count, *run) == one, f"{count} ranks"


def test_a_program_on_ranks():
    """Every rank has the run's folder, and one tells of it."""
    path = os.path.join(os.path.abspath(os.environ.get("builddir", "build")), "examples/02-train")
    os.makedirs(FOLDER, exist_ok=True)
    said = mpirun(2, ["-wdir", FOLDER, path], env={"STARPU_NCPU": "1"})
    told = re.findall(r"(runs/\S+|\(null\)): \d+ steps, test accuracy", said)        # what cleared a progress bar may stand before it
    assert len(told) == 1 and os.path.exists(os.path.join(FOLDER, told[0], "model.safetensors")), said


def test_recompute():
    """What is computed again takes no part in sums over ranks: batch norm's groups are made once."""
    run = ("train", *NETWORKS["resnet20"], "--batch", 32, "--steps", 3, "--bn-group", "global", "--deterministic")
    one = train(1, *run)
    for count in (1, 2):
        assert train(count, *run, "--recompute") == one, f"computed again, on {count} ranks"


def test_a_batch_that_cuts_unevenly():
    """Eighths of 328 samples are micro-batches of 21 and 20, whatever the ranks; 37 samples of a rank are 19 and 18."""
    run = (*SMALL, "--batch", 328, "--steps", 2, "--deterministic")
    one = train(1, *run)
    for count in (2, 4):
        assert train(count, *run) == one, f"{count} ranks"
    run = (*SMALL, "--batch", 74, "--steps", 2)
    assert near(train(2, *run)[0], train(1, *run)[0])


def test_groups_of_several_ranks():
    run = (*SMALL, "--bn-group", 32, "--batch", 64, "--micro-batch", 8, "--steps", 3, "--deterministic")
    one = train(1, *run)
    for count in (2, 4):
        assert train(count, *run) == one, f"groups of 32 on {count} ranks"


def test_a_micro_batch_as_group_on_unequal_ranks():
    """Rank 0 has one core, rank 1 four: they would cut their shares otherwise, and statistics are means over groups of one size."""
    run = command(*SMALL, "--bn-group", "micro", "--batch", 128, "--steps", 2)
    out, given = folder("unequal"), folder("given")
    mpirun(2, by_rank(*([*run, "--cpus", cpus, "--out", out] for cpus in (1, 4))))
    micro = json.loads(content(out, "config.json"))["micro_batch"]
    ranks(2, *SMALL, "--bn-group", "micro", "--micro-batch", micro, "--batch", 128, "--steps", 2, "--out", given)
    assert near(losses(out), losses(given))
    one, other = ([e["test_loss"] for e in events(path, "epoch")] for path in (out, given))    # by the running statistics
    assert near(one, other), (one, other)


def test_unequal_ranks_evaluate_together():
    """Ranks of one core and of four cut their shares of a step otherwise, but the batches of an evaluation are dealt out to all."""
    run, out = command(*SMALL, "--batch", 128, "--steps", 2, "--stall-timeout", 60), folder("evaluated")
    mpirun(2, by_rank(*([*run, "--cpus", cpus, "--out", out] for cpus in (1, 4))))
    equal = folder("equal")
    ranks(2, *SMALL, "--batch", 128, "--steps", 2, "--out", equal)
    one, other = ([e["test_loss"] for e in events(path, "epoch")] for path in (out, equal))
    assert near(one, other), (one, other)


def test_the_network_is_rank_0s():
    """Rank 0's file decides how all sum, whatever other hosts have under that name: two methods would wait for each other."""
    places, run = [], command(*SMALL, "--batch", 48, "--steps", 2, "--cpus", 1, "--stall-timeout", 60, "--out", folder("network"))
    for name, latency in (("slow", 1.0), ("fast", 1e-9)):       # few messages; few bytes
        places.append(folder(name))
        os.mkdir(places[-1])
        with open(os.path.join(places[-1], "network.json"), "w") as f:
            json.dump({"latency": latency, "bandwidth": 1e9}, f)
    run[0] = os.path.abspath(run[0])
    words = [*run, "--network", "network.json"]
    said = mpirun(4, by_rank(*(["env", "-C", places[rank // 2], *words] for rank in range(4))))
    assert "latency 1000000 us" in said, said


def test_any_number():
    run = (*SMALL, "--batch", 120, "--steps", 4)
    one = train(1, *run)[0]
    for count in (3, 5):
        assert near(one, train(count, *run)[0]), f"{count} ranks"


def every_allreduce(count):
    run = (*SMALL, "--batch", 48, "--steps", 3, "--clip-norm", 1, "--optimizer", "adam", "--lr", 0.001)
    one = train(1, *run)[0]
    names = re.findall(r"^(\w+)", stargrad("list", "allreduce"), re.M)
    names.remove("nccl")        # on GPUs: tests/gpu/emulated_graphs.py
    assert len(names) >= 7, names
    for name in names:
        got = train(count, *run, "--allreduce", name)[0]
        assert near(one, got), f"{name} on {count} ranks: {got}, not {one}"
    small = train(count, *run, "--bucket", 0.01)[0]
    assert near(one, small), f"small buckets: {small}, not {one}"


def test_every_allreduce():
    every_allreduce(3)


@long
def test_every_allreduce_on_four_ranks():
    every_allreduce(4)


def test_no_gpus_for_nccl():
    said = ranks(2, *SMALL, "--batch", 48, "--steps", 3, "--gpus", 0, "--allreduce", "nccl", "--out", folder("nccl"), status=1)
    assert re.search(r"built without NCCL; build it with CUDA and configure --with-nccl|NCCL requires GPUs, but rank \d has none; give --gpus 1", said), said


def test_parameter_servers():
    """In step they are another way to the same sums."""
    run = (*SMALL, "--batch", 64, "--steps", 4, "--deterministic", "--bucket", 0.05)
    one = train(1, *run)
    for count, servers in ((2, 1), (4, 3), (4, 4)):
        assert train(count, *run, "--strategy", "ps", "--servers", servers) == one, f"{servers} servers, {count} ranks"


def test_asynchronous():
    """They learn; nobody runs further ahead than allowed; a checkpoint has the servers' weights, and is continued."""
    run = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--lr", 0.02, "--bucket", 0.1, "--staleness", 1)
    for more in (("--strategy", "async"), ("--strategy", "mixed", "--group", 2)):
        out = folder("async")
        ranks(4, *run, *more, "--epochs", 2, "--out", out)
        said = ranks(4, *run, *more, "--epochs", 4, "--out", out, "--resume")
        top1 = events(out, "epoch")[-1]["test_top1"]
        assert top1 >= 0.9, f"{more}: {top1}"
        again = re.search(r"test accuracy ([\d.]+)", stargrad("eval", "--weights", os.path.join(out, "model.safetensors"), *run[1:5]))
        assert abs(float(again[1]) / 100 - top1) < 0.001, (again[1], top1)
        stale = [int(n) for n in re.findall(r"(\d+)(?: or more)?: [\d.]+ %", re.search(r"^.*staleness (.*)$", said, re.M)[1])]
        pushers = 4 if "async" in more else 2
        assert max(stale) <= 2 * 2 * (pushers - 1), said


def test_what_does_not_go_together():
    for words, why in ((("--strategy", "async", "--deterministic"), "its result depends on timing"), (("--strategy", "ps", "--clip-norm", 1), "--clip-norm"),
                       (("--strategy", "ps", "--allreduce", "ring"), "--allreduce"), (("--allreduce", "ring", "--deterministic"), "its order of sums varies"),
                       (("--strategy", "sink",), "did you mean 'sync'")):
        said = stargrad(*SMALL, "--batch", 64, "--steps", 1, *words, "--out", folder("wrong"), status=2)
        assert why in said, said


def same_bits_with_all_at_once(*counts):
    """Batch norm over the global batch, dropout and augmentation in one network (tests/graphs/train/regularized.c)."""
    if not os.path.exists(REGULARIZED):
        raise Skip(f"{REGULARIZED} is not built: cmocka is not installed")
    runs = {}
    for count in (1, *counts):
        out = folder(f"regularized-{count}")
        mpirun(count, [REGULARIZED, out])
        runs[count] = outcome(out)
    for count, run in runs.items():
        assert run == runs[1], f"{count} ranks"


def test_same_bits_with_all_at_once():
    same_bits_with_all_at_once(2, 4)


@long
def test_same_bits_with_all_at_once_on_eight_ranks():
    same_bits_with_all_at_once(8)


def test_same_bits_of_numbers():
    """Samples of three fields, none an image, and a mean squared error (tests/graphs/train/fields.c)."""
    if not os.path.exists(FIELDS):
        raise Skip(f"{FIELDS} is not built: cmocka is not installed")
    runs = {}
    for count, partition in ((1, 0), (2, 0), (4, 0), (2, 1), (4, 1)):
        out = folder(f"fields-{count}-{partition}")
        mpirun(count, [FIELDS, out, str(partition)])
        runs[count, partition] = losses(out), [(e["test_loss"], e["test_mae"]) for e in events(out, "epoch")], content(out)
    for how, run in runs.items():
        assert run == runs[1, 0], how


def test_resume_on_fewer():
    run = (*SMALL, "--batch", 64, "--steps", 6, "--checkpoint-every", "3s", "--deterministic")
    whole = train(1, *run, name="whole")
    for count in (1, 2):
        out = folder("parted")
        ranks(4, *run, "--out", out)
        for file in os.listdir(out):
            if file == "checkpoint-6.safetensors" or file == "model.safetensors":
                os.remove(os.path.join(out, file))
        (ranks if count > 1 else stargrad)(*([count] if count > 1 else []), *run, "--out", out, "--resume")
        assert outcome(out) == whole, f"4 ranks, then {count}"


def test_signal():
    """mpirun hands SIGUSR1 on to its ranks, which see it at different moments, and end after the same step."""
    out = folder("signal")
    words = ["mpirun", "-n", "3", *command(*SMALL, "--batch", 48, "--epochs", 1000, "--out", out, "--cpus", 1)]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **RANKS})
    wait_for_steps(out, 3, run)
    assert run.poll() is None, run.communicate()[0]
    run.send_signal(signal.SIGUSR1)
    said = run.communicate(timeout=120)[0]
    assert run.returncode, said
    step = re.search(r"User defined signal 1: stopped after step (\d+); checkpoint written", said)
    assert step, said
    assert os.path.exists(os.path.join(out, f"checkpoint-{step[1]}.safetensors")), os.listdir(out)


def test_differences_are_told():
    one, other = (command(*SMALL, "--batch", 48, "--steps", 1, "--lr", lr, "--out", folder("differ"), "--cpus", 1) for lr in (0.1, 0.2))
    said = mpirun(3, by_rank(one, one, other), status=1)
    assert re.search(r'rank 2 has "lr": 0.2.*rank 0 has "lr": 0.1', said), said
    one = command(*SMALL, "--batch", 48, "--steps", 1, "--cpus", 1, "--stall-timeout", 60, "--out", folder("differ"))
    for word, wanted in ((("--bn-group", "micro"), "start all ranks with the same program, options and data"),
                         (("--resume",), "rank 1: .*: contains no run to continue")):
        said = mpirun(2, by_rank(one, [*one, *word]), status=1)
        assert re.search(wanted, said) and "nothing has happened" not in said, said
    said = ranks(3, *SMALL, "--batch", 64, "--steps", 1, "--out", folder("shared"), status=2)
    assert "--batch 64 cannot be divided among 3 ranks; give --batch 66" in said, said


if __name__ == "__main__":
    main(globals())
