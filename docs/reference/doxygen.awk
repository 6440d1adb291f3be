# reference.awk: makes the comments of a header ones that Doxygen reads. "/* text */" before a declaration becomes "/** text */", and
# one behind a declaration "/**< text */"; indented lines of a comment become a block of code. Titles of sections, "/* ---- title",
# stay as they are.

# The characters that Doxygen gives a meaning to, as text.
function plain(text) {
	gsub(/[@\\&<>#%"]/, "\\\\&", text)
	return text
}
# The first comment is about the file.
FNR == 1 && sub(/^\/\* [a-z_]+\.h: /, " * ") {
	print "/** @file"
	open = 1
}
{
	line = $0
	indented = open && line ~ /^ \*     /
	if (indented != code) {
		print code ? " * @endcode" : " * @code{.c}"
		code = indented
	}
	if (code) {
		if (line ~ /\*\/$/) {
			sub(/ *\*\/$/, "", line)
			print line "\n * @endcode\n */"
			code = open = 0
		} else {
			print line
		}
		next
	}
	if (open) {
		at = index(line, "*/")
		print at ? plain(substr(line, 1, at - 1)) substr(line, at) : plain(line)
		open = !at
		next
	}
	at = index(line, "/*")
	if (at && line !~ /\/\* ----/) {
		before = substr(line, 1, at - 1)
		rest = substr(line, at + 2)
		end = index(rest, "*/")
		mark = before ~ /^[ \t]*$/ ? "*" : before ~ /[;,{})][ \t]*$/ ? "*<" : ""
		line = before "/*" mark (end ? plain(substr(rest, 1, end - 1)) substr(rest, end) : plain(rest))
		open = !end
	} else if (at) {
		open = !index(line, "*/")
	}
	print line
}
