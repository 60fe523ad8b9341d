package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// said returns the sentences about the leases of a listing.
func said(l *Listing) string {
	var all []string
	for _, x := range l.Explain(nil) {
		all = append(append(all, x.Facts...), x.Next...)
	}
	return strings.Join(all, "\n")
}

// wantSaid checks which sentences there are, and which are not: those after a !.
func wantSaid(t *testing.T, l *Listing, texts ...string) {
	t.Helper()
	all := said(l)
	for _, text := range texts {
		if text, not := strings.CutPrefix(text, "!"); strings.Contains(all, text) == not {
			t.Errorf("%q in it: want %v:\n%s", text, !not, all)
		}
	}
}

// halves are the parts of a lease that is cut.
var halves = feed.FullRange().Cut(2)

// ofNobody takes the owner away.
func ofNobody(r *feed.Record) { r.Owner, r.Epoch = "", "" }

// A lease that is being split, cut or joined is found without an owner at work as a live lease is.
func TestALeaseThatIsBeingReplacedNeedsAnOwner(t *testing.T) {
	now := time.Now()
	others := []feed.Record{host(now.Add(time.Hour), "two")}
	cut := func(r *feed.Record) {
		r.State, r.Properties = feed.StateSplitting, map[string]string{notes.PartsProperty: keyspace.Join(halves)}
	}
	joined := func(r *feed.Record) { records.MarkJoining(r, feed.FullRange(), now.Add(time.Minute)) }
	for _, tt := range []struct {
		name  string
		quiet time.Duration // of the owner
		edits []func(*feed.Record)
		hosts []feed.Record
		want  []Word
		since time.Duration // after the last write; -1 is zero
	}{
		{"cut, and stopped", time.Hour, []func(*feed.Record){cut, ofNobody}, nil, []Word{WordStopped}, 0},
		{"joined, and stopped", time.Hour, []func(*feed.Record){joined, ofNobody}, nil, []Word{WordStopped}, 0},
		{"cut, and free", time.Hour, []func(*feed.Record){cut, ofNobody}, others, []Word{WordFree}, 0},
		{
			"cut, the owner is dead, others run", time.Hour,
			[]func(*feed.Record){cut},
			others,
			[]Word{WordExpired},
			time.Minute,
		},
		{
			"joined, the owner is dead, nobody runs", time.Hour,
			[]func(*feed.Record){joined},
			nil,
			[]Word{WordExpired, WordStopped},
			time.Minute,
		},
		{"cut, the owner is late", 55 * time.Second, []func(*feed.Record){cut}, nil, []Word{WordSilent}, 0},
		{"cut, and paused", time.Hour, []func(*feed.Record){cut, ofNobody, func(r *feed.Record) {
			records.MarkPaused(r, now)
		}}, others, []Word{WordPaused}, 0},
		{"cut, the owner works", time.Second, []func(*feed.Record){cut}, nil, nil, -1},
		{"joined, the owner works", time.Second, []func(*feed.Record){joined}, nil, nil, -1},
	} {
		l := listingOf(now.Add(tt.quiet), append(slices.Clone(tt.hosts), atWork(now, func(r *feed.Record) {
			for _, edit := range tt.edits {
				edit(r)
			}
		}))...)
		var words []Word
		for _, f := range l.Findings() {
			if f.Word != WordUnknown && f.Word != WordIdle {
				words = append(words, f.Word)
			}
		}
		since := time.Time{}
		if tt.since >= 0 {
			since = now.Add(tt.since)
		}
		if got := l.Leases[0]; !slices.Equal(words, tt.want) || got.State != StateSplitting ||
			got.Since.Sub(since).Abs() > time.Second {
			t.Errorf("%s: %s since %v, found %v, want %v since %v", tt.name, got.State, got.Since, words, tt.want,
				since)
		}
	}
}

