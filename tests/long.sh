# long.sh JOBS [PART…]: runs the named parts of `make check-long`, or all, one after the other, in the build folder. JOBS is
# make's option -jN, or empty. The exit status is 0 if no test of any part failed.
# shellcheck shell=bash
set -u
parts=$(dirname "$0")/parts.txt
jobs=$1
shift
mapfile -t all < <(sed -n 's/^\([a-z]*\) .*/\1/p' "$parts")
[ $# -gt 0 ] || set -- "${all[@]}"
for part; do
	grep -q "^$part " "$parts" || { echo "check-long: no part is called $part; there are ${all[*]}" >&2 && exit 2; }
done
status=0
for part; do
	read -r _ most tests < <(grep "^$part " "$parts")
	begun=$SECONDS
	# shellcheck disable=SC2086 # no word, or one
	STARGRAD_LONG=1 ${MAKE:-make} $jobs check-TESTS TESTS="$tests" || status=1
	echo "part $part: $((SECONDS - begun)) s (at most $most s on two idle cores)"
done
exit $status
