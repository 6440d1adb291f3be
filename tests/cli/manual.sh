#!/bin/bash
# The manual page and the completion have every command and every option of the help, and no others.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

sed 's/\\-/-/g; s/\\f.//g' "$builddir/stargrad.1" >manual
. "$srcdir/cli/completion.bash"
version=$("$STARGRAD" --version | head -n 1)
grep -q "^\.TH .*\"$version\"" manual || wrong "the manual page is not about $version"

! grep -E '^\.B --[^ ]+ [a-z]' manual || wrong 'an option and its description are on one line'

for command in train launch eval predict export sample tokenize find-lr bench plan search dedup segment queue report check config list doctor; do
	grep -q "^\.B $command$" manual || wrong "the manual page does not list the command $command"
	grep -q "^\.SH STARGRAD ${command^^}$" manual || wrong "the manual page has no section about $command"
	passes "$command" --help
	! grep -E '(\[[^]]*\]) *\1' out || wrong "the help of $command has a default twice"
	! sed '1,3d; /^ *-h, --help /,$d' out | grep -e '^[^ ]' -e '^  *$' || wrong "argp breaks a line of the help of $command; reword the option"
	if grep -q "see 'stargrad train --help'" out; then
		cp out own
		passes train --help
		cat own >>out
	fi
	sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p' out | sort -u >known
	cat known >>options
	COMP_WORDS=(stargrad "$command" --) COMP_CWORD=2 COMPREPLY=()
	_stargrad "$STARGRAD" -- "$command"
	printf '%s\n' "${COMPREPLY[@]}" | sort -u | cmp -s - known || wrong "completion of $command offers: ${COMPREPLY[*]}"
done
echo --version >>options

sort -u options >help
grep -o -e '--[a-z][a-z0-9-]*' manual | sort -u >page
[ -z "$(comm -23 help page)" ] || wrong "the manual page leaves out: $(comm -23 help page | xargs)"
[ -z "$(comm -13 help page)" ] || wrong "the manual page knows too much: $(comm -13 help page | xargs)"

if command -v man >/dev/null; then
	complaints=$(LC_ALL=C MANWIDTH=80 man --warnings -l "$builddir/stargrad.1" 2>&1 >/dev/null)
	[ -z "$complaints" ] || wrong "man complains: $complaints"
fi
exit 0
