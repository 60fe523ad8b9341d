package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/lookup"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

// completions returns what a shell offers for the last of some words, without descriptions, and the directive.
func completions(t *testing.T, words ...string) (names []string, directive string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(command(t, append([]string{"__complete"}, words...)...)), "\n")
	for _, line := range lines[:len(lines)-1] {
		name, _, _ := strings.Cut(line, "\t")
		names = append(names, name)
	}
	return names, lines[len(lines)-1]
}

// completionsOf returns what a shell offers at the end of a line.
func completionsOf(t *testing.T, line string) []string {
	t.Helper()
	names, _ := completions(t, strings.Split(line, " ")...)
	return names
}

// A shell offers files where a command reads files, directories for a store, and nothing where neither is right.
func TestShellsCompleteFilesWhereFilesAreRead(t *testing.T) {
	const files, nothing, beginnings, directories = ":0", ":4", ":6", ":16"
	for line, want := range map[string]string{
		"import": files, "run": files, "dlq list": files, "dlq retry": files, "tail": beginnings, "dlq": nothing,
		"serve --jwks": files, "serve --cert": files, "import --rejects": files, "serve --listen": nothing,
		"bench --dir": directories, "serve --db": directories, "serve --account-key": nothing, "check": directories,
		"backup": directories, "backup data": directories, "backup data to": nothing, "man": directories,
		"tail docstore:d#c": nothing, "version": nothing, "dlq list --container letters": nothing,
	} {
		if _, got := completions(t, append(strings.Fields(line), "")...); got != want {
			t.Errorf("%s: got the directive %s, want %s", line, got, want)
		}
	}
}

// TestShellsCompleteWhatAStoreHas in a directory and on a server.
func TestShellsCompleteWhatAStoreHas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	in := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, generated(3), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"orders", "shop/orders", "shop/users"} {
		command(t, "import", in, "docstore:"+dir+"#"+name, "--pk", "/outcode", "--ranges", "2")
	}
	for _, name := range []string{"orders", "shop/orders"} { // a unit on each of them has this name
		if _, err := process(t.Context(), dir, name, "mailer"); err != nil {
			t.Fatal(err)
		}
	}
	parent, file := filepath.Dir(dir), filepath.Join(t.TempDir(), "letters.ndjson")
	if err := park(t.Context(), file, "", "mailer"); err != nil {
		t.Fatal(err)
	}
	letters := completionsOf(t, "dlq show "+file+" --name mailer ")
	if len(letters) == 0 || letters[0][0] != '1' {
		t.Errorf("the letters are %q", letters)
	}
	for _, tt := range []struct {
		line string
		want []string
	}{
		{"tail docstore:" + parent + "/d", []string{"docstore:" + dir + "#"}},
		{"tail docstore:" + dir + "#shop/u", []string{"docstore:" + dir + "#shop/users"}},
		{"tail --db " + dir + " --container shop/", []string{"shop/orders", "shop/users"}},
		{"split --db " + dir + " --container orders ", []string{"0", "1"}},
		{"merge docstore:" + dir + "#orders 0 ", []string{"1"}},
		{"leases delete --db " + dir + " --name ", []string{"mailer"}},
		{"dlq list docstore:" + dir + "#letters --name ", []string{"mailer"}},
		{"dlq retry " + file + " --leases docstore:" + dir + "#leases --name ", []string{"mailer"}}, // it is in both
		{"run --source docstore:" + dir + "#orders --name m", []string{"mailer"}},
		{"dlq show " + file + " --name mailer " + letters[0] + " " + letters[0], nil},
		{"tail docstore:" + dir + "-nowhere#", nil},
		{"tail cosmos:", nil},
		{"import in.ndjson d", []string{"docstore:"}},
		{"tail --from ", []string{"beginning", "now"}},
	} {
		if got := completionsOf(t, tt.line); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.line, got, tt.want)
		}
	}
	if _, err := os.Stat(dir + "-nowhere"); err == nil {
		t.Error("a completion made a store")
	}
	server := cosmostest.NewTestServer(t)
	at := server.URL + "/shop/orders"
	command(t, "import", in, at, "--pk", "/outcode", "--ranges", "2", "--account-key", server.Key)
	for line, want := range map[string]string{
		"tail --account-key " + server.Key + " " + server.URL + "/s":                  at,
		"tail --account-key " + server.Key + " --endpoint " + server.URL + " cosmos:": "cosmos:shop/orders",
		"split --account-key " + server.Key + " " + at + " 1":                         "1",
		"tail --account-key AAAA " + server.URL + "/s":                                "",
		"tail http://127.0.0.1:1/s":                                                   "",
	} {
		if got := strings.Join(completionsOf(t, line), " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	// The containers of a context need no address.
	t.Setenv(contexts.FileVariable, filepath.Join(t.TempDir(), "config.json"))
	command(t, "context", "add", "local", "--db", dir)
	if got := completionsOf(t, "tail --context local shop/u"); !slices.Equal(got, []string{"shop/users"}) {
		t.Errorf("in a context: got %q", got)
	}
	// A program may ask for a password, which nobody expects of a TAB.
	run := filepath.Join(t.TempDir(), "run")
	command(t, "context", "add", "secret", "--endpoint", server.URL, "--key-command", "sh -c 'echo >"+run+"'")
	completionsOf(t, "tail --context secret cosmos:x/")
	if _, err := os.Stat(run); err == nil {
		t.Error("a completion has run the program of a key")
	}
	// A store that another process has open completes nothing, and is not waited for.
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begun := time.Now()
	if got := completionsOf(t, "tail docstore:"+dir+"#"); len(got) > 0 || time.Since(begun) > 2*lookup.Limit {
		t.Errorf("a store that is open completes %q after %v", got, time.Since(begun))
	}
}

// TestDescriptionsInShellsArePlain: a backtick is not for readers.
func TestDescriptionsInShellsArePlain(t *testing.T) {
	for _, name := range []string{"tail", "serve", "relay", "dlq list"} {
		out := command(t, append(append([]string{"__complete"}, strings.Fields(name)...), "--")...)
		if strings.Contains(out, "`") || !strings.Contains(out, "--") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestBashReadsTheCompletions completes a command and a container in a real bash.
func TestBashReadsTheCompletions(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	dir := filepath.Join(t.TempDir(), "data")
	in := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, generated(3), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	// bash-completion is a package of its own, so what the script needs of it stands here; without it the script works
	// too.
	for _, packaged := range []string{`
_init_completion() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; }
_get_comp_words_by_ref() { _init_completion; }
`, ""} {
		const completion = `
source <(changefeed completion bash)
for line in "changefeed exp" "changefeed tail --db $1 --container o" "changefeed tail --mod"; do
	COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9
	COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
	complete -p changefeed >/dev/null && __start_changefeed
	echo "${COMPREPLY[*]}"
done`
		c := exec.CommandContext(t.Context(), bash, "--norc", "-c", packaged+completion, "bash", dir)
		out, err := c.Output()
		got, want := strings.Join(strings.Fields(string(out)), " "), "export orders --mode"
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	for _, shell := range []string{"zsh", "fish", "powershell"} {
		if text := command(t, "completion", shell); !strings.Contains(text, "__complete") {
			t.Errorf("the completions for %s are %q", shell, text)
		}
	}
}

// A shell writes what completes a word to the terminal, each on a line.
func TestANameThatControlsATerminalIsNotCompleted(t *testing.T) {
	got := completer{}.keepMatching("cosmos:", []string{"orders", "a\x1b[2J", "b\nc", "👩‍👩‍👧"}).names
	if want := []string{"cosmos:orders", "cosmos:👩‍👩‍👧"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
