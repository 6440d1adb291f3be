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

refuses 2 'which command' # none at all
refuses 2 "no command 'trian'; did you mean train?" trian
refuses 2 "no command 'zzzzzzzzzz'; see stargrad --help" zzzzzzzzzz
refuses 2 "no command 'frobnicate'; see stargrad --help" frobnicate
refuses 2 "no option '--versoin'; did you mean --version?" --versoin
refuses 2 'train: --model NAME is missing' train
echo '{"model":"lenet"}' >model.json
refuses 2 'train: --data KIND\[:PATH\] is missing' train --model convnet
refuses 2 'eval: RUN-DIR or --model NAME is missing' eval
refuses 2 'eval: --weights FILE is missing' eval --model convnet --data digits
refuses 2 "eval: model.json is a file, not a run's folder; --weights FILE takes weights" eval model.json
refuses 2 'report: RUN-DIR is missing' report
refuses 1 'a/config.json' report a b
refuses 2 'list: .* is missing' list
refuses 2 "doctor: 'x' is no option" doctor x
refuses 2 'launch: --ranks N is missing' launch -- train
refuses 2 'launch: -n takes a value: N' launch -n
refuses 2 'launch: -- train ... is missing' launch -n 2
refuses 2 "launch: it starts train, not 'eval'" launch -n 2 -- eval

train=(train --model convnet --data digits)
refuses 2 'launch: --retries needs --out' launch -n 2 --retries 1 -- "${train[@]}"
refuses 2 'launch: --host or --hostfile' launch -n 2 --host a --hostfile b -- "${train[@]}"
refuses 2 "train: no option '--bacth'" launch -n 2 -- "${train[@]}" --bacth 3
refuses 1 'nowhere: No such file' launch -n 2 --hostfile nowhere -- "${train[@]}"
refuses 2 "train: no option '--bacth'; did you mean --batch?" "${train[@]}" --bacth 3
refuses 2 "train: no option '--zzzzzzzzzz'; see" "${train[@]}" --zzzzzzzzzz
refuses 2 "train: no option '-q'; see" "${train[@]}" -q
refuses 2 "train: 'resnet20' is no option" "${train[@]}" resnet20
refuses 2 "train: --resume takes no value like 'runs', which is no option" "${train[@]}" --resume runs
refuses 2 "train: 'x' is no option: a value of --trace that begins so is written --trace=x" "${train[@]}" --trace x
refuses 2 'train: --m is short for several' "${train[@]}" --m 3
refuses 2 'train: --batch takes a value: N' "${train[@]}" --batch
refuses 2 'train: --print takes no value' "${train[@]}" --print=3

# Numbers: 0, below, above, overflowing, none. One option of each kind takes them all, the others one.
whole() { refuses 2 "train: --$1: '$2' is not a whole number from $3 to " "${train[@]}" "--$1" "$2"; }
real() { refuses 2 "train: --$1: '$2' is not a number from " "${train[@]}" "--$1" "$2"; }
for value in 0 -1 99999999999 99999999999999999999 1.5 1e3 '' ' 1' x 1x nan; do whole batch "$value" 1; done
for option in steps lr-scale-base micro-batch window keep image-size; do whole $option 0 1; done
for option in seed cpus gpus checkpoint-every; do whole $option -1 0; done
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
refuses 2 'augmentation .crop:8.: crop takes 7 pixels at most of images of 8x8' "${train[@]}" --augment crop:8
refuses 2 '--augment elastic: elastic is of volumes, not of digits' "${train[@]}" --augment elastic
refuses 2 '--data-placement partition: mixup mixes with any image of digits' "${train[@]}" --augment mixup --data-placement partition
echo '{ "model": "convnet", "data": "digits", "batch": 48, "no-augment": true, "lr": 0.25, "resume": false, "seed": null }' >options.json
passes train --config options.json --lr 0.5 --print
says '^batch      48 = '
says '^optimizer  sgd, learning rate 0.5,'
echo '{"model":"lenet"}' >model.json
refuses 2 'train: --data KIND\[:PATH\] is missing' train --config model.json
for wrong in '{"bath":3}' '{"config":"options.json"}' '{"lr":true}' '{"nesterov":"yes"}' '{"batch":[1]}'; do
	echo "$wrong" >wrong.json
	refuses 2 'train: wrong.json: \(train has no\|option\)' train --config wrong.json
done
echo '{"batch":"many"}' >wrong.json
refuses 2 "train: wrong.json: --batch: 'many' is not a whole number" train --config wrong.json
refuses 2 "train: --batch: 'many' is not a whole number" train --config model.json --data digits --batch many
echo '{"batch":3' >wrong.json
refuses 1 'wrong.json: line 2: ' train --config wrong.json
echo '[1]' >wrong.json
refuses 1 'wrong.json: is no JSON object of options' train --config wrong.json
passes "${train[@]}" --augment rotate:10,cutmix --batch 20 --show-batch batch.png
says '^row 4: .*[0-9]\.[0-9]* [0-9] + 0\.[0-9]* [0-9]'
[ "$(head -c 4 batch.png | tail -c 3)" = PNG ] || wrong 'batch.png is no picture'
refuses 2 "train: --trace: '5-2' is not a step or a range" "${train[@]}" --trace 5-2
refuses 2 "train: --trace: '0' is not a step or a range" "${train[@]}" --trace=0
refuses 2 "train: --model: '' is not a value" train --model '' --data digits
for schedule in '' stp step step:3 step:3,2:0.1 step:x:0.1 poly poly:-1 cosine:3; do
	refuses 2 ".*schedule" "${train[@]}" --schedule "$schedule"
