package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Progress says how far a copy is. Pending counts the changes of all instances; the rest is of this process.
type Progress struct {
	Phase    string     `json:"phase" about:"copying, following, ready for the cut-over, or ended"`
	Pending  *int64     `json:"pending" about:"changes that are not copied yet; null if unknown"`
	Exact    bool       `json:"pending_exact" about:"pending counts changes, and is no distance"`
	Share    *float64   `json:"share" about:"the part that is copied, from 0 to 1; null if unknown"`
	Rate     *float64   `json:"per_second" about:"changes a second of this process; null if unknown"`
	End      *time.Time `json:"end" about:"when all is copied, at the present rate; null if unknown"`
	Lag      *float64   `json:"lag_seconds" about:"age of the oldest change that is not copied yet; null if unknown"`
	Steady   float64    `json:"steady_seconds" about:"how long the lag has been 0"`
	Handled  int64      `json:"handled" about:"changes that this process has handled"`
	Written  int64      `json:"written" about:"documents that this process has written to the target"`
	Deleted  int64      `json:"deleted" about:"documents that this process has deleted from the target"`
	Unplaced int64      `json:"unplaced" about:"deletes without the version before, whose place is unknown"`
}

// ReportedAs implements [report.Value].
func (Progress) ReportedAs() string { return "copy" }

// The phases of a copy.
const (
	copying   = "copying"
	following = "following"
	ready     = "ready"
	ended     = "ended"
)

const (
	showEvery    = 5 * time.Second
	followEvery  = time.Minute // for people, when nothing changes
	measureEvery = time.Second
	noLag        = time.Second // a lag below this is 0
)

// A measure watches the units of a copy.
type measure struct {
	r          *running
	source     feed.Source
	stores     []feed.LeaseStore
	estimators []changefeed.Estimator
	total      int64 // changes of the whole copy
	now        Progress
	steady     time.Time // since when the lag is 0
	shown      time.Time
	said       string // the phase that was shown last
	lastDone   int64
	lastAt     time.Time
}

// watch measures the units again and again, until ctx ends or, with UntilCaughtUp, until the lag is and stays 0.
func (r *running) watch(ctx context.Context, names []string) (isCaughtUp bool) {
	m := &measure{r: r, source: r.source.sources, lastAt: time.Now()}
	m.estimators = make([]changefeed.Estimator, len(names))
	m.now.Phase = copying
	if err := m.open(ctx, names); err != nil {
		if ctx.Err() == nil {
			r.fail(err)
		}
		return false
	}
	every := min(measureEvery, max(r.Steady/5, 100*time.Millisecond))
	for ctx.Err() == nil {
		begun := time.Now()
		if err := m.look(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("the lag is unknown", "error", err)
			m.forget()
		}
		if ctx.Err() != nil {
			return false
		}
		m.show()
		if m.now.Phase == ready && r.UntilCaughtUp {
			return true
		}
		_ = pause.For(ctx, max(every, 5*time.Since(begun))) // the loop looks at ctx
	}
	return false
}

// forget forgets figures that cannot be measured now.
func (m *measure) forget() {
	m.now.Pending, m.now.Share, m.now.Lag, m.steady = nil, nil, nil, time.Time{}
}

// open opens the lease stores of the units, and counts the source.
func (m *measure) open(ctx context.Context, names []string) error {
	opener := m.r.opened.stores.Sharing(m.r.TargetAccount)
	leases, err := opener.Open(ctx, m.r.leases)
	if err != nil {
		return err
	}
	for _, name := range names {
		store, err := unit.OpenStore(ctx, leases, name, m.r.source.Container)
		if err != nil {
			return err
		}
		// the unit may be new
		if err := m.r.claim(ctx, store, m.r.opened, name, m.r.leases); err != nil {
			return err
		}
		m.stores = append(m.stores, store)
	}
	if counter, ok := m.source.(feed.Counter); ok {
		start := feed.Position{Start: feed.FromBeginning()}
		all, err := counter.Pending(ctx, feed.FullRange(), start, feed.ReadOptions{})
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		m.total = all.Items
	}
	return nil
}

// look measures the units once.
func (m *measure) look(ctx context.Context) error {
	var pending int64
	var lag time.Duration
	exact, known := true, true
	for i, store := range m.stores {
		e, err := m.estimators[i].Measure(ctx, m.source, store)
		if err != nil {
			return err
		}
		if !e.Total.Known() {
			return fmt.Errorf("unit %d: %w", i+1, e.Total.Err)
		}
		pending += e.Total.Pending
		exact = exact && e.Total.Exact && !e.Total.Shared
		age, isKnown := e.Total.Age(e.At)
		lag, known = max(lag, age), known && isKnown
	}
	p := &m.now
	p.Pending, p.Exact = &pending, exact
	m.total = max(m.total, pending)
	share := 1.0
	if m.total > 0 {
		share = 1 - float64(pending)/float64(m.total)
	}
	p.Share, p.Lag = &share, nil
	if known {
		p.Lag = new(lag.Seconds())
	}
	m.setPhase(pending == 0 || known && lag < noLag)
	if p.Phase == ready && m.said != ready && !m.isCaughtUp(ctx) {
		p.Phase = following
	}
	return nil
}