// The sentences say whether a lease is being joined or divided, and nobody waits for an owner that is not there.
func TestWhatReplacesALeaseIsSaid(t *testing.T) {
	now := time.Now()
	two := func(at time.Time) feed.Record { return host(at, "two") }
	cut := func(r *feed.Record) {
		r.State, r.Properties = feed.StateSplitting, map[string]string{notes.PartsProperty: keyspace.Join(halves)}
	}
	freeCut := func(r *feed.Record) { cut(r); ofNobody(r) }
	begun := func(r *feed.Record) { r.State = feed.StateSplitting }
	joined := func(r *feed.Record) { records.MarkJoining(r, feed.FullRange(), now.Add(time.Minute)) }
	both := halves[0].String() + " and " + halves[1].String()
	second, hour := now.Add(time.Second), now.Add(time.Hour)
	wantSaid(t, listingOf(second, atWork(now, cut)), "its partition was split, or to have more leases",
		"The parts are "+both+"; there is no lease yet for "+both+".", "!The next owner",
		"Wait: the owner makes the missing leases within seconds.")
	wantSaid(t, listingOf(second, atWork(now, begun)), "The lease does not say yet which parts these are.")
	wantSaid(t, listingOf(second, atWork(now, freeCut), two(now)), "The next owner finishes that.",
		"!the owner makes", "Wait for a round of the instances")
	wantSaid(t, listingOf(second, atWork(now, freeCut)), "Start an instance of the unit.", "!Wait")
	wantSaid(t, listingOf(second, atWork(now, joined)), "being joined with a neighbouring lease into -FF",
		"Wait: the owner joins the leases within seconds.", "!missing leases", "!split")
	wantSaid(t, listingOf(hour, atWork(now, joined), two(hour)), "!the owner joins", "If the lease -FF is not made",
		"Wait for a round of the instances, which take the lease")
	wantSaid(t, listingOf(hour, atWork(now, joined)), "Start an instance of the unit.", "!Wait")
}

// A lease that was created too late counts as deleted: it is no overlap, its owner is nobody at work, and its keys are
// a hole if no other lease has them.
func TestALeaseThatWasCreatedTooLateIsNone(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	lease := func(of feed.Range, edit func(*feed.Record)) feed.Record {
		return atWork(now, func(r *feed.Record) {
			r.Range, r.Token, r.ID, r.Version, r.Timestamp = of, of.String(), "id"+of.String(), 1, now
			r.Properties = map[string]string{notes.GenerationProperty: notes.PlainNumber(1)}
			edit(r)
		})
	}
	late := lease(feed.FullRange(), func(r *feed.Record) { records.SetDue(r, now.Add(-time.Minute)) })
	l := listingOf(now.Add(time.Second), lease(halves[0], ofNobody), lease(halves[1], ofNobody), late)
	at := slices.IndexFunc(l.Leases, func(l Lease) bool { return l.ID == late.ID })
	got, words := l.Leases[at], foundWords(l)
	note := strings.Join(got.Notes, "; ")
	if got.State != StateRetired || got.IsAbandoned || !strings.HasPrefix(note, "created too late") {
		t.Errorf("the late lease is %s, %q", got.State, got.Notes)
	}
	if words[WordOverlap] != 0 || words[WordRetired] != GradeWarning || words[WordStopped] == 0 || l.IsAtWork() ||
		len(l.Holes) != 0 {
		t.Errorf("at work %v, findings %v, holes %v", l.IsAtWork(), words, l.Holes)
	}
	wantSaid(t, l, "Start an instance, which removes the lease", "!changefeed leases gc", "!replaced by others")
	for _, f := range l.Findings() {
		if f.Word == WordRetired && strings.Contains(f.Next+f.Text+f.Means, "replaced") {
			t.Errorf("found %+v: nothing has replaced it", f)
		}
	}
	if alone := listingOf(now, late); len(alone.Holes) != 1 {
		t.Errorf("the keys of a late lease alone have the holes %v, want one", alone.Holes)
	}
}

// A paused unit of which no instance runs has stopped too: the end of the pause alone does not let it go on.
func TestAPausedUnitWithoutInstancesIsStopped(t *testing.T) {
	now := time.Now()
	paused := atWork(now, func(r *feed.Record) {
		ofNobody(r)
		records.MarkPaused(r, now)
	})
	for _, tt := range []struct {
		records []feed.Record
		stopped bool
	}{{[]feed.Record{paused}, true}, {[]feed.Record{paused, host(now, "two")}, false}} {
		l := listingOf(now, tt.records...)
		words := foundWords(l)
		if _, stopped := words[WordStopped]; stopped != tt.stopped || words[WordPaused] == 0 ||
			l.Leases[0].State != StatePaused {
			t.Errorf("%s: found %v, want stopped: %v", l.Leases[0].State, words, tt.stopped)
		}
		if next := explained(t, l).Next; slices.Contains(next, adviceToStart) != tt.stopped || len(next) == 0 {
			t.Errorf("next is %q, want a start: %v", next, tt.stopped)
		}
	}
}

