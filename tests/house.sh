#!/bin/bash
# Rules of the project that a script can check. Every line of output is an error that must be fixed.
set -u
shopt -s globstar nullglob
cd "${srcdir:-$(dirname "$0")/..}" || exit 99
sources=({runtime,codelets,volumes,datasets,duplicates,graphs,planner,report,cli,examples}/**/*.{c,h,cu,def})

# Each module and the modules that it may use, and with them all that those may use. A module is a folder, or, in codelets/ and graphs/,
# a folder below that. "kernels" is all of codelets/.
# "public" is what programs outside include: all of graphs/, or every operation. No file of the library includes it.
modules='
runtime          :
codelets         : runtime
codelets/cuda    : codelets
codelets/cpu     : codelets
codelets/ops     : codelets/cpu codelets/cuda
codelets/optimizers : codelets/cpu codelets/cuda
codelets/kfac    : codelets/optimizers
kernels          : codelets/ops codelets/kfac
volumes          : runtime
report           : runtime
datasets         : volumes
duplicates       : datasets kernels
graphs/networks  : kernels
graphs/compiler  : graphs/networks datasets
graphs/api       : graphs/compiler
graphs/rundir    : graphs/api
graphs/engine    : graphs/rundir
graphs/costs     : graphs/engine
graphs/train     : graphs/costs
graphs/bench     : graphs/train
graphs/inference : graphs/train
graphs/search    : graphs/train
graphs/segment   : graphs/train
graphs/json      : graphs/inference
public           : graphs/bench graphs/json graphs/search graphs/segment
planner          : graphs/bench graphs/json
cli              : planner duplicates report graphs/search graphs/segment
examples         : public planner duplicates
'

# The awk function room() and the array below[]: of each module the ones that it may use, directly or by way of others.
rooms='
	function room(file,  part, n) {
		if (file ~ /^(graphs\/graphs|codelets\/operations)(\.h)?$/) return "public"
		n = split(file, part, "/")
		return n > 2 && part[1] ~ /^(graphs|codelets)$/ ? part[1] "/" part[2] : part[1]
	}
	function above(a, b) { return index(below[a], " " b " ") }
	BEGIN {
		lines = split(modules, line, "\n")
		for (l = 1; l <= lines; l++) {
			words = split(line[l], word, " ")
			if (words < 2) continue
			below[word[1]] = " "
			for (w = 3; w <= words; w++) {
				below[word[1]] = below[word[1]] word[w] below[word[w]]
			}
		}
	}'

# An #include names the folder, and leads to a module below its own, or stays there. The header of an operation that is made from
# codelets.def belongs to codelets.
includes() {
	awk -v modules="$modules" "$rooms"'
	/^[ \t]*#[ \t]*include[ \t]*"/ {
		split($0, quoted, "\""); file = quoted[2]
		here = room(FILENAME); there = room(file)
		if (there == "codelets/ops" && (getline text <file) < 0) there = "codelets"
		if (file == "config.h" || here == there || FILENAME == "codelets/list.c") next
		if (!(there in below)) print FILENAME ":" FNR ": \"" file "\" names no module"
		else if (!above(here, there)) print FILENAME ":" FNR ": " here " may not use " there ": no \"" file "\" here"
	}' "${sources[@]}"
}

# Of the build in folder $1: the symbols that each file's object defines and uses, as file, symbol, type.
symbols() {
	local object file
	cd "$1" 2>/dev/null && compgen -G 'runtime/*.lo' >/dev/null ||
		{ echo "no circles and namesakes are looked for in $1: nothing is built there" >&2 && return; }
	for file in "${sources[@]}"; do
		object=${file%/*}/.libs/$(basename "${file%.*}").o
		[ -e "$object" ] || object=${file%.*}.o
		[ ! -e "$object" ] || nm -P "$object" 2>/dev/null | sed "s|^|${file%.*} |"
	done
}

# Of that table: which file uses which other one, and the symbol.
uses() {
	awk '
	$3 ~ /^[TDBRCVW]$/ { defines[$2] = $1 }
	$3 == "U" { user[++uses] = $1; used[uses] = $2 }
	END { for (i = 1; i <= uses; i++) if (used[i] in defines && defines[used[i]] != user[i]) print user[i], defines[used[i]], used[i] }' <<<"$table"
}

# A symbol that an object uses is defined in its own module or in one below, in this build.
floors() {
	uses | awk -v modules="$modules" "$rooms"'
	{ here = room($1); there = room($2) }
	here != there && $1 != "codelets/list" && !above(here, there) { print $1 ": uses " $3 " of " $2 ": " here " may not use " there }'
}

# Two files that use each other, or more in a ring, by the symbols that their objects define and use: they are one, or a third is missing.
circles() {
	uses | cut -d ' ' -f 1,2 | sort -u | tsort 2>&1 >/dev/null |
		awk '/contains a loop/ { print ring; ring = ""; next } { ring = ring " " $2 } END { print ring }' | sed -n 's/..*/a circle of files:&/p'
}

# Of two definitions of a name in two rooms the linker takes one, without a word.
namesakes() {
	awk '$3 ~ /^[TDBR]$/ && $2 != "main" { print $2, $1 }' <<<"$table" | sort -u |
		awk '$1 == name { print file ": " name ": is in " $2 ", too" } { name = $1; file = $2 }'
}

# A file says in its first line what it is; lines keep to the width that .clang-format declares.
lines() {
	local file width
	width=$(sed -n 's/^ColumnLimit: *//p' .clang-format)
	for file in "${sources[@]}"; do
		case $file in *.def | *_data.h) continue ;; esac
		[[ $(head -n 1 "$file") == "/* ${file##*/}: "* ]] || echo "$file: its first line does not say what it is"
	done
	LC_ALL=C.UTF-8 grep -nE "^.{$((width + 1)),}" "${sources[@]}" tests/**/*.{c,h,cc} | sed -E "s/^([^:]*:[0-9]*):.*/\1: more than $width characters/"
}

