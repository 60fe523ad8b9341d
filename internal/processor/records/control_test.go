package records

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A follower wakes its instance for news. That a pause of a lease begins or ends is news; a renewal is none.
func TestThatAPauseBeginsOrEndsIsNews(t *testing.T) {
	v := NewView(nil, nil)
	lease := feed.Record{Kind: feed.KindLease, ID: "a", Range: feed.FullRange()}
	v.Put(lease)
	if v.Put(lease) {
		t.Error("a renewal is news")
	}
	MarkPaused(&lease, time.Now())
	if !v.Put(lease) || v.Put(lease) {
		t.Error("the mark is no news, or is news twice")
	}
	SetProperty(&lease, notes.PausedProperty, "")
	if !v.Put(lease) {
		t.Error("the end of the mark is no news")
	}
}

// A pause of a range pauses each lease that has a part of it, and explains the marks of these leases alone.
func TestAPauseIsAboutTheLeasesOfItsRange(t *testing.T) {
	quarters := feed.FullRange().Cut(4)
	pauses := []feed.Range{{Min: quarters[1].Min, Max: quarters[2].Max}}
	for i, r := range quarters {
		lease := feed.Record{Kind: feed.KindLease, Range: r}
		isIn := i == 1 || i == 2
		if IsPaused(lease, pauses) != isIn {
			t.Errorf("lease %d is paused: %v", i, !isIn)
		}
		MarkPaused(&lease, time.Now())
		if HasOldMark(pauses)(lease) == isIn || !IsPaused(lease, nil) {
			t.Errorf("lease %d has an old mark: %v; paused by its mark: %v", i, isIn, IsPaused(lease, nil))
		}
		if lease.State = feed.StateSplitting; IsPaused(lease, pauses) {
			t.Errorf("lease %d is paused though it is being split", i)
		}
	}
}

// The number of a lease's last reset never falls, whichever of two calls writes last, because rank decides by it. A
// write that is repeated keeps its number.
func TestTheNumberOfAResetNeverFalls(t *testing.T) {
	var l feed.Record
	for _, c := range []struct {
		by   notes.LastReset
		want int64
	}{
		{notes.LastReset{On: 7, Caller: "a"}, 7},
		{notes.LastReset{On: 7, Caller: "a"}, 7}, // again
		{notes.LastReset{On: 5, Caller: "b"}, 8}, // was chosen before
		{notes.LastReset{On: 5, Caller: "b"}, 8},
		{notes.LastReset{On: 20, Caller: "c"}, 20},
	} {
		if ResetTo(&l, feed.At(`"1"`), c.by); LastReset(l) != (notes.LastReset{On: c.want, Caller: c.by.Caller}) {
			t.Errorf("after %+v the lease says %+v, want number %d", c.by, LastReset(l), c.want)
		}
	}
}

// Who is told of a pause is told who asked for it and why, and since when, by the store's clock.
func TestAPauseSaysWhoAskedForIt(t *testing.T) {
	now := time.Now()
	c := notes.Control{Action: notes.Pause, Max: "FF", By: "ada", Why: "INC-1"}
	v := NewView(nil, nil)
	v.Put(feed.Record{
		Kind: feed.KindRequest, ID: "pause", Token: c.Token(), Properties: c.Properties(nil),
		Timestamp: now.Add(-time.Hour), Updated: now,
	})
	want := feed.Pause{Range: feed.FullRange(), By: "ada", Reason: "INC-1", Since: now}
	if all := v.PausesAsked(); len(all) != 1 || all[0] != want {
		t.Errorf("got %+v, want %+v", all, want)
	}
}

// A lease that nothing was asked of has not served a request without a caller, as an older version makes.
func TestARequestWithoutACallerIsNotServed(t *testing.T) {
	var l feed.Record
	if IsServed(l, "") {
		t.Error("served before anybody asked")
	}
	if ResetTo(&l, feed.At("1"), notes.LastReset{On: 1, Caller: "ada"}); !IsServed(l, "ada") || IsServed(l, "bob") {
		t.Errorf("after a reset for ada: served for ada %v, for bob %v", IsServed(l, "ada"), IsServed(l, "bob"))
	}
}

// A reset forgets what is noted of changes, and not which requests were carried out: their outcomes may be missing.
func TestAResetForgetsNoRequestThatWasServed(t *testing.T) {
	l := feed.Record{Properties: map[string]string{
		notes.ServedProperty: notes.AddServed("", "ada"), notes.SkipsProperty: "skips", notes.AsideProperty: "keys",
	}}
	ResetTo(&l, feed.At("1"), notes.LastReset{On: 1, Caller: "bob"})
	if !IsServed(l, "ada") || l.Properties[notes.SkipsProperty]+l.Properties[notes.AsideProperty] != "" {
		t.Errorf("after a reset the lease says %v", l.Properties)
	}
}
