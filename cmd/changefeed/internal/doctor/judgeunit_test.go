package doctor

import (
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
)

// lease is a lease whose owner works, of which nothing is pending.
func lease(edit func(*unit.Row)) unit.Row {
	r := unit.Row{
		Kind: unit.KindLease, ID: "doc", Lease: "-FF", Range: "-FF", Owner: "one", Epoch: "one/A", State: "live",
		Lag: new(int64), Waited: new(float64), Exact: true,
	}
	if edit != nil {
		edit(&r)
	}
	return r
}

// instance is a running instance.
func instance(name string) unit.Row { return unit.Row{Kind: unit.KindInstance, Lease: name, ID: name} }

func TestWhatIsWrongWithALeaseIsJudged(t *testing.T) {
	state := func(s string) unit.Row { return lease(func(r *unit.Row) { r.State = s }) }
	free := func(s string) unit.Row {
		return lease(func(r *unit.Row) { r.State, r.Owner, r.Epoch = s, "", "" })
	}
	hole := unit.Row{Kind: unit.KindHole, Range: "1F-FF"}
	for _, tt := range []struct {
		name       string
		rows       []unit.Row
		want       Verdict
		text, next string
	}{
		{"well", []unit.Row{lease(nil), instance("one/A")}, OK, "1 lease, without a hole or an overlap", ""},
		{"stopped", []unit.Row{free(unit.StateStopped)}, OK, "1 lease", ""},
		{"splitting", []unit.Row{state("splitting")}, OK, "1 lease", ""},
		{"a hole that is mended", []unit.Row{lease(nil), hole}, Fail, "hole 1F-FF: no lease", "instances mend that"},
		{"a hole for good", []unit.Row{free(unit.StateStopped), hole}, Fail, "hole 1F-FF", "start an instance"},
		{"no lease at all", []unit.Row{hole}, Fail, "hole 1F-FF", "start an instance"},
		{
			"an overlap",
			[]unit.Row{lease(func(r *unit.Row) { r.Overlaps = []string{"other"} })},
			Fail, "handled twice", "delete the one",
		},
		{"no lease", []unit.Row{state(unit.StateBroken)}, Fail, "no valid lease", "delete the document"},
		{
			"an outage",
			[]unit.Row{lease(func(r *unit.Row) { r.Outage = "2026-05-04T12:00:00Z" })},
			Fail, "lacks what it needs", "mend",
		},
		{"4 attempts", []unit.Row{lease(func(r *unit.Row) { r.Attempts = 4 })}, Warn, "is retried", "log"},
		{"5 attempts", []unit.Row{lease(func(r *unit.Row) { r.Attempts = 5 })}, Fail, "5 times", "dead letters"},
		{
			"expired, and others work",
			[]unit.Row{state(unit.StateExpired), instance("two/B")},
			Warn, "silent for too long", "other instances take over",
		},
		{"expired, and nobody works", []unit.Row{state(unit.StateExpired)}, Fail, "-FF of one", "start an instance"},
		{
			"slow",
			[]unit.Row{lease(func(r *unit.Row) { r.InHand = new(60.0) })},
			Warn, "much longer than usual", "it may hang",
		},
		{"silent", []unit.Row{state(unit.StateSilent)}, Warn, "late", "hangs"},
		{"of another make", []unit.Row{lease(func(r *unit.Row) { r.Epoch = "" })}, Warn, "another make", "handler"},
		{"paused", []unit.Row{free(unit.StatePaused)}, Warn, "paused", "changefeed leases resume"},
		{
			"paused, and the owner goes on",
			[]unit.Row{lease(func(r *unit.Row) { r.IsDefiant = true })},
			Warn, "lease -FF of one: paused, and the owner has not obeyed", "look whether the owner runs",
		},
		{"free", []unit.Row{free(unit.StateFree), instance("one/A")}, Warn, "lease -FF: free", "log"},
		{"retired", []unit.Row{state("retired")}, Warn, "replaced", "delete"},
		{
			"a document",
			[]unit.Row{lease(nil), {Kind: unit.KindDocument, ID: "odd"}},
			Warn, "odd: a document", "changefeed leases",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := judgeLeases(unitOf(tt.rows...))
			if len(all) != 1 {
				t.Fatalf("%d findings, want 1: %v", len(all), all)
			}
			all[0].want(t, tt.want, tt.text, tt.next)
		})
	}
	all := judgeLeases(unitOf(free(unit.StatePaused), hole, state(unit.StateBroken)))
	if len(all) != 3 || all[0].Verdict != Fail || all[1].Verdict != Fail || all[2].Verdict != Warn {
		t.Errorf("three flaws have the findings %v, want one for each, the worst first", all)
	}
}

