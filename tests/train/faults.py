"""Errors of the disk: the calls of a program on files without a name, as --spill has, fail (faulty_disk.c)."""
import errno
import functools
import os
import re
import shlex
import shutil
import subprocess

from run import FOLDER, SOURCE, Skip

EIO, ENOSPC = errno.EIO, errno.ENOSPC
CALLS = os.path.join(FOLDER, "calls")


@functools.cache
def library():
    """The path of the library that is preloaded."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not shutil.which(compiler[0]):
        raise Skip("there is no C compiler")
    path = os.path.join(FOLDER, "faulty_disk.so")
    os.makedirs(FOLDER, exist_ok=True)
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", path, os.path.join(SOURCE, "tests", "train", "faulty_disk.c"), "-ldl"], check=True)
    return path


def faulty(words, fault=None):
    """A command whose calls fail from FAULT on: the name of the calls, the number of the first one, the number of the error. None: they are
    only counted (read_calls)."""
    made = [f"LD_PRELOAD={library()}", f"CALLS={CALLS}"]
    return ["env", *made, *([f"FAULT={' '.join(map(str, fault))}"] if fault else []), *words]


def read_calls():
    """The calls of the last such command that has ended by itself."""
    with open(CALLS, encoding="ascii") as file:
        return {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", file.read())}
