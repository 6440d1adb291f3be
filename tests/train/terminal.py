"""Progress that is redrawn appears only on terminals and fits their width; ranks print common lines once."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from run import RANKS, Skip, by_rank, command, folder, main, mpirun, stargrad

RUN = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--steps", 60, "--cpus", 1)


def on_a_terminal(columns, words, env=None):
    """What the command writes to a terminal that is so wide."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    run = subprocess.Popen([str(w) for w in words], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **RANKS, **(env or {})})
    os.close(slave)
    said = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:
            break
        if not more:
            break
        said += more
    os.close(master)
    assert run.wait() == 0, said
    return said.decode()


def drawn(said):
    """What is drawn between two returns to the first column."""
    return [re.sub(r"\033\[[0-9]*[KJAm]", "", part) for part in re.split(r"[\r\n]", said)
            if re.search(r"step \d+/60  ", part) and "test loss" not in part]


def test_the_bar_has_room():
    for columns in (20, 30, 50, 64, 80, 200):
        bars = drawn(on_a_terminal(columns, command(*RUN, "--out", folder("bar"))))
        assert bars and all(len(bar) < columns for bar in bars), (columns, bars)
        assert columns == 64 or any(bar.startswith("[") for bar in bars) == (columns > 64), (columns, bars)
    assert not drawn(on_a_terminal(80, command(*RUN, "--out", folder("quiet"), "--quiet")))


def test_quiet():
    for words in ((), ("--json",)):
        said = stargrad(*RUN, "--out", folder("quiet"), "--quiet", *words)
        assert len([line for line in said.splitlines() if not line.startswith("learning curve")]) == 1 and "\r" not in said, said
    assert "test loss" in stargrad(*RUN, "--out", folder("loud"))


def test_no_bar_in_logs():
    """mpirun gives its ranks a terminal, wherever its own output goes."""
    words = ("mpirun", "-n", 1, *command(*RUN, "--out", folder("log")))
    try:
        on = ("mpirun", "-n", 1, *command(*RUN, "--out", folder("screen")))
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env={**os.environ, **RANKS})
    except FileNotFoundError:
        raise Skip("there is no mpirun")
    assert done.returncode == 0 and "test loss" in done.stdout and not drawn(done.stdout), done
    assert drawn(on_a_terminal(80, on))


def lines(said):
    return [line for line in said.splitlines() if line.startswith("stargrad:")]


def test_ranks_print_an_error_once():
    """Before MPI has started, and after."""
    bad = folder("bad")
    os.makedirs(bad)
    with open(os.path.join(bad, "t.csv"), "w") as f:
        f.write("a,b,y\n" + "1,2,0\n3,4,1\n" * 20 + "1,x,0\n")
    base = ("train", "--model", "mlp", "--cpus", 1, "--steps", 2, "--batch", 8)
    for wrong in (("train", "--model", "nothing", "--data", "digits"), ("train", "--bacth", 3), ("train", "--model", "mlp", "--data", "digits", "--batch", "x"),
                  (*base, "--data", f"csv:{bad}/t.csv"), (*base, "--data", "cifar10:" + os.path.join(bad, "nowhere")), ("nothing",),
                  (*base, "--data", "digits", "--micro-batch", 3), (*base, "--data", "digits", "--out", bad)):
        said = lines(mpirun(3, command(*wrong), status=1))
        assert len(said) == 1 and not re.match(r"stargrad: rank \d+:", said[0]), (wrong, said)


def test_ranks_print_a_warning_once():
    said = lines(mpirun(3, command(*RUN, "--nesterov", "--optimizer", "adam", "--batch", 66, "--print"), status=None))
    assert len(said) == 1 and "--nesterov has no effect" in said[0], said
    said = lines(mpirun(2, command(*RUN, "--print"), status=None, env={"STARPU_HOME": os.devnull}))
    assert len(said) == 1 and "measured times" in said[0], said


def test_an_error_of_one_rank_is_printed():
    """And ends the others, whichever rank it is."""
    good = command(*RUN, "--out", folder("one"))
    for wrong in (("train", "--bacth", 3), ("train", "--model", "mlp", "--data", "csv:" + folder("nowhere"))):
        for who in range(3):
            commands = [command(*wrong) if rank == who else good for rank in range(3)]
            said = lines(mpirun(3, by_rank(*commands), status=1))
            assert len(said) == 1 and ("rank %d: " % who in said[0]) == (who > 0), (who, said)


if __name__ == "__main__":
    main(globals())
