#!/bin/bash
# The files that the pages of docs/ walk through compile as they stand there.
set -u
srcdir=${srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
builddir=${builddir:-$srcdir/build}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

# A block of C that begins with "/* NAME.c:" is that file; the others are lines to be added somewhere.
awk '/^```c$/ { inside = 1; file = "lines"; next } /^```/ { inside = 0 } !inside { next }
	/^\/\* [a-z0-9_]*\.c:/ { file = $2; sub(":", "", file) } { print > file }' "$srcdir"/docs/*.md

# An operation's attributes are declared by its line of codelets.def.
mkdir codelets
{ cat "$srcdir/codelets/codelets.def" && grep '^SGRAD_OP(' lines; } >codelets/codelets.def

shopt -s nullglob
files=(*.c)
[ ${#files[@]} -ge 1 ] || { echo 'FAIL: no page has a file' >&2 && exit 1; }
for file in "${files[@]}"; do
	${CC:-cc} -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -I. -I"$builddir" -I"$srcdir" "$file" ||
		{ echo "FAIL: $file, as a page of docs/ has it, does not compile" >&2 && exit 1; }
done
