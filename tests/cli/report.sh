#!/bin/bash
# Reports of folders that are not what they should be.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

step='{"event":"step","step":1,"epoch":0,"loss":2.5,"lr":0.1,"samples_per_second":100}'
epoch='{"event":"epoch","epoch":1,"train_loss":2.5,"test_loss":null,"test_top1":0.5,"seconds":1}'
config='{"identity":{"model":"mine"},"options":{"data":"digits"}}'

# folder CONFIG METRICS: what the run's folder holds
folder() {
	rm -rf run
	mkdir run
	printf '%s' "$1" >run/config.json
	printf '%s' "$2" >run/metrics.jsonl
}

folder "$config" "$step"$'\n'"$epoch"$'\n''{"event":"ste' # the run goes on, or was killed
passes report run
says 'mine on digits'
says '50.00 %'
folder "$config" "$step"$'\n' # no epoch has ended
passes report run
folder "$config" "${step/2.5/null}"$'\n' # the loss was no number
passes report run

refuses 1 '/nonexistent/config.json' report /nonexistent
folder '' "$step"$'\n'
refuses 1 'run/config.json: ' report run
folder '[]' "$step"$'\n'
refuses 1 'run/config.json: not a JSON object' report run
folder '{"model":' "$step"$'\n'
refuses 1 'run/config.json: line 1: ' report run
for line in x '[]' '{}' '{"event":"step"}' "${step/:1,/:null,}" "${step/2.5/\"a\"}" "${epoch/0.5/true}" "$(printf '%070000d' 0)" $'\xff\xfe'; do
	folder "$config" "$step"$'\n'"$line"$'\n'
	refuses 1 'run/metrics.jsonl: line 2: ' report run
done
folder "$config" ''
refuses 1 'run/metrics.jsonl: ' report run
folder "$config" '{"event":"other"}'$'\n'
refuses 1 'run/metrics.jsonl: no step in it' report run
rm run/metrics.jsonl
refuses 1 'run/metrics.jsonl: ' report run
mkfifo run/metrics.jsonl
refuses 1 'run/metrics.jsonl: ' report run
exit 0