done

# Names that are looked up.
refuses 2 ".*'resnet21'.*did you mean .*resnet20" train --model resnet21 --data digits
refuses 2 ".*'adm'.*did you mean .*adam" "${train[@]}" --optimizer adm
refuses 2 ".*'SGD'.*did you mean 'sgd'" "${train[@]}" --optimizer SGD
refuses 2 ".*'rnig'.*did you mean .*ring" "${train[@]}" --allreduce rnig
refuses 2 "no dataset is called 'digit': did you mean 'digits'?" train --model convnet --data digit
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
	refuses 2 "no [a-z]* is called 'zzzzzzzz'; 'stargrad list [a-z]*' names them\$" $command zzzzzzzz
	passes list "$(sed "s/.*'stargrad list \(.*\)' names them/\1/" err)"
done <<'END'
train --data digits --model
train --model convnet --data
train --model convnet --data digits --optimizer
train --model convnet --data digits --strategy
train --model convnet --data digits --allreduce
dedup --data digits --out dups --hash
check
END
refuses 2 "no dataset is called 'foobar'; 'stargrad list" train --model convnet --data foobar

# Sizes that do not fit each other.
for command in 'train --print' bench "eval --weights none"; do
	# shellcheck disable=SC2086
	refuses 1 'model lenet: takes images of 16x16 or more, those of digits have 8x8: another model (stargrad list models)' \
		$command --model lenet --data digits
done
refuses 1 'model vgg11: takes images of 32x32 or more, those of synthetic:40x31x3,2,128 have 40x31' \
	train --model vgg11 --data synthetic:40x31x3,2,128
refuses 2 '.*micro-batch 100 .*128 does' "${train[@]}" --micro-batch 100
refuses 2 '.*bn-group 100 .*128 does' "${train[@]}" --bn-group 100
refuses 2 '.*batch 100000 .*1437' "${train[@]}" --batch 100000
refuses 2 '.*trace begins with step 10, the run ends with step 5' "${train[@]}" --trace --steps 5 --out wrong
[ ! -e wrong ] || wrong 'a wrong command line leaves a folder behind'

# Options without effect: a line each, with the reason, and the run goes on. What an optimizer heeds is in its record.
idle() { warns 1 "--$1 has no effect: $2" "${train[@]}" --print "${@:3}"; }
idle nesterov '--optimizer adam has no use for it' --optimizer adam --nesterov
idle momentum '--optimizer lamb has no use for it' --optimizer lamb --momentum 0.9
idle trust '--optimizer sgd has no use for it' --trust 0.1
for option in beta1 beta2 eps; do idle $option '--optimizer lars has no use for it' --optimizer lars --$option 0.5; done
idle nesterov 'there is no momentum' --momentum 0 --nesterov
idle servers '--strategy sync has no use for it' --servers 1
idle staleness '--strategy sync has no use for it' --staleness 2
idle strategy 'one rank trains alone' --strategy ps
for option in 'allreduce ring' 'bucket 1' 'network none'; do
	# shellcheck disable=SC2086 # a word and its value
	idle "${option% *}" 'one rank trains alone' --$option
done
idle data-placement 'one rank trains alone' --data-placement partition
idle image-size 'the images of digits are 8x8' --image-size 32
idle epochs '--steps says how long' --epochs 3 --steps 2
idle precision 'tf32 is for GPUs' --precision tf32 --gpus 0
idle no-cuda-graphs 'CUDA graphs are of GPUs' --no-cuda-graphs --gpus 0
idle cpus-share 'this run has no GPUs' --cpus-share none --gpus 0
idle keep '--checkpoint-every 0 writes no' --keep 2 --checkpoint-every 0
idle best '--evaluate-last evaluates once' --evaluate-last --best
idle patience '--evaluate-last evaluates once' --evaluate-last --patience 2
idle no-decay-1d 'there is no weight decay' --weight-decay 0 --no-decay-1d
idle schedule 'the run ends after 2 epochs, and the rate would change after 30' --schedule step:30,60:0.1 --epochs 2
warns 1 '--warmup 5: the run ends after 2 epochs, before the learning rate is reached$' "${train[@]}" --print --warmup 5 --epochs 2
passes "${train[@]}" --print --schedule step:1:0.1 --warmup 1 --epochs 2
cpus=$(nproc)
warns 1 "--cpus 64: 64 workers take turns on the $cpus CPUs\\? here, and are no faster than $cpus\$" "${train[@]}" --print --cpus 64
says '^devices    64 CPU workers ('
refuses 2 "4096 CPU workers were asked for (--cpus): StarPU was built for [0-9]* at most, and there [a-z]* $cpus CPUs\\? here" "${train[@]}" --print --cpus 4096
warns 1 '--augment crops nothing: that part of the shorter side of 8x8 is less than a pixel$' "${train[@]}" --print --augment crop:1/9,flip
says '; augmentation flip$'
warns 1 '--bn-group has no effect: mlp has no batch norm' train --model mlp --data digits --bn-group 32 --print
warns 2 '--nesterov has no effect' "${train[@]}" --print --optimizer adam --nesterov --momentum 0.5
passes "${train[@]}" --print --optimizer sgd --nesterov --momentum 0.8 --weight-decay 0 --no-augment --nan-ok --strategy sync
passes "${train[@]}" --print --optimizer adam --beta1 0.8

# A rate that nobody gave is the optimizer's.
for pair in 'sgd 0.1' 'adam 0.001' 'adamw 0.001' 'lamb 0.005'; do
	passes list optimizers
	says "^${pair% *} .*(--lr ${pair#* })\$"
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
