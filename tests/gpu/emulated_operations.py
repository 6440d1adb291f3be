"""Operations on emulated GPUs: their CUDA kernels, and convolutions as cuDNN's graphs, against CPU kernels."""
import os
import re
import subprocess

from emulation import CPU, CUDA, PROGRAMS, SHARED, needs, new_home, reference, train
import run
from run import folder, losses, main


def operations(**env):
    """The operations' test of GPUs; returns what it warns of."""
    needs("operations")
    done = subprocess.run([os.path.join(PROGRAMS, "operations"), "on a GPU"], capture_output=True, text=True, timeout=600, env={**os.environ, **env})
    assert done.returncode == 0 and "OK ] every operation on a GPU equals the CPU" in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stderr


def test_operations():
    assert "computed without" in operations(), "no convolution was refused by cuDNN, so the kernels for that did not run"


def test_cudnn_graphs():
    """Convolutions as cuDNN's graphs, with what comes before and after them, wherever the emulated cuDNN has one."""
    operations(STARGRAD_CUDNN="graph")
    again = (*reference("resnet20", "cifar10", 0.002), "--recompute")      # batch norm before a convolution, in its graph
    for arguments in (reference("lenet", "idx", 0.01), reference("resnet20", "cifar10", 0.002), again):
        for precision, within in (("f32", 1e-4), ("tf32", 3e-2), ("bf16", 1e-2)):
            cpu = losses(train("cpu", *arguments, "--precision", precision, *CPU))
            for way in ("algorithms", "graph"):
                cuda = losses(train("cuda", *arguments, "--precision", precision, *SHARED, *CUDA, env={"STARGRAD_CUDNN": way}))
                error = [abs(a - b) / b for a, b in zip(cuda, cpu, strict=True)]
                assert max(error) <= 10 * within, f"{arguments} {precision} {way}: {cuda} is not {cpu}"


def test_which_graphs():
    """Each is asked for once, for each shape, and what came of it is remembered: by what it is beside its convolution."""
    home = new_home()
    relus = ("--model", "nin", "--data", "synthetic:32x32x3,10,8", "--batch", 2, "--steps", 1, "--lr", 0.01)
    for arguments in (reference("lenet", "idx", 0.01), reference("resnet20", "cifar10", 0.002), relus):
        train("which", *arguments, "--precision", "bf16", "--recompute", *SHARED, *CUDA, env={"STARPU_HOME": home})
    found = [os.path.join(where, "cudnn") for where, _, files in os.walk(home) if "cudnn" in files]
    with open(found[0]) as file:
        graphs_of = {int(number) for number in re.findall(r" graph of (\d+)", file.read())}
    alone, bias, relu, stats, scaled, mask, sums = 0, 4, 8, 16, 1 + 2, 32, 64 + 128
    for one in (alone, bias, bias + relu, stats, scaled + stats, mask, sums):
        assert one in graphs_of, (one, graphs_of)


def test_graphs_that_do_not_run():
    """Of what cuDNN will not run, whether it did before or not, a line says so, and all goes on without, as near as ever."""
    arguments = (*reference("resnet20", "cifar10", 0.002), "--recompute", "--precision", "bf16", *SHARED)
    cpu = losses(train("cpu", *arguments, *CPU))
    for first in (1, 100):
        env = {**os.environ, "STARGRAD_CUDNN": "graph", "STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_REFUSAL": str(first)}
        out = folder("refused")
        words = [run.STARGRAD, "train", *map(str, arguments), *map(str, CUDA), "--out", out]
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("graph of" in done.stderr and "does not run" in done.stderr) == (first > 1), done.stderr
        error = [abs(a - b) / b for a, b in zip(losses(out), cpu, strict=True)]
        assert max(error) <= 0.1, (first, error)


if __name__ == "__main__":
    main(globals())
