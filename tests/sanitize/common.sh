# Functions that the tests of this folder share: programs built with a sanitizer, and runs that cover most of the code.
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
export HWLOC_PLUGINS_PATH=$work/none
# oneDNN 2.6, making code for AMX, reads a number past the end of an array of its own. The C library's heap has something there; a
# sanitizer's may have nothing. So the processor is taken for one without AMX, but in tests of what is ours alone (address.sh). A
# lower limit of the caller's stays.
most=${STARGRAD_MAX_ISA:-amx}
export STARGRAD_MAX_ISA=${most/#amx/avx512_bf16}
# Where a program breaks is told, before the test library catches it.
export ASAN_OPTIONS=handle_segv=2

skip() {
	echo "SKIP: $*"
	exit 77
}
wrong() {
	echo "FAIL: $*" >&2
	exit 1
}

# What a program with a sanitizer runs under: where the kernel may scatter memory further than the sanitizer knows, no scattering.
under=()
! setarch -R true 2>/dev/null || under=(setarch -R)

# Where scattering cannot be switched off, chance decides.
probe() {
	for _ in {1..10}; do "${under[@]}" ./probe || return; done
}

# runs_with SANITIZERS: can a program with them be made and run? Where a sandbox forbids ptrace, only without looking for leaks.
runs_with() {
	local compiler
	[ -e "$builddir/Makefile" ] || wrong "$builddir is not configured: ./quickstart build"
	compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
	echo 'int main(void) { return 0; }' >probe.c
	$compiler "-fsanitize=$1" probe.c -o probe 2>probe.err || skip "$compiler has no -fsanitize=$1: $(tail -n 1 probe.err)"
	probe && return
	export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
	probe || skip "no program with -fsanitize=$1 runs here"
	echo 'leaks are not looked for: the leak sanitizer does not run here'
}

# builds SANITIZERS TARGET…: makes these with these sanitizers in a folder of their own, configured as builddir is but for what is
# said here, and goes there. A second call makes what has changed.
builds() {
	local sanitizers=$1 folder=$builddir/sanitize/${1%%,*} arguments
	shift
	[ ! -e "$srcdir/config.status" ] || skip 'configured inside the source tree, so no second build can be'
	mkdir -p "$folder" && cd "$folder" || exit 99
	eval "arguments=($("$builddir/config.status" --config))"
	if [ ! Makefile -nt "$builddir/config.status" ]; then
		"$srcdir/configure" "${arguments[@]}" --srcdir="$srcdir" --with-cuda=no --disable-fuzz --enable-sanitize="$sanitizers" \
			CFLAGS='-O1 -g1' >configure.out 2>&1 ||
			{ tail -n 20 configure.out && wrong "configure: see $folder/configure.out"; }
	fi
	make -j"$(nproc)" "$@" >make.out 2>&1 || { tail -n 20 make.out && wrong "make: see $folder/make.out"; }
}

# trains STARGRAD…: a run of a few steps of many small tasks, broken off and taken up again, its weights evaluated: under the
# command that the words begin with. Only the first part clips: without it, updates and the next forward tasks overlap.
steps=2
trains() {
	local run=$work/run network=(--model convnet --data 'synthetic:8x8x1,4,64') train
	train=(train "${network[@]}" --batch 64 --micro-batch 4 --optimizer adam --checkpoint-every 1s --out "$run")
	"$@" "${train[@]}" --steps "$steps" --clip-norm 1 >"$work/out" || wrong "$* train"
	"$@" "${train[@]}" --steps $((2 * steps)) --resume >"$work/out" || wrong "$* train --resume"
	"$@" eval "${network[@]}" --weights "$run/model.safetensors" >"$work/out" || wrong "$* eval"
}
