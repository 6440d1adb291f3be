#!/bin/sh
# unet2d on ISBI 2012, and the same network for the same time in PyTorch (isbi_torch.py): Rand, VOI, IoU of the val slices, whole.
#
#     isbi.sh STARGRAD PYTHON ISBI2012-DIR OUT EPOCHS       as: build/stargrad python3 /data/isbi2012 runs/isbi 400
#
# ISBI2012-DIR has train-volume-idx3-ubyte.gz and train-labels-idx3-ubyte.gz; PYTHON has torch and numpy. The peer is given as many
# seconds as Stargrad took, on as many threads; both are judged by stargrad eval.
set -eu
stargrad=$1 python=$2 data=$3 out=$4 epochs=$5
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
began=$(date +%s)
"$stargrad" train --model unet2d --data "volume:$data,1x256x256" --batch 4 --epochs "$epochs" --optimizer adam --lr 0.001 \
	--schedule cosine --out "$out/stargrad"
seconds=$(($(date +%s) - began))
"$python" "$here/isbi_torch.py" "$data" "$out" "$seconds"
for name in stargrad torch; do
	echo "$name, $seconds s:"
	"$stargrad" eval --weights "$out/$name/model.safetensors" --model unet2d --data "volume:$data,1x512x512"
done
