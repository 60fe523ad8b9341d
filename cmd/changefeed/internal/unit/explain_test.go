package unit

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
)

// explain explains the leases of the unit, or a lease.
func (o office) explain(t *testing.T, token string) ([]Explanation, error) {
	t.Helper()
	all, err := admin.Open(o.monitored, o.store, admin.Options{}).Explain(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return Explanations("orders", Commands{Leases: "docstore:my data#leases", Name: "mailer"}, all, token)
}

// wantAll checks that the sentences of the only explanation contain texts.
func wantAll(t *testing.T, all []Explanation, err error, texts ...string) {
	t.Helper()
	if err != nil || len(all) != 1 {
		t.Fatalf("got %+v, %v, want one explanation", all, err)
	}
	said := strings.Join(append(all[0].Facts, all[0].Next...), "\n") + "\n"
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("%q is not in\n%s", text, said)
		}
	}
}

// The sentences say who owns a lease and until when, where it is, and who has paused and reset it.
func TestALeaseIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lease(t, "-FF", func(l *feed.Record) { l.Expiration = time.Minute })
		time.Sleep(10 * time.Second)
		all, err := o.explain(t, "")
		until := time.Now().Add(50 * time.Second).UTC().Format(time.TimeOnly)
		wantAll(t, all, err, "one owns the lease, and wrote it 10s ago. No other instance runs to take the lease",
			"4 changes wait after it", "Nothing: the owner is at work.")
		c := notes.Control{Action: notes.Pause, Max: "FF", By: "eve"}
		request, err := o.store.Create(t.Context(), feed.Record{
			Kind: feed.KindRequest, Token: c.Token(), Properties: c.Properties(nil),
		})
		if err != nil {
			t.Fatal(err)
		}
		all, err = o.explain(t, "")
		wantAll(t, all, err, "eve has paused -FF.", "one has not obeyed the pause yet: look whether it runs.")
		if strings.Contains(strings.Join(all[0].Next, " "), "Nothing") {
			t.Errorf("next is %q", all[0].Next)
		}
		if err := o.store.Delete(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		all, err = o.explain(t, "-FF")
		wantAll(t, all, err, "one owned the lease until "+until, "Start an instance of the unit.")
		unit := admin.Open(o.monitored, o.store, admin.Options{By: "ada", Reason: "INC-4711"})
		if _, err := unit.Pause(t.Context(), admin.All()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		at := time.Now().UTC().Format(time.TimeOnly)
		bob := admin.Open(o.monitored, o.store, admin.Options{By: "bob", Reason: "replay"})
		if _, err := bob.Reset(t.Context(), admin.All(), feed.FromBeginning()); err != nil {
			t.Fatal(err)
		}
		all, err = o.explain(t, "")
		wantAll(t, all, err, "Nobody owns the lease", "ada has paused -FF: INC-4711.",
			"It was reset at "+at+", 0s ago, by bob: replay.",
			"changefeed leases resume")
	})
}

// The sentences name the parts of a split that have no lease, and the keys beside a lease that nobody has.
func TestASplitAndAHoleAreExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		parts := []feed.Range{{Max: "1F"}, {Min: "1F", Max: "3F"}}
		o.lease(t, "-3F", func(l *feed.Record) {
			l.State, l.Attempts = feed.StateSplitting, 3
			l.Properties = map[string]string{notes.PartsProperty: keyspace.Join(parts)}
		})
		o.lease(t, "1F-3F", nil)
		all, err := o.explain(t, "-3F")
		wantAll(t, all, err, "The parts are -1F and 1F-3F; there is no lease yet for -1F.", "has failed 3 times",
			"No lease covers the keys 3F-FF beside it.", "Wait: the owner makes the missing leases", "--max-attempts")
		if all, err = o.explain(t, ""); err != nil || len(all) != 3 || all[2].State != KindHole || all[2].Lease != nil {
			t.Errorf("all explanations are %+v, %v, want two leases and a hole", all, err)
		}
	})
}

