package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

var errStop = errors.New("stopped by the test")

// wide is a terminal of a width, in colour.
func wide(n int) terminal.Terminal {
	return terminal.Terminal{Width: func() int { return n }, InPlace: true, Colour: true}
}

func TestProgressTellsWhatThereIsToTell(t *testing.T) {
	here := wide(terminal.Narrow)
	for _, tt := range []struct {
		name string
		w    work
		now  State
		want string
	}{
		{"before the first", work{unit: Documents}, State{Size: 100}, "f   0% 0 documents, 0 a second"},
		{
			"half way",
			work{unit: Documents},
			State{Done: 50, Note: "2 refused", Place: 500, Size: 1000},
			"f  50% 50 documents, 2 refused, 5 a second, 10s left",
		},
		{
			"after a resumption",
			work{unit: Documents, first: State{Done: 40, Place: 400, Size: 1000}},
			State{Done: 50, Place: 500, Size: 1000},
			"f  50% 50 documents, 1 a second, 50s left",
		},
		{"pipe", work{unit: Documents}, State{Done: 30}, "f 30 documents, 3 a second"},
		{
			"nothing was read since",
			work{unit: Documents, first: State{Done: 40, Place: 400, Size: 1000}},
			State{Done: 40, Place: 400, Size: 1000},
			"f  40% 40 documents, 0 a second",
		},
		{
			"a file that takes years",
			work{unit: Documents},
			State{Done: 1, Place: 1, Size: 1 << 40},
			"f   0% 1 document, 0 a second",
		},
		{
			"a file that grows",
			work{unit: Documents},
			State{Done: 50, Place: 1300, Size: 1000},
			"f 100% 50 documents, 5 a second, 0s left",
		},
		{
			"a known total",
			work{unit: Documents},
			State{Done: 50_000, Total: 200_000},
			"f  25% 50,000 of 200,000 documents, 5,000 a second, 30s left",
		},
		{
			"bytes",
			work{unit: Bytes},
			State{Done: 22_336_872, Total: 99_682_271},
			"f  22% 22.3 MB of 99.7 MB, 2.2 MB a second, 35s left",
		},
		{
			"a store that grows",
			work{unit: Bytes},
			State{Done: 1200, Total: 1000},
			"f 100% 1.2 KB of 1.0 KB, 120 bytes a second, 0s left",
		},
		{
			"terminal",
			work{unit: Documents, Terminal: here},
			State{Done: 50, Place: 500, Size: 1000},
			"f [###############...............]  50% 50 documents, 5 a second, 10s left",
		},
	} {
		tt.w.what = "f"
		if got := tt.w.line(tt.now, 10*time.Second); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestProgressForProgramsHasNullForWhatIsUnknown(t *testing.T) {
	for want, now := range map[string]State{
		`{"kind":"progress","schema":1,"what":"f","done":50,"total":200,"unit":"document","share":0.25,` +
			`"per_second":5,"seconds_left":30}`: {Done: 50, Total: 200},
		`{"kind":"progress","schema":1,"what":"f","done":50,"total":null,"unit":"document","share":null,` +
			`"per_second":5,"seconds_left":null}`: {Done: 50},
	} {
		line, err := Line((&work{what: "f", unit: Documents}).progress(now, 10*time.Second))
		if err != nil || string(line) != want+"\n" {
			t.Errorf("got %s, %v, want %s", line, err, want)
		}
	}
}

// A notice takes the place of a line of progress, which is then drawn again.
func TestProgressLeavesNothingBehind(t *testing.T) {
	var out bytes.Buffer
	r := &Report{Err: &out, Command: "import"}
	w := &work{what: "f", unit: Documents, Terminal: wide(25)}
	state := State{Done: 1, Place: 5, Size: 10}
	r.draw(w, state, 0)
	r.Warn("line %d: bad", 3)
	r.draw(w, state, 0)
	r.clear()
	want := "f  50% 1 document" + clearLine + "import: line 3: bad\n" + "f  50% 1 document" + clearLine
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// The figure that is worth least is left out first, and none without need.
func TestProgressLeavesOutWhatIsWorthLeast(t *testing.T) {
	w := &work{what: "f", unit: Documents}
	for _, want := range []string{
		"f [###############...............]  50% 50 documents, 2 refused, 5 a second, 10s left",
		"f  50% 50 documents, 2 refused, 5 a second, 10s left",
		"f  50% 50 documents, 2 refused, 5 a second",
		"f  50% 50 documents, 2 refused",
		"50% 50 documents, 2 refused",
		"50% 50 documents",
	} {
		w.Terminal = wide(len(want) + 1) // with the last column, which is left free
		if got := w.line(State{50, 0, "2 refused", 500, 1000}, 10*time.Second); got != want {
			t.Errorf("in %d columns: got %q, want %q", len(want)+1, got, want)
		}
	}
	w.what = strings.Repeat("東京", 30) + ".ndjson"
	for _, width := range []int{40, 80, 200} {
		w.Terminal = wide(width)
		got := w.line(State{12_345_678, 0, "123,456 refused", 1 << 29, 1 << 30}, time.Hour)
		if terminal.Width(got) >= width || !strings.Contains(got, "50% 12,345,678 documents") {
			t.Errorf("in %d columns: got %q", width, got)
		}
	}
}

// A terminal has a line in place as long as the work goes on, other places have a line now and then, and --quiet none.
func TestProgressIsShownWhileTheWorkGoesOn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		form  Form
		where terminal.Terminal
		every time.Duration
		want  []string
	}{
		{"terminal", Text, wide(25), barEvery, []string{
			"f  50% 3 documents", clearLine, "f  50% 3 documents", clearLine,
		}},
		{"pipe", Text, terminal.Terminal{}, terminal.LineEvery, []string{
			"f  50% 3 documents, 1 a second, 5s left\n", "f  50% 3 documents, 0 a second, 10s left\n",
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			r := &Report{Form: tt.form, Err: &out}
			w := &work{what: "f", unit: Documents, Terminal: tt.where}
			err := r.showDuring(w, func() State { return State{Done: 3, Place: 5, Size: 10} }, func() error {
				time.Sleep(2*tt.every + tt.every/2)
				return errStop
			})
			if want := strings.Join(tt.want, ""); !errors.Is(err, errStop) || out.String() != want {
				t.Errorf("%s: got %v and %q, want %q", tt.name, err, out.String(), want)
			}
		})
	}
}

func TestQuietWorkShowsNoProgress(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			r := &Report{Form: JSON, Err: &out, Quiet: quiet}
			err := r.During("f", Bytes, func() State { return State{Done: 3} }, func() error {
				time.Sleep(terminal.LineEvery + time.Second)
				r.Notice("a notice")
				return nil
			})
			lines := strings.Count(out.String(), "\n")
			if err != nil || quiet && lines != 0 || !quiet && lines != 2 {
				t.Errorf("quiet %v: got %v and %q", quiet, err, out.String())
			}
			for line := range strings.Lines(out.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("the line %q is no JSON", line)
				}
			}
		})
	}
}
