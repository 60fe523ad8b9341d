package changefeed

import (
	"context"
	"reflect"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A lease is renewed before it is trusted no longer.
func TestARenewalComesBeforeTheTrustEnds(t *testing.T) {
	for renew, ok := range map[time.Duration]bool{
		54*time.Second - 1: true, 54 * time.Second: false,
		time.Minute: false,
	} {
		o := Options{Instance: "a", Renew: renew, Expiration: time.Minute}.withDefaults()
		if err := o.validate(); (err == nil) != ok {
			t.Errorf("Renew %v with an Expiration of a minute: %v", renew, err)
		}
	}
}

// The oldest of several backlogs is that of the lease.
func TestALagIsAsOldAsItsOldestPart(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	var l Lag
	for _, b := range []feed.Backlog{
		{},
		{Items: 2, Oldest: at(20)},
		{},
		{Items: 3, Oldest: at(10)},
		{Items: 1, Oldest: at(30)},
		{},
	} {
		l.addBacklog(b)
	}
	if l.Pending != 6 || !l.Oldest.Equal(at(10)) {
		t.Errorf("%d pending since %v", l.Pending, l.Oldest)
	}
	for now, want := range map[int64]time.Duration{15: 5 * time.Second, 5: 0} {
		if age, known := l.Age(at(now)); age != want || !known {
			t.Errorf("the age at %v is %v, known %v, want %v", now, age, known, want)
		}
	}
	total := Lag{Exact: true}
	total.addPart(l)
	if total.addPart(Lag{Exact: true}); !total.Oldest.Equal(at(10)) { // an idle lease
		t.Errorf("with an idle lease the oldest change is of %v", total.Oldest)
	}
	total.addPart(Lag{Pending: 4, Exact: true, untimed: true, Oldest: at(12)})
	if age, known := total.Age(at(15)); age != 5*time.Second || known {
		t.Errorf("with a change of an unknown time the age is %v, known %v", age, known)
	}
}

// Changes without a commit time may have waited for any time.
func TestALagWithoutATimeHasNoAge(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for _, tt := range []struct {
		backlogs []feed.Backlog
		age      time.Duration
		known    bool
	}{
		{[]feed.Backlog{{}}, 0, true},
		{[]feed.Backlog{{Items: 2}}, 0, false},
		{[]feed.Backlog{{Items: 2}, {Items: 1, Oldest: at(10)}}, 20 * time.Second, false},
		{[]feed.Backlog{{Items: 1, Oldest: at(10)}, {Items: 2}, {}}, 20 * time.Second, false},
		{[]feed.Backlog{{Items: 1, Oldest: at(10)}, {}}, 20 * time.Second, true},
	} {
		var l Lag
		for _, b := range tt.backlogs {
			l.addBacklog(b)
		}
		if age, known := l.Age(at(30)); age != tt.age || known != tt.known {
			t.Errorf("%+v: %v, known %v, want %v, %v", tt.backlogs, age, known, tt.age, tt.known)
		}
	}
	if _, known := (Lag{Pending: 1}).Age(at(30)); known {
		t.Error("the age of a change without a time is known")
	}
}

// The parts of the processor have all options, each under its name.
func TestThePartsHaveAllOptions(t *testing.T) {
	o := Options{Start: feed.FromBeginning(), Filter: func(*feed.Change) bool {
		return true
	}, OnFailure: FailurePolicy{DeadLetters: unused{}}}
	given := map[string]reflect.Value{}
	fill := func(fields reflect.Value) {
		for i := range fields.NumField() {
			f := fields.Field(i)
			switch f.Kind() {
			case reflect.String:
				f.SetString("a")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(len(given) + 1)) // of each field another one
			case reflect.Uint8:
				f.SetUint(1)
			}
			given[fields.Type().Field(i).Name] = f
		}
	}
	fill(reflect.ValueOf(&o).Elem())
	fill(reflect.ValueOf(&o.OnFailure).Elem())
	parts := reflect.ValueOf(o.toParts())
	if parts.NumField() != len(given)-2 { // Hooks are handed over apart, and OnFailure field by field
		t.Errorf("the parts have %d options of %d", parts.NumField(), len(given)-2)
	}
	for i := range parts.NumField() {
		name, got := parts.Type().Field(i).Name, parts.Field(i)
		if want := given[name]; got.IsZero() || got.Comparable() && !got.Equal(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// unused is a place for dead letters that receives none.
type unused struct{ feed.DeadLetters }

// Failures, changes that leave the feed, changes that are skipped, slow batches and instances that differ are reported
// without a hook, too. The other hooks do nothing.
func TestHooksThatMustNotBeSilentHaveADefault(t *testing.T) {
	// by the comment of feed.Hooks
	promised := []string{"Begun", "Slow", "Parked", "Outage", "Differing", "Paused", "Skipped", "Error"}
	all := reflect.ValueOf(withDefaultHooks(Hooks{}))
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		if has := !all.Field(i).IsNil(); has != slices.Contains(promised, name) {
			t.Errorf("%s: has a default: %v", name, has)
		}
	}
	own := false
	hooks := withDefaultHooks(Hooks{Error: func(context.Context, *feed.Error) { own = true }})
	if hooks.Error(t.Context(), nil); !own {
		t.Error("the default has replaced a hook")
	}
}

// A build without a version is known by its commit, if it has one.
func TestAProgramIsKnownByItsVersionOrItsCommit(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "4711"}}
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", nil, "example.org/shop v1.2.3"},
		{"v1.2.3", commit, "example.org/shop v1.2.3"},
		{"(devel)", commit, "example.org/shop (devel) 4711"},
		{"(devel)", nil, "example.org/shop (devel)"},
		{"", nil, "example.org/shop"},
	} {
		info := &debug.BuildInfo{
			Main: debug.Module{Path: "example.org/shop", Version: c.version}, Settings: c.settings,
		}
		if got := versionOf(info); got != c.want {
			t.Errorf("version %q, settings %v: got %q, want %q", c.version, c.settings, got, c.want)
		}
	}
}

// A list of leases is shared by what is estimated of each of them.
func TestWhatALeaseOwesChangesNoList(t *testing.T) {
	quarter := feed.FullRange().Cut(4)
	all := []feed.Record{
		{Token: "parent", Range: feed.FullRange(), State: feed.StateSplitting},
		{Token: "first", Range: quarter[0], State: feed.StateLive},
		{Token: "last", Range: quarter[3], State: feed.StateLive},
	}
	before := slices.Clone(all)
	owed(all[0], all)
	for i := range all {
		if all[i].Token != before[i].Token {
			t.Errorf("lease %d is %q, want %q", i, all[i].Token, before[i].Token)
		}
	}
}
