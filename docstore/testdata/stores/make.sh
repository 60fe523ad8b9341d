#!/bin/sh
# Has older builds of this repository write the stores beside this file, each in its own archive, and try stores of the
# present build. Needs git, go and the history of the repository. README.md says which builds these are, and why.
#
#	sh docstore/testdata/stores/make.sh        # from the top of the repository
#	sh docstore/testdata/stores/make.sh 81ab9f3
set -eu
here=$(cd "$(dirname "$0")" && pwd)
builds=${*:-$(sed -n 's/^| `\([0-9a-f]*\)` .*/\1/p' "$here/README.md")}
present=c0b6f31c # the last build that changed the form of the files: what the others are tried on
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

build() { # build COMMIT: the maker of a build, at $tmp/COMMIT/make
	test -x "$tmp/$1/make" && return
	mkdir -p "$tmp/$1/cmd/make"
	git archive "$1" | tar -x -C "$tmp/$1"
	cp "$here/make.go" "$tmp/$1/cmd/make/main.go"
	if ! test -d "$tmp/$1/feed"; then # the vocabulary was in the root then
		sed -i 's,"github.com/millrace/changefeed/feed",feed "github.com/millrace/changefeed",' \
			"$tmp/$1/cmd/make/main.go"
	fi
	(cd "$tmp/$1" && go build -o make ./cmd/make)
}

pack() { # pack NAME DIR: an archive of a store and of what was acknowledged
	rm -f "$2/db/LOCK"
	tar -C "$2" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c db acked.json | gzip -9n >"$here/$1.tar.gz"
}

build "$present"
for commit in $builds; do
	build "$commit"
	for end in close kill; do
		dir=$tmp/$commit-$end
		mkdir "$dir"
		"$tmp/$commit/make" "$end" "$dir/db" >"$dir/acked.json"
		pack "$commit-$end" "$dir"
	done
	test "$commit" = "$present" && continue
	dir=$tmp/$commit-tried
	mkdir "$dir"
	"$tmp/$present/make" close "$dir/db" >"$dir/acked.json"
	"$tmp/$commit/make" try "$dir/db" >>"$dir/acked.json" || echo "$commit refuses the store of $present"
	pack "$commit-tried" "$dir"
done
ls -l "$here"
