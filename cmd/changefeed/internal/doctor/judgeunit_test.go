package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/variants"
)

// lease is a lease whose owner works, of which nothing is pending.
func lease(edit func(*admin.Lease)) admin.Lease {
	l := admin.Lease{
		Record: feed.Record{
			Kind: feed.KindLease, ID: "doc", Token: "-FF", Range: feed.FullRange(), Owner: "one", Epoch: "one/A",
		},
		State: admin.StateLive, Lag: &changefeed.Lag{Exact: true},
	}
	if edit != nil {
		edit(&l)
	}
	return l
}

// instance is a running instance.
func instance(name string) admin.Instance {
	return admin.Instance{
		Record: feed.Record{Kind: feed.KindHost, Token: name, ID: name, Owner: name}, Presence: admin.Running,
	}
}

// unitOf returns a unit with leases, instances, holes and documents.
func unitOf(parts ...any) *unit.Unit {
	l := &admin.Listing{At: time.Unix(1000, 0)}
	for _, part := range parts {
		switch part := part.(type) {
		case admin.Lease:
			l.Leases = append(l.Leases, part)
		case admin.Instance:
			l.Instances = append(l.Instances, part)
		case admin.Hole:
			l.Holes = append(l.Holes, part)
		case admin.Document:
			l.Documents = append(l.Documents, part)
		}
	}
	u := unit.Of("mailer", "orders", l)
	u.Commands = unit.Commands{Leases: "docstore:d#leases", Name: "mailer"}
	return u
}

func TestWhatIsWrongWithALeaseIsJudged(t *testing.T) {
	state := func(s admin.State) admin.Lease { return lease(func(l *admin.Lease) { l.State = s }) }
	free := func(s admin.State) admin.Lease {
		return lease(func(l *admin.Lease) { l.State, l.Owner, l.Epoch = s, "", "" })
	}
	broken := lease(func(l *admin.Lease) { l.State, l.Err = admin.StateBroken, feed.ErrBadLease })
	hole := admin.Hole{Range: feed.Range{Min: "1F", Max: "FF"}}
	for _, tt := range []struct {
		name       string
		parts      []any
		want       Verdict
		text, next string
	}{
		{"well", []any{lease(nil), instance("one/A")}, OK, "1 lease, without a hole or an overlap", ""},
		{"stopped", []any{free(admin.StateStopped)}, OK, "1 lease", ""},
		{"splitting", []any{state("splitting")}, OK, "1 lease", ""},
		{
			"splitting, and the owner is dead",
			[]any{
				lease(func(l *admin.Lease) { l.State, l.Silent = admin.StateSplitting, time.Hour }), instance("two/B"),
			},
			Warn, "silent for too long", "the instances take over",
		},
		{
			"splitting, and free",
			[]any{free(admin.StateSplitting), instance("one/A")},
			Warn, "lease -FF: free", "log",
		},
		{"a hole that is mended", []any{lease(nil), hole}, Fail, "hole 1F-FF: no lease", "instances mend that"},
		{"a hole for good", []any{free(admin.StateStopped), hole}, Fail, "hole 1F-FF", "start an instance"},
		{"no lease at all", []any{hole}, Fail, "hole 1F-FF", "start an instance"},
		{
			"an overlap",
			[]any{lease(func(l *admin.Lease) { l.Overlaps = []string{"other"} })},
			Fail, "handled twice", "delete the one",
		},
		{"no lease", []any{broken}, Fail, "no valid lease", "delete the document"},
		{
			"an outage",
			[]any{lease(func(l *admin.Lease) { l.Outage = time.Unix(1, 0) })},
			Fail, "lacks what it needs", "mend",
		},
		{"4 attempts", []any{lease(func(l *admin.Lease) { l.Attempts = 4 })}, Warn, "is retried", "log"},
		{"5 attempts", []any{lease(func(l *admin.Lease) { l.Attempts = 5 })}, Fail, "5 times", "dead letters"},
		{
			"expired, and others work",
			[]any{state(admin.StateExpired), instance("two/B")},
			Warn, "silent for too long", "the instances take over",
		},
		{"expired, and nobody works", []any{state(admin.StateExpired)}, Fail, "-FF of one", "start an instance"},
		{
			"slow",
			[]any{lease(func(l *admin.Lease) { l.Slow = []feed.SlowBatch{{}} })},
			Warn, "much longer than usual", "it may hang",
		},
		{"silent", []any{state(admin.StateSilent)}, Warn, "late", "hangs"},
		{"of another make", []any{lease(func(l *admin.Lease) { l.Epoch = "" })}, Warn, "another make", "handler"},
		{
			"paused",
			[]any{free(admin.StatePaused)},
			Warn, "paused", "changefeed leases resume docstore:d#leases --name mailer ends that",
		},
		{
			"paused, and the owner goes on",
			[]any{lease(func(l *admin.Lease) { l.IsDefied = true })},
			Warn, "lease -FF of one: paused, and the owner has not obeyed", "look whether the owner runs",
		},
		{"free", []any{free(admin.StateFree), instance("one/A")}, Warn, "lease -FF: free", "log"},
		{"retired", []any{state("retired")}, Warn, "replaced", "changefeed leases gc"},
		{
			"a document",
			[]any{lease(nil), admin.Document{Record: feed.Record{ID: "odd"}}},
			Warn, "odd: a document", "changefeed leases",
		},
		{
			"a damaged presence",
			[]any{lease(nil), admin.Instance{Record: feed.Record{ID: "odd", Err: feed.ErrBadLease}}},
			Warn, "odd: a document", "changefeed leases",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := judgeLeases(unitOf(tt.parts...))
			if len(all) != 1 {
				t.Fatalf("%d findings, want 1: %v", len(all), all)
			}
			all[0].want(t, tt.want, tt.text, tt.next)
		})
	}
	all := judgeLeases(unitOf(free(admin.StatePaused), hole, broken))
	if len(all) != 3 || all[0].Verdict != Fail || all[1].Verdict != Fail || all[2].Verdict != Warn {
		t.Errorf("three flaws have the findings %v, want one for each, the worst first", all)
	}
}

