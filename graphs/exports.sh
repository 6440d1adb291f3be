#!/bin/sh
# exports.sh: reads the preprocessed public headers from standard input, and prints the names of the functions and variables that
# they declare, sorted, one per line. The library exports these symbols.
set -eu
awk '
# Prints the last name in TEXT, if it begins with sgrad_.
function name(text) {
	if (match(text, /sgrad_[a-z0-9_]+ *$/)) print substr(text, RSTART, RLENGTH)
}
{ sub(/ __attribute__.*/, ";") }
/^ *extern .*;/ {
	gsub(/\[[^]]*\]|;.*/, "")
	count = split($0, variable, ",")
	for (i = 1; i <= count; i++) name(variable[i])
	next
}
/^[a-z_].*\(/ && !/^(static|typedef)/ { name(substr($0, 1, index($0, "(") - 1)) }
' | sed 's/ //g' | LC_ALL=C sort -u
