"""Operations on emulated GPUs against CPU kernels: CUDA kernels, and convolutions as cuDNN graphs."""
import os
import re
import subprocess

from emulation import CPU, CUDA, PROGRAMS, SHARED, needs, new_home, reference, train
import run
from run import folder, long, losses, main


def operations(**env):
    """The operations' test of GPUs; returns what it warns of."""
    needs("operations")
    done = subprocess.run([os.path.join(PROGRAMS, "operations"), "on a GPU"], capture_output=True, text=True, timeout=600, env={**os.environ, **env})
    assert done.returncode == 0 and "OK ] every operation on a GPU equals the CPU" in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stderr


def test_operations():
    assert "computed without" in operations(), "no convolution was refused by cuDNN, so the kernels for that did not run"


LENET = (*reference("lenet", "idx", 0.01), "--steps", 3)
RESNET = (*reference("resnet20", "cifar10", 0.002), "--steps", 3)
AGAIN = (*RESNET, "--recompute")      # batch norm before a convolution, in its graph
PRECISIONS = {"f32": 1e-4, "tf32": 3e-2, "bf16": 1e-2}


def same_losses(arguments, precision, *ways):
    """Convolutions on a GPU in these WAYS give the losses of CPUs."""
    cpu = losses(train("cpu", *arguments, "--precision", precision, *CPU))
    for way in ways:
        cuda = losses(train("cuda", *arguments, "--precision", precision, *SHARED, *CUDA, env={"STARGRAD_CUDNN": way}))
        error = [abs(a - b) / b for a, b in zip(cuda, cpu, strict=True)]
        assert max(error) <= 10 * PRECISIONS[precision], f"{arguments} {precision} {way}: {cuda} is not {cpu}"


def test_cudnn_graphs():
    """Convolutions as cuDNN's graphs, with what comes before and after them, wherever the emulated cuDNN has one."""
    operations(STARGRAD_CUDNN="graph")
    for precision in PRECISIONS:
        same_losses(LENET, precision, "algorithms", "graph")
    same_losses(RESNET, "f32", "graph")
    same_losses(RESNET, "bf16", "algorithms", "graph")
    same_losses(AGAIN, "bf16", "graph")


GPT = ("--model", "gpt:layers=2,heads=2,width=32,context=32", "--data", f"text:{os.path.join(run.REFERENCE, 'text.txt')},32", "--batch", 8,
       "--optimizer", "adamw", "--lr", 1e-3, "--no-shuffle", "--steps", 3)


def test_attention():
    """Attention by our own kernels, and as cuDNN's graphs wherever there is one: each operation, and the losses of a GPT in bf16."""
    for way in ("algorithms", "graph"):
        operations(STARGRAD_CUDNN=way, OPERATIONS="attention,document_attention")
    same_losses(GPT, "bf16", "algorithms", "graph")


def test_attention_without_a_kernel():
    """Where cuDNN will not run a graph of attention, whether it did before or not, our own kernels compute, after a line that says so."""
    cpu = losses(train("cpu", *GPT, "--precision", "bf16", *CPU))
    for first in (1, 8):
        env = {**os.environ, "STARGRAD_CUDNN": "graph", "STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_REFUSAL": str(first)}
        out = folder("refused")
        words = [run.STARGRAD, "train", *map(str, GPT), "--precision", "bf16", *SHARED, *map(str, CUDA), "--out", out]
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        failed = re.search(r"attention: cuDNN's graph of (forward|backward), q \(\d,2,32,16\), k \(\d,2,32,16\), causal failed: ", done.stderr)
        assert bool(failed) == (first > 1), done.stderr
        assert max(abs(a - b) / b for a, b in zip(losses(out), cpu, strict=True)) <= 0.1, first


@long
def test_cudnn_graphs_in_every_precision():
    for arguments in (RESNET, AGAIN):
        for precision in PRECISIONS:
            same_losses(arguments, precision, "algorithms", "graph")


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


def counted(*arguments, env):
    """Questions to the heuristics of cuDNN's graphs, and runs of plans that are slow on purpose, of one run."""
    needs("stargrad")
    # So many steps that the GPU gets some of the tasks, however late its thread runs on a loaded machine.
    words = [run.STARGRAD, "train", *map(str, arguments), "--steps", "40", *map(str, CUDA), "--out", folder("counted")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_COUNT": "1", **env})
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"(\d+) questions to heuristics of graphs, (\d+) runs of slow plans", done.stderr)
    assert counts, f"the emulated GPU computed nothing: {done.stdout + done.stderr}"
    return map(int, counts.groups())


def test_choices_are_quick():
    """The heuristics are asked once for each graph, and once more where no plan of the first answer runs; a plan that is more than twice too
    slow runs twice, of which the second is timed. Another run asks only for graphs that it takes, and times nothing."""
    home = {"STARPU_HOME": new_home()}
    arguments = (*reference("lenet", "idx", 0.01), "--precision", "bf16", *SHARED)
    questions, slow = counted(*arguments, env=home)
    found = [os.path.join(where, "cudnn") for where, _, files in os.walk(home["STARPU_HOME"]) if "cudnn" in files]
    with open(found[0]) as file:
        graphs = [line for line in file if " graph of " in line]
    taken = [line for line in graphs if not line.split("\t")[1].startswith("-1")]
    assert taken and len(graphs) <= questions <= 2 * len(graphs), (questions, len(graphs))
    assert 0 < slow <= 2 * len(graphs), (slow, len(graphs))
    questions, slow = counted(*arguments, env=home)
    assert (questions, slow) == (len(taken), 0)


def test_heuristics_that_fail():
    """Where cuDNN's heuristics fail, our own kernels compute, after a warning with the error, and the run goes on."""
    arguments = (*reference("lenet", "idx", 0.01), *SHARED)
    cpu = losses(train("cpu", *arguments, *CPU))
    out = folder("heuristics")
    words = [run.STARGRAD, "train", *map(str, arguments), "--deterministic", *map(str, CUDA), "--out", out]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_HEURISTICS": "0"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("cuDNN cannot choose an algorithm for forward .*: CUDNN_STATUS_INTERNAL_ERROR; it is computed without cuDNN", done.stderr), done.stderr
    assert max(abs(a - b) / b for a, b in zip(losses(out), cpu, strict=True)) <= 1e-3


def test_launch_bounds():
    """Kernels whose blocks have 1,024 threads say so to the compiler, which otherwise may give each more registers than there are."""
    codelets = os.path.join(run.SOURCE, "codelets")
    for folder_, _, files in os.walk(codelets):
        for name in (name for name in files if name.endswith("_cuda.cu")):
            with open(os.path.join(folder_, name)) as file:
                text = file.read()
            large = len(re.findall(r"dim3\(32, WARPS\)", text)) if re.search(r"#define WARPS +32\b", text) else 0
            assert large <= len(re.findall(r"__launch_bounds__\(32 \* WARPS\)", text)), name


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
        assert ("graph of" in done.stderr and "channels failed: " in done.stderr) == (first > 1), done.stderr
        error = [abs(a - b) / b for a, b in zip(losses(out), cpu, strict=True)]
        assert max(error) <= 0.1, (first, error)


if __name__ == "__main__":
    main(globals())
