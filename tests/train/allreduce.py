"""Every method of summing over ranks, for real: 2 to 8 ranks, ragged sizes, against MPI_Allreduce (tests/graphs/runs/allreduce.c)."""
import os
import re

from run import Skip, main, mpirun, stargrad

PROGRAM = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/runs/allreduce")


def test_sums():
    if not os.path.exists(PROGRAM):
        raise Skip(f"{PROGRAM} is not built: cmocka is not installed")
    methods = re.findall(r"^(\w+)", stargrad("list", "allreduce"), re.M)
    for count in range(2, 9):
        said = mpirun(count, [PROGRAM])
        assert re.findall(rf"^(\w+) on {count} ranks", said, re.M) == methods, said


if __name__ == "__main__":
    main(globals())
