package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cosmosrest"
)

// A password in a URL is shown in no form of an error.
func TestNoFormOfAnErrorHasASecret(t *testing.T) {
	for _, form := range []string{"table", "json"} {
		var errs bytes.Buffer
		line := []string{"tail", "http://user:s3cret@127.0.0.1:1/a/b", "-o", form}
		if execute(t.Context(), line, io.Discard, &errs); errs.Len() == 0 || strings.Contains(errs.String(), "s3cret") {
			t.Errorf("-o %s: got %s, want an error without the password", form, errs.String())
		}
	}
}

// The last changes are those of the range, and in the other half of the keys there are none.
func TestTheLastChangesAreThoseOfTheRange(t *testing.T) {
	at := "docstore:" + storeOf(t, `{"id":"1","pk":"a"}`) + "#orders"
	all := command(t, "tail", at, "--once", "--last", "2")
	low := command(t, "tail", at, "--once", "--last", "2", "--range", "-1F")
	high := command(t, "tail", at, "--once", "--last", "2", "--range", "1F-FF")
	if strings.Count(all, "\n") != 1 || low+high != all {
		t.Errorf("got %q and %q, want %q in one of them", low, high, all)
	}
}

// A script learns from new whether the container was there.
func TestACreationSaysWhetherTheContainerIsNew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, want := range []bool{true, false} {
		out := command(t, "create", "--db", dir, "--container", "c", "--pk", "/city", "--if-missing", "-o", "json")
		var got struct{ New bool }
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.New != want {
			t.Errorf("got %s, %v, want new %v", out, err, want)
		}
	}
}

// Names that a flag had are explained only for the command that had them.
func TestANameThatAFlagHadIsThatOfItsCommand(t *testing.T) {
	for line, want := range map[string]bool{"serve --key x": true, "import - --key London": false} {
		var errs bytes.Buffer
		execute(t.Context(), strings.Fields(line), io.Discard, &errs)
		if got := errs.String(); !strings.Contains(got, "--key") || strings.Contains(got, "--account-key") != want {
			t.Errorf("%s: got %s, want --account-key in it: %v", line, got, want)
		}
	}
}

// A name is one in the context only where no flag names an account.
func TestAConnectionStringComesBeforeTheContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	command(t, "import", writeFile(t, `{"id":"1","pk":"a"}`), "docstore:"+dir+"#shop/local", "--pk", "/pk")
	t.Setenv(contexts.FileVariable, filepath.Join(t.TempDir(), "config.json"))
	command(t, "context", "add", "here", "--db", dir, "--use")
	if got := command(t, "containers", "shop"); !strings.Contains(got, "shop/local") {
		t.Errorf("got %s, want the containers of the context", got)
	}
	out, said, err := call(t, "containers", "shop", "--connection-string",
		"AccountEndpoint=http://127.0.0.1:1/;AccountKey="+cosmosrest.EmulatorKey+";")
	if err == nil || strings.Contains(out+said, "shop/local") {
		t.Errorf("with a connection string: got %s%s, %v, want no container of the context", out, said, err)
	}
}

// Letters of a unit are not those of another unit that has its name.
func TestADoctorCountsTheLettersOfEachUnit(t *testing.T) {
	dir, in := filepath.Join(t.TempDir(), "data"), writeFile(t, `{"id":"1","pk":"a"}`)
	for _, name := range []string{"orders", "returns"} {
		command(t, "import", in, "docstore:"+dir+"#"+name, "--pk", "/pk")
		if _, err := process(t.Context(), dir, name, "mailer"); err != nil {
			t.Fatal(err)
		}
	}
	if err := park(t.Context(), dir, "letters", "mailer", "orders"); err != nil {
		t.Fatal(err)
	}
	out, _, _ := call(t, "doctor", "docstore:"+dir, "-o", "json") // fails, because of the letters
	counted := map[string]string{}
	for line := range strings.Lines(out) {
		var f struct{ Check, About, Found string }
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if f.Check == "letters" {
			counted[f.About] = f.Found
		}
	}
	if got := counted["mailer on orders"]; !strings.HasPrefix(got, "4 dead letters in ") {
		t.Errorf("of the unit with letters: got %q, want 4", got)
	}
	if got := counted["mailer on returns"]; !strings.HasPrefix(got, "no dead letter in ") {
		t.Errorf("of the unit without letters: got %q, want none", got)
	}
}

// deaf is an output whose reader has gone.
type deaf struct{}

// Write implements [io.Writer].
func (deaf) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// Whoever pipes a demo into head(1) finds nothing of it on the disk.
func TestADemoWithoutAReaderLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	execute(t.Context(), []string{"demo", "--for", shortestDemo.String()}, deaf{}, io.Discard)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
