package admin

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/variants"
)

// listingOf describes records as they are at a time, without a source.
func listingOf(now time.Time, records ...feed.Record) *Listing {
	l := describeRecords(records, now)
	l.addLags(changefeed.Estimation{}, errNoSource)
	l.relate()
	return l
}

// atWork is a lease whose owner has just written it.
func atWork(now time.Time, edit func(*feed.Record)) feed.Record {
	r := feed.Record{
		Kind: feed.KindLease, ID: "doc", Token: "-FF", Range: feed.FullRange(), Owner: "one", Epoch: "e1",
		Expiration: time.Minute, Updated: now,
	}
	if edit != nil {
		edit(&r)
	}
	return r
}

// host is the presence of an instance that has just shown life.
func host(now time.Time, name string) feed.Record {
	return feed.Record{
		Kind: feed.KindHost, ID: name, Token: name + "/1", Owner: name, Epoch: "e1",
		Expiration: 42500 * time.Millisecond, // of an instance with the default options
		Updated:    now,
	}
}

// runs is the presence of an instance with a handler.
func runs(now time.Time, name, handler string) feed.Record {
	r := host(now, name)
	variants.Show(&r, feed.Variant{Handler: handler, Program: "shop v1"}, now)
	return r
}

// Who reads the states alone must see whether anybody works on a lease, and since when nobody does.
func TestTheStateOfALeaseSaysWhetherAnybodyWorksOnIt(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		quiet time.Duration
		edit  func(*feed.Record)
		want  State
		since time.Duration // after the last write; -1 is zero
		note  string
	}{
		{"at work", 0, nil, StateLive, -1, ""},
		{"of a .NET processor that has taken over from us", 0, func(l *feed.Record) {
			l.Epoch = ""
		}, StateLive, -1, "owned by a processor of another make"},
		{"late, as after a checkpoint", 26 * time.Second, nil, StateLive, -1, ""},
		{
			"frozen", 28 * time.Second, nil, StateSilent, 0,
			"its owner has been silent for 28s: others take over in 32s",
		},
		{
			"dead", 61 * time.Second, nil, StateExpired, time.Minute,
			"expired: its owner has been silent for 1m1s, 1m are allowed",
		},
		{"of a .NET processor that is dead", 61 * time.Second, func(l *feed.Record) {
			l.Epoch, l.Expiration = "", 0
		}, StateExpired, time.Minute, "expired"},
		{"silent, and allowed to be", 2 * time.Minute, func(l *feed.Record) {
			l.Expiration = 5 * time.Minute
		}, StateLive, -1, ""},
		{"free", time.Second, func(l *feed.Record) { l.Owner, l.Epoch = "", "" }, StateFree, 0, noteFree},
		{"paused", time.Hour, func(l *feed.Record) {
			l.Owner, l.Epoch = "", ""
			l.Properties = map[string]string{notes.PausedProperty: notes.Paused(now.Add(time.Minute))}
		}, StatePaused, time.Minute, "paused since 12:01:00: changefeed leases resume ends that"},
		{"spoilt", 0, func(l *feed.Record) { l.Err = feed.ErrBadLease }, StateBroken, -1, "not a lease document"},
		{"splitting, and its owner is dead", time.Hour, func(l *feed.Record) {
			l.State = feed.StateSplitting
		}, StateSplitting, time.Minute, "expired"},
		{"retired", time.Hour, func(l *feed.Record) { l.State = feed.StateRetired }, StateRetired, -1, "replaced"},
		{
			"of a later version", 0, func(l *feed.Record) { l.State = "new" }, "new", -1,
			`its state "new" belongs to a later version`,
		},
	} {
		others := []feed.Record{host(now, "one"), host(now.Add(tt.quiet), "two")}
		l := describeRecords(append(others, atWork(now, tt.edit)), now.Add(tt.quiet)).Leases[0]
		since := time.Time{}
		if tt.since >= 0 {
			since = now.Add(tt.since)
		}
		if said := strings.Join(l.Notes, "; "); l.State != tt.want || !l.Since.Equal(since) ||
			!strings.HasPrefix(said, tt.note) || (said == "") != (tt.note == "") {
			t.Errorf("%s: %s since %v, %q, want %s since %v, %q", tt.name, l.State, l.Since, said, tt.want, since,
				tt.note)
		}
	}
}

