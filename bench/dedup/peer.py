"""Imports imagededup (PyPI) without the modules that hashing and searching do not need: its network, plots, scikit-learn."""
import sys
from unittest.mock import MagicMock

for name in ("sklearn", "sklearn.metrics", "sklearn.metrics.pairwise", "imagededup.methods.cnn", "imagededup.utils.plotter",
             "imagededup.utils.models"):
    module = MagicMock()
    module.__path__, module.__name__, module.__spec__ = [], name, None
    sys.modules[name] = module

from imagededup.methods import AHash, DHash, PHash, WHash   # noqa: E402

KINDS = {"phash": PHash, "dhash": DHash, "ahash": AHash, "whash": WHash}
