"""stargrad export against onnxruntime: the same logits to 1e-4, for networks of images, of pixels and of tokens, after several
steps."""
import os
import random
import re
import sys

from run import FOLDER, SOURCE, Skip, folder, losses, main

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


def compare(model, data, x, to_onnx, batch=16, read=True):
    """X, samples of the test set as DATA has them; TO_ONNX makes of them what the exported network takes. With READ, Stargrad reads
    the file, too. Returns the run and the file."""
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
    if read:
        again = stargrad.evaluate(model=f"onnx:{path}", data=data, cpus=1)["test_loss"]
        assert abs(again - trained.result["test_loss"]) < 1e-4, (model, again, trained.result)
    return trained, path


def arrays(name, side, channels, masks=False):
    draw = numpy.random.default_rng(3)
    x = draw.integers(0, 256, (40, side, side, channels), numpy.uint8)
    y = (x[..., 0] > 128).astype(numpy.int64) if masks else numpy.arange(40) % 10
    path = os.path.join(FOLDER, f"{name}.npz")
    numpy.savez(path, x_train=x[:32], y_train=y[:32], x_test=x[32:], y_test=y[32:])
    return f"npy:{path}", x[32:]


def to_planes(x):
    return numpy.moveaxis(x, -1, 1)


def of_images(model, side, channels, read=True):
    if missing:
        raise Skip(missing)
    compare(model, *arrays(model.split(":")[0], side, channels), to_planes, read=read)


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


def test_torchvision():
    of_images("densenet121:growth=4", 32, 3)
    of_images("vgg11:large=1,width=8,hidden=16", 64, 3)      # maps of 2x2, resized to 7x7
    of_images("vit_b_16:patch=8,layers=2,heads=2,width=16", 32, 3)
    of_images("convnext_tiny:width=8", 32, 3)


def test_unet2d():
    if missing:
        raise Skip(missing)
    data, x = arrays("unet2d", 16, 1, masks=True)
    compare("unet2d", data, x, lambda x: numpy.moveaxis(x[:, None], -1, 1), batch=8)       # (N,C,D,H,W), of one slice


