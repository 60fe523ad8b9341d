package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
)

// An advice is a command that a message recommends, and how a user follows it.
type advice struct {
	text    string // as in the source: the command, and its flags and placeholders that follow directly
	follow  string // the command line: text with its placeholders filled in, and what the user must add
	says    string // what the command then says
	prepare string // a command line that comes before, to bring about what the message is about
}

// followed are all commands that messages recommend, in the order in which they are run. $URL is a server with the
// containers shop/orders, shop/leases and shop/letters, on which the unit mailer runs, whose keys a, b and c are held.
// $DIR is a store that no process has open, with the unit one on the container orders. $DIR/../said is what the last
// prepare said.
var followed = []advice{
	{text: "create", follow: "create $URL/shop/new --pk /id"},
	{text: "import", follow: "import $DIR/../in $URL/shop/more --pk /pk"},
	{text: "import -", follow: "import - $URL/shop/piped --pk /pk"},
	{text: "get", follow: "get $URL/shop/orders 1 --key a"},
	{text: "query", follow: "query $URL/shop/orders --file $DIR/../sql"},
	{
		text: "compare", follow: "compare docstore:$DIR#orders docstore:$DIR#copied", says: "no difference",
		prepare: "copy docstore:$DIR#orders docstore:$DIR#copied --create /pk --until-caught-up --steady 0s",
	},
	{text: "ranges", follow: "ranges $URL/shop/orders"},
	{text: "check", follow: "check $DIR"},
	{text: "export --salvage", follow: "export --salvage --db $DIR"},
	{text: "serve", follow: "serve --db $DIR/../served --http --listen 127.0.0.1:0"},
	{text: "serve --allow-host", follow: "serve --allow-host shop.test --db $DIR/../served --http --listen 127.0.0.1:0"},
	{text: "serve --lenient", follow: "serve --lenient --db $DIR/../served --http --listen 127.0.0.1:0"},
	{text: "run", follow: "run --source docstore:$DIR#orders --name two --from now --once -- true"},
	{text: "tail --db %s --container orders", follow: "tail --db $DIR --container orders --once"},
	{text: "leases --db %s", follow: "leases --db $DIR"},
	{text: "leases", follow: "leases $URL/shop/leases"},
	{text: "context add", follow: "context add local --db $DIR"},
	{text: "context use %s", follow: "context use local"},
	{text: "context use NAME", follow: "context use local"},
	{text: "context rm %[1]s", follow: "context rm local"},
	{text: "dlq list", follow: "dlq list $URL/shop/letters --name mailer", says: "3 dead letters of 3 keys"},
	{text: "dlq list %s --name %s", follow: "dlq list $URL/shop/letters --name mailer", says: "3 dead letters of 3"},
	{text: "dlq release --key KEY", follow: "dlq release --key a $URL/shop/letters --name mailer", says: "released 1,"},
	{text: "dlq retry --all", follow: "dlq retry --all $URL/shop/letters --name mailer --key c", says: "handled 1,"},
	{text: "dlq drop --all", follow: "dlq drop --all $URL/shop/letters --name mailer --yes", says: "dropped 2 letters"},
	{
		text: "leases resume", follow: "leases resume $URL/shop/leases --name mailer",
		says:    "resumed lease",
		prepare: "leases pause $URL/shop/leases --name mailer",
	},
	{
		text:   "leases reset --to START",
		follow: "leases reset --to beginning $URL/shop/leases --name mailer --yes", says: "reset lease",
	},
	{text: "leases snapshot", follow: "leases snapshot $URL/shop/leases --name other", says: `"leases"`},
	{
		text:    "leases restore %[3]s %s --name %s --source %s",
		follow:  "leases restore $DIR/../said $URL/shop/leases --name another --source $URL/shop/orders --yes",
		prepare: "leases snapshot $URL/shop/leases --name other",
	},
	{text: "leases skip", follow: "leases skip $URL/shop/leases --name stuck --yes", says: "skipped "},
	{text: "leases explain", follow: "leases explain $URL/shop/leases --name mailer", says: "mailer"},
	{
		text:   "leases reset --key %s --to beginning",
		follow: `leases reset --key ["a"] --to beginning $URL/shop/leases --name mailer --yes`, says: "reset",
		prepare: "leases reset $URL/shop/leases --name mailer --to now --yes",
	},
	{text: "leases gc --name %s", follow: "leases gc --name mailer $URL/shop/leases --yes", says: "remove"},
	{text: "leases gc", follow: "leases gc $URL/shop/leases --name mailer --yes"},
	{text: "leases delete --name NAME", follow: "leases delete --name one --db $DIR --yes", says: "deleted unit one"},
	{text: "leases delete", follow: "leases delete $URL/shop/leases --name other --yes", says: "deleted unit other"},
	{text: "doctor", follow: "doctor $URL"},
	{text: "help", follow: "help", says: "tail"},
	{text: "help run", follow: "help run", says: "--dead-letters"},
}

