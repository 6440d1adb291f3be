#!/bin/bash
# The rules of the house that a script can see. Every line that a check prints is something to mend.
set -u
shopt -s globstar nullglob
cd "${srcdir:-$(dirname "$0")/..}" || exit 99
sources=({runtime,codelets,volumes,datasets,duplicates,graphs,planner,report,cli,examples}/**/*.{c,h,cu,def})

# An #include names the folder, and leads to a room below its own, or stays there. What is for users, all of graphs/ or every
# operation, is included by nobody inside.
includes() {
	awk '
	function room(file,  part) {
		if (file ~ /^(graphs\/graphs|codelets\/operations)\.h$/) return "all"
		split(file, part, "/")
		return part[1] == "graphs" ? part[1] "/" part[2] : part[1]
	}
	BEGIN {
		below["runtime"] = " "
		below["codelets"] = below["volumes"] = below["report"] = " runtime "
		below["datasets"] = " runtime volumes "
		below["duplicates"] = below["codelets"] "codelets datasets "
		below["graphs/networks"] = below["codelets"] "codelets "
		below["graphs/programs"] = below["graphs/networks"] "volumes datasets graphs/networks "
		below["graphs/runs"] = below["graphs/programs"] "graphs/programs "
		below["all"] = below["graphs/runs"] "graphs/runs "
		below["planner"] = below["all"]
		below["cli"] = below["all"] "duplicates planner report "
		below["examples"] = below["all"] "all duplicates planner "
	}
	/^[ \t]*#[ \t]*include[ \t]*"/ {
		split($0, quoted, "\""); file = quoted[2]
		here = room(FILENAME); there = room(file)
		if (file == "config.h" || here == there || FILENAME == "codelets/list.c") next
		if (!(there in below)) print FILENAME ":" FNR ": \"" file "\" names no folder of the house"
		else if (!index(below[here], " " there " ")) print FILENAME ":" FNR ": " here " does not lie above " there ": no \"" file "\" here"
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

# Two files that use each other, or more in a ring, by the symbols that their objects define and use: they are one, or a third is missing.
circles() {
	awk '
	$3 ~ /^[TDBRCVW]$/ { defines[$2] = $1 }
	$3 == "U" { user[++uses] = $1; used[uses] = $2 }
	END { for (i = 1; i <= uses; i++) if (used[i] in defines && defines[used[i]] != user[i]) print user[i], defines[used[i]] }' <<<"$table" | sort -u |
		tsort 2>&1 >/dev/null | awk '/contains a loop/ { print ring; ring = ""; next } { ring = ring " " $2 } END { print ring }' |
		sed -n 's/..*/a circle of files:&/p'
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

# What a lower room does not know, in code or comment.
words() {
	grep -niE 'layer|gradient|epoch' runtime/**/*.* | sed 's/$/   <- runtime\/ says neither layer nor gradient nor epoch/'
	grep -nE 'starpu_|MPI_|sgrad_(wait_all|task_submit)|cuda[A-Za-z]*Synchronize' {codelets,volumes,datasets}/*.{c,h,cu} |
		sed 's/$/   <- kernels and readers never wait, submit or send/'
}

# Plans are data: they can be checked in one process, because they know neither messages nor tasks.
plans() {
	grep -nE '#[ \t]*include.*(mpi|starpu)|(MPI|starpu)_[A-Za-z_]+\(' runtime/collectives.{c,h} runtime/collectives/* |
		sed 's/$/   <- a plan includes neither mpi.h nor starpu.h/'
}

# records FOLDER LIST TYPE: every file of FOLDER with a record of TYPE stands in LIST, every line of LIST has its file.
# A family's file has its members' name without their number: resnet.c has resnet20 and resnet32.
records() {
	local file name
	for file in "$1"/*.c; do
		name=$(basename "$file" .c)
		grep -q "^ *const struct $3 sgrad_" "$file" || continue
		grep -qE "^[A-Z_]+\(${name}[0-9]*[,)]" "$2" || echo "$file: no line in $2"
	done
	while read -r name; do
		[ -e "$1/$name.c" ] || [ -e "$1/${name%%[0-9]*}.c" ] || echo "$2: $name: no file $1/$name.c"
	done < <(sed -n 's/^[A-Z_]*(\([a-z0-9_]*\).*/\1/p' "$2")
}

# Every source and every page stands in Makefile.am, by its own name or as a program, and so does every test that is one.
makefile() {
	local file names tests
	names=" $(sed 's/#.*//' Makefile.am | tr -c '[:graph:]' ' ') "
	mapfile -t tests < <(printf '%s\n' tests/**/*.c; grep -lE '^#!|^if __name__' tests/**/*.{sh,py} | grep -v '^tests/reference/')
	for file in "${sources[@]}" "${tests[@]}" docs/*; do
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
		circles
		namesakes
	done
	lines
	words
	plans
	records runtime/collectives runtime/collectives.def sgrad_collective
	records codelets codelets/codelets.def sgrad_op
	records datasets datasets/datasets.def sgrad_reader
	records datasets/augmentations datasets/augmentations.def sgrad_augmentation
	records datasets/images datasets/images.def sgrad__image_format
	records duplicates/hashes duplicates/hashes.def sgrad_hash_kind
	records graphs/networks/layers graphs/networks/layers.def sgrad_composite
	records graphs/networks/models graphs/networks/models.def sgrad_model
	records graphs/programs/optimizers graphs/programs/optimizers.def sgrad_optimizer
	records graphs/programs/strategies graphs/programs/strategies.def sgrad_strategy
	records cli cli/cli.def sgrad__command
	makefile
	names
	sentences
	sizes
)
[ -z "$findings" ] || { echo "$findings" >&2 && exit 1; }