def text_of(rows):
    """A text, and the tokens of its test part."""
    length = 800
    draw = random.Random(5)
    text = bytes(draw.randrange(97, 123) for _ in range(length))
    path = os.path.join(FOLDER, "text")
    with open(path, "wb") as f:
        f.write(text)
    test = text[length - length // 10:]
    x = numpy.array([list(test[i:i + rows]) for i in range(0, len(test) - rows, rows)], numpy.int32)
    return f"text:{path},{rows}", x


def test_gpt():
    if missing:
        raise Skip(missing)
    compare("gpt:layers=2,heads=2,width=32,context=16", *text_of(16), lambda x: x)


def test_llama():
    """The Llama family, by operators of opset 23: valid ONNX, the same logits, and the same losses when training continues from the file
    and from the run's weights."""
    if missing:
        raise Skip(missing)
    data, x = text_of(16)
    for options in ("layers=2,heads=4,kv_heads=2,width=32,hidden=48,context=20,tied=0,rope_factor=2,rope_original=8",
                    "layers=1,heads=2,width=16,qk_norm=1", "layers=1,heads=6,kv_heads=3,width=48,bias=1,vocabulary=300"):
        trained, path = compare(f"llama:{options}", data, x, lambda x: x)
        continued = []
        for how in ({"model": f"onnx:{path}"},
                    {"model": f"llama:{options}", "init": os.path.join(trained.folder, "model.safetensors")}):
            out = folder("continued")
            stargrad.train(data=data, batch=16, steps=4, lr=0.01, optimizer="adamw", no_shuffle=True, cpus=1, out=out, **how)
            continued.append(losses(out))
        assert numpy.abs(numpy.subtract(*continued)).max() < 1e-5, (options, continued)
        try:
            from onnx import checker
        except ModuleNotFoundError:
            raise Skip("Python has no onnx")
        checker.check_model(path, full_check=True)


# ---- files that others made ------------------------------------------------------------------------------------------

def loss_of(logits, labels):
    shifted = logits.astype(float) - logits.max(1, keepdims=True)
    return float(numpy.mean(numpy.log(numpy.exp(shifted).sum(1)) - shifted[numpy.arange(len(labels)), labels]))


def foreign(name, nodes, tensors, x, kind=None, y=None, dims=None, opset=17, samples="N"):
    """Evaluates a file of NODES, text in ONNX's syntax, and TENSORS: (Stargrad's loss or its refusal, onnxruntime's loss, of classes
    or of the numbers Y). SAMPLES: of the file's input."""
    try:
        from onnx import TensorProto, helper, numpy_helper, parser, save
    except ModuleNotFoundError:
        raise Skip("Python has no onnx")
    labels = numpy.arange(len(x)) % 4 if y is None else y
    spread = numpy.ones((8, *x.shape[1:]), x.dtype)         # features of mean 0 and deviation 1: they stay as they are
    if x.dtype != numpy.uint8:
        spread[::2] = -1
    ours = numpy.moveaxis(x, 1, -1) if x.ndim == 4 else x
    data = os.path.join(FOLDER, f"{name}.npz")
    numpy.savez(data, x_train=numpy.moveaxis(spread, 1, -1) if x.ndim == 4 else spread, y_train=labels[:8],
                x_test=ours, y_test=labels)
    graph = parser.parse_graph("g (float[N] x) => (float[N] y) {" + nodes + "}")
    kind = kind or (TensorProto.UINT8 if x.dtype == numpy.uint8 else TensorProto.FLOAT)
    model = helper.make_model(helper.make_graph(
        graph.node, "g", [helper.make_tensor_value_info("x", kind, [samples, *(dims or x.shape[1:])])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(numpy.asarray(t), n) for n, t in tensors.items() if re.search(rf"\b{n}\b", nodes)]),
        opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 23 else 11)
    path = os.path.join(FOLDER, f"{name}.onnx")
    save(model, path)
    taken = x.astype(helper.tensor_dtype_to_np_dtype(kind))
    logits, = onnxruntime.InferenceSession(path).run(None, {"x": taken})
    wanted = loss_of(logits, labels) if y is None else float(numpy.mean((logits - y) ** 2))
    try:
        return stargrad.evaluate(model=f"onnx:{path}", data=f"npy:{data}", cpus=1)["test_loss"], wanted
    except stargrad.Error as refusal:
        return str(refusal), wanted


def test_bytes_of_other_scales():
    """A file divides bytes by what it likes: the network is the same as in onnxruntime."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(5)
    x = draw.integers(0, 256, (16, 3, 4, 4), numpy.uint8)
    chain = "c = Cast<to = 1>(x) s = Div(c, full) d = Sub(s, mean) n = Div(d, deviation) f = Flatten(n) y = Gemm<transB = 1>(f, w, b)"
    tensors = {"w": draw.normal(size=(4, 48)).astype("f4") / 10, "b": draw.normal(size=4).astype("f4"),
               "mean": numpy.float32([.5, .4, .3]).reshape(1, 3, 1, 1), "deviation": numpy.float32([.2, .3, .4]).reshape(1, 3, 1, 1)}
    for full in (255, 256, 128, 1):
        said, wanted = foreign(f"full{full}", chain, {**tensors, "full": numpy.float32(full)}, x)
        assert abs(said - wanted) < 1e-4 * wanted, (full, said, wanted)
    said, _ = foreign("negative", chain, {**tensors, "full": numpy.float32(-255)}, x)
    assert "(Div): divides pixels by -255" in said, said
    wide, _ = foreign("wide", chain, {**tensors, "full": numpy.float32(65535)}, x, kind=4)
    assert "input 'x' has ONNX type 4, but the data set has pixels of 8 bits (type 2)" in wide, wide
    twice = ("c = Cast<to = 1>(x) s = Div(c, full) d = Sub(s, mean) n = Div(d, deviation) d2 = Sub(s, deviation) n2 = Div(d2, mean) "
             "m = Add(n, n2) f = Flatten(m) y = Gemm<transB = 1>(f, w, b)")
    said, _ = foreign("twice", twice, {**tensors, "full": numpy.float32(255)}, x)
    assert "normalises pixels a second time" in said, said


def test_other_axes():
    """Rows of as many positions as features: what goes along the wrong axis has the right shape."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(6)
    x = draw.normal(size=(16, 8, 8)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 8)).astype("f4"), "b": draw.normal(size=4).astype("f4"),
               "q": draw.normal(size=(8, 8)).astype("f4"), "v": draw.normal(size=8).astype("f4"), "one": numpy.int64([1])}
    end = " f = ReduceMean<axes = [1], keepdims = 0>(h) y = Gemm<transB = 1>(f, w, b)"
    for name, nodes, text in (
            ("spread", "u = Unsqueeze(v, one) h = Add(x, u)" + end, "(Add): 'u' must have a number per feature"),
            ("behind", "u = Unsqueeze(v, one) p = MatMul(x, q) h = Add(p, u)" + end, "(Add): 'u' must have a number per feature"),
            ("pooled", "p = GlobalAveragePool(x) f = Flatten(p) y = Gemm<transB = 1>(f, w, b)", "its input has 3 dimensions, but must be images"),
            ("squeezed", "p = GlobalAveragePool(x) f = Squeeze(p) y = Gemm<transB = 1>(f, w, b)", "its input has 3 dimensions, but must be images")):
        said, _ = foreign(name, nodes, tensors, x)
        assert text in str(said), (name, said)
    said, wanted = foreign("added", "p = MatMul(x, q) h = Add(p, v)" + end, tensors, x)
    assert abs(said - wanted) < 1e-4 * wanted, (said, wanted)


