# Functions that the tests of the command line share. The tests run in an empty folder, which is removed at the end.
# shellcheck shell=bash
set -u
srcdir=${srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
STARGRAD=${STARGRAD:-$srcdir/build/stargrad}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
unset "${!STARPU_@}" # the caller's settings are not what is tested
export STARPU_HOME=$work STARPU_NCPU=2
# Ranks as root, and more of them than cores, by Open MPI 4 and by 5; tests/train/run.py has the same.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

wrong() {
	if grep -sh '^stargrad: .*this build has n\(o\|either\) ' err >skip; then
		sed 's/^/skipped: /' skip
		exit 77
	fi
	echo "FAIL: $*" >&2
	[ ! -s out ] || sed 's/^/    out: /' out >&2
	[ ! -s err ] || sed 's/^/    err: /' err >&2
	exit 1
}

# passes ARGUMENT…: stargrad ends with 0 and says nothing on standard error, but that --cpus 2 are too many for a machine of one.
# Its output stays in the file out.
passes() {
	"$STARGRAD" "$@" >out 2>err || wrong "stargrad $* ends with $?"
	sed -i '/^stargrad: warning: --cpus [0-9]*: /d' err
	[ ! -s err ] || wrong "stargrad $* complains"
}

# says PATTERN: the output of the last command has a line like that.
says() { grep -q -e "$1" out || wrong "no line like: $1"; }

# warns LINES PATTERN ARGUMENT…: stargrad ends with 0, and says so many lines on standard error, one of them like that.
warns() {
	local lines=$1 pattern=$2
	shift 2
	"$STARGRAD" "$@" >out 2>err || wrong "stargrad $* ends with $?"
	[ "$(wc -l <err)" = "$lines" ] || wrong "stargrad $* does not complain in $lines lines"
	grep -q -e "^stargrad: warning: $pattern" err || wrong "stargrad $* does not say: $pattern"
}

# refuses STATUS PATTERN ARGUMENT…: stargrad ends so, prints nothing, and one line like that on standard error.
refuses() {
	local status=$1 pattern=$2
	shift 2
	"$STARGRAD" "$@" >out 2>err
	[ $? = "$status" ] || wrong "stargrad $* does not end with $status"
	[ ! -s out ] || wrong "stargrad $* prints something"
	[ "$(wc -l <err)" = 1 ] || wrong "stargrad $* does not complain in one line"
	grep -q -e "^stargrad: $pattern" err || wrong "stargrad $* does not say: $pattern"
}
