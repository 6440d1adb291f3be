#!/usr/bin/env python3
"""Hashing and searching, stargrad against imagededup with two processes, in turns: speed.py STARGRAD SEARCH CIFAR-10-DIR FOLDER

imagededup hashes folders alone: CIFAR-10 is written as PNGs for it, and stargrad is measured on the same files, too. Searching is
measured on the same hashes, drawn at random with one in twenty a near copy of another, by SEARCH (search.c). Medians of three,
seconds; ratios count."""
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
from peer import KINDS      # before what it keeps outside
from imagededup.handlers.search.retrieval import HashEval
from imagededup.methods.hashing import Hashing

stargrad, searcher, cifar, tree = sys.argv[1:5]
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
        for bit in draw.integers(0, 64, draw.integers(0, 8)):
            word[i] = word[(i * 7 + 1) % count] ^ numpy.uint64(1 << int(bit))
    word.tofile(f"{work}/words")
    return {str(i): f"{int(w):016x}" for i, w in enumerate(word)}


def search(threshold):
    return json.loads(subprocess.run([searcher, f"{work}/words", str(threshold)], check=True, capture_output=True, text=True).stdout)


def peer_search(hashes, threshold, queries, method):
    """Seconds for all, from those of some: each query is one walk over the hashes, or the tree, and there is no other work."""
    part = {name: hashes[name] for name in list(hashes)[::len(hashes) // queries]}
    begin = time.monotonic()
    HashEval(test=hashes, queries=part, distance_function=Hashing.hamming_distance, verbose=False, threshold=threshold,
             search_method=method, num_dist_workers=2)
    return (time.monotonic() - begin) * len(hashes) / len(part)


for count in (60000, 100000, 1000000):
    hashes = drawn(count)
    for threshold in (0, 4, 10):
        told, line = [search(threshold) for _ in range(3)], ""
        if count < 1000000:
            other = peer_search(hashes, threshold, 200, "brute_force_cython")
            line = f", imagededup {other:.4g} s (from 200 queries), {other / statistics.median(t['seconds'] for t in told):.0f} times"
        print(f"{count} hashes, threshold {threshold}: stargrad {statistics.median(t['seconds'] for t in told):.3g} s, {told[0]['pairs']} pairs, "
              f"{told[0]['megabytes']} MB{line}", flush=True)
