# Bash completion for stargrad. Commands, options and names are read from the output of the program.
_stargrad_names() { "$1" list "$2" 2>/dev/null | cut -d ' ' -f 1; }
_stargrad_options() { "$1" "$2" --help 2>/dev/null | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p'; }

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
	--hash) choices=$(_stargrad_names "$program" hashes) ;;
	--shard) choices='none optimizer gradients parameters' ;;
	--precision) choices='f32 tf32 bf16' ;;
	--overlap) [ "$command" = plan ] && choices='full none' ;; # a size for segment
	--cpus-share) choices='auto none' ;;
	--damaged) choices='stop skip' ;;
	--odd) choices='take skip refuse' ;;
	--kfac-variant) choices='auto opt lw' ;;
	--bits) choices='64 256' ;;
	--dtype) choices='f32 u8' ;;
	--tta) [ "$command" = segment ] && choices='none flips' || choices='flip translate flip,translate' ;;
	--data-placement) choices='replicate partition' ;;
	--loss-on) choices='all answers' ;;
	--bn-group) choices='gpu rank micro global' ;;
	--schedule) choices='constant step: cosine poly: triangle: onecycle' ;;
	--plugin | --config | --init | --adapter | --exclude | --tokenizer | --template | --prompts | --network | --weights | --out | --like | --replay | --hostfile | --in | --mask | --queue | :) files=yes ;;
	check) choices=$(_stargrad_names "$program" ops) ;;
	*)
		choices=$(_stargrad_options "$program" "$command")
		[[ $command =~ ^(find-lr|plan)$ ]] && choices+=" $(_stargrad_options "$program" train)"
		[[ $command =~ ^(report|eval|predict|export|search|tokenize)$ && $word != -* ]] && files=yes
		;;
	esac
	# shellcheck disable=SC2207 # words without blanks
	if [ $files = yes ]; then COMPREPLY=($(compgen -f -W "$names" -- "$word")); else COMPREPLY=($(compgen -W "$choices" -- "$word")); fi
}
complete -o filenames -F _stargrad stargrad
