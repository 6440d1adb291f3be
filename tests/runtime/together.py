"""Operations of several ranks (tests/runtime/ranks.c): sums that are too long for one MPI call, and waiting for a rank that is
busy with files."""
import os
import re
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "train"))
from run import FOLDER, RANKS, Skip, main, mpirun, ranks_of  # noqa: E402

LIMIT = 300     # seconds: what has not ended by then hangs
PROGRAM = os.path.join(os.environ.get("builddir", "build"), "tests/runtime/ranks")


def program():
    if not os.path.exists(PROGRAM):
        raise Skip(f"{PROGRAM} is not built: cmocka is not installed")
    return PROGRAM


def new_pipe(name):
    path = os.path.join(FOLDER, name)
    os.mkfifo(path)
    return path


def test_sums_in_pieces():
    for count in (2, 3):
        said = mpirun(count, [program(), "sums"])
        assert re.findall(r"longest sum was of (\d+)", said) == ["1000"] * count, said


def test_nobody_gives_up_while_rank_0_works_on_files():
    """Rank 0 goes on when its pipe is opened, and that is when a warning has been read: long after patience, 1 s, has ended."""
    mpirun(1, ["true"])
    path, lines, opened = new_pipe("pipe"), [], False
    run = subprocess.Popen(["mpirun", "-n", "3", program(), "files", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, env={**os.environ, **RANKS})
    guard = threading.Timer(LIMIT, run.kill)
    guard.start()
    for line in run.stdout:
        lines.append(line)
        if "has waited" in line and not opened:
            opened = True
            with open(path, "w", encoding="utf-8"):
                pass
    guard.cancel()
    said = "".join(lines)
    assert run.wait() == 0, said
    warnings = [line for line in lines if line.startswith("stargrad: ")]
    expected = re.compile(r"stargrad: warning: rank 1 has waited \d+ s for rank 0, which reads a pipe$")
    assert warnings and all(map(expected.match, warnings)), said
    assert sorted(re.findall(r"rank \d: .*error", said)) == [f"rank {r}: input/output error" for r in range(3)], said


def test_a_rank_that_is_stopped_while_others_wait_for_its_files():
    """It gives no sign of life, unlike a rank that still works."""
    mpirun(1, ["true"])
    path, said = new_pipe("stopped"), ""
    run = subprocess.Popen(["mpirun", "-n", "3", program(), "files", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, env={**os.environ, **RANKS})
    guard = threading.Timer(LIMIT, run.kill)
    guard.start()
    for line in run.stdout:
        if "has waited" in line and "has waited" not in said:
            os.kill(ranks_of(run.pid)[0], signal.SIGSTOP)
        said += line
    guard.cancel()
    assert run.wait() != 0, said
    assert "nothing has happened for 1 s: no answer from rank 0; rank 1 waits for rank 0, which reads a pipe\n" in said, said


def test_a_rank_that_stalls_elsewhere_ends_them():
    said = mpirun(3, [program(), "tasks", new_pipe("nobody")], status=1)
    told = re.findall(r"^stargrad: (.*)$", said, re.M)
    assert told == ["nothing has happened for 1 s: no answer from rank 0; rank 1 waits for rank 0, which reads a pipe; "
                    "rank 2 waits for tasks of its own"], said


if __name__ == "__main__":
    main(globals())
