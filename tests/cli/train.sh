#!/bin/bash
# A run from the command line: its folder, its results, its report, its weights.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"
unset STARGRAD_PICTURES

train=(train --model convnet --data digits --steps 3 --batch 64)

passes "${train[@]}" --out first
says '^first: test accuracy [0-9.]* %$'
for file in config.json metrics.jsonl model.safetensors; do
	[ -s "first/$file" ] || wrong "no $file"
done
if command -v gnuplot >/dev/null; then
	says '^learning curve: first/curve.png$'
	[ "$(head -c 4 first/curve.png | tail -c 3)" = PNG ] || wrong 'curve.png is no PNG'
	grep -q '</svg>' first/curve.svg || wrong 'curve.svg is no whole SVG'
fi

# One JSON object and nothing else; the same command gives the same run.
"$STARGRAD" "${train[@]}" --out second --json >out 2>err || wrong 'train --json fails'
python3 - <<'END' || wrong 'the JSON is not what it should be'
import json
result = json.load(open("out"))
assert result["folder"] == "second" and result["steps"] == 3 and 0 <= result["test_top1"] <= 1, result
losses = [[json.loads(line)["loss"] for line in open(d + "/metrics.jsonl") if '"step",' in line] for d in ("first", "second")]
assert len(losses[0]) == 3 and losses[0][0] == losses[1][0], losses
END

# Of 20 classes and more the five best are told, too, by all who tell the first.
passes train --model mlp --data synthetic:4x4x1,20,200 --steps 40 --batch 50 --out many
says 'top-1 [0-9.]* %  top-5 [0-9.]* %'
passes report many
says 'test accuracy  test top-5 accuracy  test macro F1  test balanced accuracy'
passes eval --weights many/model.safetensors --model mlp --data synthetic:4x4x1,20,200
says '^test accuracy [0-9.]* %, top-5 accuracy [0-9.]* %, macro F1 [0-9.]* %, balanced accuracy [0-9.]* %, loss [0-9.]*, 20 samples$'
python3 - <<'END' || wrong 'top-5 is not what it should be'
import json
epochs = [e for e in map(json.loads, open("many/metrics.jsonl")) if e["event"] == "epoch"]
assert all(0 <= e["test_top1"] <= e["test_top5"] <= 1 for e in epochs) and epochs[-1]["test_top5"] > 0.5 > epochs[0]["test_top1"], epochs
assert not any("test_top5" in line for line in open("first/metrics.jsonl"))
END

# Batch norm over one value per channel is refused before anything is trained, whatever the cause.
small=(train --data synthetic:2x2x1,2,64 --steps 3 --model convnet --out small)
refuses 2 'model convnet: .*batch norm over one value per channel.*--batch 2' "${small[@]}" --batch 1
refuses 2 'model convnet: .*batch norm over one value per channel.*--bn-group with 2 samples or more' "${small[@]}" --batch 4 --bn-group 1
refuses 2 'model convnet: .*batch norm over one value per channel.*--micro-batch 2' "${small[@]}" --batch 4 --bn-group micro \
	--micro-batch 1
refuses 2 'model convnet: .*batch norm over one value per channel' "${small[@]}" --batch 4 --bn-group 1 --print
[ ! -e small ] || wrong 'a run that is refused leaves a folder'
passes "${small[@]}" --batch 2
passes "${small[@]}" --batch 1 --data synthetic:4x4x1,2,64 --out larger

# A folder that holds files is refused; so is one that cannot be made, is none, or is written by another run.
refuses 2 '.*first' "${train[@]}" --out first
refuses 1 '.*/dev/null/run' "${train[@]}" --out /dev/null/run
refuses 2 "train: --out: 'first/config.json' is not a folder" "${train[@]}" --out first/config.json
refuses 2 '.*resume.*--out' "${train[@]}" --resume
lock() { python3 -c 'import fcntl, sys; f = open("first/.lock", "r+"); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print(flush=True); sys.stdin.read()'; }
lock </dev/null >/dev/null || wrong 'a run that has ended holds its folder'
coproc lock
read -r -u "${COPROC[0]}" _
refuses 1 'first: another run is writing there' "${train[@]}" --out first --resume
exec {COPROC[1]}>&-
wait