// An outage is what an owner at work says. Others have left the property, and do not know.
func TestALeaseSaysSinceWhenThereIsAnOutage(t *testing.T) {
	now := time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC)
	since := time.Date(2026, 3, 4, 12, 3, 11, 0, time.UTC)
	for _, c := range []struct {
		name string
		edit func(*feed.Record)
		at   time.Time
		want string
		is   bool
	}{
		{"now", nil, since, "outage since 12:03:11", true},
		{"since yesterday", nil, since.Add(-24 * time.Hour), "outage since 2026-03-03 12:03:11", true},
		{"for days", nil, since.Add(-48 * time.Hour), "outage since 2026-03-02 12:03:11", true},
		{"none", nil, time.Time{}, "", false},
		{"of an owner that has stopped", func(r *feed.Record) { r.Owner, r.Epoch = "", "" }, since, noteFree, false},
		{"of an owner that is silent", func(r *feed.Record) {
			r.Updated = now.Add(-5 * time.Minute)
		}, since, "expired: its owner has been silent for 5m, 1m are allowed", false},
		{"before another processor", func(r *feed.Record) {
			r.Epoch = ""
		}, since, "owned by a processor of another make", false},
	} {
		record := atWork(now, c.edit)
		record.Properties = map[string]string{notes.OutageProperty: notes.Outage(c.at)}
		l := describeRecords([]feed.Record{record, host(now, "two")}, now).Leases[0]
		if said := strings.Join(l.Notes, "; "); said != c.want || !l.Outage.IsZero() != c.is ||
			c.is && !l.Outage.Equal(c.at) {
			t.Errorf("%s: %q, outage since %v, want %q", c.name, said, l.Outage, c.want)
		}
	}
}

// A lease that was replaced, or that cannot be read, has the name of an owner still, who does not work on it.
func TestNobodyWorksOnALeaseThatWasReplacedOrIsBroken(t *testing.T) {
	now := time.Now()
	free := func(r *feed.Record) { r.ID, r.Owner, r.Epoch = "free", "", "" }
	for name, c := range map[string]struct {
		other func(*feed.Record)
		want  State
	}{
		"replaced": {func(r *feed.Record) { r.State = feed.StateRetired }, StateStopped},
		"broken":   {func(r *feed.Record) { r.Err = feed.ErrBadLease }, StateStopped},
		"at work":  {nil, StateFree},
	} {
		l := describeRecords([]feed.Record{atWork(now, free), atWork(now, c.other)}, now)
		l.Leases[0].Lag = &changefeed.Lag{Pending: 2}
		l.markStopped()
		note := map[State]string{StateStopped: "stopped: no instance runs, ~2 changes are waiting", StateFree: noteFree}
		if got := l.Leases[0]; got.State != c.want || got.Notes[0] != note[c.want] {
			t.Errorf("beside one that is %s: %s, %q", name, got.State, got.Notes)
		}
	}
}

// Leases are compared with all others: a wide one may lie over several, and one that was replaced covers nothing.
func TestHolesAndOverlapsAreThoseOfAllLeases(t *testing.T) {
	for _, c := range []struct {
		leases string // a ! for one that was replaced
		want   string // leases and holes with their notes
	}{
		{"-FF", "-FF"},
		{"-3F 1F-2F 2F-3F 3F-FF", "-3F overlaps 1F-2F, overlaps 2F-3F; 1F-2F overlaps -3F; 2F-3F overlaps -3F; 3F-FF"},
		{"-3F 1F-2F 3F-FF", "-3F overlaps 1F-2F; 1F-2F overlaps -3F; 3F-FF"},
		{"!-FF -1F", "!-FF; -1F; 1F-FF no lease covers these keys"},
		{"!-FF", "!-FF; -FF no lease covers these keys"},
	} {
		l := &Listing{}
		for lease := range strings.FieldsSeq(c.leases) {
			r, err := feed.ParseRange(strings.TrimPrefix(lease, "!"))
			if err != nil {
				t.Fatal(err)
			}
			record := feed.Record{Kind: feed.KindLease, ID: lease, Range: r}
			if strings.HasPrefix(lease, "!") {
				record.State = feed.StateRetired
			}
			l.Leases = append(l.Leases, Lease{Record: record})
		}
		l.addOverlaps()
		var got []string
		say := func(name string, notes []string) {
			var said []string
			for _, note := range notes {
				before, _, _ := strings.Cut(note, ": ")
				said = append(said, before)
			}
			got = append(got, strings.TrimSpace(name+" "+strings.Join(said, ", ")))
		}
		for _, lease := range l.Leases {
			say(lease.ID, lease.Notes)
		}
		for _, h := range l.Holes {
			say(h.Range.String(), h.Notes)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.leases, strings.Join(got, "; "), c.want)
		}
	}
}

