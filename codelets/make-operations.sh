#!/bin/sh
# make-operations.sh DEF FOLDER: writes to FOLDER a header for each entry SGRAD_OP(name, attributes…) of DEF (codelets.def). From
#
#     SGRAD_OP(dropout, float p /* [0.5] */;)
#
# it makes ops/dropout.h, which defines struct sgrad_dropout { float p /* [0.5] */; }; and declares sgrad_dropout_op. operations.h
# includes all these headers. operations.mk lists them, and is written last. An unchanged header keeps its modification time, so
# files that include it are not compiled again. An entry may span several lines; it ends with its closing parenthesis.
set -eu
def=$1 folder=$2
new=$folder/operations.new
rm -rf "$new"
mkdir -p "$new/ops" "$folder/ops"

awk -v new="$new" '
function refuse(why) {
	print FILENAME ":" start ": " why >"/dev/stderr"
	exit failed = 1
}
function guard(file, macro, what) {
	print "/* " what " Made of codelets/codelets.def by make-operations.sh. */\n#ifndef " macro "\n#define " macro "\n" >file
}
function finish_operation(name,  file) {
	file = new "/ops/" name ".h"
	guard(file, "SGRAD_OPS_" toupper(name) "_H", name ".h: the attributes of codelets/ops/" name ".c, and its record.")
	print "#include \"codelets/codelets.h\"\n\nstruct sgrad_" name " {\n    " attributes "\n};" >file
	print "#ifdef __cplusplus\nextern \"C\" {\n#endif\nextern const struct sgrad_op sgrad_" name "_op;" >file
	print "#ifdef __cplusplus\n}\n#endif\n#endif" >file
	close(file)
	print "#include \"codelets/ops/" name ".h\"" >all
	headers = headers " codelets/ops/" name ".h"
}
BEGIN { all = new "/operations.h" }
FNR == 1 { guard(all, "SGRAD_OPERATIONS_H", "operations.h: the attributes and the records of all operations.") }
text == "" { start = FNR }
{
	text = text == "" ? $0 : text "\n    " $0
	code = text
	gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", code)      # comments
	gsub(/[ \t\n]+/, " ", code)
	if (code ~ /\/\*/) next
	if (code ~ /^ *$/) { text = ""; next }
	if (code !~ /^SGRAD_OP\([a-z][a-z0-9_]*,/) refuse("must be SGRAD_OP(name, attributes;), with a name of a-z, 0-9 and _")
	if (gsub(/\(/, "(", code) != gsub(/\)/, ")", code)) next
	if (text !~ /^SGRAD_OP\([a-z0-9_]*,/ || code !~ /; *\) *$/ || text !~ /\)[ \t]*$/) refuse("must be SGRAD_OP(name, attributes;) on lines of its own")
	name = code
	sub(/^SGRAD_OP\(/, "", name)
	sub(/,.*/, "", name)
	if (seen[name]++) refuse(name " is defined twice")
	attributes = text
	sub(/^SGRAD_OP\([a-z0-9_]*,[ \t\n]*/, "", attributes)
	sub(/[ \t]*\)[ \t]*$/, "", attributes)
	finish_operation(name)
	text = ""
}
END {
	if (failed) exit 1
	if (text != "") refuse("the parenthesis of SGRAD_OP( is not closed")
	print "\n#endif" >all
	print "operation_headers =" headers >(new "/operations.mk")
}' "$def"

for file in "$folder"/ops/*.h; do
	[ -e "$new/ops/${file##*/}" ] || ! head -n 1 "$file" | grep -q 'Made of codelets/codelets.def' || rm -f "$file"
done
for file in "$new"/ops/*.h "$new"/operations.h; do
	cmp -s "$file" "$folder/${file#"$new"/}" || mv -f "$file" "$folder/${file#"$new"/}"
done
mv -f "$new"/operations.mk "$folder"/operations.mk
rm -rf "$new"
