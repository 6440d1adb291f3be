"""model.py: a trained network that computes outputs for arrays and image files."""
import numbers
import os

from . import results
from .library import Error


class Model:
    """A trained network: weights, and a description of its input and output. It needs neither PyTorch nor the training data.

    classes: the names of its classes; empty: its outputs are numbers."""

    def __init__(self, predict, classes, describe):
        self._predict, self.classes, self._describe = predict, classes, describe

    def __repr__(self):
        return f"Model({self._describe})"

    @classmethod
    def load(cls, path, classes=None, **options):
        """Loads the network of a run: its folder, or a file of weights in it. Any other file of weights needs model=NAME; an ONNX
        file contains its network. Both then need CLASSES, the number or the names of the classes, and mean=… and deviation=… of
        the channels, for pixels from 0 to 1. The samples are then images. Image files also need image_size=… (and eval_resize=…, as
        of `stargrad predict`), and are read in colour."""
        from . import Run, _predict
        path = os.fspath(path)
        folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
        if not os.path.exists(path):
            raise Error(f"{path}: No such file or directory")
        if os.path.isdir(path) or (os.path.exists(os.path.join(folder, "config.json")) and "model" not in options):
            run = Run(folder)
            weights = {} if os.path.isdir(path) else {"init": path}
            names = run.classes if run.config["classes"] else []
            return cls(lambda samples: _predict(run, samples, {**weights, **options}), names, repr(path))
        options = {"model": f"onnx:{path}", **options} if path.endswith(".onnx") else {"init": path, **options}
        missing = [name for name in ("model", "mean", "deviation") if name not in options] + ([] if classes else ["classes"])
        if missing:
            raise Error(f"{path}: is not in the folder of a run; {', '.join(missing)} must be given")
        names = [str(c) for c in range(classes)] if isinstance(classes, numbers.Integral) else list(classes)
        return cls(lambda samples: _checked(_predict(None, samples, options, len(names)), path, names), names, repr(path))

    def logits(self, samples):
        """Returns the outputs, before any softmax: as Run.predict."""
        logits, _, _, one = self._predict(samples)
        return logits[0] if one else logits

    def probabilities(self, samples):
        """Returns the probabilities of the classes (samples, classes)."""
        return results.probabilities(self.logits(samples))

    def table(self, samples, top=1):
        """Returns rows for pandas.DataFrame: as Run.table."""
        logits, _, names, _ = self._predict(samples)
        return results.table(logits, None, self.classes, names, top)


def _checked(predictions, path, names):
    """Returns predictions whose logits are those of the classes NAMES."""
    width = predictions[0].shape[-1]
    if width != len(names):
        raise Error(f"{path}: has {width} classes, but {len(names)} were given to Model.load")
    return predictions
