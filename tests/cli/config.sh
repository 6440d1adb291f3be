#!/bin/bash
# stargrad config, and pkg-config in the build folder: flags for plug-ins and programs of a clone that is not installed. The
# plug-ins are those of docs/develop and of examples/.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"
builddir=$(dirname "$STARGRAD")
read -ra cc <<<"${CC:-cc}"

passes config --cflags --libs
read -ra flags <out
passes config --cflags
read -ra compile <out
passes config --libs
read -ra link <out
[ "${flags[*]}" = "${compile[*]} ${link[*]}" ] || wrong "--cflags --libs: ${flags[*]}"
refuses 2 'config: give --cflags, --libs, or both$' config
if command -v pkg-config >/dev/null; then
	unset "${!PKG_CONFIG_@}"
	export PKG_CONFIG_PATH=$builddir
	for option in --cflags --libs; do
		[ "$(pkg-config $option stargrad | xargs -n 1 | sort)" = "$("$STARGRAD" config $option | xargs -n 1 | sort)" ] ||
			wrong "pkg-config $option stargrad: $(pkg-config $option stargrad)"
	done
	[ "stargrad $(pkg-config --modversion stargrad)" = "$("$STARGRAD" --version | head -1)" ] || wrong 'pkg-config has another version'
fi

# builds SOURCE OUTPUT FLAG…: compiles without warnings.
builds() {
	"${cc[@]}" -Wall -Wextra -Werror "$1" -o "$2" "${@:3}" >out 2>err || wrong "$1 is not compiled"
}
# The plug-in of the page: the block of C that begins with a comment with its name.
awk '/^```/ { inside = 0 } inside { print } /^```c$/ { inside = 1 }' "$srcdir/docs/develop/add-a-plug-in.md" >softsign.c
builds softsign.c libsoftsign.so -shared -fPIC "${compile[@]}"
passes check --plugin ./libsoftsign.so softsign
passes train --plugin ./libsoftsign.so --model softnet --data digits --steps 2 --out run

# An augmentation, as the page builds it of a file in datasets/augmentations/.
sed -e '/"config.h"/d' -e 's/^const struct/static &/' -e 's/altflip/glow/g' "$srcdir/datasets/augmentations/altflip.c" >glow.c
cat >>glow.c <<'C'
#include "graphs/graphs.h"
SGRAD_PLUGIN(.augmentations = (const struct sgrad_augmentation *const[]){ &sgrad_glow_augmentation, NULL });
C
builds glow.c libglow.so -shared -fPIC "${compile[@]}"
passes list augmentations --plugin ./libglow.so
says '^glow '

builds "$srcdir/examples/06-regression.c" program "${flags[@]}"
./program >out 2>err || wrong 'a program that is linked with the library of the build'
