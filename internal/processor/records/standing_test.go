package records

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// What an operator may do with a lease, by what the lease says.

// feedOf is a source with the changes of a list, two in a page, in one partition.
type feedOf struct {
	feed.Source
	changes []feed.Change
}

// TokenLSN implements [feed.Sequencer].
func (feedOf) TokenLSN(token string) (int64, bool) {
	n, err := strconv.ParseInt(strings.Trim(token, `"`), 10, 64)
	return n, err == nil
}

// TokenAfter implements [feed.Sequencer].
func (feedOf) TokenAfter(lsn int64) string { return position(int(lsn)).Token }

// Read implements [feed.Source].
func (s feedOf) Read(_ context.Context, _ feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page := feed.Page{Next: from}
	after, _ := s.TokenLSN(from.Token)
	for _, c := range s.changes {
		if c.LSN > after && (o.Key == "" || o.Key == c.PartitionKey) && len(page.Changes) < 2 {
			page.Changes, page.Next = append(page.Changes, c), position(int(c.LSN))
		}
	}
	return page, nil
}

// single is the only partition of a container.
var single = []notes.Partition{{ID: "0", Min: "", Max: "FF"}}

// singleName is its name in notes.
var singleName = notes.Name("", "FF", single)

// standing is a lease at LSN 10 that reads the changes 1 to n, which are of the keys a and b in turn.
func standing(n int, properties map[string]string) Standing {
	var source feedOf
	for lsn := int64(1); lsn <= int64(n); lsn++ {
		source.changes = append(source.changes, change(lsn).change)
	}
	return standingOf(source, properties, single)
}

func standingOf(source feed.Source, properties map[string]string, partitions []notes.Partition) Standing {
	return StandingOf(source, feed.Record{
		Kind: feed.KindLease, Range: feed.FullRange(), Position: position(10), Properties: properties,
	}, partitions)
}

// named is a change, and its name.
type named struct {
	change feed.Change
	name   notes.Skip
}

// change is the change of an LSN.
func change(lsn int64) named {
	key := `["a"]`
	if lsn%2 == 0 {
		key = `["b"]`
	}
	id := "item " + strconv.FormatInt(lsn, 10)
	return named{
		feed.Change{LSN: lsn, ID: id, PartitionKey: feed.PartitionKey(key)},
		notes.Skip{Key: key, LSN: lsn, ID: id, Letter: LetterID(feed.LatestVersion, lsn, 0, id)},
	}
}

// done is the property of a lease that is done through an LSN but for some, which fail.
func done(through int64, open ...int64) notes.Done {
	d := notes.Done{At: position(10).Token, Partition: singleName, Through: through, Open: open}
	for _, lsn := range open {
		d.Tried = append(d.Tried, notes.Run{From: lsn, To: lsn, Calls: 3, Failures: 3, Failing: 1000})
	}
	return d
}

// asides is the property of a lease that has set keys aside.
func asides(keys ...notes.AsideKey) string {
	return notes.Aside{At: position(10).Token, Partition: singleName, Keys: keys}.String()
}

// lsnsOf are the LSNs of what a lease has as skipped.
func lsnsOf(t *testing.T, properties map[string]string) (lsns []int64) {
	t.Helper()
	skips, err := notes.ReadSkips(properties[notes.SkipsProperty], notes.Place{Max: "FF", Partitions: single})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range skips.Changes {
		lsns = append(lsns, c.LSN)
	}
	return lsns
}

func TestASecondSkipKeepsTheFirst(t *testing.T) {
	properties := map[string]string{notes.DoneProperty: done(20, 11, 14).String()}
	for _, lsn := range []int64{11, 14} {
		var err error
		if properties, err = standing(20, properties).Skip([]notes.Skip{change(lsn).name}, "somebody"); err != nil {
			t.Fatal(err)
		}
	}
	if got := lsnsOf(t, properties); !slices.Equal(got, []int64{11, 14}) {
		t.Errorf("%v are skipped, want 11 and 14", got)
	}
	if faults := standing(20, properties).Faults(); len(faults) != 2 {
		t.Errorf("faults %+v: the lease has forgotten what failed", faults)
	}
}

