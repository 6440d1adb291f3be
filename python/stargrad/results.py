"""results.py: results per class, and rows of predictions."""
import numpy

from .library import Error


def probabilities(logits):
    """Returns the softmax of logits over the last axis."""
    shifted = numpy.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def _ratio(part, whole):
    return float(part / whole) if whole else float("nan")


def _calibration_error(confidence, right, bins=15):
    """The expected calibration error: the mean distance of confidence and accuracy in bins of the confidence, weighted by their
    samples (Guo et al., On calibration of modern neural networks, 2017)."""
    where = numpy.minimum((confidence * bins).astype(int), bins - 1)
    gaps = (abs(confidence[where == b].mean() - right[where == b].mean()) * (where == b).sum() for b in numpy.unique(where))
    return float(sum(gaps) / len(confidence))


def details(logits, labels, names):
    """Returns the results per class: "classes", a list of a dictionary for each class; "confusion" (true class, predicted class);
    "calibration_error"; with more than five classes "top5"."""
    count, classes = len(labels), logits.shape[1]
    sure = (logits < numpy.inf).all(axis=1) & (logits > -numpy.inf).any(axis=1)     # samples with NaN or infinity count as wrong
    predicted = logits.argmax(axis=1)
    confusion = numpy.zeros((classes, classes), numpy.int64)
    numpy.add.at(confusion, (labels[sure], predicted[sure]), 1)
    rows = []
    for c in range(classes):
        right, samples, found = confusion[c, c], int((labels == c).sum()), confusion[:, c].sum()
        rows.append({"name": names[c], "samples": samples, "accuracy": _ratio(right, samples), "precision": _ratio(right, found),
                     "recall": _ratio(right, samples), "f1": _ratio(2 * right, samples + found)})
    result = {"classes": rows, "confusion": confusion, "not_finite": int(count - sure.sum())}
    if sure.any():
        result["calibration_error"] = _calibration_error(probabilities(logits[sure].astype(float)).max(axis=1),
                                                         predicted[sure] == labels[sure])
    if classes > 5:
        own = logits[numpy.arange(count), labels][:, None]
        result["top5"] = float((((logits > own).sum(axis=1) < 5) & sure).mean())
    return result


def table(logits, labels, names, samples, top):
    """Returns rows, dictionaries with the same keys, in the order of the samples: their TOP most probable classes, or, if NAMES is
    empty, their numbers."""
    rows = []
    if logits.ndim > 2:
        raise Error(f"table requires one class or a few numbers per sample, but a sample has classes for each of "
                    f"{'x'.join(map(str, logits.shape[1:-1]))} pixels or tokens; predict(…).argmax(axis=-1) returns their classes")
    if not names:
        keys = ["number"] if logits.shape[1] == 1 else [f"number {k + 1}" for k in range(logits.shape[1])]
        return [{"sample": sample, **dict(zip(keys, map(float, row)))} for sample, row in zip(samples, logits)]
    share = probabilities(logits.astype(float))
    best = numpy.argsort(-share, axis=1, kind="stable")[:, :top]
    for i, sample in enumerate(samples):
        known = {} if labels is None else {"label": names[labels[i]]}
        rows += [{"sample": sample, **known, "class": names[c], "probability": float(share[i, c])} for c in best[i]]
    return rows
