package admin

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The words of a step tell what was done from what would be done.
func TestAStepIsToldInWords(t *testing.T) {
	lease := feed.Lease{Token: "00-FF", Position: feed.At(`"1"`), Updated: time.Unix(1, 0)}
	made := feed.Lease{Token: "00-FF"}
	for _, tt := range []struct {
		step Step
		want string
	}{
		{Step{Action: ActionPause, Lease: lease}, "would pause lease 00-FF"},
		{Step{Action: ActionPause, Lease: lease, Done: true}, "paused lease 00-FF"},
		{Step{Action: ActionResume, Lease: lease, Done: true}, "resumed lease 00-FF"},
		{Step{Action: ActionReset, Lease: lease, To: feed.At(`"7"`)}, `would reset lease 00-FF from "1" to "7"`},
		{Step{Action: ActionReset, Lease: lease, To: feed.At(`"7"`), Done: true}, `reset lease 00-FF from "1" to "7"`},
		{Step{Action: ActionReset, Lease: made, To: feed.At(`"7"`)}, `would make lease 00-FF at "7"`},
		{Step{Action: ActionReset, Lease: made, To: feed.At(`"7"`), Done: true}, `made lease 00-FF at "7"`},
		{
			Step{Action: ActionReset, Lease: lease, To: feed.At(`"0"`), Key: `["a"]`, Done: true},
			`reset key ["a"] of lease 00-FF from "1" to "0"`,
		},
	} {
		if got := tt.step.String(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	for _, tt := range []struct {
		key   feed.PartitionKey
		moved int64
		want  string
	}{
		{"", 2, "2 changes again"},
		{"", 1, "1 change again"},
		{"", 0, "no change between them"},
		{"", -1, "1 change skipped"},
		{"", -1200, "1,200 changes skipped"},
		{
			`["a"]`, 0,
			"no change of the key is between the two positions, so nothing comes again: is the key right?",
		},
	} {
		if got := (Step{Key: tt.key}).Effect(tt.moved); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// countedSource counts changes by the positions after which it is asked.
type countedSource struct {
	feed.Source
	counts map[string]int64
	keys   []feed.PartitionKey
}

func (c *countedSource) Pending(_ context.Context, _ feed.Range, from feed.Position, o feed.ReadOptions) (
	feed.Backlog, error,
) {
	c.keys = append(c.keys, o.Key)
	n, ok := c.counts[from.Token]
	if !ok {
		return feed.Backlog{}, errors.New("away")
	}
	return feed.Backlog{Items: n}, nil
}

// What a reset moves is the difference of two counts, of its key alone if it has one. Without both there is none.
func TestWhatAResetMovesIsCounted(t *testing.T) {
	source := &countedSource{counts: map[string]int64{`"1"`: 5, `"0"`: 12, `"9"`: 2}}
	at := func(from, to string) Step {
		return Step{Action: ActionReset, Lease: feed.Lease{Position: feed.At(from)}, To: feed.At(to)}
	}
	new := Step{Action: ActionReset, To: feed.At(`"0"`)}
	pause := at(`"1"`, `"0"`)
	pause.Action = ActionPause
	for _, tt := range []struct {
		name  string
		step  Step
		moved int64
		known bool
	}{
		{"back", at(`"1"`, `"0"`), 7, true},
		{"ahead", at(`"1"`, `"9"`), -3, true},
		{"the position before is not counted", at(`"3"`, `"0"`), 0, false},
		{"the position after is not counted", at(`"1"`, `"3"`), 0, false},
		{"a lease that has read nothing", new, 0, false},
		{"a pause moves nothing", pause, 0, false},
	} {
		moved, known := Open(source, nil, Options{}).Moved(t.Context(), tt.step)
		if moved != tt.moved || known != tt.known {
			t.Errorf("%s: %d %v, want %d %v", tt.name, moved, known, tt.moved, tt.known)
		}
	}
	if _, known := Open(struct{ feed.Source }{}, nil, Options{}).Moved(t.Context(), at(`"1"`, `"0"`)); known {
		t.Error("a source that cannot count has counted")
	}
	source.keys = nil
	one := at(`"1"`, `"0"`)
	one.Key = `["a"]`
	if Open(source, nil, Options{}).Moved(t.Context(), one); len(source.keys) != 2 || source.keys[1] != `["a"]` {
		t.Errorf("counted for %v, want the key of the step", source.keys)
	}
}

// The clock of an instance is wrong if it differs by more than is allowed, in either direction.
func TestClocksThatAreWrongAreFound(t *testing.T) {
	at := time.Unix(10_000, 0)
	l := &Listing{At: at}
	for name, ahead := range map[string]time.Duration{
		"early": 6 * time.Second, "late": -10 * time.Minute, "right": 5 * time.Second, "gone": time.Hour,
	} {
		in := Instance{Presence: Running, Record: feed.Record{Owner: name, Updated: at, Timestamp: at.Add(ahead)}}
		if name == "gone" {
			in.Presence = Gone
		}
		l.Instances = append(l.Instances, in)
	}
	l.Instances = append(l.Instances, Instance{Presence: Running, Record: feed.Record{Owner: "silent", Updated: at}})
	found := map[string]string{}
	for _, f := range l.Skewed(5 * time.Second) {
		if f.Word != WordClock || f.Next == "" || f.Grade != GradeWarning {
			t.Errorf("found %+v", f)
		}
		found[f.Owner] = f.Text
	}
	want := map[string]string{
		"early": "the clock of early is 6s ahead of that of the lease store",
		"late":  "the clock of late is 10m behind that of the lease store",
	}
	if !maps.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}