// A lease has room for so many names, by however many requests they come. The partition of the lease must be known,
// because LSNs count there.
func TestASkipThatALeaseCannotNameIsRefused(t *testing.T) {
	full := notes.Skips{Partition: singleName}
	for lsn := range int64(MaxSkipped) {
		full.Changes = append(full.Changes, change(1000+lsn).name)
	}
	fails := done(20, 11).String()
	parts := []notes.Partition{{ID: "1", Min: "", Max: "80"}, {ID: "2", Min: "80", Max: "FF"}}
	for want, s := range map[string]Standing{
		"would name 1001 skipped changes": standing(20, map[string]string{
			notes.DoneProperty: fails, notes.SkipsProperty: full.String(),
		}),
		"has been split": standingOf(feedOf{}, map[string]string{notes.DoneProperty: fails}, parts),
	} {
		got, err := s.Skip([]notes.Skip{change(11).name}, "somebody")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want that it %s", got, err, want)
		}
	}
	if why := standing(20, map[string]string{notes.DoneProperty: fails}).WhyNot(change(11).name); why != "" {
		t.Errorf("the change cannot be skipped at all: %s", why)
	}
}

// The lease says what is done of the changes after the position, and of the keys that are set aside from where they
// continue.
func TestWhatIsOpenAndFailsCanBeSkipped(t *testing.T) {
	s := standing(20, map[string]string{
		notes.DoneProperty: done(17, 13).String(),
		notes.AsideProperty: asides(notes.AsideKey{
			Key: `["b"]`, From: position(5).Token, LSN: 6, Last: 10, Passed: true,
			Tried: []notes.Run{{Key: `["b"]`, From: 6, To: 8, Calls: 1, Failing: 900}},
		}),
	})
	const passed, sound = "the lease has passed it", "the lease does not fail at it"
	for lsn, want := range map[int64]string{
		4: passed, 5: passed, 6: "", 8: "", 10: sound, 11: passed, 13: "", 15: passed, 17: passed, 19: sound,
	} {
		if got := s.WhyNot(change(lsn).name); got != want {
			t.Errorf("LSN %d: %q, want %q", lsn, got, want)
		}
	}
}

// What was in the handler at the end of its process has failed, though the handler has not returned.
func TestWhatWasInTheHandlerAtItsEndFails(t *testing.T) {
	d := notes.Done{At: position(10).Token, Partition: singleName, Suspect: &notes.Suspect{
		Changes: 1, Letter: change(11).name.Letter,
		Tried: []notes.Run{{From: 11, To: 11, Calls: 2, Failures: 1, Failing: 1000}},
	}}
	s := standing(20, map[string]string{notes.DoneProperty: d.String()})
	if faults := s.Faults(); len(faults) != 1 || faults[0].Run.From != 11 || s.WhyNot(change(11).name) != "" {
		t.Errorf("faults %+v, %s, want LSN 11", faults, s.WhyNot(change(11).name))
	}
}

// The batch that has failed for the longest is the first, wherever its changes are.
func TestTheOldestFaultIsTheFirst(t *testing.T) {
	d := done(20, 13)
	d.Tried[0].Failing = 500
	s := standing(20, map[string]string{
		notes.DoneProperty: d.String(),
		notes.AsideProperty: asides(
			notes.AsideKey{
				Key: `["b"]`, From: position(5).Token, LSN: 6, Passed: true,
				Tried: []notes.Run{{Key: `["b"]`, From: 6, To: 8, Calls: 1, Failing: 900}},
			},
			notes.AsideKey{
				Key: `["a"]`, From: position(2).Token, LSN: 3, Passed: true,
				Tried: []notes.Run{{Key: `["a"]`, From: 3, To: 3, Calls: 1, Failing: 400}},
			},
		),
	})
	var got []int64
	for _, f := range s.Faults() {
		got = append(got, f.Run.From)
	}
	if !slices.Equal(got, []int64{3, 13, 6}) {
		t.Errorf("faults of LSNs %v, want 3, 13 and 6", got)
	}
}

