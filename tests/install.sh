#!/bin/bash
# The result of `make install`, in a folder and staged: programs in C and C++ are compiled, linked and run with only the flags of
# `pkg-config stargrad`. docs/start/install.md has the commands that check an installation without its sources.
set -u
srcdir=$(cd "${srcdir:-$(dirname "$0")/..}" && pwd)
builddir=$(cd "${builddir:-$srcdir/build}" && pwd)
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
case $work in
*[[:space:]]*) echo "skipped: make cannot install in a folder with spaces in its name, as TMPDIR has" && exit 77 ;;
esac
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
	grep -q "give a folder outside it" log || wrong "quickstart does not refuse $folder"
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

# The Python module knows where the library is, in the end.
grep -qx "$work/there/lib/libstargrad.so" there/share/stargrad/python/stargrad/library.txt || wrong 'the Python module does not find the library'
grep -qx /opt/stargrad/lib/libstargrad.so stage/opt/stargrad/share/stargrad/python/stargrad/library.txt || wrong 'a staged Python module looks elsewhere'

# What the pages name is there, too: each other, and the lists.
for page in there/share/doc/stargrad/docs/*.md there/share/doc/stargrad/docs/*/*.md; do
	for file in $(grep -oE '\]\([a-zA-Z0-9./-]+\.(md|png|svg)' "$page" | cut -c3- | grep -vE '^(\.\./){1,2}(README|CONTRIBUTING)'); do
		[ -s "${page%/*}/$file" ] || wrong "$page names $file, which is not installed"
	done
done
[ -s there/share/doc/stargrad/docs/develop/add-an-operation.md ] || wrong 'the pages are not installed'

export PKG_CONFIG_PATH=$work/there/lib/pkgconfig
read -ra compile < <(pkg-config --cflags stargrad)
read -ra link < <(pkg-config --libs stargrad)
[ "$(there/bin/stargrad config --cflags --libs | xargs -n 1 | sort)" = "$(printf '%s\n' "${compile[@]}" "${link[@]}" | sort)" ] ||
	wrong "stargrad config prints other flags than pkg-config: $(there/bin/stargrad config --cflags --libs)"
warnings=(-Wall -Wextra -pedantic -Werror)
read -ra cc <<<"${CC:-cc}"
read -ra cxx <<<"${CXX:-c++}"
command -v "${cxx[0]}" >/dev/null || cxx=()

# A distribution's packages have no rpath.
grep -q "^PC_RPATH = ." "$builddir/Makefile" || ! grep -q rpath there/lib/pkgconfig/stargrad.pc || wrong 'stargrad.pc has an rpath'
export LD_LIBRARY_PATH=$work/there/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
grep -q '^Libs.private: .*-lstarpu.*-ljansson' there/lib/pkgconfig/stargrad.pc || wrong 'stargrad.pc does not name the libraries of libstargrad'
[ -z "$(find there -name '*.la')" ] || wrong "libtool's files are installed: $(find there -name '*.la')"

