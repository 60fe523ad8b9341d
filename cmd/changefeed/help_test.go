package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// visible returns all commands and topics of the help, with the root.
func visible(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		all = append(all, cmd)
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
				add(below)
			}
		}
	}
	began := false
	add(rootCommand(&began))
	return all
}

// TestHelpFitsATerminal: two screens of 40 lines.
func TestHelpFitsATerminal(t *testing.T) {
	const screens = 80
	for _, cmd := range visible(t) {
		text := command(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		if cmd.IsAdditionalHelpTopicCommand() {
			text = command(t, "help", cmd.Name())
		} else {
			if n := strings.Count(text, "\n"); n > screens {
				t.Errorf("help of %s has %d lines, want %d at most", cmd.CommandPath(), n, screens)
			}
			if !strings.Contains(text, "\n\nUsage:\n  "+cmd.CommandPath()) ||
				!strings.Contains(text, "\n\nExamples:\n  ") {
				t.Errorf("help of %s lacks its usage or an example:\n%s", cmd.CommandPath(), text)
			}
		}
		for line := range strings.SplitSeq(text, "\n") {
			if n := utf8.RuneCountInString(line); n > terminal.Narrow {
				t.Errorf("help of %s has a line of %d characters: %s", cmd.CommandPath(), n, line)
			}
		}
	}
}

// The root shows commands in groups, and a command without a group would be at the end of the list.
func TestEachCommandHasAGroup(t *testing.T) {
	for _, cmd := range visible(t) {
		if cmd.HasParent() && !cmd.Parent().HasParent() && cmd.IsAvailableCommand() && cmd.GroupID == "" {
			t.Errorf("command %s has no GroupID", cmd.Name())
		}
	}
}

// TestFlagsThatWereRenamedAreGone: a former name that is a flag again would never be answered with the new name.
func TestFlagsThatWereRenamedAreGone(t *testing.T) {
	for _, r := range renamed {
		for _, cmd := range visible(t) {
			if (r.command == "" || r.command == cmd.Name()) && cmd.Flags().Lookup(r.old) != nil {
				t.Errorf("%s still has --%s", cmd.CommandPath(), r.old)
			}
		}
	}
}

// TestManualPagesAreRoff lets man's own formatter read each page.
func TestManualPagesAreRoff(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("there is no groff to read the pages")
	}
	dir := filepath.Join(t.TempDir(), "pages")
	command(t, "man", dir)
	for _, cmd := range visible(t) {
		page := filepath.Join(dir, manual.PageName(cmd.CommandPath())+".1")
		var out, warnings bytes.Buffer
		read := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=80n", page)
		read.Stdout, read.Stderr = &out, &warnings
		if err := read.Run(); err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v\n%s", page, err, &warnings)
		}
		for _, want := range []string{"NAME", manual.PageName(cmd.CommandPath()), strings.Fields(cmd.Short)[0]} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s does not show %q:\n%s", page, want, &out)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "changefeed-tail.1"))
	if err != nil || !strings.Contains(string(text), `\fB\-n, \-\-max N\fR`) {
		t.Errorf("the page of tail lacks its flag --max: %v\n%s", err, text)
	}
}

// TestEachKindHasItsOwnName: a program finds the description of an object by its kind.
func TestEachKindHasItsOwnName(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range allKinds() {
		if seen[k.Name] || k.Of.ReportedAs() != k.Name {
			t.Errorf("kind %s is there twice, or is reported as %s", k.Name, k.Of.ReportedAs())
		}
		seen[k.Name] = true
		if len(k.Fields()) == 0 {
			t.Errorf("kind %s has no members", k.Name)
		}
	}
	for _, want := range []string{"change", "deleted_unit", "error", "lease", "notice", "salvage"} {
		if !seen[want] {
			t.Errorf("there is no kind %s", want)
		}
	}
	if _, err := report.SchemaOf(allKinds()); err != nil {
		t.Error(err)
	}
}

// TestAChangeHasTheMembersOfItsKind of a line of tail, whatever the line leaves out.
func TestAChangeHasTheMembersOfItsKind(t *testing.T) {
	dir, in := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, []byte(`{"id":"1","n":1}`+"\n"+`{"id":"1","n":2}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#c", "--pk", "/id", "--retention", "1h")
	lines := command(t, "tail", "docstore:"+dir+"#c", "--mode", "all", "--after", "0", "--once", "-o", "json")
	d := json.NewDecoder(strings.NewReader(lines))
	d.DisallowUnknownFields()
	var last struct {
		Kind   string
		Schema int
		change
	}
	for d.More() {
		if err := d.Decode(&last); err != nil {
			t.Fatalf("%v in\n%s", err, lines)
		}
	}
	if last.Kind != last.ReportedAs() || last.Op != "replace" || last.PreviousLSN == 0 || last.Next == "" ||
		len(last.Previous) == 0 || len(last.Document) == 0 || last.LSN == 0 || last.Time.IsZero() || last.ID != "1" ||
		string(last.Key) != `["1"]` || last.Range != "-FF" {
		t.Errorf("got %+v of\n%s", last, lines)
	}
}

// TestHelpSaysWhereItsPagesAre: a user of the binary has no folder docs.
func TestHelpSaysWhereItsPagesAre(t *testing.T) {
	named := 0
	page := regexp.MustCompile(`docs/[a-z/-]+\.md`)
	for _, cmd := range visible(t) {
		text := pageOf(cmd).Text()
		for _, name := range page.FindAllString(text, -1) {
			named++
			if _, err := os.Stat(filepath.Join("..", "..", name)); err != nil {
				t.Errorf("%s: %v", cmd.CommandPath(), err)
			}
			if !strings.Contains(text, docsAddress) {
				t.Errorf("%s names %s, and not %s", cmd.CommandPath(), name, docsAddress)
			}
		}
	}
	if named < 5 {
		t.Errorf("%d pages are named: want those of run, serve, copy, host and program", named)
	}
}

// TestNoErrorSuggestsAHiddenFlag: the help does not have the flag, so nobody could look up what it does.
func TestNoErrorSuggestsAHiddenFlag(t *testing.T) {
	for flag, want := range map[string]string{
		"--" + followFlag + "w": "there is no flag --followw",
		"--metta":               "there is no flag --metta: do you mean --meta?",
	} {
		if _, _, err := call(t, "tail", flag); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", flag, err, want)
		}
	}
}
