#!/bin/bash
# stargrad report of invalid folders.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"
unset STARGRAD_PICTURES

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
says '^1 step, last loss 2.5000'
folder "$config" "$step"$'\n' # no epoch has ended
passes report run
folder "$config" "${step/2.5/null}"$'\n' # the loss was no number
passes report run

# What is told of the test set is config.json's to say.
numbers='{"identity":{"model":"mine"},"options":{"data":"own"},"samples":"samples","metrics":[{"name":"loss","title":"loss"},{"name":"mae","title":"absolute error"}]}'
folder "$numbers" "$step"$'\n'"${epoch/test_top1\":0.5/test_mae\":0.25}"$'\n'
passes report run
says 'test loss  test absolute error'
says '^best test absolute error 0.2500, after epoch 1$'
says 'samples/s (median)$'
folder "${numbers/\"name\":\"mae\"/\"name\":3}" "$step"$'\n'
refuses 1 'run/config.json: metrics must be a list of 1 to 8 objects with a name and a title each' report run

# Runs side by side: a column has its run's whole name, but for what all have in common, and its whole settings.
pair=some/folder/a-run-with-a-name-of-some-length
folder "${config/digits/synthetic:28x28x1,10,12800}" "$step"$'\n'"$epoch"$'\n'
mkdir -p some/folder
cp -r run $pair-and-more
folder "$config" "$step"$'\n'"$epoch"$'\n'
cp -r run $pair
passes report $pair $pair-and-more/
says '^ *a-run-with-a-name-of-some-length  *a-run-with-a-name-of-some-length-and-more/$'
says '^data  *"digits"  *"synthetic:28x28x1,10,12800"$'
if command -v gnuplot >/dev/null; then
	# One run lies on the other: they differ in colour, width and dashes. The legend has short names.
	python3 - $pair/compare.svg <<'END' || wrong 'compare.svg: one run hides the other'
import re, sys
runs = open(sys.argv[1]).read().split('<g id="gnuplot_plot_')[1:3]
assert [re.search("<title>(.*)</title>", run)[1] for run in runs] == ["a-run-with-a-name-of-some-length", "a-run-with-a-name-of-some-length-and-more/"]
line = r"""stroke-width="([0-9.]+)"[^>]*>\n\t<path stroke='([^']*)'( *stroke-dasharray)?"""
(wide, color, dashes), (thin, other, gaps) = (re.search(line, run).groups() for run in runs)
assert float(wide) >= 2 * float(thin) and color == "rgb( 43,  92, 138)" != other and gaps and not dashes, (wide, thin, color, other, gaps, dashes)
END
	# One run that has diverged leaves the others in sight.
	mkdir -p lost
	cp run/config.json lost/
	printf '%s\n%s\n' "$step" "${step/\"loss\":2.5/\"loss\":2.5e24}" >lost/metrics.jsonl
	passes report $pair lost
	! grep -q '[0-9]e+[0-9]' $pair/compare.svg || wrong 'compare.svg: a diverged run hides the others'
	# The curve has the test loss, too.
	folder "$config" "$step"$'\n'"${epoch/null/3}"$'\n'
	passes report run
	grep -q '>test</' run/curve.svg || wrong 'curve.svg: no test loss'
fi

refuses 1 'nowhere/config.json' report nowhere
folder '' "$step"$'\n'
refuses 1 'run/config.json: ' report run
folder '[]' "$step"$'\n'
refuses 1 'run/config.json: is not a JSON object' report run
folder '{"model":' "$step"$'\n'
refuses 1 'run/config.json: line 1: ' report run
for line in x '[]' '{}' '{"event":"step"}' "${step/:1,/:null,}" "${step/2.5/\"a\"}" "${epoch/0.5/true}" "$(printf '%070000d' 0)" $'\xff\xfe'; do
	folder "$config" "$step"$'\n'"$line"$'\n'
	refuses 1 'run/metrics.jsonl: line 2: ' report run
done
folder "$config" ''
refuses 1 'run/metrics.jsonl: ' report run
folder "$config" '{"event":"other"}'$'\n'
refuses 1 'run/metrics.jsonl: contains no step' report run
rm run/metrics.jsonl
refuses 1 'run/metrics.jsonl: ' report run
mkfifo run/metrics.jsonl
refuses 1 'run/metrics.jsonl: ' report run
exit 0