// As many changes as may be skipped are all, whatever follows them in the feed that does not fail.
func TestMoreIsWhatFailsBeyondTheLimit(t *testing.T) {
	d := done(20, 11, 12, 15)
	d.Tried = []notes.Run{{From: 11, To: 15, Calls: 1, Failing: 1000}}
	s := standing(20, map[string]string{notes.DoneProperty: d.String()})
	for most, want := range map[int]bool{2: true, 3: false, 4: false} {
		found, more, err := s.Changes(t.Context(), s.Faults()[0], most)
		if err != nil || len(found) != min(most, 3) || more != want {
			t.Errorf("at most %d: %d changes, more %v, %v", most, len(found), more, err)
		}
	}
	d.Open, d.Tried = []int64{11, 12}, d.Tried[:1] // 13 to 15 are done
	s = standing(20, map[string]string{notes.DoneProperty: d.String()})
	if found, more, err := s.Changes(t.Context(), s.Faults()[0], 2); err != nil || len(found) != 2 || more {
		t.Errorf("%d changes, more %v, %v, want the two that are open", len(found), more, err)
	}
}

// A replay has all of its key come again, up to what is done, and leaves what the lease says of other keys.
func TestAReplayLeavesOtherKeysAsTheyAre(t *testing.T) {
	at := position(10).Token
	skips := notes.Skips{Partition: singleName, Changes: []notes.Skip{change(5).name, change(13).name, change(14).name}}
	other := notes.AsideKey{Key: `["c"]`, From: at, LSN: 11, Last: 16, Covered: 10}
	before := map[string]string{
		notes.DoneProperty: done(20, 12, 13).String(),
		notes.HeldProperty: notes.Held{
			At: at, Partition: singleName, Keys: []string{`["a"]`, `["b"]`, `["c"]`}, Since: []int64{3, 4, 7},
		}.String(),
		notes.AsideProperty: asides(other),
		notes.SkipsProperty: skips.String(),
	}
	after, err := standing(20, before).Replay(`["b"]`, position(2), "somebody")
	if err != nil {
		t.Fatal(err)
	}
	in := notes.Place{Position: at, LSN: 10, Max: "FF", Partitions: single}
	held, _ := notes.ReadHeld(after[notes.HeldProperty], in)
	if !slices.Equal(held.Keys, []string{`["a"]`, `["c"]`}) || !slices.Equal(held.Since, []int64{3, 7}) {
		t.Errorf("held %+v, want a since 3 and c since 7", held)
	}
	if got := lsnsOf(t, after); !slices.Equal(got, []int64{5, 13}) {
		t.Errorf("%v are skipped, want what is not of b", got)
	}
	aside, _ := notes.ReadAside(after[notes.AsideProperty], in)
	if len(aside.Keys) != 2 || aside.Keys[0].Key != other.Key || aside.Keys[0].LSN != other.LSN {
		t.Fatalf("set aside %+v, want c as before, and b", aside.Keys)
	}
	if b := aside.Keys[1]; b.LSN != 3 || b.From != position(2).Token || b.Last != 20 || b.Covered != 10 {
		t.Errorf("b is %+v, want from LSN 3, through 20 that is done, at the position 10", b)
	}
	if after[notes.DoneProperty] != before[notes.DoneProperty] {
		t.Errorf("done %s, want as before: %s", after[notes.DoneProperty], before[notes.DoneProperty])
	}
}

