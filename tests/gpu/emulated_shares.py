"""Batches that are divided between emulated GPUs and CPU cores."""
import os
import re

import pytest
from emulation import CPU, CUDA, SHARED, TWO, agree, needs, new_home, train
from run import folder, losses, main, stargrad


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Rates of emulated GPUs are those of the CPU that they run on."""
    monkeypatch.setenv("STARGRAD_EMULATED_CLOCK", "1")


def rates_of(env):
    """The file in which runs with this environment keep the rates of GPUs and CPUs."""
    return os.path.join(env["STARPU_HOME"], ".starpu", "stargrad", "shares")


def network_in(env):
    """The name under which the first network in that file has its rates."""
    with open(rates_of(env)) as file:
        return file.readline().split("\t")[0]


def set_rates(env, network, rates):
    os.makedirs(os.path.dirname(rates_of(env)), exist_ok=True)
    with open(rates_of(env), "w") as file:
        file.write(f"{network}\t{rates}\n")


def test_shares():
    """A GPU and a core have shares of a batch, cut as each likes its tasks: it is the same batch."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 64, "--lr", 0.05, "--steps", 6)
    needs("stargrad")
    said = stargrad("train", *arguments, *CUDA, "--print", env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search(r"^training step of 64 samples: \d+ micro-batches of .* on GPUs, .* on CPUs", said, re.M), said
    agree(arguments, 1e-4)
    agree((*arguments, "--precision", "bf16"), 1e-2)


def test_shares_follow_rates():
    """A run shares by the rates that an earlier one has left: the slower a GPU, the less it has."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 128, "--lr", 0.05)
    needs("stargrad")
    env = {"STARGRAD_EMULATED_GPUS": "1", "STARPU_HOME": new_home(), "STARPU_HISTORY_MAX_ERROR": "1000000"}
    stargrad("train", *arguments, "--steps", 16, *CUDA, "--out", folder("first"), env=env)
    network = network_in(env)
    for ratio, of_gpus, of_cpus in (("7 1", 112, 16), ("1 1", 64, 64), ("1 3", 32, 48)):       # 2 of 48
        set_rates(env, network, ratio)
        said = stargrad("train", *arguments, *CUDA, "--steps", 1, "--out", folder("second"), env=env)
        assert re.search(rf"^batch .* {of_gpus} on GPUs, {of_cpus} on CPUs", said, re.M), (ratio, said)


def test_shares_are_corrected():
    """Rates that are wrong at first are measured while the run goes on, and shares change then; it is the same batch."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 128, "--lr", 0.01, "--steps", 32)
    needs("stargrad")
    env = [{"STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_DELAY": "3000", "STARPU_HISTORY_MAX_ERROR": "1000000",
            "STARPU_HOME": new_home()} for _ in range(2)]
    stargrad("train", *arguments, *CUDA, "--out", folder("first"), env=env[0])
    set_rates(env[1], network_in(env[0]), "7 1")
    out = folder("second")
    said = stargrad("train", *arguments, *CUDA, "--print", "--cpus-share", "none", env=env[1])
    assert re.search(r"^training step of 128 samples: 1 micro-batch of 128 on GPUs(,|$)", said, re.M), said
    said = stargrad("train", *arguments, *CUDA, "--out", out, env=env[1])
    assert re.search(r"^batch .* 112 on GPUs, 16 on CPUs", said, re.M), said
    corrected = re.search(r"^shares +from step 17, by measured task times: micro-batches of (\d+).* on GPUs, ", said, re.M)
    assert corrected and int(corrected[1]) < 100, said
    error = [abs(a - b) / b for a, b in zip(losses(out), losses(train("cpu", *arguments, *CPU)), strict=True)]
    assert max(error[:3]) <= 1e-4 and max(error) <= 1e-3, error


def test_groups_of_gpus():
    """Of two GPUs each takes batch norm over its own part of a batch, as groups of so many samples on one GPU; a run that goes on
    keeps its groups."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 64, "--lr", 0.05, *SHARED)
    needs("stargrad")
    out = folder("two")
    said = stargrad("train", *arguments, "--steps", 6, *TWO, "--out", out, env={"STARGRAD_EMULATED_GPUS": "2"})
    assert re.search("^batch .*; batch norm over 32 samples$", said, re.M), said
    one, whole = (losses(train("other", *arguments, "--steps", 6, "--bn-group", group, *where)) for group, where in ((32, CUDA), ("rank", TWO)))
    error, other = ([abs(a - b) / b for a, b in zip(losses(out), those, strict=True)] for those in (one, whole))
    assert max(error[:3]) <= 1e-4 and max(error) <= 1e-3 < max(other), (error, other)
    said = stargrad("train", *arguments, "--steps", 8, *CUDA, "--resume", "--out", out, env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search("^batch .*; batch norm over 32 samples$", said, re.M), said
    groups = {("--micro-batch", 16): 32, ("--micro-batch", 64): 64, ("--deterministic",): 64, ("--bn-group", "global"): 64, ("--batch", 65): 65, ("--batch", 8): 8}
    for more, group in groups.items():
        said = stargrad("train", *arguments, *more, *TWO, "--print", env={"STARGRAD_EMULATED_GPUS": "2"})
        assert re.search(f"^batch .*; batch norm over {group} samples$", said, re.M), (more, said)


def test_no_share_below_a_tenth():
    """Cores that would have less than a tenth of a batch have nothing of it."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 128, "--lr", 0.01, *CUDA)
    needs("stargrad")
    env = {"STARGRAD_EMULATED_GPUS": "1", "STARPU_HISTORY_MAX_ERROR": "1000000", "STARPU_HOME": new_home()}
    stargrad("train", *arguments, "--steps", 32, "--out", folder("first"), env=env)
    network = network_in(env)
    for gpu, text in ((8, "114 on GPUs, 14 on CPUs"), (12, "1 micro-batch of 128 on GPUs")):
        set_rates(env, network, f"{gpu} 1")
        said = stargrad("train", *arguments, "--print", env=env)
        assert re.search(rf"^training step of 128 samples: .*\b{text}(,|$)", said, re.M), said


def test_cpus_share_none():
    """GPUs compute all samples, however micro-batches are cut; it is the same batch."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 64, "--lr", 0.05, "--steps", 4, "--cpus-share", "none")
    needs("stargrad")
    for more in ((), ("--micro-batch", 16), ("--bn-group", 32), ("--bn-group", "micro", "--micro-batch", 16)):
        said = stargrad("train", *arguments, *more, *CUDA, "--print", env={"STARGRAD_EMULATED_GPUS": "1"})
        assert re.search(r"^training step of 64 samples: \d+ micro-batch(es)? of \d+ on GPUs(,|$)", said, re.M), said
    agree(arguments, 1e-4)
    agree((*arguments, "--micro-batch", 16, "--bn-group", "rank"), 1e-4, TWO)


def test_every_gpu_has_a_micro_batch():
    """Where a core would have less than a sample GPUs have all; and where batch norm's groups are cut, each has a piece."""
    arguments = ("train", "--model", "convnet", "--data", "synthetic:8x8x3,10,256", *CUDA[:2], "--print")
    needs("stargrad")
    said = stargrad(*arguments, "--batch", 1, "--gpus", 1, env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search(r"^training step of 1 samples?: 1 micro-batch(es)? of 1 on GPUs", said, re.M), said
    said = stargrad(*arguments, "--batch", 32, "--bn-group", 16, "--gpus", 4, env={"STARGRAD_EMULATED_GPUS": "4"})
    assert re.search(r"^training step of 32 samples: 4 micro-batches of 8", said, re.M), said


def test_slices():
    """Many samples of one GPU are read by several cores, and put together there."""
    arguments = ("--model", "mlp", "--data", "synthetic:64x64x3,10,128", "--batch", 128, "--micro-batch", 128, "--lr", 0.01, "--steps", 3)
    needs("stargrad")
    said = stargrad("train", *arguments, "--cpus", 2, "--gpus", 1, "--print", env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search(r"^input +read 0 +2 ", said, re.M), said
    agree(arguments, 1e-4, ("--cpus", 2, "--gpus", 1))


if __name__ == "__main__":
    main(globals())