// A user who follows the advice of a message reaches the end that the message promises. Advice that is not in the
// table fails the test, and so does a line of the table that no message has.
func TestEachRecommendedCommandIsRun(t *testing.T) {
	given := recommendedCommands(t)
	known := map[string]bool{}
	for _, a := range followed {
		known[a.text] = true
		if given[a.text] == "" {
			t.Errorf("no message recommends %q: want the table without that line", a.text)
		}
		if !a.isFollowed() {
			t.Errorf("%q does not follow %q", a.follow, a.text)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(given)) {
		if !known[text] {
			t.Errorf("%s recommends %q: want a line in the table that runs the command", given[text], text)
		}
	}
	if t.Failed() {
		return
	}
	w := newAdvised(t)
	for _, a := range followed {
		if a.prepare != "" {
			said := w.run(a.prepare)
			if err := os.WriteFile(filepath.Join(filepath.Dir(w.dir), "said"), []byte(said), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if said := w.run(a.follow); !strings.Contains(said, a.says) {
			t.Errorf("changefeed %s: got %s, want %q", a.follow, said, a.says)
		}
	}
}

// isFollowed reports whether the command line of an advice begins with its words, each placeholder filled in.
func (a advice) isFollowed() bool {
	line := strings.Fields(a.follow)
	for i, word := range strings.Fields(a.text) {
		isPlace := strings.HasPrefix(word, "%") || strings.ToUpper(word) == word
		if i >= len(line) || line[i] != word && (!isPlace || strings.HasPrefix(line[i], "-")) {
			return false
		}
	}
	return true
}

// advised is what the advice is about: a server and a store, with units at work.
type advised struct {
	*testing.T
	url, dir string
}

// newAdvised prepares the server and the store.
func newAdvised(t *testing.T) *advised {
	t.Setenv(contexts.FileVariable, filepath.Join(t.TempDir(), "config.json"))
	w := &advised{T: t, url: cosmostest.NewTestServer(t).URL}
	var lines strings.Builder
	for key := range strings.SplitSeq("abcdefghijklmnopqrst", "") { // three of many fail: all of them were an outage
		fmt.Fprintf(&lines, `{"id":"1","pk":%q}`+"\n", key)
	}
	documents := lines.String()
	w.dir = storeOf(t, documents)
	for name, text := range map[string]string{
		"in": documents, "sql": "SELECT * FROM c", "refuse": `if grep -q '"pk":"[abc]"'; then exit 1; fi`,
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(w.dir), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.run("import $DIR/../in $URL/shop/orders --pk /pk")
	w.run("run --source docstore:$DIR#orders --name one --create-leases --from beginning --once -- true")
	w.run("run --source $URL/shop/orders --name other --create-leases --from now --once -- true")
	w.run("run --source $URL/shop/orders --name mailer --create-leases --from beginning --once --hold " +
		"--max-attempts 1 --dead-letters $URL/shop/letters -- sh $DIR/../refuse")
	w.fail()
	ctx, end := context.WithCancel(t.Context())
	said, ended := begin(ctx, nil, w.words("run --source $URL/shop/orders --name mailer --hold --max-attempts 1 "+
		"--dead-letters $URL/shop/letters -- true")...)
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("run: %v: %s", err, said)
		}
	})
	return w
}

// fail runs the unit stuck until its handler has failed.
func (w *advised) fail() {
	ctx, end := context.WithCancel(w.Context())
	defer end()
	said, ended := begin(ctx, nil, w.words("run --source $URL/shop/orders --name stuck --create-leases --from beginning "+
		"-- sh $DIR/../refuse")...)
	awaitText(w.T, said, "exit status 1", 1)
	end()
	if err := <-ended; err != nil {
		w.Errorf("run: %v: %s", err, said)
	}
}

// words returns the words of a command line, its variables replaced.
func (w *advised) words(line string) []string {
	return strings.Fields(strings.NewReplacer("$URL", w.url, "$DIR", w.dir).Replace(line))
}

// run runs a command line that must succeed, and returns its output. A server is ended when it listens.
func (w *advised) run(line string) string {
	w.Helper()
	args := w.words(line)
	ctx, end := context.WithTimeout(w.Context(), time.Minute)
	defer end()
	var out, errs bytes.Buffer
	to := firstLine{&out, func() {}}
	if args[0] == "serve" {
		to.then = end
	}
	if code := execute(ctx, args, to, &errs); code != exitDone {
		w.Errorf("changefeed %s: exit code %d, want %d:\n%s%s", strings.Join(args, " "), code, exitDone, &out, &errs)
	}
	return out.String()
}

// firstLine calls a function after the first line.
type firstLine struct {
	*bytes.Buffer
	then func()
}

// Write implements [io.Writer].
func (f firstLine) Write(p []byte) (int, error) {
	n, err := f.Buffer.Write(p)
	if bytes.Contains(p, []byte("\n")) {
		f.then()
	}
	return n, err
}

// placeholder matches a word of a message that stands for another.
var placeholder = regexp.MustCompile(`^(%(\[\d\])?[a-z]|[A-Z]{2,})$`)

// recommendedCommands returns the commands that messages recommend, with a place where each stands: the name of the
// command, and the flags and placeholders behind it. Help texts are no messages.
func recommendedCommands(t *testing.T) map[string]string {
	t.Helper()
	root, given := rootCommand(new(bool)), map[string]string{}
	for place, text := range literalsWithout(t, filepath.Join("..", ".."), isHelp) {
		if strings.HasPrefix(text, "  ") {
			continue // an example in a help text
		}
		for _, words := range strings.Split(text, "changefeed ")[1:] {
			if command := commandIn(root, strings.Fields(words)); command != "" {
				given[command] = place
			}
		}
	}
	return given
}

// commandIn returns the command with which words begin, its flags with their values, and its placeholders; empty if
// there is no command.
func commandIn(root *cobra.Command, words []string) string {
	cmd, kept, isValue := root, []string{}, false
	for _, word := range words {
		clean := strings.TrimRight(word, ".,:;)")
		sub := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == clean })
		switch {
		case isValue && !strings.HasPrefix(word, "("):
			isValue = false
		case sub >= 0 && len(kept) == strings.Count(cmd.CommandPath(), " "):
			cmd = cmd.Commands()[sub]
		case cmd.Name() == "help" && isTopic(root, clean):
		case cmd == root || !strings.HasPrefix(clean, "-") && !placeholder.MatchString(clean):
			return strings.Join(kept, " ")
		}
		if flag := cmd.Flag(strings.TrimPrefix(clean, "--")); strings.HasPrefix(clean, "--") && flag != nil {
			isValue = flag.NoOptDefVal == ""
		}
		kept = append(kept, clean)
		if clean != word {
			break
		}
	}
	return strings.Join(kept, " ")
}

// isTopic reports whether help explains a word.
func isTopic(root *cobra.Command, word string) bool {
	found, _, err := root.Find([]string{word})
	return err == nil && found != root
}

// isHelp reports whether a node has the texts of a help: fields of commands, and descriptions of flags and kinds.
func isHelp(n ast.Node) bool {
	switch e := n.(type) {
	case *ast.KeyValueExpr:
		key, ok := e.Key.(*ast.Ident)
		return ok && slices.Contains([]string{"Long", "Example", "Short", "Use", "About"}, key.Name)
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.SelectorExpr)
		return ok && (strings.HasSuffix(f.Sel.Name, "Var") || strings.HasSuffix(f.Sel.Name, "VarP") ||
			f.Sel.Name == "HasPrefix")
	case *ast.GenDecl:
		return e.Tok == token.IMPORT
	case *ast.ValueSpec:
		name := e.Names[0].Name
		return name == "printing" || strings.HasSuffix(name, "About") || strings.HasSuffix(name, "Help")
	case *ast.FuncDecl:
		return strings.HasSuffix(e.Name.Name, "Topic")
	case *ast.Field:
		return true // its tag
	}
	return false
}
