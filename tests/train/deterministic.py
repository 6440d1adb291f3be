"""With --deterministic, the same command gives the same bits for any number of workers, any scheduler and any window."""
import json
import os
import re

from run import REFERENCE, content, folder, long, losses, main, ranks, stargrad

RUN = ("train", "--model", "convnet", "--data", "synthetic:16x16x3,10,512", "--augment", "crop:4,flip", "--batch", 64, "--epochs", 1,
       "--deterministic", "--lr", 0.05)


def train(name, *more, env=None):
    out = folder(name)
    stargrad(*RUN, *more, "--out", out, env=env)
    return losses(out), content(out)


def test_workers_schedulers_windows():
    first = train("first", "--cpus", 1)
    assert len(first[0]) == 8
    for more in (("--cpus", 2), ("--cpus", 2, "--scheduler", "eager"), ("--cpus", 2, "--scheduler", "prio"), ("--window", 1), ("--window", 4)):
        again = train("again", *more)
        assert again == first, f"{more}: {again[0]} is not {first[0]}"


def test_seed_matters():
    assert train("one", "--seed", 1) != train("two", "--seed", 2)


def test_micro_batch_is_how_never_what():
    one, other = train("one", "--micro-batch", 8)[0], train("other", "--micro-batch", 32)[0]
    assert all(abs(a - b) <= 1e-5 * b for a, b in zip(one[:4], other)), (one, other)


def test_micro_batches_need_not_be_equal():
    """A batch of 61, which nothing divides, is 31 and 30."""
    run = ("train", "--model", "resnet20", "--data", "synthetic:16x16x3,10,183", "--augment", "crop:4,flip", "--lr", 0.01, "--epochs", 1,
           "--deterministic", "--batch", 61)
    chosen, whole = folder("chosen"), folder("whole")
    assert "2 micro-batches x 31 or 30" in stargrad(*run, "--out", chosen)
    assert "1 micro-batch x 61" in stargrad(*run, "--micro-batch", 61, "--out", whole)
    one, other = losses(chosen), losses(whole)
    assert len(one) == 3 and all(abs(a - b) <= 1e-5 * b for a, b in zip(one, other)), (one, other)


def test_batches_that_are_no_multiple_of_8():
    """Ranks share 12 samples as 4 equal pieces and 6 as 2, so that 1, 2 and 4 ranks compute micro-batches of the same samples."""
    for batch, counts in ((12, (2, 4)), (6, (2,))):
        run = ("train", "--model", "convnet", "--data", "digits", "--batch", batch, "--bn-group", "global", "--steps", 3, "--evaluate-last",
               "--deterministic")
        one = folder("one")
        stargrad(*run, "--cpus", 1, "--out", one)
        for count in counts:
            out = folder("shared")
            ranks(count, *run, "--out", out)
            same = losses(out) == losses(one) and content(out) == content(one)      # pytest takes minutes to show how bytes differ
            assert same, f"batch {batch} on {count} ranks: losses {losses(out)}, not {losses(one)}"


def test_groups():
    """Batch norm over 16 samples is the same run in micro-batches of 16 and of 4."""
    one, other = (train("group", "--bn-group", 16, "--micro-batch", m)[0] for m in (16, 4))
    assert all(abs(a - b) <= 1e-5 * b for a, b in zip(one[:4], other)), (one, other)
    assert one != train("rank", "--micro-batch", 16)[0]


def test_dropout():
    """Masks depend on the sample's place in the batch alone."""
    run = ("train", "--model", "nin", "--data", "synthetic:16x16x3,10,64", "--augment", "crop:4,flip", "--batch", 16, "--steps", 3, "--lr", 0.01,
           "--deterministic")
    got = []
    for m in (16, 4):
        out = folder("nin")
        stargrad(*run, "--micro-batch", m, "--out", out)
        got.append(losses(out))
    assert all(abs(a - b) <= 1e-5 * b for a, b in zip(*got)), got


def fused(*rows):
    for model, batch, micro, *more in rows:
        run = ("train", "--model", model, "--data", "synthetic:32x32x3,10,128", "--batch", batch, *(("--micro-batch", micro) if micro else ()), *more,
               "--steps", 3, "--lr", 0.01, "--deterministic")
        got = []
        for how in ((), ("--no-fuse",)):
            out = folder("fused")
            stargrad(*run, *how, "--out", out)
            got.append(losses(out))
        assert all(abs(a - b) <= 1e-5 * b for a, b in zip(*got)), (run, got)


def test_fused():
    """Operations do the same as one task, a few samples at a time and in shared memory, and as a task each."""
    fused(("lenet", 64, 32), ("nin", 48, 4), ("resnet20", 61, 0), ("resnet20", 64, 4, "--bn-group", 8))


