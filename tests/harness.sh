# harness.sh COMMAND…: runs one test of `make check`; the last word is its file. Tests run in parallel, so each has a separate
# folder, TMPDIR and STARPU_HOME, which is removed at the end. The last line of a test's log is its time. A failed test is printed
# at once, on file descriptor 9, with the command that repeats it. A test that runs for 25 minutes is ended, and has failed.
# shellcheck shell=bash
set -u
log=$(readlink "/proc/$$/fd/1")
test=${*: -1}
test=tests/${test##*/tests/}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/stargrad-check-XXXXXX") || exit 99
trap 'rm -rf "$scratch"' EXIT
trap 'exit 99' HUP INT TERM
export TMPDIR=$scratch STARPU_HOME=$scratch
# Tests of pictures unset it. Drawing takes a third of a short run's time.
export STARGRAD_PICTURES=no
# Ranks need the launcher of the MPI of this build, which may not be the mpirun in PATH. It is found by its own path, so no link to it.
if [ -x "${MPIRUN:-}" ] && [ "$(command -v mpirun)" != "$MPIRUN" ]; then
	mkdir "$scratch/launcher"
	printf '#!/bin/sh\nexec %s "$@"\n' "$MPIRUN" >"$scratch/launcher/mpirun"
	chmod +x "$scratch/launcher/mpirun"
	export PATH=$scratch/launcher:$PATH
fi

TIMEFORMAT='seconds: %1R, of processors: %1U + %1S'
time timeout -k 10 1500 "$@"
status=$?
[ $status != 124 ] || printf '%s has run for 25 minutes, and was ended\n' "$test"
case $status in
0 | 77) ;;
*) {
	printf '\n%s failed with status %d; its last lines (all are in %s):\n' "$test" $status "$log"
	[ ! -f "$log" ] || tail -n 30 "$log" | sed 's/^/    /'
	printf 'repeat: make -C %s check TESTS=%s\n\n' "${builddir:-.}" "$test"
} >&9 2>/dev/null ;;
esac
exit $status
