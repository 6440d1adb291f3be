#!/bin/sh
# make-manual.sh PROGRAM TEMPLATE: prints the manual page. In TEMPLATE, @VERSION@, @COMMANDS@ and @OPTIONS@ are replaced by the
# version, the commands and the options of PROGRAM. If PROGRAM cannot run on this machine, the page refers to --help.
set -eu
program=$1 template=$2
export LC_ALL=C ARGP_HELP_FMT=rmargin=999,no-dup-args-note

# section COMMAND: prints the command's help as a section of the page.
section() {
	"$program" "$1" --help | awk -v command="$1" '
	function roff(text) {
		gsub(/\\/, "\\e", text)
		gsub(/-/, "\\-", text)
		return text ~ /^[.'\'']/ ? "\\&" text : text
	}
	function example(on) {
		if (on != is_example) print on ? ".EX" : ".EE"
		is_example = on
	}
	NR == 1 { sub(/^Usage: /, ""); print ".SH STARGRAD " toupper(roff(command)) "\n.B " roff($0); next }
	NR == 2 { print ".PP\n" toupper(substr($0, 1, 1)) roff(substr($0, 2)) "."; next }
	/^ +-h, --help / { notes = NR; next }
	notes && /^$/ { example(0); print ".PP"; next }
	notes { example($0 ~ /^  /); print roff($0); next }
	/^$/ { next }
	/^ [^ ]/ { print ".SS " roff(substr($0, 2)); next }
	{
		indent = match($0, /[^ ]/) - 1
		text = substr($0, indent + 1)
		if (indent < 20) {
			option = text
			if (match(option, /^(-., *)?--[^ ]+/)) option = substr(option, 1, RLENGTH)
			else sub(/  .*/, "", option)
			text = substr(text, length(option) + 1)
			sub(/^ +/, "", text)
			print ".TP\n.B " roff(option)
		}
		if (text != "") print roff(text)
	}
	END { example(0) }'
}

runs=yes
version=$("$program" --version 2>/dev/null) || runs=no
version=$(printf '%s\n' "$version" | head -n 1)
[ $runs = yes ] || echo "make-manual.sh: $program does not run here: the manual page lacks the options" >&2
while IFS= read -r line; do
	case $line.$runs in
	@COMMANDS@.yes) "$program" --help | sed -n 's/-/\\-/g; s/^  \([a-z\\-]*\)   *\(.*\)/.TP 10\n.B \1\n\2/p' ;;
	@OPTIONS@.yes) for command in $("$program" --help | sed -n 's/^  \([a-z-]*\)  .*/\1/p'); do section "$command"; done ;;
	@COMMANDS@.no) printf '%s\n' '.B stargrad \-\-help' 'prints them.' ;;
	@OPTIONS@.no) ;;
	*@VERSION@*) printf '%s\n' "$line" | sed "s/@VERSION@/${version:-stargrad}/" ;;
	*) printf '%s\n' "$line" ;;
	esac
done <"$template"
