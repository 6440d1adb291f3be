"""stargrad export against onnxruntime: the same logits to 1e-4, of networks of images, of pixels and of tokens, after some steps."""
import os
import random
import sys

from run import FOLDER, SOURCE, Skip, folder, main

os.environ["STARGRAD_LIBRARY"] = os.path.join(os.environ.get("builddir", "build"), ".libs", "libstargrad.so")
sys.path.insert(0, os.path.join(SOURCE, "python"))
sys.dont_write_bytecode = True
try:
    import numpy
    import onnxruntime
    import stargrad
    missing = None
except ModuleNotFoundError as why:
    missing = f"Python has no {why.name}"


def compare(model, data, x, to_onnx, batch=16):
    """X, samples of the test set as DATA has them; TO_ONNX makes of them what the exported network takes. The file comes back."""
    name = model.split(":")[0]
    trained = stargrad.train(model=model, data=data, batch=batch, steps=3, lr=0.01, augment="none", cpus=1, out=folder(name))
    path = os.path.join(FOLDER, f"{name}.onnx")
    trained.export(path)
    session = onnxruntime.InferenceSession(path)
    logits, = session.run(["logits"], {session.get_inputs()[0].name: to_onnx(x)})
    said = trained.predict(cpus=1)
    if logits.ndim > 3:                                 # classes of pixels (N,C,…): ours are (N,…,C)
        logits = numpy.moveaxis(logits, 1, -1)
    logits = logits.reshape(said.shape)
    most = abs(logits - said).max()
    assert most <= 1e-4 * max(1, abs(said).max()), (model, most, abs(said).max())
    again = stargrad.evaluate(model=f"onnx:{path}", data=data, cpus=1)["test_loss"]
    assert abs(again - trained.result["test_loss"]) < 1e-4, (model, again, trained.result)


def arrays(name, side, channels, masks=False):
    draw = numpy.random.default_rng(3)
    x = draw.integers(0, 256, (40, side, side, channels), numpy.uint8)
    y = (x[..., 0] > 128).astype(numpy.int64) if masks else numpy.arange(40) % 10
    path = os.path.join(FOLDER, f"{name}.npz")
    numpy.savez(path, x_train=x[:32], y_train=y[:32], x_test=x[32:], y_test=y[32:])
    return f"npy:{path}", x[32:]


def to_planes(x):
    return numpy.moveaxis(x, -1, 1)


def of_images(model, side, channels):
    if missing:
        raise Skip(missing)
    compare(model, *arrays(model, side, channels), to_planes)


def test_lenet():
    of_images("lenet", 28, 1)


def test_resnet20():
    of_images("resnet20", 32, 3)


def test_resnet50():
    of_images("resnet50", 64, 3)


def test_airbench94():
    of_images("airbench94", 32, 3)


def test_vgg11():
    of_images("vgg11", 32, 3)


def test_vit_tiny():
    of_images("vit_tiny", 32, 3)


def test_unet2d():
    if missing:
        raise Skip(missing)
    data, x = arrays("unet2d", 16, 1, masks=True)
    compare("unet2d", data, x, lambda x: numpy.moveaxis(x[:, None], -1, 1), batch=8)       # (N,C,D,H,W), of one slice


def test_gpt():
    if missing:
        raise Skip(missing)
    length, rows = 800, 16
    text = bytes(random.Random(5).randrange(97, 123) for _ in range(length))
    path = os.path.join(FOLDER, "text")
    with open(path, "wb") as f:
        f.write(text)
    test = text[length - length // 10:]
    x = numpy.array([list(test[i:i + rows]) for i in range(0, len(test) - rows, rows)], numpy.int32)
    compare(f"gpt:layers=2,heads=2,width=32,context={rows}", f"text:{path},{rows}", x, lambda x: x)


if __name__ == "__main__":
    main(globals())
