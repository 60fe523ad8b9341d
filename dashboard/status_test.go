package dashboard

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// The state is that of the listing, for a unit with one instance here and one elsewhere, and with a change that fails.
func TestTheStateIsWhatTheListingSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		fails := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return errBroken })
		here := w.start("a", fails, changefeed.Options{})
		w.start("b", fails, changefeed.Options{})
		d := New(Options{Name: "a", Version: "shop v1"})
		d.Show(w.unit(here))
		time.Sleep(time.Minute) // the leases are shared
		w.write("Rome", `{"id":"1","city":"Rome"}`)
		time.Sleep(10 * time.Second) // the change fails some times
		listing, err := admin.Open(w.orders, w.leases, admin.Options{}).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		code, s := ask[Status](t, d, "/status")
		if code != http.StatusOK || s.Version != 1 || s.Name != "a" || s.Program != "shop v1" || len(s.Units) != 1 {
			t.Fatalf("%d, %+v", code, s)
		}
		u := s.Units[0]
		if u.Name != "mailer" || u.Container != "orders" || u.Sentence != listing.Sentence() || u.Error != nil ||
			!u.IsHere {
			t.Errorf("unit %s on %s: %q, want %q", u.Name, u.Container, u.Sentence, listing.Sentence())
		}
		if u.Pending == nil || *u.Pending != 1 || !u.Exact || u.Oldest == nil || *u.Oldest < 9 || u.Watermark == nil {
			t.Errorf("lag %+v, want one change, 10 s old", u.Lag)
		}
		if len(u.Leases) != 4 || len(u.Instances) != 2 || len(u.Holes) != 0 {
			t.Fatalf("%d leases, %d instances, %d holes", len(u.Leases), len(u.Instances), len(u.Holes))
		}
		failing := 0
		for i, l := range u.Leases {
			want := listing.Leases[i]
			if l.Lease != want.Token || l.Owner != want.Owner || l.State != string(want.State) ||
				l.Attempts != want.Attempts || l.From != float64(i)/4 || l.To != float64(i+1)/4 || l.Expiration != 60 ||
				l.Silent != want.Silent.Seconds() || (l.Here != nil) != (l.Owner == "a") {
				t.Errorf("lease %+v, want %+v", l, want)
			}
			if l.Attempts > 0 {
				failing++
			}
			if l.Here != nil && *l.Pending > 0 && (l.Here.Failures == 0 || l.Here.Error == nil ||
				!strings.Contains(*l.Here.Error, "<b>no</b>")) {
				t.Errorf("work %+v, want a failure with its cause", l.Here)
			}
		}
		if failing != 1 || len(u.Finds) != len(listing.Findings()) {
			t.Errorf("%d leases fail, findings %+v", failing, u.Finds)
		}
		for _, i := range u.Instances {
			if i.IsHere != (i.Name == "a") || i.Presence != "running" || i.Leases != 2 || i.Weight != 1 ||
				i.Program == "" {
				t.Errorf("instance %+v", i)
			}
		}
	})
}

// Another unit of the same name replaces the first one only on the same container, and hide hides only its own.
func TestUnitsAreShownUntilTheyAreHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		other := w.unit(nil)
		other.Container = "orders of another shop"
		hide := d.Show(w.unit(nil))
		d.Show(other)
		hideSecond := d.Show(w.unit(nil))
		hide() // it was replaced already
		names := func() (all []string) {
			_, s := ask[Status](t, d, "/status")
			for _, u := range s.Units {
				all = append(all, u.Container)
			}
			return all
		}
		if got := names(); len(got) != 2 || got[0] != "orders" || got[1] != other.Container {
			t.Errorf("shown: %q", got)
		}
		if code, answer := ask[map[string]string](t, d, "/letters?unit=mailer"); code != http.StatusNotFound ||
			!strings.Contains(answer["error"], "want container") {
			t.Errorf("a name of two units: %d %v", code, answer)
		}
		hideSecond()
		if got := names(); len(got) != 1 || got[0] != other.Container {
			t.Errorf("shown after one was hidden: %q", got)
		}
		if code, _ := ask[Letters](t, d, "/letters?unit=mailer"); code != http.StatusOK {
			t.Errorf("the name of one unit: %d", code)
		}
	})
}

// away is a lease store that cannot be listed.
type away struct{ feed.LeaseStore }

func (away) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	<-ctx.Done()
	return nil, time.Time{}, context.Cause(ctx)
}

