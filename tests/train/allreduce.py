"""Collectives on real ranks: sums over 2 to 8 ranks with uneven sizes equal those of MPI_Allreduce
(tests/graphs/engine/allreduce.c); every kind over groups of ranks, with every root (tests/graphs/engine/collectives.c)."""
import os
import re

from run import Skip, main, mpirun, stargrad


def program(name):
    path = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/engine", name)
    if not os.path.exists(path):
        raise Skip(f"{path} is not built: cmocka is not installed")
    return path


def test_groups():
    methods = re.findall(r"^(\w+ \w+)", stargrad("list", "collectives"), re.M)
    for library in ("mpi", "nccl"):     # all ranks or none
        methods.remove(f"allreduce {library}")
    for count in (2, 3, 5, 8):
        said = mpirun(count, [program("collectives")])
        assert re.findall(rf"^(\w+ \w+) on {count} ranks", said, re.M) == methods, said


def test_sums():
    methods = re.findall(r"^(\w+)", stargrad("list", "allreduce"), re.M)
    methods.remove("nccl")              # on GPUs: tests/gpu/emulated_graphs.py
    for count in range(2, 9):
        said = mpirun(count, [program("allreduce")])
        assert re.findall(rf"^(\w+) on {count} ranks", said, re.M) == methods, said


if __name__ == "__main__":
    main(globals())
