"""image_folders.py: writes tar shards from a folder of images, as train --data folder:DIR reads it. For convert.py.

    DIR/train/cat/1.jpg     DIR/val/dog/old/2.png

The images of a split are shuffled, because a folder has those of one class after another, and each shard should have all classes."""
import json
import os
import random

from .library import Error, library, take_text

SPLITS = ("train", "val", "test")


def folders_in(path):
    return sorted((entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith(".")), key=os.fsencode)


def is_one(path):
    """Returns true if PATH is a folder with train/CLASS/."""
    return os.path.isdir(os.path.join(path, "train")) and bool(folders_in(os.path.join(path, "train")))


def images_of(folder, classes):
    """Returns pairs of a path and a class: images, in the order of the data set folder:DIR. Others: the number of other files."""
    images, others = [], 0
    endings = take_text(library().sgrad_image_endings()).split(", ")
    for name in classes:
        for place, places, files in os.walk(os.path.join(folder, name), followlinks=True):
            places[:] = sorted((place for place in places if not place.startswith(".")), key=os.fsencode)
            for file in sorted(files, key=os.fsencode):
                if os.path.splitext(file)[1].lower() in endings and not file.startswith("."):
                    images.append((os.path.join(place, file), name))
                else:
                    others += 1
    return images, others


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as why:
        raise Error(f"{path}: {why.strerror}") from None


def write(folder, seed, only, open_shards):
    """Writes the shards of FOLDER. ONLY: the split to write; None: all. open_shards(SPLIT) returns an object with add and close."""
    classes = folders_in(os.path.join(folder, "train"))
    found = [split for split in SPLITS if os.path.isdir(os.path.join(folder, split)) and only in (None, split)]
    if not found:
        raise Error(f"{folder}: has no folder {only}")
    for split in found:
        unknown = set(folders_in(os.path.join(folder, split))) - set(classes)
        if unknown:
            raise Error(f"{folder}/{split}/{min(unknown)}: the training split has no such class")
        images, others = images_of(os.path.join(folder, split), classes)
        if not images:
            raise Error(f"{folder}/{split}: has no images")
        random.Random(seed).shuffle(images)
        shards = open_shards(split)
        for at, (path, name) in enumerate(images):
            try:
                label = json.dumps({"class": name, "file": os.path.relpath(path, folder)}, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise Error(f"{os.fsencode(path)!r}: is not UTF-8, which JSON requires; rename it") from None
            shards.add([(f"{at:09d}.{path.rpartition('.')[2].lower()}", read(path)), (f"{at:09d}.json", label)])
        shards.close()
        print(f"{split}: {len(images)} images of {len(classes)} classes in {shards.count} {'shard' if shards.count == 1 else 'shards'}, in "
              f"the random order of --shuffle {seed}" + (f"; {others} other files are left out" if others else ""))