// isCaughtUp reports whether everything is copied that was written before the call: a lag of 0 allows for young
// changes.
func (m *measure) isCaughtUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, showEvery)
	defer cancel()
	for _, store := range m.stores {
		if changefeed.CaughtUp(ctx, m.source, store) != nil {
			return false
		}
	}
	return true
}

// setPhase sets the phase by whether the lag is 0 now.
func (m *measure) setPhase(isZero bool) {
	p := &m.now
	switch {
	case !isZero && p.Phase != copying:
		m.steady, p.Phase = time.Time{}, following
	case !isZero:
		m.steady = time.Time{}
	default:
		if m.steady.IsZero() {
			m.steady = time.Now()
		}
		if p.Phase == copying {
			p.Phase = following
		}
		if time.Since(m.steady) >= m.r.Steady {
			p.Phase = ready
		}
	}
	p.Steady = 0
	if !m.steady.IsZero() {
		p.Steady = time.Since(m.steady).Seconds()
	}
}

// show shows the progress if it is time, or if the phase is another one.
func (m *measure) show() {
	every := showEvery
	if m.now.Phase != copying && m.r.Report.ForPeople() {
		every = followEvery
	}
	if m.now.Phase == m.said && time.Since(m.shown) < every {
		return
	}
	p := m.r.fill(m.now)
	spent := time.Since(m.lastAt).Seconds()
	if handled := p.Handled - m.lastDone; handled > 0 && spent > 0 {
		rate := float64(handled) / spent
		if p.Rate = &rate; p.Pending != nil && p.Phase == copying {
			p.End = new(time.Now().UTC().Add(time.Duration(float64(*p.Pending) / rate * float64(time.Second))).
				Truncate(time.Second))
		}
	}
	isNew := m.said != p.Phase
	m.lastDone, m.lastAt, m.shown, m.said = p.Handled, time.Now(), time.Now(), p.Phase
	r := m.r.Report
	switch {
	case !r.ForPeople():
		_ = r.Object(p, nil) // if this fails, there is no reader, and the copy goes on
	case p.Phase == ready && isNew:
		fmt.Fprint(r.Out, m.r.announcement())
	default:
		r.Notice("%s", m.line(p))
	}
}

// fill adds the figures of this process.
func (r *running) fill(p Progress) Progress {
	p.Handled, p.Written, p.Deleted, p.Unplaced = r.done.Load(), r.written.Load(), r.deleted.Load(), r.unplaced.Load()
	return p
}

// result is the progress at the end.
func (r *running) result() report.Value { return r.fill(Progress{Phase: ended}) }

// writeResult writes the end for people.
func (r *running) writeResult(w io.Writer) error {
	text := fmt.Sprintf("ended: %s handled, %s written, %s deleted", terminal.Count(r.done.Load(), "change"),
		terminal.Count(r.written.Load(), "document"), terminal.Number(r.deleted.Load()))
	if n := r.unplaced.Load(); n > 0 {
		text += fmt.Sprintf(", %s without a known place", terminal.Count(n, "delete"))
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// announcement says that the cut-over is possible, and how.
func (r *running) announcement() string {
	return fmt.Sprintf("ready for the cut-over: the lag has been 0 for %s. Stop the writers of %s, wait until the lag is "+
		"0 again,\ncompare, and send the writers to %s.\n", terminal.Exact(r.Steady), r.opened.source.Address,
		r.opened.targetAt)
}

// line is the progress in words.
func (m *measure) line(p Progress) string {
	var b strings.Builder
	b.WriteString(p.Phase)
	if p.Share != nil && p.Phase == copying {
		fmt.Fprintf(&b, ": %.0f %%, %s of %s", 100**p.Share, terminal.Number(m.total-*p.Pending),
			terminal.Count(m.total, "change"))
	} else if p.Pending != nil {
		fmt.Fprintf(&b, ": %s", terminal.Count(*p.Pending, "pending change"))
	}
	if p.Rate != nil {
		fmt.Fprintf(&b, ", %s a second", terminal.Number(int64(*p.Rate)))
	}
	if p.End != nil {
		fmt.Fprintf(&b, ", done at about %s", p.End.Local().Format(time.TimeOnly))
	}
	if p.Lag != nil && p.Phase != copying {
		fmt.Fprintf(&b, ", lag %s", terminal.Exact(time.Duration(*p.Lag*float64(time.Second)).Round(time.Second)))
	}
	return b.String()
}