def test_operators_of_opset_23():
    """Heads as a dimension or within rows, any frequencies, one head of keys for all queries, no mask, SiLU, products."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(11)
    x = draw.normal(size=(16, 6, 8)).astype("f4")
    angles = numpy.outer(numpy.arange(6), draw.uniform(0, 3, 2).astype("f4")).astype("f4")
    tensors = {"w": draw.normal(size=(4, 8)).astype("f4"), "b": draw.normal(size=4).astype("f4"),
               "k": draw.normal(size=(8, 4)).astype("f4"), "v": draw.uniform(0.5, 1.5, 8).astype("f4"),
               "cosine": numpy.cos(angles), "sine": numpy.sin(angles), "row": numpy.arange(6)[None], "one": numpy.int64([1]),
               "split": numpy.int64([0, 0, 2, -1]), "join": numpy.int64([0, 0, -1])}
    begin = "n = RMSNormalization<axis = 2, epsilon = 0.01>(x, v) s = Shape<start = 0, end = 2>(x) at = Expand(row, s) "
    end = "i = Sigmoid(j) z = Mul(i, j) q = Mul(z, n) f = ReduceMean<keepdims = 0>(q, one) y = Gemm<transB = 1>(f, w, b)"
    turn = "Transpose<perm = [0, 2, 1, 3]>"
    for name, nodes in (
            ("heads", f"h = Reshape(n, split) t = {turn}(h) r = RotaryEmbedding(t, cosine, sine, at) a = Attention(r, r, t) u = {turn}(a) "
                      "j = Reshape(u, join) "),
            ("rows", "r = RotaryEmbedding<num_heads = 2>(n, cosine, sine, at) m = MatMul(n, k) "
                     "j = Attention<q_num_heads = 2, kv_num_heads = 1, is_causal = 1>(r, m, m) ")):
        said, wanted = foreign(name, begin + nodes + end, tensors, x, opset=23)
        assert not isinstance(said, str) and abs(said - wanted) < 1e-5 * wanted, (name, said, wanted)


def test_resize():
    """Any spelling of the sizes and of the positions that torch.nn.functional.interpolate computes; others are refused. No pixel is
    shifted: the logits depend on each."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(12)
    x = draw.normal(size=(16, 3, 4, 5)).astype("f4")
    tensors = {"b": draw.normal(size=4).astype("f4"), "sizes": numpy.int64([7, 9]), "same": numpy.int64([4, 5]), "half": numpy.int64([2, 5]),
               "double": numpy.int64([8, 5]), "seven": numpy.int64([7, 5]), "twice": numpy.float32([1, 1, 2, 3]), "more": numpy.float32([1, 1, 2.5, 2]),
               "fraction": numpy.float32([1, 1, 1.75, 1.4]), "halves": numpy.float32([1, 1, .5, 1]), "less": numpy.float32([1, 1, 1, .4]),
               "zero": numpy.int64([0]), "two": numpy.int64([2]), "region": numpy.zeros(0, "f4")}
    end = " f = Flatten(r) y = Gemm<transB = 1>(f, w, b)"
    by, ceil = "coordinate_transformation_mode = ", 'nearest_mode = "round_prefer_ceil"'
    floor = by + '"asymmetric", nearest_mode = "floor"'
    shape = "s = Shape(x) n = Slice(s, zero, two) z = Concat<axis = 0>(n, sizes) "

    def resized(name, nodes, opset, pixels):
        w = numpy.random.default_rng(16).normal(size=(4, 3 * pixels)).astype("f4")
        return foreign(name.replace(" ", "-"), nodes + end, {**tensors, "w": w}, x, opset=opset)

    for name, nodes, opset, pixels in (
            ("nearest", f"{shape} r = Resize<{floor}>(x, , , z)", 13, 63),
            ("nearest of axes", f"r = Resize<axes = [-2, 3], {floor}>(x, , , sizes)", 18, 63),
            ("whole factors", "r = Resize(x, region, twice)", 11, 120),
            ("5 times 1.4 is 7", f"p = Resize<{floor}>(x, , fraction) r = GlobalAveragePool(p)", 13, 1),
            ("factors of opset 10", 'r = Resize<mode = "nearest">(x, twice)', 10, 120),
            ("halves of opset 10", 'r = Resize<mode = "nearest">(x, halves)', 10, 10),
            ("halves down", "r = Resize<axes = [2, 3]>(x, , , half)", 18, 10),
            ("halves down of doubles", f'r = Resize<axes = [2, 3], {by} "asymmetric">(x, , , double)', 18, 40),
            ("halves down of corners", f'r = Resize<axes = [2, 3], {by} "align_corners">(x, , , seven)', 18, 35),
            ("linear", f"{shape} r = Resize<mode = \"linear\", cubic_coeff_a = -0.75>(x, , , z)", 17, 63),
            ("linear of PyTorch", f'r = Resize<mode = "linear", {by} "pytorch_half_pixel">(x, , more)', 13, 100),
            ("nothing", f'r = Resize<axes = [2, 3], mode = "linear", {by} "align_corners">(x, , , same)', 18, 20)):
        said, wanted = resized(name, nodes, opset, pixels)
        assert not isinstance(said, str) and abs(said - wanted) < 1e-5 * max(1, wanted), (name, said, wanted)
    positions = "(Resize): its positions must be those of torch.nn.functional.interpolate with align_corners False"
    for name, nodes, opset, pixels, text in (
            ("corners", f'r = Resize<axes = [2, 3], mode = "linear", {by} "align_corners">(x, , , sizes)', 18, 63, positions),
            ("cubic", 'r = Resize<axes = [2, 3], mode = "cubic">(x, , , sizes)', 18, 63, "(Resize): mode is 'cubic', but must be nearest or linear"),
            ("even", "r = Resize<axes = [2, 3]>(x, , , sizes)", 18, 63, positions),
            ("halves up", f"r = Resize<axes = [2, 3], {ceil}>(x, , , half)", 18, 10, positions),
            ("halves up of doubles", f'r = Resize<axes = [2, 3], {by} "asymmetric", {ceil}>(x, , , double)', 18, 40, positions),
            ("halves up of corners", f'r = Resize<axes = [2, 3], {by} "align_corners", {ceil}>(x, , , seven)', 18, 35, positions),
            ("linear of opset 10", 'r = Resize<mode = "linear">(x, twice)', 10, 120, positions),
            ("less of opset 10", 'r = Resize<mode = "nearest">(x, less)', 10, 8, positions),
            ("smooth", 'r = Resize<axes = [2, 3], mode = "linear", antialias = 1>(x, , , sizes)', 18, 63, "with antialias 0")):
        said, _ = resized(name, nodes, opset, pixels)
        assert text in str(said), (name, said)


