#!/usr/bin/env python3
"""Makes classes.json, with which tests/train/classes.py compares Stargrad. Needs PyTorch 2 and scikit-learn; the tests do not run this.

Each case is ten steps of LeNet on the images in idx/, from the weights in lenet.safetensors, in double precision: the loss of each
step with class weights, and scikit-learn's scores of the predictions for the test images. "balanced" are the class weights of
scikit-learn."""
import gzip
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from sklearn.metrics import balanced_accuracy_score, f1_score, precision_recall_fscore_support
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import torch_models  # noqa: E402

WEIGHTS = [0.5, 1, 2, 0.25, 4, 1, 1, 3, 0.125, 1.5]


def read(name):
    def content(kind, head):
        return np.frombuffer(gzip.decompress((HERE / "idx" / f"{name}-{kind}-ubyte.gz").read_bytes()), np.uint8, offset=head)
    return content("images-idx3", 16).reshape(-1, 1, 28, 28), torch.tensor(content("labels-idx1", 8).astype(np.int64))


def focal(logits, labels, weight, gamma):
    """Lin et al., 2017, with softmax and the divisor of CrossEntropyLoss."""
    log_p = F.log_softmax(logits, 1).gather(1, labels[:, None])[:, 0]
    return (weight[labels] * (1 - log_p.exp()) ** gamma * -log_p).sum() / weight[labels].sum()


def run(loss_of):
    (train_x, train_y), (test_x, test_y) = read("train"), read("t10k")
    pixels = torch.from_numpy(train_x.copy()).double() / 255
    mean, deviation = pixels.mean(), pixels.std(correction=0)
    train_x, test_x = (pixels - mean) / deviation, (torch.from_numpy(test_x.copy()).double() / 255 - mean) / deviation
    model = torch_models.build("lenet", (1, 28, 28))
    model.load_state_dict(load_file(HERE / "lenet.safetensors"))
    model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    losses = []
    for x, y in zip(train_x.split(16), train_y.split(16)):
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    predicted = model(test_x).argmax(1)
    precision, recall, f1, samples = precision_recall_fscore_support(test_y, predicted, labels=range(10), zero_division=0)
    return {"loss": losses, "macro_f1": f1_score(test_y, predicted, average="macro", zero_division=0),
            "balanced_accuracy": balanced_accuracy_score(test_y, predicted), "precision": precision.tolist(),
            "recall": recall.tolist(), "f1": f1.tolist(), "samples": samples.tolist()}


torch.set_num_threads(1)
labels = read("train")[1].numpy()
weight, balanced = torch.tensor(WEIGHTS).double(), torch.tensor(compute_class_weight("balanced", classes=np.arange(10), y=labels))
cases = {"weights": lambda x, y: F.cross_entropy(x, y, weight=weight),
         "balanced": lambda x, y: F.cross_entropy(x, y, weight=balanced),
         "smoothed": lambda x, y: F.cross_entropy(x, y, weight=weight, label_smoothing=0.1),
         "focal": lambda x, y: focal(x, y, weight, 2), "focal-plain": lambda x, y: focal(x, y, torch.ones(10).double(), 0.5)}
made = {"class_weights": WEIGHTS} | {name: run(loss) for name, loss in cases.items()}
(HERE / "classes.json").write_text(json.dumps(made, indent=1) + "\n")
