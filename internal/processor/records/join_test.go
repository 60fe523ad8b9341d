package records

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/notes"
)

// sequenced is a source whose tokens are LSNs in quotes.
type sequenced struct{ feed.Source }

func (sequenced) TokenLSN(token string) (lsn int64, ok bool) { return service.LSN(token) }
func (sequenced) TokenAfter(lsn int64) string                { return service.Token(lsn) }

// Leases are joined only if a lease of both repeats nothing, skips nothing and forgets nothing.
func TestWhichLeasesCanBeJoined(t *testing.T) {
	begun := feed.FromTime(time.Unix(1_000_000, 0))
	view := NewView(nil, sequenced{})
	view.Put(feed.Record{Kind: feed.KindInfo, ID: "info", Properties: map[string]string{
		notes.OriginProperty: notes.PlainTime(begun.String()),
	}})
	for _, c := range []struct {
		what string
		edit func(left, right *feed.Record)
		want bool
	}{
		{"as they are", func(_, _ *feed.Record) {}, true},
		{"marked", func(l, r *feed.Record) {
			MarkJoining(l, feed.FullRange(), time.Now())
			MarkJoining(r, feed.FullRange(), time.Now())
		}, true},
		{"with another text of the token", func(l, _ *feed.Record) { l.Position.Token = "5" }, true},
		{"the left behind", func(l, _ *feed.Record) { l.Position = position(4) }, false},
		{"the right behind", func(_, r *feed.Record) { r.Position = position(4) }, false},
		{"without a token", func(l, r *feed.Record) { l.Position.Token, r.Position.Token = "", "" }, false},
		{"with another start", func(l, _ *feed.Record) { l.Position.Start = feed.FromTime(time.Now()) }, false},
		{"from the beginning and from now", func(l, _ *feed.Record) { l.Position.Start = feed.FromBeginning() }, true},
		{"with the start of the unit", func(l, _ *feed.Record) { l.Position.Start = begun }, true},
		{"not neighbours", func(_, r *feed.Record) { r.Range.Min = "05" }, false},
		{"of another mode", func(_, r *feed.Record) { r.Mode = feed.AllVersionsAndDeletes }, false},
		{"after a failure", func(l, _ *feed.Record) { l.Attempts = 1 }, false},
		{"behind a fence", func(_, r *feed.Record) { r.Fence = time.Now() }, false},
		{"of version 0", func(_, r *feed.Record) { r.Version = 0 }, false},
		{"of another kind of processor", func(l, _ *feed.Record) { l.Properties = nil }, false},
		{"with an owner of another kind", func(l, _ *feed.Record) { l.Owner = "net" }, false},
		{"with done changes", func(l, _ *feed.Record) { SetProperty(l, notes.DoneProperty, "x") }, false},
		{"with a change that is skipped", func(_, r *feed.Record) { SetProperty(r, notes.SkipsProperty, "x") }, false},
		{"with a note of failures", func(l, _ *feed.Record) { SetProperty(l, notes.FailingProperty, "x") }, false},
		{"with held keys", func(_, r *feed.Record) { SetProperty(r, notes.HeldProperty, "x") }, false},
		{"with keys set aside", func(l, _ *feed.Record) { SetProperty(l, notes.AsideProperty, "x") }, false},
		{"in an outage", func(_, r *feed.Record) { SetProperty(r, notes.OutageProperty, "x") }, false},
		{"paused", func(l, _ *feed.Record) { MarkPaused(l, time.Now()) }, false},
	} {
		left, right := made(cell(0, 4), 5, 1), made(cell(4, keys), 5, 2)
		c.edit(&left, &right)
		if got := view.CanJoin(left, right); got != c.want {
			t.Errorf("leases %s: %v, want %v", c.what, got, c.want)
		}
		if NewView(nil, nil).CanJoin(left, right) {
			t.Errorf("leases %s of a source that knows no LSNs can be joined", c.what)
		}
	}
}

