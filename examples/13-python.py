"""13-python.py: the course's way once more in Python: trains, evaluates, asks, looks at weights, exports.

    pip install DIR/share/stargrad/python       # once; DIR is where Stargrad is installed (docs/guides/python.md)
    python3 13-python.py

This is the last of the course. docs/guides/python.md says the rest; docs/performance/record.md is where all of it leads: a record, step by step."""
import numpy

import stargrad

run = stargrad.train(model="convnet", data="digits", epochs=5, batch=64, schedule="cosine")
for epoch in run.metrics("epoch"):
    print(f"epoch {epoch['epoch']:g}: test accuracy {epoch['test_top1']:.3f}")

says = stargrad.probabilities(run.predict())            # (samples, classes), of the test set
print("least sure of test sample", says.max(axis=1).argmin())

blank = numpy.zeros((1, 8, 8, 1), numpy.uint8)          # images are bytes (n,H,W,C), of the data set's scale
print("an empty image is a", run.classes[run.predict(blank).argmax()])

for name, array in run.weights().items():
    print(f"{name:24} {str(array.shape):16} {numpy.abs(array).mean():.4f}")

again = stargrad.train(like=run, epochs=1, lr=0.01, freeze="conv1,bn1", init=f"{run.folder}/model.safetensors")
print("one epoch more:", again.evaluate())
again.export("digits.onnx")
