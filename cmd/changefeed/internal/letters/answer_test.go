package letters

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// answers are what became of letters, one of each kind.
func answers(id string) (all []Answer) {
	key := feed.Key("a")
	for _, o := range []struct {
		deadletters.Outcome
		err error
	}{
		{Outcome: deadletters.Outcome{Result: deadletters.ResultHandled, Handled: 1}},
		{Outcome: deadletters.Outcome{Result: deadletters.ResultHandled, Handled: 3}},
		{Outcome: deadletters.Outcome{Result: deadletters.ResultFailed, Cause: "no\nsuch", Held: -1}},
		{Outcome: deadletters.Outcome{Result: deadletters.ResultFailed, Cause: "odd", Handled: 2, Held: 4}},
		{Outcome: deadletters.Outcome{Result: deadletters.ResultNothing, Held: -1}},
		{err: errors.New(`retry ["a"]: not served within 1s: why; withdrawn`)},
		{err: errors.New(`retry ["a"]: bad request`)},
	} {
		a := Answer{ID: report.Known(id), short: id, Key: json.RawMessage(key)}
		a.setOutcome(o.Outcome, o.err)
		all = append(all, a)
	}
	return append(all, Answer{ID: report.Known(id), short: id, Key: json.RawMessage(key), Result: isUnasked})
}

func TestPeopleHearWhatBecameOfEach(t *testing.T) {
	for _, tt := range []struct{ id, done, thing, want, err string }{
		{
			"1.0", "handled", "letter", `1.0 of ["a"] is handled
1.0 of ["a"] is handled, with 2 held letters after it
1.0 of ["a"] has failed again: no such
1.0 of ["a"] is handled, with 1 held letter after it; then a held letter has failed: odd; 4 held letters are left
1.0 of ["a"]: nothing to do: the letter is gone, or it is held behind another one
1.0 of ["a"]: not served within 1s: why; withdrawn
1.0 of ["a"]: not served: bad request
handled 2 (with 3 held letters), failed again 2, not served 2, nothing to do 1
not asked 1: their leases did not serve 3 in a row, so nobody seems to work on these now
`, "of 8 letters: 2 failed again, 2 not served, 1 not asked",
		},
		{
			"", "released", "key", `["a"] is released: 1 held letter is handled
["a"] is released: 3 held letters are handled
["a"] is held still: a held letter has failed: no such
["a"] is held still: 2 held letters are handled, then one has failed: odd; 4 held letters are left
["a"]: nothing to do: it is not held
["a"]: not served within 1s: why; withdrawn
["a"]: not served: bad request
released 2 (with 6 held letters), failed again 2, not served 2, nothing to do 1
not asked 1: their leases did not serve 3 in a row, so nobody seems to work on these now
`, "of 8 keys: 2 failed again, 2 not served, 1 not asked, 1 not held",
		},
	} {
		var b strings.Builder
		r := NewReport(report.New(report.Text, &b), tt.done, tt.thing)
		for _, a := range answers(tt.id) {
			if err := r.Write(a); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.End(); err == nil || err.Error() != tt.err || b.String() != tt.want {
			t.Errorf("got %v and\n%s", err, b.String())
		}
	}
}

func TestProgramsGetAnObjectForEachAnswer(t *testing.T) {
	var b strings.Builder
	r := NewReport(report.New(report.JSON, &b), "handled", "letter")
	all := answers("1.0")
	for _, a := range []Answer{all[1], all[3], all[4], all[7]} {
		if err := r.Write(a); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{"kind":"answer","schema":1,"id":"1.0","key":["a"],"result":"handled","handled":3,"held":0,"cause":null}
{"kind":"answer","schema":1,"id":"1.0","key":["a"],"result":"failed","handled":2,"held":4,"cause":"odd"}
{"kind":"answer","schema":1,"id":"1.0","key":["a"],"result":"nothing","handled":0,"held":null,"cause":null}
{"kind":"answer","schema":1,"id":"1.0","key":["a"],"result":"not asked","handled":0,"held":null,"cause":null}
`
	if err := r.End(); err == nil || b.String() != want {
		t.Errorf("got %v and\n%s", err, b.String())
	}
}

// Only what has failed or was left out is an error.
func TestAReportOfWhatIsDoneIsNoError(t *testing.T) {
	var b strings.Builder
	r := NewReport(report.New(report.Text, &b), "handled", "letter")
	if !r.Empty() {
		t.Error("an empty report is not empty")
	}
	all := answers("1.0")
	for _, a := range []Answer{all[0], all[4]} {
		if err := r.Write(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.End(); err != nil || !strings.HasSuffix(b.String(),
		"handled 1, failed again 0, not served 0, nothing to do 1\n") {
		t.Errorf("got %v and\n%s", err, b.String())
	}
}

// Whoever reads a line knows what was handled, what is left, and why it stopped.
func TestALineSaysHowFarAnAnswerHasCome(t *testing.T) {
	for _, tt := range []struct {
		id      string
		outcome deadletters.Outcome
		err     error
		want    string
	}{
		{
			"1.0",
			deadletters.Outcome{Result: deadletters.ResultFailed, Cause: "odd", Handled: 1, Held: 1},
			nil,
			`1.0 of ["a"] is handled; then a held letter has failed: odd; 1 held letter is left`,
		},
		{
			"1.0",
			deadletters.Outcome{Result: deadletters.ResultFailed, Cause: "odd", Handled: 1},
			nil,
			`1.0 of ["a"] is handled; then a held letter has failed: odd`,
		},
		{
			"",
			deadletters.Outcome{Result: deadletters.ResultFailed, Cause: "odd"},
			nil,
			`["a"] is held still: a held letter has failed: odd`,
		},
		{"", deadletters.Outcome{Result: deadletters.ResultHandled}, nil, `["a"] is released`},
		{
			"1.0",
			deadletters.Outcome{},
			errors.New("connection refused"),
			`1.0 of ["a"]: not served: connection refused`,
		},
	} {
		a := Answer{ID: report.Known(tt.id), short: tt.id, Key: json.RawMessage(feed.Key("a"))}
		if a.setOutcome(tt.outcome, tt.err); a.String() != tt.want {
			t.Errorf("%+v, %v:\n%s, want\n%s", tt.outcome, tt.err, a, tt.want)
		}
	}
}

// closed is an output that takes no more.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAReportThatCannotBeWrittenIsAnError(t *testing.T) {
	r := NewReport(report.New(report.Table, closed{}), "handled", "letter")
	if err := r.Write(answers("1.0")[0]); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a line: %v", err)
	}
	if err := r.End(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the summary: %v", err)
	}
}