// A unit whose store does not answer is an error of that unit, after a time, and the others are shown.
func TestAUnitThatCannotBeListedSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		d.Show(w.unit(nil))
		d.Show(Unit{Name: "broken", Container: "orders", Source: w.orders, Leases: away{w.leases}})
		began := time.Now()
		_, s := ask[Status](t, d, "/status")
		if took := time.Since(began); took != surveyTimeout {
			t.Errorf("the state came after %v, want %v", took, surveyTimeout)
		}
		if u := s.Units[0]; u.Error == nil || !strings.Contains(*u.Error, "not listed in time") || u.Pending != nil ||
			!strings.Contains(u.Sentence, "nobody knows") {
			t.Errorf("broken: %+v", u)
		}
		if u := s.Units[1]; u.Error != nil || u.Sentence == "" {
			t.Errorf("mailer: %+v", u)
		}
	})
}

func TestUnitsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.start("a", done, changefeed.Options{})
		time.Sleep(time.Minute)
		calls, names, failure := 0, []string{"mailer"}, error(nil)
		var letters feed.LetterBox
		d := New(Options{Find: func(context.Context) (all []Unit, err error) {
			calls++
			for _, name := range names {
				u := w.unit(nil)
				u.Name, u.Letters = name, letters
				all = append(all, u)
			}
			return all, failure
		}})
		_, s := ask[Status](t, d, "/status")
		if len(s.Units) != 1 || s.Units[0].IsHere || s.Units[0].PerSecond != nil {
			t.Fatalf("found %+v", s.Units)
		}
		time.Sleep(findEvery / 2)
		if _, s = ask[Status](t, d, "/status"); calls != 1 || s.Units[0].PerSecond == nil {
			t.Errorf("%d calls in half of the time, and the pace is %v, want 1 and a pace", calls, s.Units[0].PerSecond)
		}
		time.Sleep(findEvery)
		names, letters = []string{"mailer", "other"}, box{}
		if _, s = ask[Status](t, d, "/status"); calls != 2 || len(s.Units) != 2 || s.Units[0].PerSecond == nil {
			t.Errorf("%d calls, %d units, pace %v: a unit that was found before is another one", calls, len(s.Units),
				s.Units[0].PerSecond)
		}
		if _, all := ask[Letters](t, d, "/letters?unit=mailer"); all.Letters == nil {
			t.Error("letters that a unit has since it was found first cannot be read")
		}
		time.Sleep(findEvery)
		names, failure = nil, errors.New("the store is away")
		if _, s = ask[Status](t, d, "/status"); len(s.Units) != 2 || s.Error == nil || *s.Error != failure.Error() {
			t.Errorf("after a failure: %d units, %v", len(s.Units), s.Error)
		}
		d.Show(w.unit(nil))
		if _, s = ask[Status](t, d, "/status"); len(s.Units) != 2 {
			t.Errorf("a unit that is shown and found stands twice: %+v", s.Units)
		}
	})
}

func TestARangeHasItsPlaceInTheKeySpace(t *testing.T) {
	for _, tt := range []struct {
		r        feed.Range
		from, to float64
	}{
		{feed.FullRange(), 0, 1},
		{feed.Range{Min: "", Max: "20000000000000000000000000000000"}, 0, 0.5},
		{feed.Range{Min: "10000000000000000000000000000000", Max: "30"}, 0.25, 0.75},
		{feed.Range{Min: "2FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", Max: "3FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"}, 0.75, 1},
		{feed.Range{Min: "05C1", Max: "FF"}, 0x05C1 / float64(0x4000), 1},
	} {
		from, to := placeOf(tt.r)
		const rounding = 1e-9
		if max(from-tt.from, tt.from-from, to-tt.to, tt.to-to) > rounding {
			t.Errorf("%s is from %v to %v, want %v to %v", tt.r, from, to, tt.from, tt.to)
		}
	}
}

func TestALeaseIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := w.start("a", done, changefeed.Options{})
		d := New(Options{})
		u := w.unit(p)
		u.Complete = func(advice string) string { return advice + " --name mailer" }
		d.Show(u)
		time.Sleep(time.Minute)
		pausing := admin.Open(w.orders, w.leases, admin.Options{By: "ada", Reason: "INC-1"})
		if _, err := pausing.Pause(t.Context(), admin.All()); err != nil {
			t.Fatal(err)
		}
		code, e := ask[Explanation](t, d, "/explain?unit=mailer&container=orders&lease=-FF")
		if code != http.StatusOK || e.Lease != "-FF" || e.State != "paused" || len(e.Facts) == 0 || len(e.Next) == 0 ||
			len(e.History) != 1 {
			t.Fatalf("%d %+v", code, e)
		}
		if next := e.Next[len(e.Next)-1]; !strings.HasSuffix(next, " --name mailer") {
			t.Errorf("what to do next is %q, without the name of the unit", next)
		}
		_, s := ask[Status](t, d, "/status")
		if finds := s.Units[0].Finds; len(finds) == 0 || !strings.HasSuffix(finds[0].Next, " --name mailer") {
			t.Errorf("findings %+v, want commands with the name of the unit", finds)
		}
		if a := e.History[0]; a.Action != "pause" || a.By != "ada" || a.Reason != "INC-1" || a.Done != 1 ||
			a.Count != 1 {
			t.Errorf("history %+v", a)
		}
		for path, want := range map[string]int{
			"/explain?unit=mailer&lease=FF": http.StatusNotFound, "/explain?unit=mailer": http.StatusBadRequest,
			"/explain?unit=maler&lease=-FF": http.StatusNotFound, "/letters?unit=maler": http.StatusNotFound,
		} {
			if code, answer := ask[map[string]string](t, d, path); code != want || answer["error"] == "" {
				t.Errorf("%s: %d %v, want %d", path, code, answer, want)
			}
		}
	})
}

// box is a box of letters.
type box struct {
	feed.LetterBox
	letters []feed.DeadLetter
	err     error
}

func (b box) Letters(context.Context, feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		for _, l := range b.letters {
			if !yield(l, nil) {
				return
			}
		}
		if b.err != nil {
			yield(feed.DeadLetter{}, b.err)
		}
	}
}

func TestLettersAreListed(t *testing.T) {
	letter := feed.DeadLetter{
		ID: "7.1", Disposition: feed.DispositionFailed, Cause: "no <script>", Attempts: 3, Instance: "a", Lease: "-FF",
		Parked: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC),
		Change: feed.Change{ID: "w1", PartitionKey: `["Rome",7]`, LSN: 7, Body: []byte(`{"id":"w1"}`)},
	}
	large, deleted, broken := letter, letter, letter
	large.Change.Body = []byte(strings.Repeat("x", mostLetter+1))
	deleted.Change.Body, deleted.Change.Previous = nil, []byte(`{"id":"before"}`)
	broken.Change.PartitionKey = "no JSON"
	for _, tt := range []struct {
		name string
		box  feed.LetterBox
		code int
		more bool
		want func(all []Letter) bool
	}{
		{"no box", nil, 200, false, func(all []Letter) bool { return all == nil }},
		{"an empty box", box{}, 200, false, func(all []Letter) bool { return all != nil && len(all) == 0 }},
		{"a letter", box{letters: []feed.DeadLetter{letter}}, 200, false, func(all []Letter) bool {
			l := all[0]
			return len(all) == 1 && l.ID == "7.1" && string(l.Key) == `["Rome",7]` && l.Item == "w1" && l.LSN == 7 &&
				l.Disposition == "failed" && l.Cause == "no <script>" && l.Attempts == 3 && l.Lease == "-FF" &&
				l.Instance == "a" && l.Parked.Equal(letter.Parked) && l.Document == `{"id":"w1"}` && !l.Cut
		}},
		{"a large document", box{letters: []feed.DeadLetter{large}}, 200, false, func(all []Letter) bool {
			return all[0].Cut && len(all[0].Document) == mostLetter
		}},
		{"a delete", box{letters: []feed.DeadLetter{deleted}}, 200, false, func(all []Letter) bool {
			return all[0].Document == `{"id":"before"}`
		}},
		{"a key that cannot be read", box{letters: []feed.DeadLetter{broken}}, 200, false, func(all []Letter) bool {
			return string(all[0].Key) == "null"
		}},
		{
			"as many as there is room for",
			box{letters: make([]feed.DeadLetter, mostLetters)},
			200, false,
			func(all []Letter) bool { return len(all) == mostLetters },
		},
		{
			"one more",
			box{letters: make([]feed.DeadLetter, mostLetters+1)},
			200, true,
			func(all []Letter) bool { return len(all) == mostLetters },
		},
		{"a box that is away", box{err: errBroken}, http.StatusBadGateway, false, func(all []Letter) bool {
			return all == nil
		}},
	} {
		d := New(Options{})
		d.Show(Unit{Name: "mailer", Letters: tt.box})
		code, got := ask[Letters](t, d, "/letters?unit=mailer")
		if code != tt.code || got.More != tt.more || !tt.want(got.Letters) {
			t.Errorf("%s: %d, more %t, %+v", tt.name, code, got.More, got.Letters)
		}
	}
}