// A lease tells whether it can be joined: where its position is does not count, but whether it can be compared.
func TestALeaseTellsWhetherItCanBeJoined(t *testing.T) {
	for _, c := range []struct {
		what string
		edit func(l *feed.Record)
		want bool
	}{
		{"as it is", func(*feed.Record) {}, false},
		{"with a start that is past", func(l *feed.Record) {
			l.Position.Start = feed.FromTime(time.Now().Add(-1))
		}, false},
		{"with a start to come", func(l *feed.Record) {
			l.Position.Start = feed.FromTime(time.Now().Add(time.Hour))
		}, true},
		{"without a token", func(l *feed.Record) { l.Position = feed.Position{Start: feed.FromBeginning()} }, true},
		{"with a token without an LSN", func(l *feed.Record) { l.Position.Token = "somewhere" }, true},
		{"with held keys", func(l *feed.Record) { SetProperty(l, notes.HeldProperty, "x") }, true},
	} {
		view := NewView(nil, sequenced{})
		view.answeredAt(time.Now())
		lease := made(cell(0, 4), 5, 1)
		c.edit(&lease)
		if got := view.IsApart(lease); got != c.want {
			t.Errorf("a lease %s stays apart: %v, want %v", c.what, got, c.want)
		}
		if !NewView(nil, nil).IsApart(lease) {
			t.Errorf("a lease %s of a source that knows no LSNs may be joined", c.what)
		}
	}
}

// The lease of both ranks above each of them, its owner has a higher number, and what others keep in them stays.
func TestTheLeaseOfBothTakesTheirPlace(t *testing.T) {
	left, right := made(cell(0, 4), 5, 3), made(cell(4, keys), 5, 1)
	for name, of := range map[string]*feed.Record{"left": &left, "right": &right} {
		SetProperty(of, "of the "+name, "own")
		SetProperty(of, "of both", name)
		SetProperty(of, notes.DueProperty, "x")
		SetProperty(of, notes.MakerProperty, "x")
		SetProperty(of, notes.LoadProperty, notes.PlainNumber(7))
		MarkJoining(of, feed.FullRange(), time.Now())
	}
	SetProperty(&left, notes.TermProperty, notes.PlainNumber(4))
	SetProperty(&right, notes.TermProperty, notes.PlainNumber(9))
	SetProperty(&right, notes.ResetProperty, notes.LastReset{On: 8, Caller: "x"}.String())
	SetProperty(&left, notes.ResetProperty, notes.LastReset{On: 3, Caller: "y"}.String())
	SetProperty(&left, notes.ServedProperty, "one two")
	SetProperty(&right, notes.ServedProperty, "three")
	got := Joint(left, right)
	p := got.Properties
	if got.Range != cell(0, keys) || got.Token != got.Range.String() || got.Position != left.Position ||
		GenerationOf(got) != 4 || TermOf(got) != 9 || got.State != feed.StateLive || !got.Free() ||
		LastReset(got).On != 8 || LastReset(got).Caller != "x" || p["of the left"] != "own" ||
		p["of the right"] != "own" || !IsServed(got, "two") || !IsServed(got, "three") ||
		p["of both"] != "left" || notes.Number(p, notes.LoadProperty) != 14 {
		t.Errorf("the lease of both is %+v", got)
	}
	for _, name := range []string{notes.DueProperty, notes.MakerProperty, notes.JoiningProperty, notes.PartsProperty} {
		if p[name] != "" {
			t.Errorf("the lease of both has %s %q", name, p[name])
		}
	}
	v := NewView(nil, sequenced{})
	v.Put(got)
	for _, of := range []feed.Record{left, right} {
		if above := v.Ranking(); !above(got, of) || above(of, got) {
			t.Errorf("the lease of both does not rank above %+v", of)
		}
		EndJoining(&of)
		_, joining := JoiningOf(of)
		if joining || of.State != feed.StateLive || of.Properties[notes.JoiningProperty] != "" {
			t.Errorf("a lease that is not joined after all is %+v", of)
		}
		if !v.IsRedundant(of) {
			t.Errorf("a lease is not redundant beside that of both: %+v", of)
		}
	}
}