func TestALagIsJudgedByHowLongItWaits(t *testing.T) {
	behind := func(n int64, waited time.Duration) func(*admin.Lease) {
		return func(l *admin.Lease) {
			l.Lag = &changefeed.Lag{Pending: n, Exact: true, Oldest: time.Unix(1000, 0).Add(-waited)}
		}
	}
	uncounted := func(l *admin.Lease) {
		l.Lag, l.Unknown = nil, errors.New("it has no position")
		l.Notes = []string{"lag unknown: it has no position", "a batch has been in the handler for 40s: 1 change"}
	}
	for _, tt := range []struct {
		name       string
		parts      []any
		want       Verdict
		text, next string
	}{
		{"nothing", []any{lease(nil)}, OK, "nothing behind", ""},
		{"a little", []any{lease(behind(9000, 30*time.Second))}, OK, "9,000 changes behind, the oldest for 30s", ""},
		{
			"long, and at work",
			[]any{lease(behind(1, 30200*time.Millisecond))},
			Warn, "1 change behind, the oldest",
			"falls",
		},
		{"long, and stopped", []any{lease(func(l *admin.Lease) {
			behind(2, 90*time.Second)(l)
			l.Owner, l.State = "", admin.StateStopped
		})}, Warn, "2 changes behind", "start an instance"},
		{"long, and paused", []any{lease(func(l *admin.Lease) {
			behind(2, 90*time.Second)(l)
			l.Owner, l.State = "", admin.StatePaused
		})}, Warn, "2 changes behind", "changefeed leases resume"},
		{"uncounted", []any{lease(uncounted)}, Warn, "not known: lease -FF: it has no position", "mend"},
		{
			"partly", []any{lease(uncounted), lease(behind(5, time.Second))}, Warn, "at least 5 changes behind", "mend",
		},
		{
			"a hole",
			[]any{lease(nil), admin.Hole{Range: feed.Range{Min: "1F", Max: "FF"}}},
			Warn, "not known: no lease covers 1F-FF", "mend",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := judgeLag(unitOf(tt.parts...))
			f.want(t, tt.want, tt.text, tt.next)
			if strings.Contains(f.Found, "not known") == f.Known {
				t.Errorf("%s: known is %v", f.Line(), f.Known)
			}
		})
	}
}