def test_fixed_number_of_samples():
    """A file for 16 samples, or for one: the number is in its shapes, and constants are repeated so often. It is read for any number."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(13)
    x = draw.normal(size=(16, 6, 8)).astype("f4")
    token, positions = draw.normal(size=(1, 1, 8)).astype("f4"), draw.normal(size=(1, 7, 8)).astype("f4")
    y = draw.normal(size=(16, 4)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 8)).astype("f4"), "b": draw.normal(size=4).astype("f4"), "query": draw.normal(size=(8, 24)).astype("f4")}
    turn, end = "Transpose<perm = [0, 2, 1, 3]>", "f = ReduceMean<axes = [1], keepdims = 0>(j) y = Gemm<transB = 1>(f, w, b)"
    # As nn.MultiheadAttention: rows (T,N,C), heads (T,N·heads,D).
    nodes = ("c = Concat<axis = 1>(t, x) h = Add(c, p) r = Transpose<perm = [1, 0, 2]>(h) m = MatMul(r, query) a, d, e = Split<axis = 2>(m) "
             + " ".join(f"{o}1 = Reshape({o}, rows) {o}2 = Transpose<perm = [1, 0, 2]>({o}1) {o}3 = Reshape({o}2, heads)" for o in "ade")
             + " s = Mul(a3, half) k = Transpose<perm = [0, 1, 3, 2]>(d3) z = MatMul(s, k) o = Softmax<axis = -1>(z) v = MatMul(o, e3) "
             "i = Transpose<perm = [2, 0, 1, 3]>(v) u = Reshape(i, flat) n = Reshape(u, join) j = Transpose<perm = [1, 0, 2]>(n) ")
    for count in (16, 1):
        tensors.update(t=token.repeat(count, 0), p=positions.repeat(count, 0), rows=numpy.int64([7, 2 * count, 4]),
                       heads=numpy.int64([count, 2, 7, 4]), flat=numpy.int64([7 * count, 8]), join=numpy.int64([7, count, 8]), half=numpy.float32(.5))
        said, wanted = foreign(f"fixed{count}", nodes + end, tensors, x[:count], y=y[:count], samples=count)
        assert not isinstance(said, str) and abs(said - wanted) < 1e-5 * wanted, (count, said, wanted)
    said, _ = foreign("unequal", "j = Concat<axis = 1>(t, x) " + end, {**tensors, "t": numpy.arange(128, dtype="f4").reshape(16, 1, 8)}, x, samples=16)
    assert "(Concat): a constant must be one row (1,1,C) before rows (N,T,C), with axis 1" in str(said), said
    # One number per channel, as many as samples: not one per sample.
    images, half = draw.normal(size=(16, 16, 2, 2)).astype("f4"), numpy.full((16, 1, 1), .5, "f4")
    tensors.update(half=half, w=draw.normal(size=(4, 16)).astype("f4"))
    said, wanted = foreign("channels", "h = Add(x, half) g = GlobalAveragePool(h) f = Flatten(g) y = Gemm<transB = 1>(f, w, b)", tensors, images, samples=16)
    assert not isinstance(said, str) and abs(said - wanted) < 1e-5 * wanted, (said, wanted)


def test_indices_of_all_elements():
    """PyTorch exports as_strided as a Gather by indices that it computes from the number of samples."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(14)
    x = draw.normal(size=(16, 6, 4, 4)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 6)).astype("f4"), "b": draw.normal(size=4).astype("f4"), "all": numpy.int64([-1]), "pixels": numpy.int64([2, 3]),
               "axes": numpy.int64([1, 2, 3]), "zero": numpy.int64(0), "one": numpy.int64(1), "six": numpy.int64(6), "five": numpy.int64(5), "ninety": numpy.int64(90),
               "features": numpy.arange(6).reshape(1, 6, 1, 1), "last": numpy.arange(6)[::-1].reshape(1, 6, 1, 1).copy()}
    begin = "s = Shape(x) n = Gather(s, zero) m = ReduceMean<axes = [2, 3]>(x) v = Reshape(m, all) r = Range(zero, n, one) "
    end = "g = Gather(v, i) f = Flatten(g) y = Gemm<transB = 1>(f, w, b)"
    tensors.update(two=numpy.int64(2), pairs=numpy.int64([0, 1]), columns=numpy.int64([[0], [2]]), behind=numpy.int64([1]), before=numpy.int64([0]),
                   rows=numpy.int64([-1, 2]), slope=numpy.float32(1.05), mix=draw.normal(size=(6, 2)).astype("f4"), pair=draw.normal(size=(4, 2)).astype("f4"))
    for samples in ("N", 16):
        said, wanted = foreign("strided", f"{begin} t = Mul(r, six) u = Unsqueeze(t, axes) i = Add(u, features) {end}", tensors, x, samples=samples)
        assert not isinstance(said, str) and abs(said - wanted) < 1e-5 * wanted, (samples, said, wanted)
        for name, nodes in (("others", "t = Mul(r, five) u = Unsqueeze(t, axes) i = Add(u, features)"),
                            ("backwards", "t = Mul(r, six) u = Unsqueeze(t, axes) i = Add(u, last)"),
                            ("first", "t = Mul(r, zero) u = Unsqueeze(t, axes) i = Add(u, features)"),
                            ("squares", "t = Mul(r, r) q = Mul(t, six) c = Min(q, ninety) u = Unsqueeze(c, axes) i = Add(u, features)")):
            said, _ = foreign(name, f"{begin} {nodes} {end}", tensors, x, samples=samples)
            assert isinstance(said, str) and re.search(r"\((Gather|Mul)\): ", said), (name, samples, said)
    # The first two samples have the indices of all elements in their order; the others do not.
    begin = "s = Shape(x) n = Gather(s, zero) k = ReduceMean<axes = [2, 3]>(x) j = Flatten(k) h = MatMul(j, mix) v = Reshape(h, all) r = Range(zero, n, one) "
    end = " g = Gather(v, i) f = Reshape(g, rows) y = Gemm<transB = 1>(f, pair, b)"
    for name, nodes in (("transposed", "t = Unsqueeze(r, before) i = Add(t, columns)"),
                        ("truth", "a = Cast<to = 9>(r) c = Cast<to = 7>(a) t = Mul(c, two) q = Unsqueeze(t, behind) i = Add(q, pairs)"),
                        ("floats", "a = Cast<to = 1>(r) d = Mul(a, slope) c = Cast<to = 7>(d) t = Mul(c, two) q = Unsqueeze(t, behind) i = Add(q, pairs)")):
        said, _ = foreign(name, f"{begin} {nodes} {end}", tensors, x)
        assert isinstance(said, str) and re.search(r"\((Gather|Cast)\): ", said), (name, said)


