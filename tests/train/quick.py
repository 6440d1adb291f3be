"""A training run, a resumed run, and a run of two ranks, for `make check-quick`: from reference.py, resume.py and ranks.py."""
import reference
from run import content, folder, losses, main, ranks, stargrad

RUN = ("train", "--model", "convnet", "--data", "synthetic:8x8x3,10,64", "--augment", "crop:4,flip", "--batch", 32, "--lr", 0.05,
       "--bn-group", "global", "--deterministic")


def run(name, *more, start=stargrad):
    out = folder(name)
    start(*RUN, *more, "--out", out)
    return out


def test_losses_are_pytorchs():
    reference.check("lenet", "lenet", "idx", 16)


def test_a_run_goes_on_to_the_same_bits():
    whole, parted = run("whole", "--steps", 6), run("parted", "--steps", 3)
    stargrad(*RUN, "--steps", 6, "--resume", "--out", parted)
    assert losses(parted) == losses(whole) and content(parted) == content(whole)


def test_two_ranks_have_the_bits_of_one():
    one, two = run("one", "--steps", 4), run("two", "--steps", 4, start=lambda *words: ranks(2, *words))
    assert losses(two) == losses(one) and content(two) == content(one)


if __name__ == "__main__":
    main(globals())