// A replay goes back. What cannot be now is a conflict, and what never can is a bad request.
func TestAReplayIsRefusedIfItDoesNotGoBack(t *testing.T) {
	reading := map[string]string{notes.AsideProperty: asides(notes.AsideKey{
		Key: `["a"]`, From: position(4).Token, LSN: 5, Passed: true,
	})}
	for at, want := range map[int]error{
		0: nil, 3: nil, 4: feed.ErrConflict, 9: feed.ErrConflict, 10: feed.ErrBadRequest,
	} {
		why, kind := standing(20, reading).WhyNoReplay(`["a"]`, position(at))
		if !errors.Is(kind, want) || (why == "") != (want == nil) {
			t.Errorf("from %d: %q, %v, want %v", at, why, kind, want)
		}
	}
	var all []notes.AsideKey
	for i := range notes.MaxAside {
		all = append(all, notes.AsideKey{Key: strconv.Itoa(i), From: position(4).Token, LSN: 5})
	}
	full := standing(20, map[string]string{notes.AsideProperty: asides(all...)})
	if why, kind := full.WhyNoReplay(`["a"]`, position(2)); why == "" || !errors.Is(kind, feed.ErrConflict) {
		t.Errorf("a lease without room: %q, %v", why, kind)
	}
	if why, kind := full.WhyNoReplay("7", position(2)); why != "" || kind != nil {
		t.Errorf("a key that has its place: %q, %v", why, kind)
	}
}

// What is done after the position comes again by a replay from there: the lease alone would not deliver it.
func TestWhatIsDoneAfterThePositionCanBeReplayed(t *testing.T) {
	for name, c := range map[string]struct {
		properties map[string]string
		want       error
	}{
		"nothing is done":    {map[string]string{notes.DoneProperty: done(10).String()}, feed.ErrBadRequest},
		"a change is done":   {map[string]string{notes.DoneProperty: done(12, 11).String()}, nil},
		"a lease of no note": {nil, feed.ErrBadRequest},
	} {
		if why, kind := standing(20, c.properties).WhyNoReplay(`["b"]`, position(10)); !errors.Is(kind, c.want) {
			t.Errorf("%s: %q, %v, want %v", name, why, kind, c.want)
		}
	}
}

// A key that is set aside is read from its next change on, which may be far after the position that is noted for it.
func TestAKeyIsReplayedFromBeforeItsNextChange(t *testing.T) {
	s := standing(20, map[string]string{notes.AsideProperty: asides(notes.AsideKey{
		Key: `["a"]`, From: position(2).Token, LSN: 7, Passed: true,
	})})
	for at, want := range map[int]error{2: nil, 5: nil, 6: feed.ErrConflict, 8: feed.ErrConflict} {
		if why, kind := s.WhyNoReplay(`["a"]`, position(at)); !errors.Is(kind, want) {
			t.Errorf("from %d: %q, %v, want %v", at, why, kind, want)
		}
	}
}

// The letters of a key that is replayed are not handed over beside the replay; those of other keys are.
func TestAReplayedKeyIsNotRecalled(t *testing.T) {
	all := notes.Aside{At: position(10).Token, Partition: singleName, Recalls: []notes.Recall{
		{Key: `["a"]`, Letter: change(5).name.Letter, Due: true},
		{Key: `["b"]`, Letter: change(6).name.Letter, Due: true},
	}}
	s := standing(20, map[string]string{notes.AsideProperty: all.String()})
	after, err := s.Replay(`["b"]`, position(2), "somebody")
	if err != nil {
		t.Fatal(err)
	}
	aside, err := notes.ReadAside(after[notes.AsideProperty], notes.Place{
		Position: position(10).Token, LSN: 10, Max: "FF", Partitions: single,
	})
	if err != nil || len(aside.Recalls) != 1 || aside.Recalls[0].Key != `["a"]` || len(aside.Keys) != 1 {
		t.Errorf("set aside %+v, %v, want the recall of a, and b", aside, err)
	}
}
