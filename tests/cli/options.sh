#!/bin/bash
# Help, version, and errors of the command line.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

passes --version
says '^stargrad [0-9]*\.[0-9]*\.[0-9]*$'
passes --help
for command in train launch eval find-lr bench search dedup report list doctor; do
	says "^  $command "
	passes $command --help
	says "^Usage: stargrad $command"
	passes --help
done

refuses 2 'the command is missing' # none at all
refuses 2 "unknown command 'trian'; did you mean train?" trian
refuses 2 "unknown command 'zzzzzzzzzz'; see stargrad --help" zzzzzzzzzz
refuses 2 "unknown command 'frobnicate'; see stargrad --help" frobnicate
refuses 2 "unknown option '--versoin'; did you mean --version?" --versoin
refuses 2 'train: --model NAME is missing' train
echo '{"model":"lenet"}' >model.json
refuses 2 'train: --data KIND\[:PATH\] is missing' train --model convnet
refuses 2 'eval: RUN-DIR or --model NAME is missing' eval
refuses 2 'eval: --weights FILE is missing' eval --model convnet --data digits
refuses 2 "eval: model.json is a file, not the folder of a run; to give weights, use --weights FILE" eval model.json
refuses 2 'report: RUN-DIR is missing' report
refuses 1 'a/config.json' report a b
refuses 2 'list: .* is missing' list
refuses 2 "doctor: 'x' is not an option" doctor x
refuses 2 'launch: --ranks N is missing' launch -- train
refuses 2 'launch: -n requires a value: N' launch -n
refuses 2 'launch: -- train ... is missing' launch -n 2
refuses 2 "launch: the command must be train, not 'eval'" launch -n 2 -- eval

train=(train --model convnet --data digits)
refuses 2 'launch: --retries requires --out' launch -n 2 --retries 1 -- "${train[@]}"
refuses 2 'launch: --host cannot be combined with --hostfile' launch -n 2 --host a --hostfile b -- "${train[@]}"
refuses 2 'launch: --resize requires --hostfile FILE' launch -n 2 --resize --host a -- "${train[@]}" --out x
refuses 2 'launch: --resize requires --out' launch -n 2 --resize --hostfile b -- "${train[@]}"
refuses 2 "train: unknown option '--bacth'" launch -n 2 -- "${train[@]}" --bacth 3
refuses 1 'nowhere: No such file' launch -n 2 --hostfile nowhere -- "${train[@]}"
refuses 2 "train: unknown option '--bacth'; did you mean --batch?" "${train[@]}" --bacth 3
refuses 2 "train: unknown option '--zzzzzzzzzz'; see" "${train[@]}" --zzzzzzzzzz
refuses 2 "train: unknown option '-q'; see" "${train[@]}" -q
refuses 2 "train: 'resnet20' is not an option" "${train[@]}" resnet20
refuses 2 "train: --resume does not accept the value 'runs'" "${train[@]}" --resume runs
refuses 2 "train: 'x' is not an option; to give --trace this value, write --trace=x" "${train[@]}" --trace x
refuses 2 'train: --m is ambiguous' "${train[@]}" --m 3
refuses 2 'train: --batch requires a value: N' "${train[@]}" --batch
refuses 2 'train: --print accepts no value' "${train[@]}" --print=3

# Numbers: 0, below, above, overflowing, none. One option of each kind takes them all, the others one.
whole() { refuses 2 "train: --$1: '$2' is not a whole number from $3 to " "${train[@]}" "--$1" "$2"; }
real() { refuses 2 "train: --$1: '$2' is not a number from " "${train[@]}" "--$1" "$2"; }
for value in 0 -1 99999999999 99999999999999999999 1.5 1e3 '' ' 1' x 1x nan; do whole batch "$value" 1; done
for option in steps lr-scale-base micro-batch window keep image-size eval-resize; do whole $option 0 1; done
for option in seed cpus gpus; do whole $option -1 0; done
refuses 2 "train: --checkpoint-every: '-1' is not a number of epochs from 0 to " "${train[@]}" --checkpoint-every -1
for value in -1 1e999 nan inf x '' ' 1' 1x; do real lr "$value"; done
for option in epochs warmup momentum weight-decay beta1 beta2 eps trust label-smoothing clip-norm; do real $option -1; done
refuses 2 "train: --ema: '1' is not a number from 0 to 0.9999999" "${train[@]}" --ema 1
refuses 2 "train: --epochs: '0' is not" "${train[@]}" --epochs 0
refuses 2 "train: --momentum: '1.1' is not" "${train[@]}" --momentum 1.1
refuses 2 "train: --bn-group: 'micor' is not gpu, rank, micro, global or a whole number from 1" "${train[@]}" --bn-group micor
refuses 2 "train: --bn-group: '0' is not" "${train[@]}" --bn-group 0
refuses 2 "train: --checkpoint-every: 's' is not" "${train[@]}" --checkpoint-every s
refuses 2 "train: --checkpoint-every: '3e' is not" "${train[@]}" --checkpoint-every 3e
refuses 2 "train: --precision: 'f16' is not f32, tf32 or bf16" "${train[@]}" --precision f16
refuses 2 "train: --data-placement: 'spread' is not replicate or partition" "${train[@]}" --data-placement spread
refuses 2 "train: --data-placement: 'replicat' is not" "${train[@]}" --data-placement replicat
for list in flip, crop: crop:0 crop:2/8 mirror none,flip; do
	refuses 2 "augmentation '$list': " "${train[@]}" --augment "$list"