// A lease says since when changes fail, wherever the note is. A key that is only replayed has not failed.
func TestFailuresAreExplained(t *testing.T) {
	for name, c := range map[string]struct {
		property, text string
		fails          bool
	}{
		"after the position": {notes.DoneProperty, `{"tried":[{"from":1,"to":2,"calls":1,"failing":946684800}]}`, true},
		"by default":         {notes.FailingProperty, `{"tried":[{"from":1,"to":2,"calls":1,"failing":946684800}]}`, true},
		"set aside": {
			notes.AsideProperty,
			`{"keys":[{"key":"[\"x\"]","lsn":1,"tried":[{"from":1,"to":1,"calls":1,"failing":946684800}]}]}`, true,
		},
		"replayed": {notes.AsideProperty, `{"keys":[{"key":"[\"x\"]","lsn":1,"passed":true}]}`, false},
		"outdated": {notes.DoneProperty, `{"at":"\"9\"","tried":[{"from":1,"to":2,"failing":946684800}]}`, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t)
			o.lease(t, "-FF", func(l *feed.Record) { l.Properties = map[string]string{c.property: c.text} })
			all, err := o.explain(t, "-FF")
			if err != nil || len(all) != 1 {
				t.Fatalf("%s: %+v, %v", name, all, err)
			}
			said := strings.Join(append(all[0].Facts, all[0].Next...), " ")
			for _, text := range []string{"Changes fail since ", "changefeed leases skip 'docstore:my data#leases' --name mailer gives changes up"} {
				if strings.Contains(said, text) != c.fails {
					t.Errorf("%s: it says %q; want %q in it: %v", name, said, text, c.fails)
				}
			}
		})
	}
}

// A lease that is being joined names the lease of both, in the list and in the explanation.
func TestAJoinIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		for _, half := range []string{"-1F", "1F-FF"} {
			o.lease(t, half, func(l *feed.Record) {
				l.State = feed.StateSplitting
				l.Properties = map[string]string{
					notes.JoiningProperty: notes.Joining{Into: "-FF", Until: time.Now()}.String(),
				}
			})
		}
		all, err := o.explain(t, "-1F")
		wantAll(t, all, err, "It is being joined with a neighbouring lease into -FF", "more leases than it needs")
	})
}

// A lease that does not exist is an error that names those that do.
func TestAnUnknownLeaseIsNotExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lease(t, "-FF", nil)
		all, err := o.explain(t, "-1F")
		if _, missing := errors.AsType[usage.Missing](err); !missing || !strings.Contains(err.Error(), "-FF") {
			t.Errorf("got %+v, %v, want an error that names -FF", all, err)
		}
	})
}

// A recommended command names the unit, in words that a shell takes as they are.
func TestARecommendedCommandCanBePasted(t *testing.T) {
	for _, c := range []struct{ processor, source, advice, want string }{
		{"mailer", "", "Remove it with changefeed leases gc.", "gc docstore:d#leases --name mailer\n"},
		{
			"it's $1 a", "", "See changefeed leases resume: it ends that.",
			`changefeed leases resume docstore:d#leases --name 'it'\''s $1 a':`,
		},
		{
			"mailer", "docstore:my d#orders", "with changefeed leases reset, or changefeed leases skip",
			"changefeed leases reset docstore:d#leases --name mailer --source 'docstore:my d#orders', or changefeed leases " +
				"skip docstore:d#leases --name mailer --source 'docstore:my d#orders'",
		},
	} {
		x := admin.Explanation{Range: feed.FullRange(), Next: []string{c.advice}}
		commands := Commands{Leases: "docstore:d#leases", Name: c.processor, Source: c.source}
		all, err := Explanations("orders", commands, []admin.Explanation{x}, "")
		wantAll(t, all, err, c.want)
	}
}
