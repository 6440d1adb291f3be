#!/usr/bin/env python3
"""Hashing and searching, stargrad against imagededup with two processes, in turns: speed.py STARGRAD CIFAR-10-DIR FOLDER

imagededup hashes folders alone: CIFAR-10 is written as PNGs for it, and stargrad is measured on the same files, too. Searching is
measured on the same hashes, drawn at random with one in twenty a near copy of another. Medians of three, seconds; ratios count."""
import glob
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy
from PIL import Image
from peer import KINDS

stargrad, cifar, tree = sys.argv[1:4]
bench = os.path.join(os.path.dirname(stargrad), "tests", "duplicates", "speed")
work = tempfile.mkdtemp(prefix="dedup-speed-")
records = numpy.fromfile(glob.glob(f"{cifar}/**/data_batch_1.bin", recursive=True)[0], numpy.uint8).reshape(-1, 3073)
for i, record in enumerate(records):
    os.makedirs(f"{work}/png/train/{record[0]}", exist_ok=True)
    Image.fromarray(record[1:].reshape(3, 32, 32).transpose(1, 2, 0)).save(f"{work}/png/train/{record[0]}/{i}.png")


def mine(data, kind):
    with tempfile.TemporaryDirectory() as out:
        begin = time.monotonic()
        subprocess.run([stargrad, "dedup", "--data", data, "--hash", kind, "--threshold", "0", "--out", out, "--no-test"], check=True,
                       stdout=subprocess.DEVNULL)
        return time.monotonic() - begin


def theirs(folder, kind):
    begin = time.monotonic()
    KINDS[kind](verbose=False).encode_images(folder, recursive=True, num_enc_workers=2)
    return time.monotonic() - begin


def compare(what, one, other):
    times = [(one(), other()) for _ in range(3)]
    a, b = (statistics.median(t[i] for t in times) for i in (0, 1))
    print(f"{what}: stargrad {a:.3g} s, imagededup {b:.3g} s, {b / a:.1f} times", flush=True)


for name, folder in (("10,000 CIFAR-10 images as PNGs", f"{work}/png"), ("10,000 JPEGs of Tiny ImageNet", tree)):
    for kind in KINDS:
        compare(f"{kind} of {name}", lambda: mine(f"folder:{folder}", kind), lambda: theirs(f"{folder}/train", kind))


def drawn(count):
    draw = numpy.random.default_rng(1)
    word = draw.integers(0, 2**64, count, dtype=numpy.uint64)
    for i in range(0, count, 20):
        word[i] = word[(i * 7 + 1) % count] ^ numpy.bitwise_or.reduce(numpy.uint64(1) << draw.integers(0, 64, draw.integers(0, 8), dtype=numpy.uint64),
                                                                      initial=numpy.uint64(0))
    word.tofile(f"{work}/words")
    return {str(i): f"{int(w):016x}" for i, w in enumerate(word)}


def search(threshold):
    told = json.loads(subprocess.run([bench, f"{work}/words", str(threshold)], check=True, capture_output=True, text=True).stdout)
    return told


for count in (60000, 100000, 1000000):
    hashes = drawn(count)
    for threshold in (0, 4, 10):
        told = search(threshold)
        line = f"{count} hashes, threshold {threshold}: stargrad {statistics.median(search(threshold)['seconds'] for _ in range(3)):.3g} s, {told['pairs']} pairs, {told['megabytes']:.0f} MB"
        if count == 60000 and threshold in (0, 10):
            part = dict(list(hashes.items()))
            begin = time.monotonic()
            found = KINDS["phash"](verbose=False).find_duplicates(encoding_map=part, max_distance_threshold=threshold,
                                                                   search_method=os.environ.get("METHOD", "brute_force_cython"), num_dist_workers=2)
            line += f"; imagededup {time.monotonic() - begin:.3g} s, {sum(map(len, found.values())) // 2} pairs"
        print(line, flush=True)
