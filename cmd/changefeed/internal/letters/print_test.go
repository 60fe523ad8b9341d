package letters

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// until are letters and then, unless it is nil, an error.
func until(failed error, letters ...feed.DeadLetter) Seq {
	return func(yield func(feed.DeadLetter, error) bool) {
		for _, l := range letters {
			if !yield(l, nil) {
				return
			}
		}
		if failed != nil {
			yield(feed.DeadLetter{}, failed)
		}
	}
}

// What was read before an error is shown: it may be all that the operator gets.
func TestATableHasTheLettersBeforeAnError(t *testing.T) {
	l := letter("12.0", "London", 12, feed.DispositionFailed)
	const table = "  ID    KEY         ITEM        DISPOSITION  ATTEMPTS  PARKED                CAUSE\n" +
		"  12.0  [\"London\"]  order-12.0  failed       5         2026-01-02T03:05:05Z  no such [31maddress\n"
	var b strings.Builder
	if err := WriteTable(&b, terminal.Terminal{}, "mailer", "letters", until(nil, l)); err != nil ||
		b.String() != "mailer in letters: 1 dead letter of 1 key\n"+table {
		t.Errorf("got %v, and\n%s", err, b.String())
	}
	b.Reset()
	odd := letter("13.0", "London", 13, feed.DispositionHeld)
	odd.Change.ID = "a\x1b[2Jb\nc" // would clear the screen
	if err := WriteTable(&b, terminal.Terminal{}, "mailer", "letters", until(nil, l, odd)); err != nil ||
		!strings.HasPrefix(b.String(), "mailer in letters: 2 dead letters of 1 key\n") ||
		strings.Contains(b.String(), "\x1b") || strings.Count(b.String(), "\n") != 4 {
		t.Errorf("got %v, and\n%q", err, b.String())
	}
	b.Reset()
	failed := errors.New("failed")
	err := WriteTable(&b, terminal.Terminal{}, "mailer", "letters", until(failed, l))
	if !errors.Is(err, failed) || b.String() != table {
		t.Errorf("got %v, and\n%s", err, b.String())
	}
}

// One long key must not make every line of a table as wide as itself. In a pipe, each cell is whole.
func TestATableHasTheBeginningOfALongKey(t *testing.T) {
	long := letter("12.0", strings.Repeat("å", 300), 12, feed.DispositionFailed)
	long.Change.ID = strings.Repeat("i", 41)
	all := until(nil, long, letter("13.0", "London", 13, feed.DispositionFailed))
	var b strings.Builder
	wide := terminal.Terminal{Width: func() int { return 200 }}
	if err := WriteTable(&b, wide, "mailer", "letters", all); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, `["`+strings.Repeat("å", 37)+"…  "+strings.Repeat("i",
		39)+"…  failed") || strings.Contains(got, strings.Repeat(" ", 60)) {
		t.Errorf("the table is\n%s", got)
	}
	b.Reset()
	if err := WriteTable(&b, terminal.Terminal{}, "mailer", "letters", all); err != nil ||
		strings.Contains(b.String(), terminal.Ellipsis) {
		t.Errorf("got %v, and in a pipe\n%s", err, b.String())
	}
}

// A letter fills at most three lines with its cause, of which none is wider than its terminal.
func TestALetterFitsItsTerminal(t *testing.T) {
	l := letter("14.0", "東京", 12, feed.DispositionFailed)
	l.Change.ID, l.Cause = "order-4e07408562bedb8b60ce05c1decfe3ad", "./h.sh: exit status 3"
	const heading = "mailer in letters: 1 dead letter of 1 key\n"
	for width, want := range map[int]string{
		40: `mailer in letters: 1 dead letter of 1
  key
  ID    KEY
    ITEM
  14.0  ["東京"]
    order-4e07408562bedb8b60ce05c1decf…
    ./h.sh: exit status 3
no room for PARKED, ATTEMPTS,
  DISPOSITION: see -o json
`,
		80: heading + `  ID    KEY       ITEM                                    DISPOSITION  ATTEMPTS
    PARKED
  14.0  ["東京"]  order-4e07408562bedb8b60ce05c1decfe3ad  failed       5
    2026-01-02T03:05:05Z
    ./h.sh: exit status 3
`,
		200: heading + "  ID    KEY       ITEM                                    DISPOSITION  ATTEMPTS  PARKED                CAUSE\n" +
			"  14.0  [\"東京\"]  order-4e07408562bedb8b60ce05c1decfe3ad  failed       5         2026-01-02T03:05:05Z  " +
			"./h.sh: exit status 3\n",
	} {
		var b strings.Builder
		err := WriteTable(&b, terminal.Terminal{Width: func() int { return width }}, "mailer", "letters", until(nil, l))
		if err != nil || b.String() != want {
			t.Errorf("in %d columns: %v, got\n%s\nwant\n%s", width, err, b.String(), want)
		}
		for line := range strings.Lines(b.String()) {
			if terminal.Width(strings.TrimSuffix(line, "\n")) >= width {
				t.Errorf("in %d columns the line %q is too wide", width, line)
			}
		}
	}
}

func TestProgramsGetALetterALine(t *testing.T) {
	l := letter("12.0", "London", 12, feed.DispositionFailed)
	var b strings.Builder
	if err := WriteList(report.New(report.JSON, &b).Rows(), until(nil, l, l)); err != nil ||
		strings.Count(b.String(), "\n") != 2 ||
		strings.Contains(b.String(), "document") {
		t.Errorf("list: %v, and\n%s", err, b.String())
	}
	b.Reset()
	if err := WriteWhole(report.New(report.JSON, &b).Rows(), "mailer", until(nil, l)); err != nil ||
		!json.Valid([]byte(b.String())) ||
		!strings.Contains(b.String(), `"document":{"id":"order-12.0"}`) ||
		!strings.Contains(b.String(), `"processor":"mailer"`) {
		t.Errorf("whole: %v, and\n%s", err, b.String())
	}
	failed := errors.New("failed")
	if err := errors.Join(WriteList(report.New(report.JSON, &b).Rows(), until(failed)),
		WriteWhole(report.New(report.JSON, &b).Rows(), "mailer", until(failed)),
		Show(&b, until(failed))); strings.Count(err.Error(), "failed") != 3 {
		t.Errorf("got %v, want the error of each", err)
	}
}

func TestPeopleGetAllThatIsKnownOfALetter(t *testing.T) {
	l := letter("12.0", "London", 12, feed.DispositionFailed)
	l.Change.Previous, l.Stack = json.RawMessage("\xffno JSON"), "goroutine 1\n\tmain.go:1\n"
	var b strings.Builder
	if err := Show(&b, until(nil, l)); err != nil {
		t.Fatal(err)
	}
	const want = `12.0 of ["London"]
  disposition  failed
  cause        no such �[31maddress
  attempts     5
  change       upsert of item order-12.0, LSN 12, committed 2026-01-02T03:04:05Z
  etag         "0f"
  lease        -1F, range -1F
  instance     one
  failed       2026-01-02T03:04:05Z
  parked       2026-01-02T03:05:05Z
  stack
    goroutine 1
    	main.go:1
  document
    {
      "id": "order-12.0"
    }
  previous     "\xffno JSON"
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	l.Failed, l.Change.Previous = time.Time{}, nil // as of a change that is held, and was never tried
	if err := Show(&b, until(nil, l)); err != nil || strings.Contains(b.String(), "  failed       ") ||
		strings.Contains(b.String(), "previous") {
		t.Errorf("what is not known is shown: %v, and\n%s", err, b.String())
	}
}
