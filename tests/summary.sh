# summary.sh FOLDER FILE STATUS: prints the results of all tests of the build in FOLDER that ended after FILE was written: the ten
# slowest tests, the skipped ones with their reasons, and the number that passed. STATUS is that of make. The exit status is 1 if
# a test failed, was skipped for a reason that is not in tests/skips.txt, or took longer than STARGRAD_MOST_SECONDS, if this is
# set.
# shellcheck shell=bash
set -u
if [[ ! ${STARGRAD_MOST_SECONDS:-0} =~ ^[0-9]+$ ]]; then
	echo "STARGRAD_MOST_SECONDS=$STARGRAD_MOST_SECONDS is not a whole number of seconds; correct or unset it" >&2
	exit 2
fi
skips=$(cd "$(dirname "$0")" && pwd)/skips.txt
made=$3
cd "$1" || exit 99
mapfile -t tests < <(find tests -name '*.trs' -newer "$2" | sed 's/\.trs$//' | sort)

# ended WORD…: how many tests have this result.
ended() {
	local word total=0
	for word; do
		total=$((total + $(grep -lx ":test-result: $word" "${tests[@]/%/.trs}" /dev/null | wc -l)))
	done
	echo $total
}

# Lines of logs that begin so give a reason; a test of which nothing ran has one.
reasons() {
	local test
	for test in "${tests[@]}"; do
		{
			grep -ahE '^(SKIP: |SKIPPED \[|skipped|not simulated: |no traces of |leaks are not looked for: )' "$test.log" ||
				! grep -q '^:test-result: SKIP' "$test.trs" || echo 'SKIP: no reason is given'
		} | sed -E 's/^SKIPPED \[[0-9]+\] [^ ]*: /skipped: /' | sort | uniq -c | sed -E "s|^ *1 |$test: |; s|^ *([0-9]+) |$test, \1 times: |"
	done
}

failed=$(ended FAIL XPASS ERROR)
if [ ${#tests[@]} -gt 0 ]; then
	times=$(for test in "${tests[@]}"; do
		sed -n "s/\([0-9]\),\([0-9]\)/\1.\2/g; s|^seconds: \([0-9.]*\), of processors: \([0-9.]*\) + \([0-9.]*\)\$|\1 \2 \3 $test|p" "$test.log" | tail -n 1
	done | sort -nr | awk '{ printf "  %6.1f %6.1f  %s\n", $1, $2 + $3, $4 }')
	printf 'slowest tests: seconds, of processors\n%s\n' "$(head -n 10 <<<"$times")"
	if [ -n "${STARGRAD_MOST_SECONDS:-}" ]; then
		slow=$(awk -v most="$STARGRAD_MOST_SECONDS" '$1 > most' <<<"$times")
		[ -z "$slow" ] || { printf 'FAIL: longer than %s s:\n%s\n' "$STARGRAD_MOST_SECONDS" "$slow" && failed=$((failed + 1)); }
	fi
	said=$(reasons)
	others=$(grep -vEf <(grep -v '^#' "$skips") <<<"$said")
	[ -z "$said" ] || printf 'skipped:\n%s\n' "$(sed 's/^/  /' <<<"$said")"
	if [ -n "$others" ]; then
		printf 'FAIL: skipped for reasons that are not in tests/skips.txt:\n%s\n' "$(sed 's/^/  /' <<<"$others")"
		failed=$((failed + 1))
	fi
fi
[ "$made" = 0 ] || [ "$failed" -gt 0 ] || failed=1
echo "$(ended PASS XFAIL) passed, $failed failed, $(ended SKIP) skipped"
[ "$failed" = 0 ]