func TestALagIsJudgedByHowLongItWaits(t *testing.T) {
	behind := func(n int64, waited float64) func(*unit.Row) {
		return func(r *unit.Row) { r.Lag, r.Waited = &n, &waited }
	}
	uncounted := func(r *unit.Row) { r.Lag, r.Notes = nil, []string{"free", "lag unknown: it has no position"} }
	stopped := func(r *unit.Row) { r.Owner, r.State = "", unit.StateStopped }
	for _, tt := range []struct {
		name       string
		rows       []unit.Row
		want       Verdict
		text, next string
	}{
		{"nothing", []unit.Row{lease(nil)}, OK, "nothing behind", ""},
		{"a little", []unit.Row{lease(behind(9000, 30))}, OK, "9,000 changes behind, the oldest for 30s", ""},
		{"long, and at work", []unit.Row{lease(behind(1, 30.2))}, Warn, "1 change behind, the oldest", "falls"},
		{"long, and stopped", []unit.Row{lease(func(r *unit.Row) {
			behind(2, 90)(r)
			stopped(r)
		})}, Warn, "2 changes behind", "start an instance"},
		{"long, and paused", []unit.Row{lease(func(r *unit.Row) {
			behind(2, 90)(r)
			r.Owner, r.State = "", unit.StatePaused
		})}, Warn, "2 changes behind", "changefeed leases resume"},
		{"uncounted", []unit.Row{lease(uncounted)}, Warn, "not known: lease -FF: it has no position", "mend"},
		{"partly", []unit.Row{lease(uncounted), lease(behind(5, 1))}, Warn, "5 changes behind and more", "mend"},
		{
			"a hole",
			[]unit.Row{lease(nil), {Kind: unit.KindHole, Range: "1F-FF"}},
			Warn, "not known: no lease covers 1F-FF", "mend",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := judgeLag(unitOf(tt.rows...))
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
	only(unitOf(lease(nil), instance("one/A"))).want(t, OK, "1 instance: one/A", "")
	only(unitOf(lease(nil), instance("one/A"), instance("two/B"), instance("onerous/C"))).want(t, Warn,
		"2 of 3 are idle, with 1 lease: two/B, onerous/C", "split")
	only(unitOf(lease(func(r *unit.Row) { r.Epoch = "" }))).want(t, Warn, "not known", "another make")
	only(unitOf(lease(func(r *unit.Row) { r.Owner, r.State = "", unit.StateStopped }))).want(t, Warn,
		"no instance runs, nothing behind", "start one")
	differing := unitOf(lease(nil), instance("one/A"))
	differing.Warnings = []unit.Warning{
		{Word: unit.WarnAlike, Text: "another"}, {Word: unit.WarnDiffer, Text: "instances differ: a runs x; b runs y"},
	}
	all := judgeInstances(differing)
	if len(all) != 2 {
		t.Fatalf("%d findings, want 2: %v", len(all), all)
	}
	all[0].want(t, Warn, "instances differ: a runs x; b runs y", "stop the old ones")
	all[1].want(t, OK, "1 instance", "")
}

func TestHeldKeysAndLettersAreCounted(t *testing.T) {
	judgeHeld(unitOf(lease(nil))).want(t, OK, "no key is held", "")
	judgeHeld(unitOf(lease(func(r *unit.Row) { r.Held, r.HeldKeys = 1, []string{`["a"]`} }),
		lease(func(r *unit.Row) { r.Held, r.HeldKeys = 1, []string{`["b"]`} }))).want(t, Warn,
		`changes of 2 keys wait: ["a"], ["b"]`, "changefeed dlq release")
	judgeHeld(unitOf(lease(func(r *unit.Row) { r.SetAside = 3 }))).want(t, Warn, "3 keys fail", "log")
	judgeLetters("u", "shop/dead", nil, false).want(t, OK, "no dead letter in shop/dead", "")
	judgeLetters("u", "shop/dead", map[feed.Disposition]int{feed.DispositionFailed: 2, feed.DispositionHeld: 1}, false).
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
		if got := judgeNames(u); got != nil {
			t.Errorf("%v: got %s, want nothing", u, got[0].Line())
		}
	}
	all := judgeNames(on("orders", "billing", "mailer", "maler"))
	if len(all) != 1 {
		t.Fatalf("%d findings, want 1", len(all))
	}
	all[0].want(t, Warn, "mailer and maler are two units", "changefeed leases --delete")
}

func TestDocumentsOfNobodyAreTold(t *testing.T) {
	u := unitOf(unit.Row{Kind: unit.KindDocument, ID: "old..-FF", Lease: "-FF"},
		unit.Row{Kind: unit.KindDocument, ID: "note"})
	all := judgeStrays("shop/leases", u)
	if len(all) != 2 {
		t.Fatalf("%d findings, want 2", len(all))
	}
	all[0].want(t, Warn, "leases of a container that is not here: old..-FF", "made again")
	all[1].want(t, Warn, "no leases: note", "elsewhere")
}
