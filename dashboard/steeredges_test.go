package dashboard

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// Of two leases that are paused, the one whose range is named goes on alone.
func TestAResumeIsOfItsRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.start("a", done, changefeed.Options{})
		time.Sleep(time.Minute) // for the unit to be made
		d := New(Options{Write: true})
		defer d.Show(w.unit(nil))()
		unit := admin.Open(w.orders, w.leases, admin.Options{})
		states := func() (all []admin.State) {
			t.Helper()
			l, err := unit.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, lease := range l.Leases {
				all = append(all, lease.State)
			}
			return all
		}
		const lower, upper = `"-1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"`, `"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF"`
		for _, r := range []string{lower, upper} {
			steer(t, d, `{"unit":"mailer","action":"pause","range":`+r+`}`)
		}
		if got, want := states(), []admin.State{admin.StatePaused, admin.StatePaused}; !slices.Equal(got, want) {
			t.Fatalf("after the pause the leases are %v, want %v", got, want)
		}
		code, did := steer(t, d, `{"unit":"mailer","action":"resume","range":`+lower+`}`)
		if code != http.StatusOK || len(did.Lines) != 1 {
			t.Errorf("%d %s, want one lease", code, did.told())
		}
		time.Sleep(time.Minute) // for the instance to obey
		if got, want := states(), []admin.State{admin.StateLive, admin.StatePaused}; !slices.Equal(got, want) {
			t.Errorf("after the resume the leases are %v, want %v", got, want)
		}
	})
}

// A command has 30 seconds: an owner whose handler hangs obeys no pause, and whoever has asked hears that.
func TestACommandHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		free := make(chan bool)
		w.write("oslo", `{"id":"1","city":"oslo"}`)
		w.start("a", feed.HandlerFunc(func(context.Context, *feed.Batch) error { <-free; return nil }),
			changefeed.Options{Drain: time.Hour})
		defer close(free)
		time.Sleep(10 * time.Second) // for the handler to have the change
		d := New(Options{Write: true})
		defer d.Show(w.unit(nil))()
		begun := time.Now()
		code, did := steer(t, d, `{"unit":"mailer","action":"pause"}`)
		if took := time.Since(begun); code != http.StatusGatewayTimeout || took > steerTimeout+patience {
			t.Errorf("after %v: %d %s, want %d after %v", took, code, did.told(), http.StatusGatewayTimeout,
				steerTimeout)
		}
	})
}

// If a letter is handled, and a held one after it fails, both are told.
func TestARetryTellsWhatFailsAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		box := w.letters()
		r := recorder{broken: "1"}
		for _, id := range []string{"1", "2"} {
			w.write("oslo", `{"id":"`+id+`","city":"oslo"}`)
		}
		w.start("a", &r, changefeed.Options{
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		time.Sleep(time.Minute) // for the first to be parked, and the second to be held
		r.mu.Lock()
		r.broken = "2"
		r.mu.Unlock()
		d := New(Options{Write: true})
		u := w.unit(nil)
		u.Letters = box
		defer d.Show(u)()
		_, all := ask[Letters](t, d, "/letters?unit=mailer")
		code, did := steer(t, d,
			`{"unit":"mailer","action":"retry","key":["oslo"],"letter":"`+all.Letters[0].ID+`"}`)
		want := "letter " + all.Letters[0].ID + " is handled\n" +
			"error: a held letter after it: the handler has failed again: " + errBroken.Error()
		if code != http.StatusUnprocessableEntity || did.told() != want {
			t.Errorf("%d %s, want %d %s", code, did.told(), http.StatusUnprocessableEntity, want)
		}
	})
}

// torn is a box of letters that cannot be read to its end.
type torn struct{ feed.LetterBox }

var errTorn = errors.New("the container is throttled")

func (torn) Letters(context.Context, feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) { yield(feed.DeadLetter{}, errTorn) }
}

// A letter that cannot be read is not told to be gone.
func TestALetterThatCannotBeReadIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{Write: true})
		u := w.unit(nil)
		u.Letters = torn{w.letters()}
		defer d.Show(u)()
		for _, action := range []string{"retry", "drop"} {
			code, did := steer(t, d, `{"unit":"mailer","action":"`+action+`","key":["oslo"],"letter":"1"}`)
			if code != http.StatusBadGateway || !strings.Contains(did.told(), errTorn.Error()) {
				t.Errorf("%s: %d %s, want %d %v", action, code, did.told(), http.StatusBadGateway, errTorn)
			}
		}
	})
}