// Instances that differ or have nothing to do are findings about the unit as a whole.
func TestWhatOnlyTheInstancesTellIsFound(t *testing.T) {
	now := time.Now()
	of := func(owner string) feed.Record {
		return atWork(now, func(r *feed.Record) { r.Owner, r.ID = owner, owner })
	}
	free := atWork(now, func(r *feed.Record) { r.Owner, r.Epoch = "", "" })
	gone, replaced, earlier := runs(now.Add(-time.Hour), "c", "other.sh"), of("a"), of("a")
	replaced.State, earlier.Epoch = feed.StateRetired, "e0"
	retired := free
	retired.State = feed.StateRetired
	broken := feed.Record{Kind: feed.KindLease, ID: "broken", Err: feed.ErrBadLease}
	for name, c := range map[string]struct {
		records []feed.Record
		want    string
	}{
		"nothing": {[]feed.Record{of("a"), runs(now, "a", "mail.sh")}, ""},
		"differing instances": {
			[]feed.Record{of("a"), of("b"), runs(now, "a", "mail.sh"), runs(now, "b", "other.sh")},
			"differ: instances differ: a runs mail.sh; b runs other.sh",
		},
		"an instance that has gone": {[]feed.Record{of("a"), runs(now, "a", "mail.sh"), gone}, ""},
		"an older version":          {[]feed.Record{of("a"), of("b"), runs(now, "a", "mail.sh"), host(now, "b")}, ""},
		"idle instances": {
			[]feed.Record{of("b"), runs(now, "c", "x"), runs(now, "a", "x"), runs(now, "b", "x")},
			"idle: 2 of 3 instances idle: a c; stop some",
		},
		"a lease of an earlier life": {[]feed.Record{earlier, runs(now, "a", "x")}, "idle: 1 of 1 instance idle: a"},
		"a free lease":               {[]feed.Record{of("b"), free, runs(now, "a", "x"), runs(now, "b", "x")}, ""},
		"a lease that was replaced": {
			[]feed.Record{of("b"), replaced, runs(now, "a", "x"), runs(now, "b", "x")},
			"idle: 1 of 2 instances idle: a",
		},
		"a free lease that was replaced": {
			[]feed.Record{of("b"), retired, runs(now, "a", "x"), runs(now, "b", "x")},
			"idle: 1 of 2 instances idle: a",
		},
		"a broken document": {
			[]feed.Record{of("b"), broken, runs(now, "a", "x"), runs(now, "b", "x")},
			"idle: 1 of 2 instances idle: a",
		},
	} {
		var got []string
		for _, f := range listingOf(now, c.records...).Findings() {
			if f.Word == WordDiffer || f.Word == WordIdle {
				got = append(got, string(f.Word)+": "+f.Text)
			}
		}
		if text := strings.Join(got, "; "); !strings.HasPrefix(text, c.want) || (text == "") != (c.want == "") {
			t.Errorf("%s: found %q, want %q", name, text, c.want)
		}
	}
}

// A slow batch is noted at the lease of the owner who shows it, with the time since.
func TestASlowBatchIsNotedAtItsLease(t *testing.T) {
	now := time.Now()
	slow := host(now.Add(-12*time.Second), "one")
	variants.ShowSlow(&slow, []feed.SlowBatch{
		{Lease: "-FF", Changes: 3, Since: now.Add(-time.Minute), Usual: 10 * time.Millisecond},
		{Lease: "-FF", Changes: 1, Since: now.Add(-time.Second)},
	}, now)
	gone := slow
	gone.State = feed.StateRetired
	for name, c := range map[string]struct {
		lease, host feed.Record
		want        string
	}{
		"of its owner": {
			atWork(now, nil), slow, "a batch has been in the handler for 1m12s (usually 10ms): 3 changes",
		},
		"of an owner that has gone":     {atWork(now, nil), gone, ""},
		"of a lease of another owner":   {atWork(now, func(r *feed.Record) { r.Owner = "two" }), slow, ""},
		"of a lease of an earlier life": {atWork(now, func(r *feed.Record) { r.Epoch = "e0" }), slow, ""},
	} {
		l := listingOf(now, c.lease, c.host)
		said, inHand := strings.Join(l.Leases[0].Notes, "; "), l.Leases[0].InHand(now)
		if !strings.HasPrefix(said, c.want) || (said == "") != (c.want == "") || (c.want == "") != (inHand == 0) {
			t.Errorf("%s: notes %q, in hand for %v, want %q", name, said, inHand, c.want)
		}
		if inHand != 0 && inHand != 72*time.Second {
			t.Errorf("%s: in hand for %v, want the longest", name, inHand)
		}
	}
}

