// Package confirm asks a person before a command deletes something for good.
//
// A command registers the flags, finds what is to be deleted, and asks:
//
//	if sure, err := o.confirm.Ask(ctx, person, confirm.Question{Text: "Delete document 7?"}); !sure {
//		return err
//	}
//
// With --yes, and with --dry-run, nobody is asked. If nobody can be asked, as in a script, --yes is required, because a
// question that nobody sees would wait for ever.
package confirm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// Flags are the flags of a command that deletes.
type Flags struct {
	Yes    bool
	DryRun bool
}

// Register adds the flags --yes and --dry-run.
func (f *Flags) Register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.Yes, "yes", false, "do not ask before deleting; needed without a terminal")
	flags.BoolVar(&f.DryRun, "dry-run", false, "list the deletions without making them")
}

// A Person answers questions.
type Person struct {
	Present bool // both In and Out are a terminal
	In      io.Reader
	Out     io.Writer
}

// AtTerminal returns the person at the terminal of standard input and standard error, if both are one. The end of ctx
// ends a question.
func AtTerminal(ctx context.Context, stderr io.Writer) Person {
	p := Person{Out: stderr, Present: terminal.Of(stderr).Width != nil && terminal.Of(os.Stdin).Width != nil}
	if p.Present {
		p.In = terminal.Input(ctx)
	}
	return p
}

// A Question is a question before something is deleted.
type Question struct {
	Text string // such as: Delete container orders with 7 documents?
	Word string // what the person must type; empty is yes
}

// ErrDeclined means that the person does not want it.
var ErrDeclined = errors.New("nothing was changed")

// Ask reports whether to delete. With --dry-run the answer is no, without an error.
func (f Flags) Ask(ctx context.Context, p Person, q Question) (sure bool, err error) {
	switch {
	case f.DryRun:
		return false, nil
	case f.Yes:
		return true, nil
	case !p.Present:
		return false, usage.Error{Err: errors.New("--yes is missing: standard input or standard error is no " +
			"terminal, so nobody can be asked: want --yes, or --dry-run to see what would be done")}
	}
	hint, want := "[y/N]", "y"
	if q.Word != "" {
		hint, want = "Type "+terminal.OneLine(q.Word)+" to delete it:", q.Word
	}
	if _, err := fmt.Fprintf(p.Out, "%s %s ", terminal.OneLine(q.Text), hint); err != nil {
		return false, fmt.Errorf("ask: %w", err)
	}
	line, err := bufio.NewReader(p.In).ReadString('\n')
	if ctx.Err() != nil {
		fmt.Fprintln(p.Out) // after the ^C of the terminal
		return false, fmt.Errorf("interrupted: %w", ErrDeclined)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read answer: %w", err)
	}
	got := strings.TrimSpace(line)
	if got == want || q.Word == "" && strings.EqualFold(got, "yes") || q.Word == "" && got == "Y" {
		return true, nil
	}
	return false, fmt.Errorf("%w: the answer is %q: want %s", ErrDeclined, got, want)
}

// Verb returns the beginning of a report: done, such as deleted, or with --dry-run would delete.
func (f Flags) Verb(done, would string) string {
	if f.DryRun {
		return "would " + would
	}
	return done
}
