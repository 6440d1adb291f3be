#!/usr/bin/env python3
"""Measure recall and precision of dedup on planted duplicates: planted.py STARGRAD FOLDER OUT [COUNT]

FOLDER/train/*/* must be real photographs. The script adds an altered copy of COUNT of them: in turn half as large, compressed
with quality 30, cropped by 5 % on each side, or 25 % brighter. COUNT others have no copy. All images are in one class of OUT.

Recall is the fraction of the planted pairs that dedup finds. Precision is the fraction of the pairs found that were planted;
pairs of photographs that were near each other before count as false. Needs numpy and Pillow."""
import glob
import json
import os
import random
import shutil
import subprocess
import sys

from PIL import Image, ImageEnhance

stargrad, tree, out = sys.argv[1:4]
count = int(sys.argv[4]) if len(sys.argv) > 4 else 2000
CHANGES = {
    "smaller": lambda x: (x.resize((x.width // 2, x.height // 2), Image.BICUBIC), 95),
    "compressed": lambda x: (x, 30),
    "cropped": lambda x: (x.crop((x.width // 20, x.height // 20, x.width - x.width // 20, x.height - x.height // 20)), 95),
    "brighter": lambda x: (ImageEnhance.Brightness(x).enhance(1.25), 95),
}

files = sorted(glob.glob(f"{tree}/train/*/*"))
random.Random(1).shuffle(files)
shutil.rmtree(out, ignore_errors=True)
os.makedirs(f"{out}/set/train/all")
planted = {}
for i, path in enumerate(files[:2 * count]):
    shutil.copy(path, f"{out}/set/train/all/{i:05}.jpg")
    if i < count:
        name = list(CHANGES)[i % len(CHANGES)]
        image, quality = CHANGES[name](Image.open(path).convert("RGB"))
        image.save(f"{out}/set/train/all/{i:05}-{name}.jpg", quality=quality)
        planted[(f"train/all/{i:05}-{name}.jpg", f"train/all/{i:05}.jpg")] = name
print(f"| hash | threshold | recall | {' | '.join(CHANGES)} | precision | false-positive rate |\n|---|---|---|{'---|' * len(CHANGES)}---|---|")
images = 3 * count
for kind in ("phash", "dhash", "ahash", "whash"):
    subprocess.run([stargrad, "dedup", "--data", f"folder:{out}/set", "--no-test", "--hash", kind, "--threshold", "16", "--out", f"{out}/{kind}"],
                   check=True, stdout=subprocess.DEVNULL)
    with open(f"{out}/{kind}/pairs.jsonl") as f:
        pairs = [json.loads(line) for line in f]
    for threshold in (0, 2, 4, 6, 8, 10, 12, 16):
        found = {tuple(sorted((p["a"], p["b"]))) for p in pairs if p["distance"] <= threshold}
        right = [planted[p] for p in found if p in planted]
        shares = [right.count(name) / (count / len(CHANGES)) for name in CHANGES]
        false = len(found) - len(right)
        print(f"| {kind} | {threshold} | {len(right) / count:.3f} | {' | '.join(f'{s:.3f}' for s in shares)} | "
              f"{len(right) / max(1, len(found)):.3f} | {false / (images * (images - 1) / 2):.1e} |", flush=True)
