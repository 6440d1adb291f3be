#!/bin/bash
# Each fuzz target searches for several seconds for inputs that break a reader. Clang builds the targets with its fuzzer and
# sanitizers, in a separate folder.
set -u
srcdir=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd) || exit 99
builddir=$(cd "${builddir:-$srcdir/build}" && pwd) || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!MAKE@}" MFLAGS

skip() {
	echo "SKIP: $*"
	exit 77
}
wrong() {
	[ ! -f "$2" ] || tail -n 20 "$2" >&2
	echo "FAIL: $1: all of its output is in $PWD/$2" >&2
	exit 1
}

echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return n && *d > 255; }' >"$work/fuzzer.c"
clang -fsanitize=fuzzer,address,undefined "$work/fuzzer.c" -o "$work/fuzzer" 2>"$work/err" ||
	skip "clang, or its fuzzer, is not installed: $(head -n 1 "$work/err")"
[ ! -e "$srcdir/config.status" ] || skip 'configured inside the source tree, so no second build can be'

mkdir -p "$builddir/fuzz" && cd "$builddir/fuzz" || exit 99
eval "arguments=($("$builddir/config.status" --config))"
if [ ! Makefile -nt "$builddir/config.status" ]; then
	"$srcdir/configure" "${arguments[@]}" --srcdir="$srcdir" CC=clang CFLAGS='-O1 -g' --with-cuda=no --enable-fuzz \
		--enable-sanitize=address,undefined >configure.out 2>&1 || wrong configure configure.out
fi
make -j"$(nproc)" check-programs >make.out 2>&1 || wrong make make.out
make -j"$(nproc)" fuzz-check ${FUZZ_SECONDS:+FUZZ_SECONDS="$FUZZ_SECONDS"}
