#!/bin/bash
# What `make install` leaves, in a folder of one's own and staged: programs in C and C++ are compiled, linked and run with what
# `pkg-config stargrad` says and nothing else. That an installation outlives its sources: docs/install.md has the commands.
set -u
srcdir=$(cd "${srcdir:-$(dirname "$0")/..}" && pwd)
builddir=$(cd "${builddir:-$srcdir/build}" && pwd)
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
unset DESTDIR MAKEFLAGS MFLAGS "${!STARPU_@}"
export STARPU_HOME=$work STARPU_NCPU=2

wrong() {
	echo "FAIL: $*" >&2
	[ ! -s log ] || sed 's/^/    /' log >&2
	exit 1
}
does() {
	"$@" >log 2>&1 || wrong "$* ends with $?"
}

# Before any work; in a copy alone, where there is nothing to work with.
mkdir clone && cp "$srcdir/quickstart" clone
for folder in build build/install .deps/starpu/../there; do
	! clone/quickstart install "clone/$folder" >log 2>&1 || wrong "quickstart installs into $folder"
	grep -q "name a folder outside it" log || wrong "quickstart does not refuse $folder"
done
[ "$(ls -A clone)" = quickstart ] || wrong "quickstart leaves: $(ls -A clone)"

# says_prefix FILE PREFIX: FILE is a pkg-config file of what is in PREFIX and nowhere else.
says_prefix() {
	local lines=(prefix libdir includedir) expected=("$2" "$2/lib" "$2/include") i
	for i in 0 1 2; do
		grep -qx "${lines[i]}=${expected[i]}" "$1" || wrong "$1 does not say ${lines[i]}=${expected[i]}: $(cat "$1")"
	done
	! grep -q '[@]' "$1" || wrong "$1 is not filled in: $(cat "$1")"
}

# The folders of a prefix, wherever configure was told to install.
# shellcheck disable=SC2016 # make's words
folders=(exec_prefix='${prefix}' bindir='${prefix}/bin' libdir='${prefix}/lib' includedir='${prefix}/include'
	datarootdir='${prefix}/share' datadir='${datarootdir}' mandir='${datarootdir}/man' docdir='${datarootdir}/doc/stargrad')
does make -C "$builddir" install "${folders[@]}" prefix="$work/there"
does make -C "$builddir" install "${folders[@]}" prefix=/opt/stargrad DESTDIR="$work/stage"
says_prefix there/lib/pkgconfig/stargrad.pc "$work/there"
says_prefix stage/opt/stargrad/lib/pkgconfig/stargrad.pc /opt/stargrad
cmp -s <(cd there && find . | sort) <(cd stage/opt/stargrad && find . | sort) || wrong 'DESTDIR gets other files than a prefix'
for file in there/bin/stargrad there/lib/libstargrad.so; do
	readelf -d "$file" >log || wrong "readelf $file"
	! grep -E 'R(UN)?PATH' log | grep -F "$builddir/.libs" || wrong "$file looks for libraries where it was built"
done

# What the pages name is there, too: each other, and the lists.
for page in there/share/doc/stargrad/docs/*.md; do
	for file in $(grep -oE '\]\([a-z0-9-]+\.(md|png|svg)' "$page" | cut -c3-); do
		[ -s "${page%/*}/$file" ] || wrong "$page names $file, which is not installed"
	done
done
[ -s there/share/doc/stargrad/docs/add-an-operation.md ] || wrong 'the pages are not installed'

export PKG_CONFIG_PATH=$work/there/lib/pkgconfig
read -ra compile < <(pkg-config --cflags stargrad)
read -ra link < <(pkg-config --libs stargrad)
warnings=(-Wall -Wextra -pedantic -Werror)
read -ra cc <<<"${CC:-cc}"
read -ra cxx <<<"${CXX:-c++}"
command -v "${cxx[0]}" >/dev/null || cxx=()

# Each header alone; of those of the operations, which are made by one script, one.
while read -r header; do
	echo "#include \"$header\"" >one.c
	does "${cc[@]}" -std=c11 "${warnings[@]}" "${compile[@]}" -fsyntax-only one.c
	[ ${#cxx[@]} = 0 ] || does "${cxx[@]}" -x c++ -std=c++11 "${warnings[@]}" "${compile[@]}" -fsyntax-only one.c
done < <(cd there/include/stargrad && find -- * -name '*.h' ! -path '*/ops/*' -o -name conv2d.h)

does "${cc[@]}" -Wall -Wextra -Werror there/share/doc/stargrad/examples/03-own-operation.c -o own "${compile[@]}" "${link[@]}" -lm
does ./own
grep -q '^runs/gelunet-.*: test accuracy' log || wrong 'an operation outside the library was not trained'
does there/bin/stargrad list models
if [ ${#cxx[@]} = 0 ]; then
	echo 'skipped: no C++ compiler'
else
	does "${cxx[@]}" -std=c++20 "${warnings[@]}" "$srcdir/tests/install.cc" -o program "${compile[@]}" "${link[@]}"
	does ./program
fi

does make -C "$builddir" uninstall "${folders[@]}" prefix="$work/there"
[ -z "$(find there -type f -o -type l)" ] || wrong "uninstall leaves: $(find there -type f -o -type l)"