@long
def test_fused_in_other_sizes():
    fused(("resnet20", 64, 32), ("nin", 32, 32), ("nin", 61, 0))


def recompute(*rows):
    for model, size, *more in rows:
        run = ("train", "--model", model, "--data", f"synthetic:{size}x{size}x3,10,128", "--augment", "crop:4,flip", "--batch", 64, *more,
               "--steps", 2, "--lr", 0.01)
        got = []
        for how in ((), ("--recompute",)):
            out = folder("recompute")
            said = stargrad(*run, *how, "--out", out)
            assert bool(re.search(r"^recompute  the activations of [1-9][0-9]* of [0-9]+ layers", said, re.M)) == bool(how), said
            got.append((losses(out), content(out)))
        assert got[0] == got[1], (run, got[0][0], got[1][0])


def test_recompute():
    """What is computed again in backward has the bits that it had, as one task and as many, whether kernels are measured or chosen by rule:
    batch norm over all samples and over a few; shortcuts; dropout and pools."""
    recompute(("resnet20", 32, "--bn-group", 16, "--micro-batch", 4, "--deterministic"), ("resnet20", 16, "--no-fuse", "--window", 1),
              ("nin", 32, "--micro-batch", 8))


@long
def test_recompute_of_larger_networks():
    recompute(("resnet20", 32, "--micro-batch", 32), ("resnet18", 32, "--deterministic"), ("vgg11", 32, "--precision", "bf16"))


def test_recompute_takes_less_memory():
    """By the program's own account of it."""
    def memory(*how):
        said = stargrad("train", "--model", "resnet50", "--data", "synthetic:224x224x3,10,64", "--batch", 64, "--deterministic", "--cpus", 2,
                        "--print", *how)
        return float(re.search(r"^memory +up to ([0-9.]+) MB on this rank", said, re.M)[1])

    assert memory("--recompute") < 0.6 * memory()


def test_augmentation():
    """Images are changed as their data set says, or the user, which a run says and its folder keeps."""
    def run(data, *words):
        out = folder("augmented")
        said = stargrad("train", "--model", "convnet", "--data", data, "--batch", 32, "--steps", 2, "--deterministic", "--out", out, *words)
        told = re.search(r"^data .*; augmentation (\S+)$", said, re.M)[1]
        assert json.loads(content(out, "config.json"))["options"]["augment"] == told, said
        return told, losses(out)

    cifar10 = "cifar10:" + os.path.join(REFERENCE, "cifar10")
    assert run(cifar10) == run(cifar10, "--augment", "flip,crop:1/8") and run(cifar10)[0] == "crop:4,flip"
    assert run(cifar10, "--no-augment") == run(cifar10, "--augment", "none") and run(cifar10, "--no-augment")[0] == "none"
    assert len({loss for how in ("none", "flip", "crop:4", "crop:4,flip") for loss in run(cifar10, "--augment", how)[1][:1]}) == 4
    assert run("digits") == run("digits", "--augment", "none") != run("digits", "--augment", "crop:1")
    assert run("synthetic:8x8x3,2,64")[0] == "none"
    assert run(cifar10, "--augment", "cutmix,rrc,mixup:1,jitter")[0] == "rrc,jitter,mixup:1,cutmix"


def test_slices():
    said = stargrad("train", "--model", "resnet20", "--data", "synthetic:32x32x3,10,128", "--batch", 64, "--micro-batch", 32, "--print")
    slices = [int(samples) for samples in re.findall(r"^ +([0-9]+) samples at a time: .*", said, re.M)]
    assert slices and max(slices) < 32, slices
    assert re.search(r"^ +fused: .*sgd, .*sgd", said, re.M)


def test_weights_are_packed_once_a_step():
    """In bf16, and before everything else: what stands between tasks keeps them from becoming one."""
    run = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--micro-batch", 8, "--print")

    def tasks(*how):
        said = stargrad(*run, *how, env={"STARGRAD_CPU_ALGORITHM": "plain"})
        return [line for line in said[said.index("kind "):].splitlines()[1:-1] if not line.startswith(" ")]

    alone = tasks("--precision", "bf16", "--no-fuse")
    packed = [line for line in alone if " packed " in line]
    assert packed and alone[:len(packed)] == packed and all(line.split()[3] == "1" for line in packed), alone
    assert not any(" packed " in line for line in tasks("--no-fuse"))
    names = [[line.split()[:4] for line in tasks(*how) if " packed " not in line] for how in ((), ("--precision", "bf16"))]
    assert names[0] == names[1], names


if __name__ == "__main__":
    main(globals())
