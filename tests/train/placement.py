"""A training set that is distributed over the ranks gives the same training as one that every rank has: the same samples in the
same order, to the bit."""
import os
import re
import signal
import struct
import subprocess
import zlib

from run import RANKS, command, content, events, folder, losses, main, ranks, ranks_of, stargrad, wait_for_steps

# Padding, cropping and flipping; five steps an epoch, and a rest of 50 samples that no step uses.
RUN = ("train", "--model", "convnet", "--data", "synthetic:16x16x3,10,530", "--augment", "crop:4,flip", "--lr", 0.05, "--bn-group",
       "global", "--batch", 96, "--epochs", 3, "--deterministic")
PARTITION = ("--data-placement", "partition")


def outcome(out):
    return losses(out), [(e["test_loss"], e["test_top1"]) for e in events(out, "epoch")], content(out)


def train(count, *words, name="out"):
    """What COUNT ranks come to, and what they say."""
    out = folder(f"{name}-{count}")
    said = ranks(count, *words, "--out", out) if count > 1 else stargrad(*words, "--out", out, "--cpus", 1)
    return outcome(out), said


def test_same_bits():
    one = train(1, *RUN)[0]
    for count in (1, 2, 4):
        got, said = train(count, *RUN, *PARTITION)
        assert got == one, f"{count} ranks"
        held = re.search(r"placement  partition: rank 0 has (\d+) of 530 records, ([\d.]+) MB", said)
        assert held and int(held[1]) == 530 // count and abs(float(held[2]) - int(held[1]) * 772e-6) < 0.01, said


def test_three_ranks():
    replicate, said = train(3, *RUN)
    assert "placement  replicate: every rank has all 530 records, 0.41 MB" in said, said
    partition = train(3, *RUN, *PARTITION)[0]
    assert all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(replicate[0], partition[0], strict=True)), (replicate[0], partition[0])


def test_no_shuffle():
    run = (*RUN, "--no-shuffle")
    got, said = train(2, *run, *PARTITION)
    assert got == train(1, *run)[0]
    assert "the same amount" not in said, said


def test_many_packets():
    """More than the ring has room for."""
    run = ("train", "--model", "mlp", "--data", "synthetic:16x16x3,10,50000", "--lr", 0.01, "--batch", 5000, "--micro-batch", 500, "--epochs", 3,
           "--deterministic")
    assert train(2, *run, *PARTITION)[0] == train(2, *run)[0]


def write_image(path, shade, side=12):
    rows = b"".join(b"\0" + bytes((shade + 3 * x + 5 * y) % 256 for x in range(side) for _ in range(3)) for y in range(side))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
                chunk(b"IEND", b""))


def test_images_are_decoded_where_they_are_needed():
    data = folder("images")
    for part, count in (("train", 35), ("val", 5)):
        for kind, shade in (("dark", 0), ("light", 120)):
            os.makedirs(os.path.join(data, part, kind))
            for i in range(count):
                write_image(os.path.join(data, part, kind, f"{i}.png"), shade + 2 * i)
    run = ("train", "--model", "convnet", "--data", f"folder:{data}", "--lr", 0.01, "--batch", 16, "--epochs", 2, "--bn-group", "global", "--deterministic")
    assert train(2, *run, *PARTITION)[0] == train(1, *run)[0]
    with open(os.path.join(data, "train", "dark", "7.png"), "r+b") as f:
        f.seek(45)
        f.write(b"\0" * 16)
    said = ranks(2, *run, *PARTITION, "--out", folder("damaged"), status=1)
    assert "dark/7.png" in said, said


def kill_one(out, count, steps, *words):
    """Ends a rank without a word once the run has done so many steps."""
    words = ["mpirun", "-n", str(count), *command(*words, "--out", out, "--cpus", 1)]
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **RANKS})
    wait_for_steps(out, steps, run)
    running = ranks_of(run.pid)
    if run.poll() is None and running:
        os.kill(running[max(running)], signal.SIGKILL)
    run.communicate(timeout=120)


def test_killed_within_an_epoch():
    """Resumed on as many ranks, on more, on one that has all of it."""
    run = (*RUN, "--checkpoint-every", "2s")
    whole = train(1, *run)[0]
    for count, *words in ((2, *PARTITION), (4, *PARTITION), (1,)):
        out = folder("killed")
        kill_one(out, 2, 7, *run, *PARTITION)
        again = (*run, *words, "--out", out, "--resume")
        ranks(count, *again) if count > 1 else stargrad(*again)
        assert outcome(out) == whole, f"on {count} ranks {words}"


if __name__ == "__main__":
    main(globals())
