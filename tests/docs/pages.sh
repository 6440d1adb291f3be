#!/bin/bash
# The source files in the pages of docs/ compile unchanged. The examples compile with only the installed headers.
set -u
srcdir=${srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
builddir=${builddir:-$srcdir/build}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

compile() {
	${CC:-cc} -Wall -Wextra -Werror -fsyntax-only -I. -I"$builddir" -I"$srcdir" "$@" ||
		fail "${*: -1}, as a page of docs/ has it, does not compile"
}

# A block of C or CUDA that begins with "/* NAME.c:" is that file; the others are lines to be added somewhere.
for page in "$srcdir"/docs/develop/add-*.md; do
	awk '/^```(c|cuda)$/ { inside = 1; file = "lines"; next } /^```/ { inside = 0 } !inside { next }
		/^\/\* [a-z0-9_]*\.(c|cu):/ { file = $2; sub(":", "", file); files++ } { print > file } END { exit !files }' "$page" ||
		fail "$page has no file that could be compiled"
done

# An operation's attributes are declared by its line of codelets.def; it is there already where the page has been followed.
{ cat "$srcdir/codelets/codelets.def" && grep '^SGRAD_OP(' lines | grep -vxFf "$srcdir/codelets/codelets.def"; } >codelets.def
sh "$srcdir/codelets/make-operations.sh" codelets.def codelets || fail 'no headers of operations'

# Outside the tree there are the installed headers and no others.
for file in $(awk '/_HEADERS *=/ { on = 1 } on { for (i = 1; i <= NF; i++) if ($i ~ /\//) print $i } !/\\$/ { on = 0 }' "$srcdir/Makefile.am"); do
	mkdir -p "installed/${file%/*}"
	cp "$srcdir/$file" "installed/$file" 2>/dev/null || cp "$builddir/$file" "installed/$file" || fail "$file is to be installed, and is not there"
done
cp -r "$builddir/codelets/ops" installed/codelets/ || fail 'no headers of operations'
for file in "$srcdir"/examples/*.c; do
	${CC:-cc} -Wall -Wextra -Werror -fsyntax-only -std=gnu11 -D_GNU_SOURCE -Iinstalled "$file" ||
		fail "$file does not compile with the installed headers alone"
done

for file in *.c; do compile -std=gnu11 -D_GNU_SOURCE "$file"; done
if grep -q '^#define SGRAD_HAVE_CUDA 1' "$builddir/config.h"; then
	read -ra cuda < <(sed -n 's/^CUDA_CFLAGS = *//p' "$builddir/Makefile" | sed 's/-I/-isystem /')
	for file in *.cu; do
		compile -x c++ -std=c++17 -Wno-sign-compare -Wno-unknown-pragmas "${cuda[@]}" -include tests/gpu/emulator/emulator.h "$file"
	done
else
	echo 'skipped: configured without CUDA, so the pages'"'"' CUDA is not compiled'
fi
