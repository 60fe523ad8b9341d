package report

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// A Unit is the unit in which progress counts.
type Unit string

// The units.
const (
	Documents Unit = "document"
	Bytes     Unit = "byte"
)

// State is how far a piece of work has come.
type State struct {
	Done  int64  // in units
	Total int64  // in units; 0 if unknown
	Note  string // more for people, such as 2 refused

	// Place and Size are in bytes of the input. The share is measured with them if Total is unknown; if Size is 0 too,
	// the share is unknown.
	Place, Size int64
}

// share returns which part of the work is done, and whether that is known.
func (s State) share() (part float64, known bool) {
	switch {
	case s.Total > 0:
		return min(1, float64(s.Done)/float64(s.Total)), true
	case s.Size > 0:
		return min(1, float64(s.Place)/float64(s.Size)), true // a file may grow during the read
	}
	return 0, false
}

// work is a piece of work whose progress is shown.
type work struct {
	what  string
	unit  Unit
	first State // rates do not count work that was done before
	terminal.Terminal
}

const (
	barEvery     = 100 * time.Millisecond
	barWidth     = 30
	shortWhat    = 20 // cells of a name on a narrow terminal
	clearLine    = "\r\x1b[K"
	maxRemaining = 100 * time.Hour
)

// During runs f, and shows on standard error how far the work has come, as measure says: in place on a terminal,
// otherwise a line from time to time, with --quiet nothing. measure is called by another goroutine than f.
func (r *Report) During(what string, unit Unit, measure func() State, f func() error) error {
	if r.Quiet {
		return f()
	}
	w := &work{what: what, unit: unit, first: measure(), Terminal: terminal.Of(r.Err)}
	if r.speaksJSON() {
		w.Terminal = terminal.Terminal{}
	}
	return r.showDuring(w, measure, f)
}

// showDuring runs f, and shows the progress.
func (r *Report) showDuring(w *work, measure func() State, f func() error) error {
	every := terminal.LineEvery
	if w.InPlace {
		every = barEvery
	}
	begun := time.Now()
	done := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.draw(w, measure(), time.Since(begun))
			case <-done:
				return
			}
		}
	})
	defer func() {
		close(done)
		showing.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.clear()
	}()
	return f()
}

// draw shows a state after some time of work.
func (r *Report) draw(w *work, now State, spent time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case w.InPlace:
		r.clear()
		fmt.Fprint(r.Err, w.line(now, spent))
		r.drawn = true
	case r.speaksJSON():
		if line, err := Line(w.progress(now, spent)); err == nil { // a struct of texts and numbers has a JSON form
			_, _ = r.Err.Write(line) // if this fails, there is no reader
		}
	default:
		fmt.Fprintln(r.Err, w.line(now, spent))
	}
}

// clear removes a line that was drawn in place, so that another can be written there.
func (r *Report) clear() {
	if r.drawn {
		fmt.Fprint(r.Err, clearLine)
		r.drawn = false
	}
}

// progress is the progress of work, for programs.
type progress struct {
	What    string   `json:"what" about:"the present work of the command"`
	Done    int64    `json:"done" about:"how much is done, in units"`
	Total   *int64   `json:"total" about:"how much there is to do, in units"`
	Unit    Unit     `json:"unit" about:"document or byte"`
	Share   *float64 `json:"share" about:"the part that is done, from 0 to 1"`
	Rate    *float64 `json:"per_second" about:"units a second"`
	Seconds *float64 `json:"seconds_left" about:"how long the rest takes at the present rate"`
}

// ReportedAs implements [Value].
func (progress) ReportedAs() string { return "progress" }

// progress returns a state after some time of work.
func (w *work) progress(now State, spent time.Duration) progress {
	p := progress{What: w.what, Done: now.Done, Unit: w.unit}
	if now.Total > 0 {
		p.Total = &now.Total
	}
	if share, known := now.share(); known {
		p.Share = &share
	}
	if rate, known := w.rate(now, spent); known {
		p.Rate = &rate
	}
	if left, known := w.timeLeft(now, spent); known {
		p.Seconds = new(left.Seconds())
	}
	return p
}

// rate returns the units a second of this work.
func (w *work) rate(now State, spent time.Duration) (perSecond float64, known bool) {
	return float64(now.Done-w.first.Done) / spent.Seconds(), spent > 0
}

// timeLeft returns how long the rest takes, if that can be estimated.
func (w *work) timeLeft(now State, spent time.Duration) (left time.Duration, known bool) {
	before, _ := w.first.share()
	share, known := now.share()
	if !known || share <= before {
		return 0, false
	}
	seconds := spent.Seconds() * (1 - share) / (share - before)
	if seconds >= maxRemaining.Seconds() {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// line returns a state in words. If the terminal is too narrow, the least important parts are left out first.
func (w *work) line(now State, spent time.Duration) string {
	figures := " " + w.unit.amount(now.Done)
	if now.Total > 0 {
		figures = " " + w.unit.figure(now.Done) + " of " + w.unit.amount(now.Total)
	}
	share, bar, note, rate, left := "", "", "", "", ""
	if done, known := now.share(); known {
		share = fmt.Sprintf(" %3.0f%%", 100*done)
		if w.InPlace {
			full := int(done * barWidth)
			bar = fmt.Sprintf(" [%s%s]", strings.Repeat("#", full), strings.Repeat(".", barWidth-full))
		}
	}
	if now.Note != "" {
		note = ", " + now.Note
	}
	if perSecond, known := w.rate(now, spent); known {
		rate = ", " + w.unit.figure(int64(perSecond+0.5)) + " a second"
	}
	if rest, known := w.timeLeft(now, spent); known {
		left = fmt.Sprintf(", %v left", rest.Round(time.Second))
	}
	what := w.what
	text := func() string { return strings.TrimSpace(what + bar + share + figures + note + rate + left) }
	for _, spare := range []func(){
		func() { bar = "" }, func() { what = terminal.Shorten(what, shortWhat) },
		func() { left = "" }, func() { rate = "" }, func() { what = "" }, func() { note = "" },
	} {
		if room := w.Room(); room == 0 || terminal.Width(text()) <= room {
			break
		}
		spare()
	}
	return text()
}

// amount returns a number of units with the unit.
func (u Unit) amount(n int64) string {
	if u == Bytes {
		return terminal.Size(n)
	}
	return terminal.Count(n, string(u))
}

// figure returns a number of units, for a text that names the unit elsewhere.
func (u Unit) figure(n int64) string {
	if u == Bytes {
		return terminal.Size(n)
	}
	return terminal.Number(n)
}
