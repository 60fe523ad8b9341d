package manual

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// sample are flags of each kind.
func sample() *pflag.FlagSet {
	f := pflag.NewFlagSet("sample", pflag.ContinueOnError)
	f.String("db", "", "`directory` of a store")
	f.String("endpoint", "", "`URL` of the account")
	f.Duration("wait", 10*time.Minute, "how long to wait")
	f.IntP("max", "n", 0, "end after so many")
	f.String("letters", "", "`address or file` of letters")
	f.Bool("once", false, "end at the end")
	f.String("output", "text", "form of the output")
	f.String("hidden", "", "nobody sees this")
	f.String("name", "", "`name` of the unit")
	_ = f.MarkHidden("hidden")
	_ = f.SetAnnotation("name", RequiredNote, []string{"true"})
	return f
}

func TestHelpHasItsPartsInOrder(t *testing.T) {
	flags, inherited := sample(), pflag.NewFlagSet("root", pflag.ContinueOnError)
	inherited.BoolP("quiet", "q", false, "be quiet")
	flags.VisitAll(Describe)
	page := Page{
		Name: "root sample", Summary: "Show a sample.", Usage: "root sample [ADDRESS] [flags]",
		Examples: "  sample it's-here", About: "A first paragraph\nof two lines.\n\n  an  indented line\n\nThe end.",
		Flags: Flags(flags, inherited),
	}
	const want = `Show a sample.

Usage:
  root sample [ADDRESS] [flags]

Examples:
  sample it's-here

A first paragraph of two lines.

  an  indented line

The end.

Flags:
      --letters ADDRESS|FILE
                       address or file of letters
  -n, --max N          end after so many
      --name NAME      name of the unit (required)
      --once           end at the end
      --wait DURATION  how long to wait (default 10m)

Container and account:
  --db DIR        directory of a store
  --endpoint URL  URL of the account

Output:
  --output TEXT  form of the output (default text)

Global:
  -q, --quiet  be quiet
`
	if got := page.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAPageReadsAsItIsWritten: a dash of a command line is no hyphen, and a line that begins with a dot no request.
func TestAPageReadsAsItIsWritten(t *testing.T) {
	page := Page{Name: "a b", Summary: "Show it.", About: ".dots and 'quotes'\n\n  x-y \\ z", Examples: "  a --b"}
	got := page.Roff("v1", []string{"a"})
	for _, want := range []string{
		`.TH "A-B" "1" "" "v1" "changefeed"`, `a\-b \- Show it`,
		"\n\\&.dots and \\(aqquotes\\(aq\n", ".nf\n  x\\-y \\e z\n.fi\n",
		`  a \-\-b`, `.SH SEE ALSO` + "\n" + `\fBa\fR(1)`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

func TestPlaceholdersAreInCapitals(t *testing.T) {
	want := map[string]string{
		"db": "DIR", "endpoint": "URL", "wait": "DURATION", "max": "N", "letters": "ADDRESS|FILE", "once": "",
		"output": "TEXT",
	}
	flags := sample()
	for range 2 { // before and after the descriptions lose their backticks
		flags.VisitAll(func(f *pflag.Flag) {
			got, about := Placeholder(f)
			if w, ok := want[f.Name]; ok && got != w || strings.Contains(about, "`") {
				t.Errorf("--%s: got %q and %q, want %q", f.Name, got, about, w)
			}
			Describe(f)
		})
	}
}