done
refuses 2 'augmentation .crop:8.: crop must be at most 7 pixels for images of 8x8' "${train[@]}" --augment crop:8
refuses 2 '--augment elastic: elastic applies to volumes, not to digits' "${train[@]}" --augment elastic
refuses 2 '--data-placement partition cannot be combined with --augment mixup, which mixes any two images of digits' "${train[@]}" --augment mixup --data-placement partition
echo '{ "model": "convnet", "data": "digits", "batch": 48, "no-augment": true, "lr": 0.25, "resume": false, "seed": null }' >options.json
passes train --config options.json --lr 0.5 --print
says '^batch      48 = '
says '^optimizer  sgd, learning rate 0.5,'
echo '{"model":"lenet"}' >model.json
refuses 2 'train: --data KIND\[:PATH\] is missing' train --config model.json
for wrong in '{"bath":3}' '{"config":"options.json"}' '{"lr":true}' '{"nesterov":"yes"}' '{"batch":[1]}'; do
	echo "$wrong" >wrong.json
	refuses 2 'train: wrong.json: \(unknown \)\?option' train --config wrong.json
done
echo '{"batch":"many"}' >wrong.json
refuses 2 "train: wrong.json: --batch: 'many' is not a whole number" train --config wrong.json
refuses 2 "train: --batch: 'many' is not a whole number" train --config model.json --data digits --batch many
echo '{"batch":3' >wrong.json
refuses 1 'wrong.json: line 2: ' train --config wrong.json
echo '[1]' >wrong.json
refuses 1 'wrong.json: is not a JSON object of options' train --config wrong.json
echo '{"identity": {"model": "mlp"}, "parameters": 1}' >wrong.json
refuses 2 'train: wrong.json is the config.json of a run, .* use --like' train --config wrong.json
passes "${train[@]}" --augment rotate:10,cutmix --batch 20 --show-batch batch.png
says '^row 4: .*[0-9]\.[0-9]* [0-9] + 0\.[0-9]* [0-9]'
[ "$(head -c 4 batch.png | tail -c 3)" = PNG ] || wrong 'batch.png is no picture'
refuses 2 "train: --trace: '5-2' is not a step or a range" "${train[@]}" --trace 5-2
refuses 2 "train: --trace: '0' is not a step or a range" "${train[@]}" --trace=0
refuses 2 "train: --model: '' is not a valid NAME" train --model '' --data digits
for schedule in '' stp step step:3 step:3,2:0.1 step:x:0.1 poly poly:-1 cosine:3; do
	refuses 2 ".*schedule" "${train[@]}" --schedule "$schedule"
done

# Names that are looked up.
refuses 2 ".*'resnet21'.*did you mean .*resnet20" train --model resnet21 --data digits
refuses 2 ".*'adm'.*did you mean .*adam" "${train[@]}" --optimizer adm
refuses 2 ".*'SGD'.*did you mean 'sgd'" "${train[@]}" --optimizer SGD
refuses 2 ".*'rnig'.*did you mean .*ring" "${train[@]}" --allreduce rnig
refuses 2 "unknown dataset 'digit'; did you mean 'digits'?" train --model convnet --data digit
refuses 2 '.*cifar10: its argument is missing' train --model convnet --data cifar10
refuses 1 'data set cifar10:nowhere: No such file' train --model convnet --data cifar10:nowhere
refuses 1 'nowhere' "${train[@]}" --init nowhere
for option in exclude config; do
	refuses 1 "train: --$option nowhere: No such file" "${train[@]}" --$option nowhere
done
for command in train find-lr 'plan --machine none' search 'dedup --hash phash'; do
	# shellcheck disable=SC2086
	refuses 2 "${command%% *}: --out: 'model.json' is not a folder" $command --data digits --out model.json
done

# Where nothing is near, the list that is advised has the names.
while read -r command; do
	# shellcheck disable=SC2086
	refuses 2 "unknown [a-z]* 'zzzzzzzz'; see 'stargrad list [a-z]*'\$" $command zzzzzzzz
	passes list "$(sed "s/.*'stargrad list \(.*\)'/\1/" err)"
done <<'END'
train --data digits --model
train --model convnet --data
train --model convnet --data digits --optimizer
train --model convnet --data digits --strategy
train --model convnet --data digits --allreduce
dedup --data digits --out dups --hash
check
END
refuses 2 "unknown dataset 'foobar'; see 'stargrad list" train --model convnet --data foobar

# Sizes that do not fit each other.
for command in 'train --print' bench "eval --weights none"; do
	# shellcheck disable=SC2086
	refuses 1 'model lenet requires images of 16x16 or more, but those of digits have 8x8; use another model (stargrad list models)' \
		$command --model lenet --data digits
