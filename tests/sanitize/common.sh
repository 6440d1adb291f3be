# What the tests of this folder share: programs built with a sanitizer, and the runs that lead through most of the code.
# shellcheck shell=bash
set -u
export srcdir=${srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
export builddir=${builddir:-$srcdir/build}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
unset "${!STARPU_@}" "${!MAKE@}" MFLAGS
export STARPU_HOME=$work STARPU_NCPU=2 STARPU_NCUDA=0
# hwloc's plugins for PCI and GL leak, and are unloaded before the leak is told, so that no suppression could name them.
export HWLOC_PLUGINS_PATH=/none

skip() {
	echo "SKIP: $*"
	exit 77
}
wrong() {
	echo "FAIL: $*" >&2
	exit 1
}

# runs_with SANITIZERS: can a program with them be made and run? Where a sandbox forbids ptrace, only without looking for leaks.
runs_with() {
	echo 'int main(void) { return 0; }' >probe.c
	${CC:-cc} "-fsanitize=$1" probe.c -o probe 2>probe.err || skip "${CC:-cc} has no -fsanitize=$1: $(tail -n 1 probe.err)"
	${under:-} ./probe && return
	export ASAN_OPTIONS=detect_leaks=0
	${under:-} ./probe || skip "no program with -fsanitize=$1 runs here"
	echo 'leaks are not looked for: the leak sanitizer does not run here'
}

# builds SANITIZERS TARGET…: makes these with these sanitizers in a folder of their own, configured as builddir is but for what is
# said here, and goes there. A second call makes what has changed.
builds() {
	local sanitizers=$1 folder=$builddir/sanitize/${1%%,*} arguments
	shift
	[ ! -e "$srcdir/config.status" ] || skip 'configured inside the source tree, so no second build can be'
	[ -x "$builddir/config.status" ] || wrong "$builddir is not configured: ./quickstart build"
	mkdir -p "$folder" && cd "$folder" || exit 99
	eval "arguments=($("$builddir/config.status" --config))"
	if [ ! -e Makefile ]; then
		"$srcdir/configure" "${arguments[@]}" --with-cuda=no --enable-sanitize="$sanitizers" CFLAGS='-O1 -g' >configure.out 2>&1 ||
			{ tail -n 20 configure.out && wrong "configure: see $folder/configure.out"; }
	fi
	make -j"$(nproc)" "$@" >make.out 2>&1 || { tail -n 20 make.out && wrong "make: see $folder/make.out"; }
}

# trains STARGRAD…: a short run of many small tasks, broken off and taken up again, its weights evaluated: under the command that
# the words begin with.
trains() {
	local run=$work/run train
	train=(train --model convnet --data digits --batch 32 --micro-batch 4 --optimizer adam --clip-norm 1 --checkpoint-every 1s --out "$run")
	"$@" "${train[@]}" --steps 2 >"$work/out" || wrong "$* train"
	"$@" "${train[@]}" --steps 4 --resume >"$work/out" || wrong "$* train --resume"
	"$@" eval --weights "$run/model.safetensors" --model convnet --data digits >"$work/out" || wrong "$* eval"
}