// A source that does not count has the LSNs of a whole partition, so what two leases of it lag behind is an upper
// bound, if it is too much to be read. In a container of another partition key, two leases may have the same id: each
// has its own range and lag.
func TestEachLeaseHasItsOwnLag(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1501 {
		if _, err := orders.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d"}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	lease := func(part string) feed.Record {
		r, err := feed.ParseRange(part)
		if err != nil {
			t.Fatal(err)
		}
		return feed.Record{
			Kind: feed.KindLease, ID: "same", Token: part, Range: r, Version: 1, Position: feed.At(`"1"`), Updated: now,
		}
	}
	for _, c := range []struct {
		name   string
		source feed.Source
		leases []feed.Record
		exact  bool
		shared bool
	}{
		{"a part of a partition", struct{ feed.Source }{orders}, []feed.Record{lease("-FE")}, false, true},
		{"a partition", struct{ feed.Source }{orders}, []feed.Record{lease("-FF")}, false, false},
		{"two of one id", orders, []feed.Record{lease("-10"), lease("10-FF")}, true, false},
		{"without a source", nil, []feed.Record{lease("-FF")}, false, false},
	} {
		u := Open(c.source, listed{records: c.leases, now: now}, Options{})
		l, err := u.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, lease := range l.Leases {
			if lease.Range.String() != lease.Token || (lease.Lag == nil) != (c.source == nil) ||
				(lease.Lag == nil) != (lease.Unknown != nil) {
				t.Fatalf("%s: lease %s has the range %s and the lag %v", c.name, lease.Token, lease.Range, lease.Lag)
			}
			if lease.Lag == nil {
				continue
			}
			if sum += lease.Lag.Pending; lease.Lag.Exact != c.exact || lease.Lag.Shared != c.shared {
				t.Errorf("%s: lag %+v, want exact %v, shared %v", c.name, lease.Lag, c.exact, c.shared)
			}
		}
		if len(c.leases) == 2 && (sum != 1500 || l.Leases[0].Lag.Pending == l.Leases[1].Lag.Pending) {
			t.Errorf("%s: lags of %d and %d, want 1500 together", c.name, l.Leases[0].Lag.Pending,
				l.Leases[1].Lag.Pending)
		}
	}
}