# The include guard of a header is its path.
guards() {
	local file guard wanted
	for file in {runtime,codelets,volumes,datasets,duplicates,graphs,planner,report,cli}/**/*.h; do
		guard=$(sed -n 's/^#ifndef \(.*_H\)$/\1/p' "$file" | head -n 1)
		wanted=${file//[\/.]/_} wanted=SGRAD_${wanted^^}
		[ -z "$guard" ] || [ "$guard" = "$wanted" ] || echo "$file: its include guard is $guard, not $wanted"
	done
}

# Installed headers have no reserved names: in C++ a double underscore is.
reserved() {
	local headers
	mapfile -t headers < <(awk '/^[a-z]*_HEADERS =/ { on = 1 } on { print } on && !/\\$/ { on = 0 }' Makefile.am | grep -oE '[a-z_/]+[.]h\b')
	grep -nE '\b(sgrad|SGRAD)_?[A-Za-z0-9_]*__' "${headers[@]}" | sed 's/$/   <- a reserved name in an installed header/'
}

# What a lower room does not know, in code or comment.
words() {
	grep -niE 'layer|gradient|epoch' runtime/**/*.* | sed 's/$/   <- runtime\/ says neither layer nor gradient nor epoch/'
	grep -nE 'starpu_|MPI_|sgrad_(wait_all|task_submit)|cuda[A-Za-z]*Synchronize' {codelets,volumes,datasets}/**/*.{c,h,cu} |
		sed 's/$/   <- kernels and readers never wait, submit or send/'
}

# Plans are data: they can be checked in one process, because they know neither messages nor tasks.
plans() {
	grep -nE '#[ \t]*include.*(mpi|starpu)|(MPI|starpu)_[A-Za-z_]+\(' runtime/collectives.{c,h} runtime/collectives/* |
		sed 's/$/   <- a plan includes neither mpi.h nor starpu.h/'
}

# records FOLDER LIST TYPE: every file of FOLDER with a record of TYPE stands in LIST, every line of LIST has its file.
# A family's file has its members' name without their number, or without their last words: resnet.c has resnet20 and resnet32, and
# regnet.c has regnet_x_400mf.
records() {
	local file name
	for file in "$1"/*.c; do
		name=$(basename "$file" .c)
		grep -q "^ *const struct $3 sgrad_" "$file" || continue
		grep -qE "^[A-Z_]+\(${name}([0-9]*|_[a-z0-9_]*)[,)]" "$2" || echo "$file: no line in $2"
	done
	while read -r name; do
		[ -e "$1/$name.c" ] || [ -e "$1/${name%%[0-9]*}.c" ] || [ -e "$1/${name%_*}.c" ] || [ -e "$1/${name%%_*}.c" ] ||
			echo "$2: $name: no file $1/$name.c"
	done < <(sed -n 's/^[A-Z_]*(\([a-z0-9_]*\).*/\1/p' "$2")
}

# Every source and every page stands in Makefile.am, by its own name or as a program, and so does every test that is one.
makefile() {
	local file names tests
	names=" $(sed 's/#.*//' Makefile.am | tr -c '[:graph:]' ' ') "
	mapfile -t tests < <(printf '%s\n' tests/**/*.c; grep -lE '^#!|^if __name__' tests/**/*.{sh,py} | grep -v '^tests/reference/')
	for file in "${sources[@]}" "${tests[@]}" docs/**/*; do
		[ -f "$file" ] || continue
		case $names in *" $file "* | *" ${file%.c} "*) ;; *) echo "$file: not in Makefile.am" ;; esac
	done
}

# Two tests of one name in one folder would share a log, and one of them not run.
names() { printf '%s\n' tests/**/*.{c,sh,py} | sed 's/\.[a-z]*$//' | sort | uniq -d | sed 's/$/: two tests have this name/'; }

# A unit test has a sentence for its name, and is run by what tests/asserts.h has.
sentences() { grep -nE 'cmocka_(unit_test|run_group)' tests/**/*.c | sed 's/$/   <- tests have sentences for names: tests\/asserts.h/'; }

sizes() {
	local file lines
	for file in "${sources[@]}" {tests,bench}/**/*.{c,h,sh,py} quickstart configure.ac; do
		lines=$(wc -l <"$file")
		case $file in *_data.h) continue ;; esac
		[ "$lines" -le 500 ] || echo "$file: $lines lines: more than 500; split it by meaning"
	done
}

findings=$(
	includes
	for build in "${builddir:-build}" "${builddir:-build}/simulate"; do
		table=$(symbols "$build")
		floors
		circles
		namesakes
	done
	lines
	guards
	reserved
	words
	plans
	records runtime/collectives runtime/collectives.def sgrad_collective
	records codelets/ops codelets/codelets.def sgrad_op
	records datasets datasets/datasets.def sgrad_reader
	records datasets/augmentations datasets/augmentations.def sgrad_augmentation
	records datasets/images datasets/images.def sgrad__image_format
	records duplicates/hashes duplicates/hashes.def sgrad_hash_kind
	records graphs/networks/layers graphs/networks/layers.def sgrad_composite
	records graphs/networks/models graphs/networks/models.def sgrad_model
	records graphs/compiler/optimizers graphs/compiler/optimizers.def sgrad_optimizer
	records graphs/compiler/strategies graphs/compiler/strategies.def sgrad_strategy
	records cli cli/cli.def sgrad__command
	makefile
	names
	sentences
	sizes
)
[ -z "$findings" ] || { echo "$findings" >&2 && exit 1; }