done
refuses 1 'model vgg11 requires images of 32x32 or more, but those of synthetic:40x31x3,2,128 have 40x31' \
	train --model vgg11 --data synthetic:40x31x3,2,128
refuses 2 '.*micro-batch 100 .*; give --micro-batch 128' "${train[@]}" --micro-batch 100
refuses 2 '.*bn-group 100 .*; give --bn-group 128' "${train[@]}" --bn-group 100
refuses 2 '.*batch 100000 .*1437' "${train[@]}" --batch 100000
refuses 2 '.*trace begins with step 10, but the run ends with step 5' "${train[@]}" --trace --steps 5 --out wrong
[ ! -e wrong ] || wrong 'a wrong command line leaves a folder behind'

# Options without effect: a line each, with the reason, and the run goes on. What an optimizer heeds is in its record.
idle() { warns 1 "--$1 has no effect: $2" "${train[@]}" --print "${@:3}"; }
idle nesterov '--optimizer adam does not use it' --optimizer adam --nesterov
idle momentum '--optimizer lamb does not use it' --optimizer lamb --momentum 0.9
idle trust '--optimizer sgd does not use it' --trust 0.1
for option in beta1 beta2 eps; do idle $option '--optimizer lars does not use it' --optimizer lars --$option 0.5; done
idle nesterov 'the momentum is 0' --momentum 0 --nesterov
idle servers '--strategy sync does not use it' --servers 1
idle staleness '--strategy sync does not use it' --staleness 2
idle strategy 'the run has one rank' --strategy ps
for option in 'allreduce ring' 'bucket 1' 'network none'; do
	# shellcheck disable=SC2086 # a word and its value
	idle "${option% *}" 'the run has one rank' --$option
done
idle data-placement 'the run has one rank' --data-placement partition
idle exif 'digits is not a folder of images' --exif apply
idle eval-resize 'digits is not a folder of images' --eval-resize 32
idle split 'digits has a test set' --split 0.1
idle image-size 'the images of digits have a fixed size of 8x8' --image-size 32
idle epochs '--steps sets the length' --epochs 3 --steps 2
idle precision 'tf32 requires a GPU' --precision tf32 --gpus 0
idle no-cuda-graphs 'CUDA graphs require a GPU' --no-cuda-graphs --gpus 0
idle cpus-share 'this run has no GPUs' --cpus-share none --gpus 0
idle keep '--checkpoint-every 0 writes no' --keep 2 --checkpoint-every 0
idle best '--evaluate-last evaluates once' --evaluate-last --best
idle min-delta '--patience is not set' --min-delta 0.1
idle patience '--evaluate-last evaluates once' --evaluate-last --patience 2
idle no-decay-1d 'the weight decay is 0' --weight-decay 0 --no-decay-1d
idle schedule 'the run ends after 2 epochs, but the learning rate would change after 30' --schedule step:30,60:0.1 --epochs 2
warns 1 '--warmup 5: the run ends after 2 epochs, before the learning rate is reached$' "${train[@]}" --print --warmup 5 --epochs 2
passes "${train[@]}" --print --schedule step:1:0.1 --warmup 1 --epochs 2
cpus=$(nproc)
warns 1 "--cpus 64: 64 workers share the $cpus CPUs\\? of this machine, so they are no faster than $cpus workers\\?\$" "${train[@]}" --print --cpus 64
says '^devices    64 CPU workers ('
refuses 2 "4096 CPU workers were requested (--cpus), but StarPU was built for at most [0-9]*, and this machine has $cpus CPUs\\?; give fewer" "${train[@]}" --print --cpus 4096
warns 1 '--augment crops nothing: this fraction of the shorter side of 8x8 is less than one pixel$' "${train[@]}" --print --augment crop:1/9,flip
says '; augmentation flip$'
warns 1 '--bn-group has no effect: mlp has no batch norm' train --model mlp --data digits --bn-group 32 --print
warns 2 '--nesterov has no effect' "${train[@]}" --print --optimizer adam --nesterov --momentum 0.5
passes "${train[@]}" --print --optimizer sgd --nesterov --momentum 0.8 --weight-decay 0 --no-augment --nan-ok --strategy sync
passes "${train[@]}" --print --optimizer adam --beta1 0.8

# A rate that nobody gave is the optimizer's.
for pair in 'sgd 0.1' 'adam 0.001' 'adamw 0.001' 'lamb 0.005'; do
	passes list optimizers
	says "^${pair% *} .*(default --lr ${pair#* })\$"
	passes "${train[@]}" --print --optimizer "${pair% *}"
	says "^optimizer  ${pair% *}, learning rate ${pair#* },"
done
passes "${train[@]}" --print --lr 0
says '^optimizer  sgd, learning rate 0,'

# Results that cannot be written are no success.
if [ -w /dev/full ]; then
	"$STARGRAD" list ops >/dev/full 2>err
	[ $? = 1 ] || wrong 'a full disk goes unnoticed'
	grep -q 'No space left on device' err || wrong "a full disk is reported as: $(cat err)"
fi
exit 0