// Each finding is there for a lease or a record that has it, and for no other.
func TestEachFindingIsFoundWhereItIs(t *testing.T) {
	now := time.Now()
	owned, by := host(now, "two"), atWork(now, nil)
	by.Owner = "two"
	for word, c := range map[Word]struct {
		records []feed.Record
		says    string
		grade   Grade
	}{
		WordExpired: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Updated = now.Add(-61 * time.Second)
		}), owned, by}, "owner one is silent for 1m1s", GradeWarning},
		WordSilent: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Updated = now.Add(-40 * time.Second)
		}), host(now, "one")}, "its owner is late", GradeWarning},
		WordFree: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Owner, r.Epoch = "", ""
		}), owned, by}, "nobody has the lease", GradeWarning},
		WordStopped: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Owner, r.Epoch = "", ""
		})}, "no instance runs", GradeWarning},
		WordPaused: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Owner, r.Epoch, r.Properties = "", "", map[string]string{notes.PausedProperty: notes.Paused(now)}
		})}, "the lease is paused", GradeWarning},
		WordHole: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Range = feed.Range{Max: "80"}
		})}, "no lease holds these keys", GradeFailure},
		WordOverlap: {[]feed.Record{atWork(now, nil), atWork(now, nil)}, "another lease holds keys", GradeFailure},
		WordBroken: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Err = feed.ErrBadLease
		})}, "not a lease", GradeFailure},
		WordFailing: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Attempts = 4
		})}, "failed 4 times", GradeWarning},
		WordHeld: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Properties = map[string]string{notes.HeldProperty: `{"at":"","keys":["[\"a\"]","[\"b\"]"]}`}
		})}, "2 keys held", GradeWarning},
		WordAside: {[]feed.Record{atWork(now, func(r *feed.Record) {
			aside := notes.Aside{Keys: []notes.AsideKey{{Key: `["a"]`}}}
			r.Properties = map[string]string{notes.AsideProperty: aside.String()}
		})}, "1 key set aside", GradeWarning},
		WordOutage: {[]feed.Record{atWork(now, func(r *feed.Record) {
			r.Properties = map[string]string{notes.OutageProperty: notes.Outage(time.Unix(1e9, 0))}
		})}, "outage since 2001-09-09T01:46:40Z", GradeFailure},
		WordForeign: {[]feed.Record{atWork(now, func(r *feed.Record) { r.Epoch = "" })}, "another make", GradeWarning},
		WordRetired: {[]feed.Record{atWork(now, nil), atWork(now, func(r *feed.Record) {
			r.State = feed.StateRetired
		})}, "others have replaced it", GradeWarning},
		WordLater: {[]feed.Record{atWork(now, nil), {Kind: "odd", ID: "odd"}}, `a record of kind "odd"`, GradeWarning},
	} {
		found := 0
		for _, f := range listingOf(now, c.records...).Findings() {
			if f.Word == word {
				found++
				if !strings.Contains(f.Text, c.says) || f.Grade != c.grade || f.Means == "" || f.Next == "" {
					t.Errorf("%s: found %+v, want %q of grade %d", word, f, c.says, c.grade)
				}
			} else if f.Word != WordUnknown && f.Word != WordStopped && f.Word != WordOverlap {
				t.Errorf("%s: found %s too: %q", word, f.Word, f.Text)
			}
		}
		if want := map[Word]int{WordOverlap: 2}; found != cmp.Or(want[word], 1) {
			t.Errorf("%s: found %d times", word, found)
		}
		if word.About() == "" {
			t.Errorf("%s has no description", word)
		}
	}
	for attempts, want := range map[int]Grade{4: GradeWarning, 5: GradeFailure} {
		l := listingOf(now, atWork(now, func(r *feed.Record) { r.Attempts = attempts }))
		if f := l.Findings()[0]; f.Word != WordFailing || f.Grade != want {
			t.Errorf("%d attempts: found %+v first, want grade %d", attempts, f, want)
		}
	}
	damaged := host(now, "two")
	damaged.Err = feed.ErrBadLease
	f := listingOf(now, by, damaged).Findings()[0]
	if f.Word != WordBroken || f.ID != "two" || f.Grade != GradeWarning {
		t.Errorf("found %+v first, want a presence that cannot be read", f)
	}
}

// A lease of an owner who was killed is stopped only if nobody else runs.
func TestAUnitWhoseInstancesWereKilledIsStopped(t *testing.T) {
	now := time.Now()
	dead := atWork(now, func(r *feed.Record) { r.Updated = now.Add(-time.Hour) })
	for want, records := range map[bool][]feed.Record{true: {dead}, false: {dead, host(now, "two")}} {
		l := listingOf(now, records...)
		if got := l.Leases[0].IsAbandoned; got != want || l.Leases[0].State != StateExpired || l.IsAtWork() == want {
			t.Errorf("abandoned is %v, %s, want %v", got, l.Leases[0].State, want)
		}
		for _, f := range l.Findings() {
			if f.Word == WordExpired && (f.Grade == GradeFailure) != want {
				t.Errorf("grade %d of an expired lease in a unit that has stopped: %v", f.Grade, want)
			}
		}
	}
}

// What is allowed is no finding.
func TestALimitIsNoFinding(t *testing.T) {
	l := &Listing{At: time.Unix(1000, 0)}
	for _, seconds := range []int64{0, 10, 11} {
		l.Leases = append(l.Leases, Lease{Lag: &changefeed.Lag{
			Pending: seconds, Exact: seconds < 11, Oldest: l.At.Add(-time.Duration(seconds) * time.Second),
		}})
	}
	l.Leases = append(l.Leases, Lease{})
	if f := l.Waiting(10 * time.Second); len(f) != 1 || f[0].Text != "the oldest change has waited for 11s" ||
		f[0].Word != WordWait || f[0].Next == "" {
		t.Errorf("found %+v, want a lease that has waited for 11 s", f)
	}
	if f := l.Behind(10); len(f) != 1 || f[0].Text != "~11 changes behind" || f[0].Word != WordLag {
		t.Errorf("found %+v, want a lease with 11 changes", f)
	}
}