# A finished run, resumed, is as it was; with more steps it goes on; without checkpoints it is left alone.
cp first/metrics.jsonl first/model.safetensors .
passes "${train[@]}" --out first --resume
says '^this run has already completed 3 steps; requested: 3$'
top1=$(tail -n 1 metrics.jsonl | python3 -c 'import json; print("%.2f" % (100 * json.loads(input())["test_top1"]))')
says "^first: test accuracy $top1 %$"
cmp metrics.jsonl first/metrics.jsonl && cmp model.safetensors first/model.safetensors || wrong 'resuming changes a finished run'
passes "${train[@]}" --steps 1 --out first --resume
says '^this run has already completed 3 steps; requested: 1$'
cp -r first longer
passes "${train[@]}" --steps 4 --out longer --resume
[ "$(grep -c '"event":"step"' longer/metrics.jsonl)" = 4 ] || wrong 'three steps and one are not four'
cp -r first bare && rm bare/checkpoint-*
refuses 2 'bare: contains no checkpoint, so this finished run cannot be continued' "${train[@]}" --steps 4 --out bare --resume
cmp model.safetensors bare/model.safetensors || wrong 'a refused run is changed'

# Standard streams that are closed are no place in a file of the run.
"$STARGRAD" "${train[@]}" --out closed <&- >&- 2>&-
[ $? = 1 ] || wrong 'a result that nobody can read is no failure'
python3 -c 'import json; [json.loads(l) for l in open("closed/metrics.jsonl")]' || wrong 'what is printed lands in metrics.jsonl'

# A damaged test image is found before the first step.
python3 - <<'END'
import os, struct, zlib
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
image = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(8 * 25))) + chunk(b"IEND", b"")
for path in ("train/a/1", "train/a/2", "train/b/1", "val/a/1", "val/b/1"):
    os.makedirs(os.path.dirname("images/" + path), exist_ok=True)
    open(f"images/{path}.png", "wb").write(image)
END
images=(train --model mlp --data folder:images --batch 3 --steps 2)
passes "${images[@]}" --out images-run
says '^data .*; augmentation crop:1,flip$'
passes "${images[@]}" --image-size 80 --print
says '^data .*; augmentation crop:10,flip$'
cp -r images signs     # grey ones, and one in colours
python3 -c '
import glob, struct, zlib
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
for path in glob.glob("signs/*/*/*.png"):
    if path != "signs/train/a/2.png":
        open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(9 * 8))) + chunk(b"IEND", b""))'
