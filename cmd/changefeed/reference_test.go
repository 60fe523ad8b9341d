package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var updateReference = flag.Bool("update-reference", false, "write docs/reference/commands.md anew")

// TestTheReferenceOfCommandsIsCurrent compares docs/reference/commands.md with the help of every command.
func TestTheReferenceOfCommandsIsCurrent(t *testing.T) {
	const file = "../../docs/reference/commands.md"
	began := false
	root := rootCommand(&began)
	var b strings.Builder
	b.WriteString(`# Commands

Every command and every flag, from the help of the commands. The flag --help of a command shows the same in a terminal,
and ` + "`changefeed man DIR`" + ` writes manual pages.

| command | what it does |
|---|---|
`)
	all := documented(root)
	for _, cmd := range all {
		path := cmd.CommandPath()
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), inCell(cmd.Short))
	}
	for _, cmd := range all {
		writeReference(&b, cmd)
	}
	want := b.String()
	if *updateReference {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date: call make reference", file)
	}
}

// documented returns the commands and the topics below a command, each before those below it.
func documented(cmd *cobra.Command) (all []*cobra.Command) {
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			all = append(append(all, below), documented(below)...)
		}
	}
	return all
}

// writeReference writes the part of a command.
func writeReference(b *strings.Builder, cmd *cobra.Command) {
	page := pageOf(cmd)
	fmt.Fprintf(b, "\n## %s\n\n%s\n", page.Name, inProse(page.Summary))
	if page.Usage != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", page.Usage)
	}
	if page.Examples != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", page.Examples)
	}
	for paragraph := range strings.SplitSeq(page.About, "\n\n") {
		switch {
		case strings.HasPrefix(paragraph, " "):
			fmt.Fprintf(b, "\n```text\n%s\n```\n", paragraph)
		case strings.TrimSpace(paragraph) != "":
			fmt.Fprintf(b, "\n%s\n", inProse(paragraph))
		}
	}
	for _, section := range page.Flags {
		if section.Title == "Global" && cmd.Parent().HasParent() {
			continue // the same as of the command above
		}
		fmt.Fprintf(b, "\n| %s | |\n|---|---|\n", strings.ToLower(section.Title))
		for _, row := range section.Rows {
			fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(row.Term, "|", `\|`), inCell(row.About))
		}
	}
}

// inProse keeps the characters of a text from being markup.
func inProse(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`, "[", `\[`).Replace(text)
}

func inCell(text string) string { return strings.ReplaceAll(inProse(text), "|", `\|`) }
