"""13-python.py: Stargrad in Python: training, evaluation, prediction, weights, export.

    pip install DIR/share/stargrad/python       # once; DIR is the prefix of the installation (docs/guides/python.md)
    python3 13-python.py

This is the last program of the course. docs/guides/python.md describes the whole module. docs/performance/record.md is the goal
of the course: a record, step by step."""
import numpy

import stargrad

run = stargrad.train(model="convnet", data="digits", epochs=5, batch=64, schedule="cosine")
for epoch in run.metrics("epoch"):
    print(f"epoch {epoch['epoch']:g}: test accuracy {epoch['test_top1']:.3f}")

predicted = stargrad.probabilities(run.predict())       # (samples, classes), of the test set
print("least certain test sample:", predicted.max(axis=1).argmin())

blank = numpy.zeros((1, 8, 8, 1), numpy.uint8)          # images are bytes (n,H,W,C), in the data set's scale
print("class of an empty image:", run.classes[run.predict(blank).argmax()])

for name, array in run.weights().items():
    print(f"{name:24} {str(array.shape):16} {numpy.abs(array).mean():.4f}")

again = stargrad.train(like=run, epochs=1, lr=0.01, freeze="conv1,bn1", init=f"{run.folder}/model.safetensors")
print("after one more epoch:", again.evaluate())
again.export("digits.onnx")
