"""A rehearsal of tests/gpu/run in a minimal environment: the pack runs in a minimal Debian 13, without Open MPI, hwloc's
plug-ins, CUDA, xz or a compiler. CUDA's libraries are Python packages, and a script replaces nvidia-smi. There is no device, so
the programs for GPUs must fail exactly at the point where they need one. Then the programs for the emulated GPU run all parts.

Needs root, debootstrap, pip and a network. STARGRAD_REHEARSAL names a folder for the Debian and the packages (2 GB). It is not
removed, so that later rehearsals do not download them again."""
import glob
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from emulation import PROGRAMS, needs
from run import SOURCE, Skip, folder, main

RUN = os.path.join(SOURCE, "tests", "gpu", "run")
PACKAGES = ("nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cusolver", "nvidia-cusparse", "nvidia-nccl-cu13",
            "nvidia-nvjitlink")     # all of which PyTorch brings; StarPU links two of them
SMI = """#!/bin/sh
case "$*" in
-L) echo 'GPU 0: stand-in (UUID: GPU-0)' ;;
*name*) echo 'stand-in, 580.00, 81559' ;;
*) echo 0 ;;
esac
"""
BARE = "xz mpirun nvcc gcc ompi_info"


def call(*words, status=0, **more):
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, **more)
    assert status is None or done.returncode == status, f"{words}: exit status {done.returncode}\n{done.stdout}"
    return done.stdout


def make_debian(place):
    """A minimal Debian 13 with Python, from the archive that this machine uses."""
    sites = [site for site in call("apt-get", "indextargets", "--format", "$(SITE)").split() if "security" not in site]
    if not sites:
        raise Skip("the rehearsal needs an archive of Debian")
    call("debootstrap", "--variant=minbase", "--include=python3", "trixie", place + ".new", sites[0])
    os.rename(place + ".new", place)


@pytest.fixture(scope="module")
def root():
    needs("stargrad")
    if os.geteuid() or not all(map(shutil.which, ("debootstrap", "unshare", "apt-get"))):
        raise Skip("the rehearsal needs root, debootstrap and unshare")
    kept = os.environ.get("STARGRAD_REHEARSAL") or folder("rehearsal")
    os.makedirs(kept, exist_ok=True)
    place, wheels = os.path.join(kept, "root"), os.path.join(kept, "wheels")
    if not os.path.exists(place):
        make_debian(place)
    if len(glob.glob(os.path.join(wheels, "*.whl"))) < len(PACKAGES):
        call(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, *PACKAGES)
    packages = os.path.join(place, "usr/lib/python3/dist-packages")
    for wheel in glob.glob(os.path.join(wheels, "*.whl")):
        name, version = os.path.basename(wheel).split("-")[:2]
        if not os.path.exists(os.path.join(packages, f"{name}-{version}.dist-info")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(packages)
    with open(os.path.join(place, "usr/local/bin/nvidia-smi"), "w") as file:
        file.write(SMI)
    os.chmod(file.name, 0o755)
    shutil.copy(RUN, os.path.join(place, "root/run"))
    return place


def inside(place, command, status=0):
    """What COMMAND prints in the Debian in PLACE, where it has no variable of this environment."""
    mounts = f"mount -t proc proc {place}/proc && mount --rbind /sys {place}/sys && mount --rbind /dev {place}/dev"
    clean = "env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8"
    return call("unshare", "-m", "sh", "-c", f'{mounts} && exec chroot {place} {clean} sh -c "$1"', "sh", f"cd /root && {command}", status=status)


def rows(place, table):
    with open(os.path.join(place, table)) as file:
        return [line.strip().strip("|").split(" | ") for line in file if line.startswith("| ") and not line.startswith(("| ---", "| part"))]


def test_machine(root):
    """It has none of what it is to lack."""
    for word in BARE.split():
        assert not inside(root, f"command -v {word} || true"), word


def test_without_device(root):
    """Every library of the pack and of the Python packages is found; every part of the plan begins, says that there is no device, and has its
    row; it takes less than the plan says."""
    pack = os.path.join(root, "root/gpu.tar.gz")
    print(call(RUN, "pack", pack))
    print(inside(root, "bash run --plan gpu.tar.gz"))
    shutil.rmtree(os.path.join(root, "root/results"), ignore_errors=True)
    said = inside(root, "bash run --out results gpu.tar.gz", status=1)
    print(said)
    found = rows(root, "root/results/gpu.md")
    parts = [row for row in found if len(row) == 5]
    assert len(parts) == 16, found
    assert sum(float(row[4]) for row in parts) < 480, parts
    for row in parts:
        if not row[3].startswith("left out"):
            assert re.search("FAILED: .*(no CUDA|CUDA device|GPU|out of time)", row[3]), row
    assert not re.search("cannot open shared object|Traceback|Permission denied|opal_init", said), said


def test_emulated(root):
    """The parts themselves, on the emulated GPU, in the same place: all agree, and each file is where --out says."""
    if not os.path.exists(os.path.join(PROGRAMS, "operations")):
        raise Skip("there are no CUDA kernels: configured without CUDA, or without cmocka")
    call(RUN, "pack", "--emulated", os.path.join(root, "root/emulated.tar.gz"))
    shutil.rmtree(os.path.join(root, "root/emulated"), ignore_errors=True)
    said = inside(root, "bash run --emulated --out emulated emulated.tar.gz --part 'lenet f32' 'gpt against' trace")
    print(said)
    parts = [row for row in rows(root, "root/emulated/gpu.md") if len(row) == 5]
    assert len(parts) == 3 and not any("FAILED" in row[3] or "DISAGREE" in row[3] for row in parts), said
    assert sorted(os.listdir(os.path.join(root, "root/emulated"))) == ["gpu.md", "logs", "trace"]


def test_without_cuda(root):
    """Where there is no library of CUDA either, one line names those that are missing."""
    packages = os.path.join(root, "usr/lib/python3/dist-packages/nvidia")
    os.rename(packages, packages + ".away")
    try:
        said = inside(root, "bash run --out results gpu.tar.gz", status=1)
    finally:
        os.rename(packages + ".away", packages)
    assert re.search("libraries are not found: .*libcudnn", said), said


if __name__ == "__main__":
    main(globals(), "-s")