passes "${images[@]/images/signs}" --print
says '^data .*; augmentation crop:1,flip$'
cp signs/train/a/*[!2].png signs/train/a/2.png
passes "${images[@]/images/signs}" --print
says '^data .*; augmentation none'
mv images/train train
passes eval --weights images-run/model.safetensors --model mlp --data folder:images     # config.json has the training set's numbers
mv train images/train
truncate -s 50 images/val/b/1.png
refuses 1 'png: images/val/b/1.png: byte ' "${images[@]}" --out damaged
[ ! -e damaged ] || wrong 'damaged data begin a run'
passes "${images[@]}" --print     # which reads none

# Two ranks share the reading: one of them finds it.
if command -v mpirun >/dev/null; then
	said=$(mpirun -n 2 "$STARGRAD" "${images[@]}" --batch 2 --cpus 1 --out damaged 2>&1) && wrong 'damaged data are read by ranks'
	[ "$(grep -c 'png: images/val/b/1.png: byte ' <<<"$said")" = 1 ] || wrong "not one rank of two has found it: $said"
fi

passes report first
says '^convnet on digits$'
says '^3 steps'
passes report --json second
python3 -c 'import json; assert json.load(open("out"))["steps"] == 3' || wrong 'report --json'

passes eval --weights first/model.safetensors --model convnet --data digits
says '^test accuracy [0-9.]* %, macro F1 [0-9.]* %, balanced accuracy [0-9.]* %, loss [0-9.]*, 360 samples$'
passes eval --weights first/model.safetensors --model convnet --data digits --json
python3 - <<'END' || wrong 'eval does not find what train found'
import json
found = json.load(open("out"))["test_top1"]
last = [json.loads(line) for line in open("first/metrics.jsonl")][-1]
assert last["event"] == "epoch" and abs(last["test_top1"] - found) < 1e-6, (last, found)
END
refuses 1 'first/model.safetensors: conv1.weight has shape (32,1,3,3), but the network requires (16,1,3,3)' \
	eval --weights first/model.safetensors --model resnet20 --data digits
refuses 1 'first/model.safetensors: conv1.weight has shape (32,1,3,3), .* (16,3,3,3)' \
	eval --weights first/model.safetensors --model resnet20 --data synthetic:8x8x3,10,10
refuses 1 'first/model.safetensors: has no tensor fc1.weight' eval --weights first/model.safetensors --model mlp --data digits
cp first/model.safetensors flipped
printf '\1' | dd of=flipped bs=1 seek=$(($(stat -c %s flipped) - 4)) conv=notrunc status=none
warns 1 'flipped: its data have checksum .*: the file was changed or is damaged$' eval --weights flipped --model convnet --data digits
warns 1 'flipped: its data have checksum .*: the file was changed or is damaged$' "${train[@]}" --init flipped --print
refuses 1 'nowhere' eval --weights nowhere --model convnet --data digits

# A rate that follows the batch: what is printed, what is kept, what is used.
passes "${train[@]}" --lr 0.05 --lr-scale-base 16 --warmup 0.1 --out scaled
says '^optimizer  sgd, learning rate 0.2 = 0.05 x 64/16, constant after a warm-up; 3 steps, '
python3 - <<'END' || wrong 'the learning rate does not follow the batch'
import json
options = json.load(open("scaled/config.json"))["options"]
assert options["lr"] == 0.05 and options["lr_scale_base"] == 16 and options["batch"] == 64, options
rates = [json.loads(line)["lr"] for line in open("scaled/metrics.jsonl") if '"step",' in line]
steps = 1437 // 64 * 0.1     # of the warm-up
assert all(abs(r - min(0.2, 0.05 + 0.15 * k / steps)) < 1e-6 for k, r in enumerate(rates)), rates
END

# A loss that is a number still, but worse than a guess, is said at the end, with as many digits as are read.
warns 1 'the final loss is [0-9.]*e+[0-9]* in training .* a constant guess has a loss of 2.3026: the run has diverged; lower --lr, or add --clip-norm' train --model convnet --data digits --epochs 2 --lr 100 --out lost
says '^epoch 2/2  loss [0-9.]*e+[0-9]*  top-1 [0-9.]* %  test loss [0-9.]*e+[0-9]*  '
passes report lost
says '^ *2  *[0-9.]*e+[0-9]*  *[0-9.]*e+[0-9]*  *[0-9.]* %'
says 'last loss [0-9.e+]*;'
passes eval --weights lost/model.safetensors --model convnet --data digits
says '^test accuracy [0-9.]* %, .*, loss [0-9.]*e+[0-9]*, 360 samples$'
passes train --model lenet --data synthetic:28x28x1,10,64 --batch 32 --lr 0.3 --epochs 1 --out rough     # ordinary, and short
passes train --model resnet20 --data synthetic:32x32x3,10,256 --epochs 2 --out rougher
warns 1 'the final loss is .* a constant guess has a loss of 2.3026: the run has learned nothing; try another --lr$' \
	train --model convnet --data digits --steps 100 --lr 1e-12 --out still

# --print shows network and tasks, and leaves nothing behind.
passes "${train[@]}" --out third --print
says 'conv1'
says 'backward'
[ ! -e third ] || wrong '--print makes a folder'

# A run that fails before it begins leaves nothing, traced or not; what a killed one left of a trace is in nobody's way.
echo nothing >nothing
refuses 1 'safetensors: nothing: ' "${train[@]}" --trace=1 --init nothing --out traced
refuses 1 'nowhere' "${train[@]}" --trace=1 --init nowhere --out traced
[ ! -e traced ] || wrong 'a traced run that fails early leaves its folder'
mkdir -p traced/trace
refuses 2 'traced: contains no run to continue' "${train[@]}" --out traced --resume
passes "${train[@]}" --trace=1 --out traced
touch no-folder
refuses 1 'no-folder/run: cannot be read: Not a directory' "${train[@]}" --out no-folder/run --resume

# Without gnuplot there is one line more, and no harm.
mkdir bin
for tool in sh uname; do ln -s "$(command -v $tool)" bin/; done
PATH=$work/bin "$STARGRAD" "${train[@]}" --out fourth >out 2>err || wrong 'a run without gnuplot fails'
grep -q 'gnuplot is not installed' err || wrong 'nothing says that gnuplot is missing'

# What a run says of itself counts as people do, and of batch norm only where a network has it.
lenet=(train --model lenet --data synthetic:28x28x1,10,320 --batch 32 --micro-batch 32 --cpus 1)
passes "${lenet[@]}" --steps 1 --out counted
says '^batch      32 = 1 rank x 1 micro-batch x 32, synchronous$'
says '; 1 step, 10 per epoch$'
says '^step 1/1  loss '
passes "${lenet[@]}" --steps 17 --batch 31 --micro-batch 31 --out fraction
says '^step 10/17  loss '
says '^step 17/17  loss '
passes "${train[@]}" --steps 19 --batch 63 --micro-batch 63 --print
says '; batch norm over 63 samples$'
says '^training step of 63 samples: 1 micro-batch of 63, batch-norm groups of 63$'
passes "${lenet[@]}" --print
says '^training step of 32 samples: 1 micro-batch of 32$'
passes "${train[@]}" --steps 19 --out thirds
says '^step 19/19  loss '
exit 0