func TestInstancesAreJudged(t *testing.T) {
	only := func(u *unit.Unit) Finding {
		t.Helper()
		all := judgeInstances(u)
		if len(all) != 1 {
			t.Fatalf("%d findings, want 1: %v", len(all), all)
		}
		return all[0]
	}
	one := instance("one/A")
	one.Leases = 1
	gone := instance("two/B")
	gone.Presence = admin.Gone
	stopped := lease(func(l *admin.Lease) { l.Owner, l.State = "", admin.StateStopped })
	for next, u := range map[string]*unit.Unit{
		"others take over": unitOf(lease(nil), one, gone), "nobody takes over": unitOf(stopped, gone),
		"see why they have ended: nobody": unitOf(lease(func(l *admin.Lease) { l.Owner = "two" }), gone),
	} {
		judgeInstances(u)[0].want(t, Warn, "gone without an end: two/B", next)
	}
	only(unitOf(lease(nil), one)).want(t, OK, "1 instance: one/A", "")
	only(unitOf(lease(nil), one, instance("two/B"), instance("onerous/C"))).want(t, Warn,
		"2 of 3 are idle, with 1 lease: onerous/C, two/B", "split")
	paused := lease(func(l *admin.Lease) { l.Owner, l.Epoch, l.State = "", "", admin.StatePaused })
	only(unitOf(paused, instance("one/A"))).want(t, OK, "1 instance: one/A", "")
	only(unitOf(lease(func(l *admin.Lease) { l.Epoch = "" }))).want(t, Warn, "not known", "the log of those processors")
	only(unitOf(lease(func(l *admin.Lease) { l.Owner, l.State = "", admin.StateStopped }))).want(t, Warn,
		"no instance runs, nothing behind", "start an instance")
	old, recent := instance("one/A"), instance("one/A")
	for i, handler := range []string{"x", "y"} {
		variants.Show([]*feed.Record{&old.Record, &recent.Record}[i], feed.Variant{Handler: handler}, time.Unix(1, 0))
	}
	recent.Owner, old.Leases, recent.Leases = "two", 1, 1
	all := judgeInstances(unitOf(lease(nil), old, recent))
	if len(all) != 2 {
		t.Fatalf("%d findings, want 2", len(all))
	}
	all[0].want(t, Warn, "instances differ: one/A runs x; two runs y", "stop the old ones")
	all[1].want(t, OK, "2 instances", "")
}

func TestHeldKeysAndLettersAreCounted(t *testing.T) {
	judgeHeld(unitOf(lease(nil))).want(t, OK, "no key is held", "")
	judgeHeld(unitOf(lease(func(l *admin.Lease) { l.Held = []string{`["a"]`} }),
		lease(func(l *admin.Lease) { l.Held = []string{`["b"]`} }))).want(t, Warn,
		`changes of 2 keys wait: ["a"], ["b"]`, "changefeed dlq release")
	aside := lease(func(l *admin.Lease) { l.SetAside = make([]string, 3) })
	judgeHeld(unitOf(aside)).want(t, Warn, "3 keys fail", "log")
	judgeLetters("u", "shop/dead", unit.Commands{}, nil, false).want(t, OK, "no dead letter in shop/dead", "")
	some := map[feed.Disposition]int{feed.DispositionFailed: 2, feed.DispositionHeld: 1}
	judgeLetters("u", "shop/dead", unit.Commands{}, some, false).
		want(t, Warn, "3 dead letters in shop/dead: 1 held, 2 failed", "changefeed dlq list")
}

func TestNamesThatLookAlikeAreFound(t *testing.T) {
	on := func(container string, names ...string) (all []unit.Unit) {
		for _, n := range names {
			all = append(all, unit.Unit{Processor: n, Container: container})
		}
		return all
	}
	for _, u := range [][]unit.Unit{
		on("orders", "mailer", "billing"), append(on("orders", "mailer"), on("people", "maler")...),
		append(on("orders", "mailer"), on("people", "mailer")...), on("orders", "mailer"),
	} {
		if got := judgeNames("docstore:d#leases", u); got != nil {
			t.Errorf("%v: got %s, want nothing", u, got[0].Line())
		}
	}
	all := judgeNames("docstore:d#leases", on("orders", "billing", "mailer", "maler"))
	if len(all) != 1 {
		t.Fatalf("%d findings, want 1", len(all))
	}
	all[0].want(t, Warn, "mailer and maler are two units", "changefeed leases delete docstore:d#leases --name NAME")
}

func TestDocumentsOfNobodyAreTold(t *testing.T) {
	u := &unit.Unit{Rows: []unit.Row{
		{ID: "old..-FF", Lease: "-FF", Stray: unit.Stray{Prefix: "old"}},
		{ID: "old.info", Stray: unit.Stray{Prefix: "old"}},
		{ID: "gone.info", Stray: unit.Stray{Prefix: "gone", Deleted: "my mailer"}},
		{ID: "note"},
		{ID: "gone.host.a", Stray: unit.Stray{Prefix: "gone", Deleted: "my mailer"}},
	}}
	all := judgeStrays("shop/leases", "docstore:my dir#leases", u)
	if len(all) != 3 {
		t.Fatalf("%d findings, want 3", len(all))
	}
	all[0].want(t, Warn, "unit my mailer on a container that does not exist any more: gone.info, gone.host.a",
		"changefeed leases gc 'docstore:my dir#leases' --name 'my mailer'")
	all[1].want(t, Warn, "on a container that is not here: old..-FF, old.info", "delete these documents")
	all[2].want(t, Warn, "no leases: note", "elsewhere")
}
