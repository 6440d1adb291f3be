"""The time that a mixture of experts loses if its experts have unequal numbers of rows, on ranks that divide the experts.

    python3 bench/experts.py PROGRAM [RANKS [ROUNDS]]      one core per rank; the figures of docs/scale/parallelism.md

The routers get biases, so that the rows of a layer use its experts evenly, or the less the higher an expert's number is (skewed), or all
rows use two experts of one rank (one rank). The busiest rank is another one in each layer. A run with several micro-batches computes some
while it waits for the rows of others. A run with one micro-batch waits in every layer for the slowest rank. Each is compared with itself
with even experts. The runs take turns."""
import array
import json
import math
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests", "train"))

from run import RANKS  # noqa: E402

EXPERTS, LAYERS, TOKENS, SAMPLES, STEPS = 8, 8, 64, 16, 5        # SAMPLES: per rank
WORK = tempfile.mkdtemp(prefix="stargrad-experts-")
MODEL = f"llama:layers={LAYERS},heads=4,width=192,hidden=384,context={TOKENS},vocabulary=256,experts={EXPERTS},active=2,sigmoid=1,bias_rate=1e-9"


def train(program, count, out, micro, *words):
    """Returns the median time of a step, in seconds."""
    shutil.rmtree(out, ignore_errors=True)
    line = ["mpirun", "-n", str(count), program, "train", "--model", MODEL, "--data", f"text:{WORK}/text,{TOKENS}", "--batch",
            str(SAMPLES * count), "--micro-batch", str(micro), "--optimizer", "sgd", "--lr", "1e-12", "--weight-decay", "0", "--cpus", "1",
            "--mesh", f"expert={count}", "--steps", str(STEPS), "--out", out, *words]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **RANKS})
    if done.returncode:
        sys.exit(done.stderr)
    with open(f"{out}/metrics.jsonl", encoding="utf-8") as file:
        rates = [float(rate) for rate in re.findall(r'"samples_per_second":([\d.]+)', file.read())]
    return SAMPLES * count / statistics.median(rates[1:STEPS])


def bias(routing, layer, ranks):
    hot = layer % ranks * (EXPERTS // ranks)
    order = [(expert - hot) % EXPERTS for expert in range(EXPERTS)]
    return [{"even": 0, "skewed": -0.25 * math.log(1 + k), "one rank": 10 * (k < 2)}[routing] for k in order]


def write(path, source, routing, ranks):
    """Copies SOURCE with other biases. Gates are larger, so that the scores of tokens differ."""
    with open(source, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    dice = random.Random(1)
    for name, tensor in header.items():
        layer = re.match(r"model\.layers\.(\d+)\.mlp\.gate\.(weight|e_score_correction_bias)", name)
        if layer:
            size = math.prod(tensor["shape"])
            values = bias(routing, int(layer[1]), ranks) if layer[2] != "weight" else [dice.gauss(0, 0.1) for _ in range(size)]
            begin, end = tensor["data_offsets"]
            data[begin:end] = array.array("f", values).tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main(program, ranks=2, rounds=3):
    dice = random.Random(2)
    with open(f"{WORK}/text", "w", encoding="ascii") as file:
        file.write("".join(dice.choice("abcdefghijklmnopqrstuvwxyz ,.\n") for _ in range(200000)))
    train(program, ranks, f"{WORK}/first", 2)
    ways = [(routing, micro) for routing in ("even", "skewed", "one rank") for micro in (2, SAMPLES)]
    for routing, _ in ways:
        write(f"{WORK}/{routing}.safetensors", f"{WORK}/first/model.safetensors", routing, ranks)
    times = {way: [] for way in ways}
    for _ in range(rounds):
        for routing, micro in ways:
            times[routing, micro].append(train(program, ranks, f"{WORK}/out", micro, "--init", f"{WORK}/{routing}.safetensors"))
    for routing, micro in ways:
        took, even = (statistics.median(times[way]) for way in ((routing, micro), ("even", micro)))
        print(f"{routing:10} {SAMPLES // micro:3} micro-batches   {1000 * took:7.0f} ms   {100 * (took / even - 1):+6.1f} %", flush=True)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
