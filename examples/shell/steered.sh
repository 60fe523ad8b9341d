#!/bin/bash
# A long-lived program in bash and jq, of which no case of `changefeed program test` fails. docs/program.md has the contract,
# and what the documents of the test say. jq makes lines of the messages, because bash reads a pipe byte by byte, and
# texts stay JSON, because bash has no character U+0000. One batch is handled at a time.
exec 3<&"$CHANGEFEED_READ_FD" 4>&"$CHANGEFEED_WRITE_FD"
exec 5< <(exec jq --unbuffered -r 'def lag: if . == null then "null" else "\(.)" end;
	if .type == "batch" then "batch \(.id)", (.changes | keys[] as $i | .[$i].document | objects | select(.do) |
		if .do | IN("fail", "poison") then "item \({index: $i, error, poison: (.do == "poison")} | tojson)"
		elif .do | IN("stop", "outage") then
			"failed \({done: $i, error, outage: (.do == "outage"), after: (.seconds // 0)} | tojson)"
		elif .do | IN("fail all", "poison all") then "failed \({error, poison: (.do == "poison all")} | tojson)"
		elif .do == "print" then "print \(.error | tojson)"
		elif .do | IN("sleep", "exit", "wait", "count", "checkpoint", "status", "caughtup") then
			"\(.do) \(.seconds // .code // .n // 0) key:\(.key | @uri)"
		else empty end), "end"
	elif .type == "hello" then "hello \(.can // [] | join(","))"
	elif .status then
		"answer \(.status | ["pending \(.pending | lag)", (.leases[] | "\(.lease) \(.lag | lag)")] | join("; ") | tojson)"
	elif .type | IN("checkpointed", "status", "caughtup") then "answer \(.error // "" | tojson)"
	else "\(.type) \(.id)" end' <&3 4>&-)
declare -A last # number of a key
say() { printf '{"type":"%s","id":%d%s}\n' "$1" "$batch" "$2" >&4; }
hear() { # reads until a message that fits a pattern; the end of the pipe is the end
	kind=
	until [[ "$kind $text" == @($1) ]]; do read -r kind text <&5 || exit 0; done
}
obey() { # does what the lines of a batch say, and answers
	while read -r order rest; do
		case $order in
		item) items+=,$rest ;;
		failed) say failed ",${rest:1:-1}"; return ;;
		print) jq -r . <<<"$rest" ;;
		sleep) sleep "${rest% *}" ;;
		exit) exit "${rest% *}" ;;
		wait) hear "cancel $batch" ;;
		count) n=${rest% *} key=${rest#* }
			((n == last[$key] + 1)) || { say failed ",\"error\":\"$key: $n comes after ${last[$key]}\""; return; }
			last[$key]=$n ;;
		checkpoint | status | caughtup) kind=answer text='"the processor does not answer this"'
			[[ ,$can,checkpoint, == *,$order,* ]] && { say "$order" ",\"seconds\":${rest% *}"; hear "answer *|cancel $batch"; }
			[[ $kind == answer && $text != '""' ]] && { say failed ",\"error\":$text"; return; } ;;
		esac
		[[ $kind == cancel ]] && { say released; return; }
	done <<<"$lines"
	if [[ $items ]]; then say failed ",\"items\":[${items:1}]"; else say done; fi
}
echo '{"type":"hello","version":1,"batches":1,"client":"bash"}' >&4
hear "hello *" && can=$text
while hear "batch *|error *"; [[ $kind == batch ]]; do
	batch=$text lines= items=
	while read -r line <&5 || exit 1; [[ $line != end ]]; do lines+=$line$'\n'; done # half a batch has no answer
	obey
done