# Each header alone; of those of the operations, which are made by one script, one.
while read -r header; do
	echo "#include \"$header\"" >one.c
	does "${cc[@]}" -std=c11 "${warnings[@]}" "${compile[@]}" -fsyntax-only one.c
	[ ${#cxx[@]} = 0 ] || does "${cxx[@]}" -x c++ -std=c++11 "${warnings[@]}" "${compile[@]}" -fsyntax-only one.c
done < <(cd there/include/stargrad && find -- * -name '*.h' ! -path '*/ops/*' -o -name conv2d.h)

for example in there/share/doc/stargrad/examples/[0-9]*.c; do
	does "${cc[@]}" -Wall -Wextra -Werror "$example" -o "$(basename "$example" .c)" "${compile[@]}" "${link[@]}"
done
mv 03-own-operation own
does ./own
grep -q '^runs/gelunet-.*: test accuracy' log || wrong 'an operation outside the library was not trained'
does there/bin/stargrad list models
# Machine files are found relative to the program, also after the installation is moved.
does there/bin/stargrad list machines
grep -q '^titan ' log || wrong 'the installed machine files are not found'
cp -r there/share/stargrad/machines moved-machines && mkdir -p moved/bin moved/share/stargrad && cp there/bin/stargrad moved/bin &&
	mv moved-machines moved/share/stargrad/machines && rm moved/share/stargrad/machines/titan.json
does moved/bin/stargrad plan --machine iris-v100 --model mlp --data digits --nodes 1
moved/bin/stargrad list machines | grep -q '^titan ' && wrong 'a moved program finds the machine files of another installation'

# Plug-ins: one of each kind. What they call is the command's own, which therefore has all that the library has.
public() { nm -D --defined-only "$1" | awk '$3 ~ /^sgrad_[^_]/ { print $3 }' | LC_ALL=C sort; }
[ -z "$(comm -13 <(public there/bin/stargrad) <(public there/lib/libstargrad.so))" ] ||
	wrong "the command lacks: $(comm -13 <(public there/bin/stargrad) <(public there/lib/libstargrad.so) | xargs)"
# The library exports the symbols that its public headers declare, and no others. (CUDA's are declared by handles.h in any build; a
# plug-in has sgrad_plugin.)
others=$(comm -23 <(public there/lib/libstargrad.so) "$builddir/libstargrad.sym" | xargs)
[ -z "$others" ] || wrong "the library exports what no public header declares: $others"
lacking=$(comm -13 <(public there/lib/libstargrad.so) "$builddir/libstargrad.sym" | grep -vE '^sgrad_(plugin|cublas|cuda_[a-z]*|cudnn)$' | xargs)
[ -z "$lacking" ] || wrong "the library lacks what a public header declares: $lacking"
plug_in() { # FILE NAME OPTION…
	does "${cc[@]}" -std=gnu11 -shared -fPIC "$1" -o "lib$2.so" "${compile[@]}" "${@:3}"
}
refuses() { # STATUS PATTERN ARGUMENT…
	local status=$1 pattern=$2
	shift 2
	there/bin/stargrad "$@" >log 2>&1
	[ $? = "$status" ] || wrong "stargrad $* does not end with $status"
	grep -q "$pattern" log || wrong "stargrad $* does not say: $pattern"
}
for name in lion spiral star swish; do
	plug_in "there/share/doc/stargrad/examples/plug-ins/$name.c" $name -Wall -Wextra -Werror -lm
done
does there/bin/stargrad check --plugin ./libswish.so swish relu
grep -qx 'swish: passed for 2 shapes' log || wrong 'stargrad check does not tell of swish'
does there/bin/stargrad list models --plugin ./libswish.so
grep -q '^swishnet ' log || wrong 'list does not know the plug-in'
does there/bin/stargrad train --plugin ./libswish.so --plugin ./liblion.so --model swishnet --optimizer lion --data digits --steps 20 --out swishing
grep -q '"plugins": *\[' swishing/config.json && grep -q 'liblion.so"' swishing/config.json || wrong 'config.json does not know the plug-ins'
does there/bin/stargrad eval --plugin ./libswish.so --model swishnet --data digits --weights swishing/model.safetensors
refuses 2 'the run used the plug-in .*libswish.so, which is not loaded' eval swishing
does there/bin/stargrad eval --plugin ./libswish.so --plugin ./liblion.so swishing
does there/bin/stargrad train --plugin ./libspiral.so --model mlp --data spiral:512 --steps 4 --batch 64 --out points
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
does mpirun -n 3 there/bin/stargrad train --plugin ./libstar.so --allreduce star --model convnet --data digits --batch 96 --steps 4 --out star
grep -q 'star' log || wrong 'the gradients are not summed by star'

sed 's/slope = s + t/slope = s - t/' there/share/doc/stargrad/examples/plug-ins/swish.c >bad.c && plug_in bad.c bad
refuses 1 'operation swish, .*: the derivative with respect to input 0 is .*, but finite differences give' check --plugin ./libbad.so swish
sed 's/"swish"/"relu"/' bad.c >taken.c && plug_in taken.c taken
refuses 2 "plug-in .*libtaken.so: operation 'relu' exists already" list ops --plugin ./libtaken.so
sed 's/, .build = build//' bad.c >less.c && plug_in less.c less
refuses 2 'plug-in .*libless.so: model swishnet has no .build' list ops --plugin ./libless.so
sed 's/^SGRAD_PLUGIN(/&.version = 7, /' bad.c >old.c && plug_in old.c old
refuses 2 'plug-in .*libold.so: was compiled for version 7 of the plug-in interface' list ops --plugin ./libold.so
echo 'int nothing;' >none.c && plug_in none.c none
refuses 2 'plug-in .*libnone.so: is not a plug-in' list ops --plugin ./libnone.so
refuses 2 'plug-in .*none.c: cannot be loaded' list ops --plugin none.c
refuses 2 'plug-in ./nowhere.so: No such file' list ops --plugin ./nowhere.so
if [ ${#cxx[@]} = 0 ]; then
	echo 'skipped: no C++ compiler'
else
	does "${cxx[@]}" -std=c++20 "${warnings[@]}" "$srcdir/tests/install.cc" -o program "${compile[@]}" "${link[@]}"
	does ./program
fi

does make -C "$builddir" uninstall "${folders[@]}" prefix="$work/there"
[ -z "$(find there -type f -o -type l)" ] || wrong "uninstall leaves: $(find there -type f -o -type l)"