// It is said that others take over only if there are others: another instance, or the owner of another lease.
func TestNobodyTakesOverFromTheOnlyInstance(t *testing.T) {
	now := time.Now()
	late := now.Add(59 * time.Second)
	foreign := atWork(late, func(r *feed.Record) { r.Owner, r.Epoch, r.ID = "java", "", "other" })
	for _, tt := range []struct {
		name    string
		records []feed.Record
		others  bool
	}{
		{"alone", []feed.Record{host(late, "one")}, false},
		{"beside another instance", []feed.Record{host(late, "one"), host(late, "two")}, true},
		{"beside one that is gone", []feed.Record{host(now.Add(-time.Hour), "two")}, false},
		{"beside another kind of processor", []feed.Record{foreign}, true},
		{"after a restart", []feed.Record{func() feed.Record {
			r := host(late, "one")
			r.Epoch = "e2"
			return r
		}()}, true},
		{"after a restart, with a lease", []feed.Record{atWork(late, func(r *feed.Record) {
			r.Epoch, r.ID = "e2", "other"
		})}, true},
	} {
		l := listingOf(late, append(tt.records, atWork(now, nil))...)
		i := slices.IndexFunc(l.Leases, func(l Lease) bool { return l.State == StateSilent })
		if i < 0 {
			t.Errorf("%s: no lease is silent", tt.name)
			continue
		}
		note, owner := strings.Join(l.Leases[i].Notes, "; "), explainer{unit: l, Lease: &l.Leases[i]}.whoOwns()
		if strings.Contains(note, "others take over in 1s") != tt.others ||
			strings.Contains(note, "no other instance runs to take over") == tt.others ||
			strings.Contains(owner, "others take the lease at") != tt.others ||
			strings.Contains(owner, "No other instance runs") == tt.others {
			t.Errorf("%s: %q, %q, want others: %v", tt.name, note, owner, tt.others)
		}
	}
}

// When an owner is late depends on how often it renews its leases, which the life of its presence tells.
func TestAnOwnerIsLateByItsOwnRenewals(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name   string
		renew  time.Duration // 0 for an owner without a presence
		silent int           // the last second in which it is in time
	}{
		{"renews every 5 s", 5 * time.Second, 27},
		{"renews every 17 s", 17 * time.Second, 27},
		{"renews every 20 s", 20 * time.Second, 32},
		{"renews every 24 s, or more rarely", 24 * time.Second, 54},
		{"renews every 50 s", 50 * time.Second, 54},
		{"does not tell", 0, 54},
	} {
		all := []feed.Record{host(now, "two")} // whose renewals tell nothing of those of one
		if tt.renew > 0 {
			shown := host(now, "one")
			shown.Expiration = min(tt.renew*5/2, time.Minute) // as an instance writes it
			all = append(all, shown)
		}
		for seconds := range 60 {
			l := listingOf(now.Add(time.Duration(seconds)*time.Second), append(all, atWork(now, nil))...)
			if late := foundWords(l)[WordSilent] != 0; late != (seconds > tt.silent) {
				t.Errorf("%s: after %d s: late %v", tt.name, seconds, late)
			}
		}
	}
}

// A lease that others have replaced waits for nobody, though its owner has gone as all others have.
func TestAReplacedLeaseWaitsForNoInstance(t *testing.T) {
	now := time.Now()
	replaced := atWork(now, func(r *feed.Record) { r.ID, r.Range, r.State = "replaced", halves[0], feed.StateRetired })
	l := listingOf(now.Add(time.Hour), replaced, atWork(now, nil))
	for _, lease := range l.Leases {
		if lease.IsAbandoned != (lease.ID != replaced.ID) {
			t.Errorf("lease %s, %s, is abandoned: %v", lease.ID, lease.State, lease.IsAbandoned)
		}
	}
	for _, f := range l.Findings() {
		if f.Word == WordStopped && f.ID == replaced.ID {
			t.Errorf("found %+v: nobody needs the lease", f)
		}
	}
}

// A pause lasts since its mark, whatever has written the lease since.
func TestAPauseLastsSinceItsMark(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	l := listingOf(now, atWork(now.Add(-time.Minute), func(r *feed.Record) {
		ofNobody(r)
		records.MarkPaused(r, now.Add(-time.Hour))
	}))
	want := now.Add(-time.Hour)
	if got := l.Leases[0].Since; !got.Equal(want) {
		t.Errorf("the lease is paused since %v, want %v", got, want)
	}
	wantSaid(t, l, "Paused since "+want.Format(time.TimeOnly)+":")
}