def test_spellings_of_layers():
    """Squeeze and excitation of (N,C), the mean of single pixels, norms of single channels, and layer norm without a bias."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(15)
    x, rows = draw.normal(size=(16, 6, 4, 5)).astype("f4"), draw.normal(size=(16, 4, 6)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 6)).astype("f4"), "b": draw.normal(size=4).astype("f4"), "u": draw.normal(size=(6, 6)).astype("f4"),
               "g": draw.uniform(0.5, 1.5, 6).astype("f4"), "h": draw.normal(size=6).astype("f4"), "pixels": numpy.int64([2, 3]),
               "qkv": draw.normal(size=(6, 18)).astype("f4"), "heads": numpy.int64([20, -1, 3]), "join": numpy.int64([20, -1, 6])}
    mean, end = "ReduceMean<axes = [2, 3], keepdims = 0>", "y = Gemm<transB = 1>(f, w, b)"
    turn = "Transpose<perm = [1, 0, 2]>"
    for name, nodes, of, opset in (
            ("excited", f"m = {mean}(x) e = Gemm(m, u) s = Sigmoid(e) k = Unsqueeze(s, pixels) p = Mul(x, k) r = Relu(p) f = {mean}(r) ", x, 17),
            ("mean twice", f"p = GlobalAveragePool(x) f = {mean}(p) ", x, 17),
            ("single pixels", f"c = Conv<kernel_shape = [4, 4], strides = [2, 2]>(x, window) f = {mean}(c) ", x, 17),
            ("instances", f"i = InstanceNormalization<epsilon = 0.01>(x, g, h) r = Relu(i) f = {mean}(r) ", x, 17),
            ("no bias", "n = LayerNormalization<axis = -1>(x, g) r = Relu(n) f = ReduceMean<axes = [1], keepdims = 0>(r) ", rows, 17),
            # The rows (T,N,C) of nn.MultiheadAttention, directly from images (N,C,T).
            ("attention", f"i = Reshape(x, flat) t = Transpose<perm = [2, 0, 1]>(i) m = MatMul(t, qkv) q, k, v = Split<axis = 2>(m) "
                          + " ".join(f"{o}1 = Reshape({o}, heads) {o}2 = {turn}({o}1)" for o in "qkv")
                          + " k3 = Transpose<perm = [0, 2, 1]>(k2) s = MatMul(q2, k3) z = Mul(s, root) o = Softmax<axis = -1>(z) a = MatMul(o, v2) "
                          f"j = {turn}(a) l = Reshape(j, join) n = {turn}(l) r = Relu(n) f = ReduceMean<axes = [1], keepdims = 0>(r) ", x, 17)):
        more = {"flat": numpy.int64([0, 0, -1]), "root": numpy.float32(1 / 3 ** .5),
                "window": numpy.random.default_rng(17).normal(size=(6, 6, 4, 4)).astype("f4")}
        said, wanted = foreign(name.replace(" ", "-"), nodes + end, {**tensors, **more}, of, opset=opset)
        assert not isinstance(said, str) and abs(said - wanted) < 2e-5 * max(1, wanted), (name, said, wanted)
        out = folder("spelled")
        stargrad.train(model=f"onnx:{FOLDER}/{name.replace(' ', '-')}.onnx", data=f"npy:{FOLDER}/{name.replace(' ', '-')}.npz", batch=8, steps=2, lr=0.01,
                       cpus=1, out=out).export(os.path.join(FOLDER, "again.onnx"))
        again = onnxruntime.InferenceSession(os.path.join(FOLDER, "again.onnx"))
        assert again.run(None, {again.get_inputs()[0].name: of})[0].shape == (16, 4), name


def test_mean_without_axes():
    """It is over all dimensions, unless the file makes it the identity."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(18)
    x = draw.normal(size=(16, 6)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 6)).astype("f4"), "b": draw.normal(size=4).astype("f4"), "none": numpy.zeros(0, "i8")}
    end = " a = Add(x, m) y = Gemm<transB = 1>(a, w, b)"
    for name, nodes, opset in (("absent", "m = ReduceMean(x)", 17), ("empty", "m = ReduceMean(x, none)", 18)):
        said, _ = foreign(name, nodes + end, tensors, x, opset=opset)
        assert "(ReduceMean): must be the mean over all pixels of images, or over all rows" in str(said), (name, said)
    said, wanted = foreign("identity", "m = ReduceMean<noop_with_empty_axes = 1>(x, none)" + end, tensors, x, opset=18)
    assert not isinstance(said, str) and abs(said - wanted) < 1e-5 * max(1, wanted), (said, wanted)


