# Bash completion for stargrad. Commands, options and names are asked of the program itself.
_stargrad_names() { "$1" list "$2" 2>/dev/null | cut -d ' ' -f 1; }

_stargrad() {
	local program=${1/#\~/${HOME-}} word=$2 previous=$3 command=${COMP_WORDS[1]} choices names files=no
	[ "$word" = = ] && word='' # --model=con is three words to bash
	[ "$previous" = = ] && previous=${COMP_WORDS[COMP_CWORD - 2]}
	[[ $word == -* ]] && previous=option
	[ "$COMP_CWORD" = 1 ] && previous=stargrad
	[[ $command == launch && " ${COMP_WORDS[*]:2:COMP_CWORD-2} " == *' train '* ]] && command=train

	case $previous in
	stargrad) choices="$("$program" --help | sed -n 's/^  \([a-z-]*\)  .*/\1/p') --help --version" ;;
	list) choices=$("$program" list --help | grep -o 'models|[a-z|]*' | tr '|' ' ') ;;
	--model) choices=$(_stargrad_names "$program" models) ;;
	--machine) names=$(_stargrad_names "$program" machines) files=yes ;;
	--data) choices=$(_stargrad_names "$program" datasets) ;;
	--optimizer) choices=$(_stargrad_names "$program" optimizers) ;;
	--allreduce) choices=$(_stargrad_names "$program" allreduce) ;;
	--strategy) choices=$(_stargrad_names "$program" strategies) ;;
	--shard) choices='none optimizer gradients' ;;
	--precision) choices='f32 bf16' ;;
	--overlap) choices='full none' ;;
	--tta) [ "$command" = segment ] && choices='none flips' || choices='flip translate flip,translate' ;;
	--data-placement) choices='replicate partition' ;;
	--bn-group) choices='rank micro global' ;;
	--schedule) choices='constant step: cosine poly: triangle: onecycle' ;;
	--plugin | --init | --exclude | --tokenizer | --network | --weights | --out | --like | --replay | --hostfile | --in | --mask | --queue | :) files=yes ;;
	check) choices=$(_stargrad_names "$program" ops) ;;
	*)
		choices=$("$program" "$command" --help 2>/dev/null | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p')
		[[ $command =~ ^(report|eval|predict|export|search)$ && $word != -* ]] && files=yes
		;;
	esac
	# shellcheck disable=SC2207 # words without blanks
	if [ $files = yes ]; then COMPREPLY=($(compgen -f -W "$names" -- "$word")); else COMPREPLY=($(compgen -W "$choices" -- "$word")); fi
}
complete -o filenames -F _stargrad stargrad
