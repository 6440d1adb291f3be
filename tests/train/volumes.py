#!/usr/bin/env python3
"""Volumes with the command: training, and segmentation by processes that share a queue and die, with a full disk, a truncated
block, and a chunk that cannot be read. STARGRAD_LONG: four processes at a time, of which a hundred in total die."""
import gzip
import json
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import time

from run import REFERENCE, STARGRAD, folder, main

LONG = bool(os.environ.get("STARGRAD_LONG"))      # make check-long
KILLS, WORKERS, SIDES = (100, 4, [64, 256, 300]) if LONG else (6, 2, [40, 140, 150])


def stargrad(*words, status=0):
    run = subprocess.run([STARGRAD, *map(str, words)], capture_output=True, text=True)
    assert run.returncode == status, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout + run.stderr


def idx(path, array, sides):
    path.write_bytes(gzip.compress(struct.pack(">IIII", 0x803, *sides) + bytes(array)))


def zarr(path, sides, chunks, voxel):
    """Version 2, uncompressed; voxel(z, y, x)."""
    path.mkdir()
    (path / ".zarray").write_text(json.dumps({"zarr_format": 2, "shape": sides, "chunks": chunks, "dtype": "|u1", "compressor": None,
                                                "fill_value": 0, "order": "C", "filters": None}))
    counts = [-(-side // chunk) for side, chunk in zip(sides, chunks)]
    for z in range(counts[0]):
        for y in range(counts[1]):
            for x in range(counts[2]):
                (path / f"{z}.{y}.{x}").write_bytes(bytes(
                    voxel(z * chunks[0] + i, y * chunks[1] + j, x * chunks[2] + k)
                    for i in range(chunks[0]) for j in range(chunks[1]) for k in range(chunks[2])))


def disk_full():
    """No file grows beyond what a queue's own take."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def blocks(path):
    return {block.name: block.read_bytes() for block in path.iterdir() if block.name[0] != "." and ".part" not in block.name}


def test_volumes_in_a_run_and_in_a_queue():
    work = pathlib.Path(folder("volumes"))
    work.mkdir()
    data = work / "data"
    data.mkdir()
    slices = [[255 if (y // 8 + x // 8 + z) % 2 else 40 for y in range(64) for x in range(64)] for z in range(5)]
    idx(data / "train-volume-idx3-ubyte.gz", [v for s in slices for v in s], (5, 64, 64))
    idx(data / "train-labels-idx3-ubyte.gz", [255 if v > 100 else 0 for s in slices for v in s], (5, 64, 64))

    # Trained, with what the metrics are called; patches of another shape are refused in a line.
    stargrad("train", "--model", "unet2d", "--data", f"volume:{data},1x32x32", "--batch", 8, "--steps", 12, "--optimizer", "adam",
             "--class-weights", "1,0.5", "--dice", 0.5, "--out", work / "run")
    epoch = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()][-1]
    assert 0 <= epoch["iou"] <= 1 and 0 <= epoch["rand"] <= 1 and epoch["voi"] >= 0 and 0 <= epoch["test_accuracy"] <= 1, epoch
    # In training the share of voxels is computed as in an evaluation; what is computed of segments in evaluations alone is not there.
    equal = work / "equal"
    for part in ("train", "val"):
        (equal / part).mkdir(parents=True)
        zarr(equal / part / "image.zarr", [3, 32, 32], [3, 32, 32], lambda z, y, x: 255 if (y // 8 + x // 8 + z) % 2 else 40)
        zarr(equal / part / "label.zarr", [3, 32, 32], [3, 32, 32], lambda z, y, x: y // 9 % 3)
    stargrad("train", "--model", "unet3d:groups=8", "--data", f"volume:{equal},3x32x32", "--batch", 1, "--steps", 2, "--lr", 0, "--augment", "none",
             "--out", work / "same")
    same = [json.loads(line) for line in (work / "same/metrics.jsonl").read_text().splitlines()]
    step, last = same[0], same[-1]
    assert 0 < step["accuracy"] < 1 and abs(step["accuracy"] - last["test_accuracy"]) < 1e-6, (step, last)
    assert abs(last["train_accuracy"] - last["test_accuracy"]) < 1e-6 and abs(last["train_loss"] - last["test_loss"]) < 1e-5, last
    assert not {"iou", "rand", "voi"} & set(step) and not {"train_iou", "train_rand", "train_voi"} & set(last), (step, last)
    report = stargrad("report", work / "same")
    assert f"{100 * last['train_accuracy']:.2f} %" in report, report
    # Any sides will do; group norm has no statistics to keep.
    for model, patch in (("unet2d:groups=4", "1x17x30"), ("unet3d:groups=8", "3x30x17")):
        out = work / model.replace(":", "-")
        stargrad("train", "--model", model, "--data", f"volume:{data},{patch}", "--batch", 4, "--steps", 2, "--out", out)
        names = (out / "model.safetensors").read_bytes()[:100000]
        assert b"enc1.gn1.weight" in names and b"running_mean" not in names
    for patch, status, says in (("1x8x32", 1, "9x9 or more"), ("0x32x32", 2, "give ZxYxX")):
        told = stargrad("train", "--model", "unet2d", "--data", f"volume:{data},{patch}", "--batch", 4, "--steps", 1, "--out", work / "no",
                        status=status)
        assert says in told, told
    told = stargrad("train", "--model", "unet2d", "--data", f"volume:{data},1x32x32", "--batch", 4, "--class-weights", "1", "--out", work / "no", status=2)
    assert "--class-weights '1'" in told, told

    # Alone: what all others have to come to.
    source = work / "in.zarr"
    zarr(source, SIDES, [20, 64, 64], lambda z, y, x: (7 * z + 3 * y + 5 * x) % 251)
    plain = ["segment", "--weights", work / "run/model.safetensors", "--model", "unet2d", "--in", source, "--memory", "0.05", "--cpus", 1]
    how = plain + ["--patch", "8x32x32", "--overlap", "1x4x4"]
    told = stargrad(*how, "--out", work / "alone.zarr")
    assert "Mvoxel/s" in told and "blend" in told, told
    alone, chunks = blocks(work / "alone.zarr"), int(told.split()[0])
    assert alone and "\n0 chunks done here" in stargrad(*how, "--out", work / "alone.zarr")
    big = stargrad(*plain, "--patch", "8x256x256", "--overlap", "1x4x4", "--out", work / "big.zarr", status=2)
    assert "more than --memory 0.05" in big and not (work / "big.zarr").exists(), big
    for line in ("stage ", "compute ", "wait ", "worker ", "cpu0 ", "main "):
        assert f"\n{line}" in told, (line, told)

    # Channels are not taken for slices.
    for name in ("imagej-channels.tif", "channels.ome.tif"):
        said = stargrad(*plain[:6], os.path.join(REFERENCE, "volumes", name), "--out", work / "channels.zarr", status=1)
        assert f"{name}: has 2 channels" in said and not (work / "channels.zarr").exists(), said

    # Weights that are damaged are told of, and where the network's output is no finite number, nothing is written.
    whole = (work / "run/model.safetensors").read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + size])
    for name, value in (("enc1.conv1.weight", "nan"), ("enc2.bn1.running_var", "nan"), ("out.bias", "inf"), ("out.bias", 0.25)):
        at = 8 + size + header[name]["data_offsets"][0]
        (work / "run/damaged.safetensors").write_bytes(whole[:at] + struct.pack("<f", float(value)) + whole[at + 4:])
        damaged = [work / "run/damaged.safetensors" if word == work / "run/model.safetensors" else word for word in how]
        finite = value == 0.25
        told = stargrad(*damaged, "--out", work / f"{name}-{value}.zarr", status=0 if finite else 1)
        assert "damaged.safetensors: its data have checksum" in told, told
        assert finite or "not a finite number" in told and not blocks(work / f"{name}-{value}.zarr"), told

    # What is there of other weights, or done in another way, is not gone on with, unless it is asked for.
    stargrad("train", "--model", "unet2d", "--data", f"volume:{data},1x32x32", "--batch", 8, "--steps", 1, "--out", work / "other")
    other = [work / "other/model.safetensors" if word == work / "run/model.safetensors" else word for word in how]
    for words in (other, how + ["--tta", "flips"], how + ["--dtype", "f32", "--precision", "bf16"]):
        assert "is the output of another job" in stargrad(*words, "--out", work / "alone.zarr", status=1)
    assert blocks(work / "alone.zarr") == alone
    stargrad(*other, "--out", work / "redone.zarr")
    stargrad(*how, "--out", work / "redone.zarr", "--redo")
    assert blocks(work / "redone.zarr") == alone

    # A block that is cut off is not there; it alone is done again.
    name = sorted(alone)[0]
    (work / "alone.zarr" / name).write_bytes(alone[name][:-5])
    assert "\n1 chunk done here" in stargrad(*how, "--out", work / "alone.zarr") and blocks(work / "alone.zarr") == alone

    # By some processes at a time, killed or stopped now and then, while there is work: once all is done, all begins anew. One has a
    # full disk, and ends: its tasks are not to blame.
    def shared(turn):
        return how + ["--out", work / f"shared{turn}.zarr", "--queue", work / f"queue{turn}", "--lease", 2]

    def state_of(turn):
        return json.loads(stargrad("queue", work / f"queue{turn}", "--json"))

    full = subprocess.run([STARGRAD, *map(str, shared(0))], capture_output=True, text=True, preexec_fn=disk_full)
    assert full.returncode == 1 and "File too large" in full.stderr, full
    random.seed(1)
    running, kills, turn = [], 0, 0
    while kills < KILLS:
        if (work / f"queue{turn}").exists() and (state := state_of(turn))["done"] == chunks:
            assert all(process.wait() in (0, -signal.SIGKILL) for process in running)
            assert state["failed"] == 0 and blocks(work / f"shared{turn}.zarr") == alone, (kills, state)
            turn += 1
        running = [process for process in running if process.poll() is None]
        while len(running) < WORKERS:
            running.append(subprocess.Popen([STARGRAD, *map(str, shared(turn))], stdout=subprocess.DEVNULL))
        time.sleep(random.uniform(0.2, 1.5))
        victim = random.choice(running)
        if kills % 3 == 2:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            victim.send_signal(signal.SIGCONT)
        else:
            victim.kill()
            victim.wait()
        kills += 1
        there = work / f"shared{turn}.zarr"
        assert not there.exists() or all(alone[name] == block for name, block in blocks(there).items()), kills
    for process in running:
        assert process.wait() in (0, -signal.SIGKILL)
    stargrad(*shared(turn))
    assert blocks(work / f"shared{turn}.zarr") == alone
    state = state_of(turn)
    assert state["todo"] == state["leased"] == state["failed"] == 0 and state["done"] > 1, state
    if LONG:
        print(f"{kills} processes killed or stopped, while the volume was done {turn + 1} times")
    assert sum(worker["done"] for worker in state["workers"]) == state["done"] and len(state["workers"]) > 0, state
    assert "\n0 chunks done here" in stargrad(*shared(turn))
    assert "tasks per minute" in stargrad("queue", work / f"queue{turn}")
    assert "is the queue of another job" in stargrad(*shared(turn), "--memory", 0.2, status=2)

    # A chunk that is damaged: what needs it is put aside and named, all else is there; mended, the rest is done.
    good = (source / "0.0.0").read_bytes()
    (source / "0.0.0").write_bytes(b"short")
    poisoned = how + ["--out", work / "poisoned.zarr"]
    assert "chunks failed and are missing in" in stargrad(*poisoned, "--queue", work / "poisoned", status=1)
    told = stargrad("queue", work / "poisoned")
    assert "has failed: see" in told and str(work / "poisoned" / "logs") in told, told
    for log in (work / "poisoned/logs").iterdir():
        assert log.read_text().count(f"{source}/0.0.0: its 5 bytes") == 3, log.read_text()
    left = blocks(work / "poisoned.zarr")
    assert left and len(left) < len(alone) and all(alone[name] == block for name, block in left.items())
    (source / "0.0.0").write_bytes(good)
    again = json.loads(stargrad(*poisoned, "--queue", work / "mended", "--json"))
    assert again["skipped"] > 0 and again["chunks"] > 0 and blocks(work / "poisoned.zarr") == alone, again

    for patch, overlap, says in (("1x8x32", "0x0x0", "must be at least 9"), ("1x32x32", "0x32x32", "the overlap must be less than the patch")):
        assert says in stargrad(*plain, "--patch", patch, "--overlap", overlap, "--out", work / "no.raw", status=2)

    # Killed in the middle, a raw or an HDF5 file is not there; by two at once it is there once, whole.
    for name in ("whole.raw", "whole.h5"):
        half = subprocess.Popen([STARGRAD, *map(str, how), "--out", work / name], stdout=subprocess.PIPE)
        assert b"chunks of" in half.stdout.readline()
        half.kill()
        half.wait()
        assert not (work / name).exists(), name
        both = [subprocess.Popen([STARGRAD, *map(str, how), "--out", work / name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                for i in range(2)]
        told = [process.communicate()[1].decode() for process in both]
        assert sorted(process.returncode for process in both) == [0, 1] and "already exists" in "".join(told), told
        assert (work / name).exists()

    # A mask of zeros but in the last rows, half as long, and mirror images, four of a patch of one slice.
    small, mask = work / "small.zarr", work / "mask.zarr"
    zarr(small, [2, 140, 40], [2, 64, 64], lambda z, y, x: (7 * z + 3 * y + 5 * x) % 251)
    zarr(mask, [2, 70, 20], [2, 70, 20], lambda z, y, x: y >= 65)
    masked = plain + ["--in", small, "--patch", "1x32x32", "--overlap", "0x4x4", "--mask", mask, "--json"]
    once = json.loads(stargrad(*masked, "--out", work / "masked.raw"))
    told = json.loads(stargrad(*masked, "--tta", "flips", "--dtype", "u8", "--out", work / "flips.raw"))
    assert told["blank"] == once["blank"] == 1 and told["patches"] == 4 * once["patches"], (once, told)
    voxels = (work / "flips.raw").read_bytes()
    assert len(voxels) == 2 * 2 * 140 * 40
    for at in range(0, len(voxels), 140 * 40):
        assert not any(voxels[at:at + 130 * 40]) and any(voxels[at + 130 * 40:at + 140 * 40]), at
    for mask, status, says in (("none.zarr", 1, "No such file"), (work, 2, "has an unknown format"), (source, 1, "sides that divide")):
        told = stargrad(*masked, "--mask", mask, "--out", work / "no.zarr", status=status)
        assert says in told, told


if __name__ == "__main__":
    main(globals())