def test_inputs_of_other_types():
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(7)
    x = draw.normal(size=(16, 6)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 6)).astype("f4"), "b": draw.normal(size=4).astype("f4")}
    for kind in (2, 6, 7, 9):                               # bytes, whole numbers of 32 and 64 bits, truth
        said, _ = foreign(f"type{kind}", "f = Cast<to = 1>(x) y = Gemm<transB = 1>(f, w, b)", tensors, x, kind)
        assert f"input 'x' has ONNX type {kind}, but the data set has floats (type 1)" in str(said), said


def test_numbers_have_no_softmax():
    """Softmax is left out where the loss has it, and nowhere else."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(8)
    x, y = draw.normal(size=(16, 6)).astype("f4"), draw.normal(size=(16, 4)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 6)).astype("f4"), "b": draw.normal(size=4).astype("f4")}
    for end in ("Softmax", "LogSoftmax"):
        nodes = f"z = Gemm<transB = 1>(x, w, b) y = {end}(z)"
        said, _ = foreign(f"numbers{end}", nodes, tensors, x, y=y)
        assert "ends with Softmax, a layer for classes, but the targets are numbers (regression)" in str(said), said
    for dims in (None, [-1]):                               # of no size, as some writers have it; others write 0
        said, wanted = foreign("numbers", "y = Gemm<transB = 1>(x, w, b)", tensors, x, y=y, dims=dims)
        assert abs(said - wanted) < 1e-4 * wanted, (dims, said, wanted)


def test_tokens_that_an_embedding_lacks():
    if missing:
        raise Skip(missing)
    try:
        from onnx import helper, numpy_helper, parser, save
    except ModuleNotFoundError:
        raise Skip("Python has no onnx")
    draw, path = numpy.random.default_rng(9), os.path.join(FOLDER, "tokens.onnx")
    data = folder("few-tokens")
    os.makedirs(data)
    for part in ("train", "val"):
        (numpy.arange(200) % 20).astype("<u2").tofile(os.path.join(data, f"{part}.bin"))
    for rows in (20, 19):
        graph = parser.parse_graph("g (int64[N,8] x) => (float[N,8,20] y) { e = Gather(t, x) y = MatMul(e, w) }")
        graph.initializer.extend(numpy_helper.from_array(draw.normal(size=size).astype("f4"), name)
                                 for name, size in (("t", (rows, 6)), ("w", (6, 20))))
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        try:
            said = stargrad.evaluate(model=f"onnx:{path}", data=f"tokens:{data},8", cpus=1)["test_loss"] > 0
        except stargrad.Error as refusal:
            said = str(refusal)
        assert said is True if rows == 20 else "'t' has rows for tokens up to 18, but the data set has tokens up to 19" in said, said


def test_dropout_between_pool_and_flatten():
    """Dropout of one pixel (N,C,1,1) drops in training, as any other, and nothing in evaluation."""
    if missing:
        raise Skip(missing)
    draw = numpy.random.default_rng(10)
    x = draw.normal(size=(16, 6, 4, 4)).astype("f4")
    tensors = {"w": draw.normal(size=(4, 6)).astype("f4"), "b": draw.normal(size=4).astype("f4"), "half": numpy.float32(.5)}
    nodes = "p = GlobalAveragePool(x) d = Dropout(p, half) f = Flatten(d) y = Gemm<transB = 1>(f, w, b)"
    said, wanted = foreign("dropped", nodes, tensors, x)
    assert abs(said - wanted) < 1e-4 * wanted, (said, wanted)
    trained = []
    for seed in (1, 2):
        out = folder("dropped")
        stargrad.train(model=f"onnx:{FOLDER}/dropped.onnx", data=f"npy:{FOLDER}/dropped.npz", batch=8, steps=1, lr=0, no_shuffle=True,
                       seed=seed, cpus=1, out=out)
        trained += losses(out)
    assert trained[0] != trained[1], trained


if __name__ == "__main__":
    main(globals())
