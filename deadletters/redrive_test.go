package deadletters_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// office is the leases of a unit, among which requests lie. Tests play the owner of all keys.
type office struct {
	t      *testing.T
	orders *docstore.Container
	leases feed.LeaseStore
}

func inOffice(t *testing.T, test func(t *testing.T, o *office)) {
	synctest.Test(t, func(t *testing.T) {
		db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		o := &office{t: t}
		if o.orders, err = db.CreateContainer(t.Context(),
			docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}}); err != nil {
			t.Fatal(err)
		}
		c, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
		if err != nil {
			t.Fatal(err)
		}
		if o.leases, err = docstore.NewLeases(t.Context(), c, "mailer", o.orders); err != nil {
			t.Fatal(err)
		}
		test(t, o)
	})
}

// requests are those among the leases.
func (o *office) requests() []feed.Record {
	o.t.Helper()
	records, _, err := o.leases.List(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return slices.DeleteFunc(records, func(r feed.Record) bool { return r.Kind != feed.KindRequest })
}

// serve serves the live requests, as the owner of their keys does, and returns their number.
func (o *office) serve(outcome notes.Outcome) (n int) {
	o.t.Helper()
	for _, r := range o.requests() {
		if r.State != feed.StateLive {
			continue
		}
		n++
		r.State, r.TTL, r.Properties = feed.StateRetired, notes.OutcomeTTL, outcome.Properties(r.Properties)
		if _, err := o.leases.Update(o.t.Context(), r); err != nil {
			o.t.Error(err)
		}
	}
	return n
}

// ask asks for a letter within a time, 0 for any.
func (o *office) ask(leases feed.LeaseStore, within time.Duration) (deadletters.Outcome, error) {
	ctx := o.t.Context()
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	return deadletters.Redrive(ctx, o.orders, leases, feed.Key("Paris"), "12.0")
}

// undeletable is a lease store without the right to delete.
type undeletable struct{ feed.LeaseStore }

func (undeletable) Delete(context.Context, feed.Record) error { return feed.ErrForbidden }

func TestACallerReadsAndRemovesTheOutcome(t *testing.T) {
	for _, tt := range []struct {
		written notes.Outcome
		want    deadletters.Outcome
	}{
		{notes.Outcome{Result: notes.Handled, Count: 4}, deadletters.Outcome{
			Result:  deadletters.ResultHandled,
			Handled: 4,
		}},
		{
			notes.Outcome{Result: notes.Failed, Cause: "broken", Count: 2, Left: notes.UnknownLeft},
			deadletters.Outcome{Result: deadletters.ResultFailed, Cause: "broken", Handled: 2, Held: -1},
		},
		{notes.Outcome{Result: notes.Nothing, Left: 3}, deadletters.Outcome{
			Result: deadletters.ResultNothing,
			Held:   3,
		}},
	} {
		inOffice(t, func(t *testing.T, o *office) {
			time.AfterFunc(time.Minute, func() { o.serve(tt.written) })
			if got, err := o.ask(o.leases, 0); got != tt.want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if left := o.requests(); len(left) != 0 {
				t.Errorf("left: %+v", left)
			}
		})
	}
}

// Without the right to delete, a request that was served stays, and the next caller does not take its outcome for their
// own.
func TestAnOutcomeIsHeardOnceWithoutTheRightToDelete(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		for _, want := range []string{notes.Failed, notes.Handled} {
			time.AfterFunc(10*time.Second, func() {
				if r := o.requests()[0]; r.State != feed.StateLive ||
					len(r.Properties[notes.OutcomeProperty]+r.Properties[notes.CauseProperty]) > 0 {
					t.Errorf("what is asked anew is %+v", r)
				}
				o.serve(notes.Outcome{Result: want, Cause: "old", Count: 1})
			})
			got, err := o.ask(undeletable{o.leases}, time.Minute)
			if string(got.Result) != want || err != nil {
				t.Errorf("got %+v, %v, want %s", got, err, want)
			}
			if left := o.requests(); len(left) != 1 || left[0].State != feed.StateRetired {
				t.Errorf("left: %+v", left)
			}
		}
		time.Sleep(notes.OutcomeTTL + time.Second)
		if left := o.requests(); len(left) != 0 {
			t.Errorf("left after its time to live: %+v", left)
		}
	})
}

// A store removes the request of a caller who has died.
func TestARequestHasABound(t *testing.T) {
	for _, tt := range []struct{ within, want time.Duration }{
		{30 * time.Second, 90 * time.Second}, {0, 24 * time.Hour}, {48 * time.Hour, 24 * time.Hour},
	} {
		inOffice(t, func(t *testing.T, o *office) {
			time.AfterFunc(time.Second, func() {
				if got := o.requests(); len(got) != 1 || got[0].TTL != tt.want {
					t.Errorf("within %v: got %+v, want a time to live of %v", tt.within, got, tt.want)
				}
				o.serve(notes.Outcome{Result: notes.Nothing})
			})
			if _, err := o.ask(o.leases, tt.within); err != nil {
				t.Error(err)
			}
		})
	}
}

// A caller who waits longer than a store keeps a request asks again.
func TestARequestIsWrittenAnewForAPatientCaller(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		time.AfterFunc(30*time.Hour, func() {
			if n := o.serve(notes.Outcome{Result: notes.Handled}); n != 1 {
				t.Errorf("%d requests after 30 hours", n)
			}
		})
		if got, err := o.ask(o.leases, 0); got.Result != deadletters.ResultHandled || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// lastMoment is a lease store in which a request is served when its caller withdraws it.
type lastMoment struct {
	feed.LeaseStore
	once  sync.Once
	serve func()
}

func (s *lastMoment) Delete(ctx context.Context, r feed.Record) error {
	s.once.Do(s.serve)
	return s.LeaseStore.Delete(ctx, r)
}

func TestARequestThatIsServedAtTheLastMomentHasItsOutcome(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		s := &lastMoment{LeaseStore: o.leases, serve: func() {
			o.serve(notes.Outcome{Result: notes.Handled, Count: 1})
		}}
		got, err := o.ask(s, time.Minute)
		if got.Result != deadletters.ResultHandled || err != nil || len(o.requests()) != 0 {
			t.Errorf("got %+v, %v; left: %+v", got, err, o.requests())
		}
	})
}

// Who gives up says why, as far as somebody has said it, and withdraws the request.
func TestACallerWhoGivesUpWithdrawsTheRequest(t *testing.T) {
	write := func(o *office, edit func(r *feed.Record)) {
		r := o.requests()[0]
		edit(&r)
		if _, err := o.leases.Update(o.t.Context(), r); err != nil {
			o.t.Error(err)
		}
	}
	for _, tt := range []struct {
		name string
		edit func(r *feed.Record)
		want string
		left feed.State // of its record; empty if the record is deleted
	}{
		{"no answer", func(*feed.Record) {}, "no instance has answered: want a running instance that has the dead letters", ""},
		{"a reason", func(r *feed.Record) {
			r.Properties = notes.SetWaits(r.Properties, "no letter box")
		}, "no letter box", ""},
		{"begun", func(r *feed.Record) {
			q := notes.ReadRequest(r.Properties)
			q.Tries = 1
			r.Properties = q.Properties(r.Properties)
		}, "an instance has begun with it, and may still finish", feed.StateRetired}, // which the instance reads
	} {
		t.Run(tt.name, func(t *testing.T) {
			inOffice(t, func(t *testing.T, o *office) {
				time.AfterFunc(time.Second, func() { write(o, tt.edit) })
				_, err := o.ask(o.leases, 30*time.Second)
				want := `retry ["Paris"]: not served within 30s: ` + tt.want + "; the request was withdrawn"
				if !errors.Is(err, deadletters.ErrNotServed) || !errors.Is(err, context.DeadlineExceeded) ||
					err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
				left := o.requests()
				if gone := len(left) == 0; gone != (tt.left == "") || !gone && left[0].State != tt.left {
					t.Errorf("left: %+v, want state %q", left, tt.left)
				}
			})
		})
	}
}

func TestACallerWhoIsInterruptedSaysSo(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(errors.New("interrupted")) })
		_, err := deadletters.Release(ctx, o.orders, undeletable{o.leases}, feed.Key("Paris"))
		if !errors.Is(err, deadletters.ErrNotServed) ||
			!strings.Contains(err.Error(), "not served within 3s (interrupted): ") ||
			!strings.HasSuffix(err.Error(), "; the request was withdrawn") {
			t.Errorf("got %v", err)
		}
		if left := o.requests(); len(left) != 1 || left[0].State != feed.StateRetired ||
			left[0].TTL != notes.OutcomeTTL || o.serve(notes.Outcome{}) != 0 {
			t.Errorf("left: %+v, want it to be retired without the right to delete, for %v", left, notes.OutcomeTTL)
		}
	})
}

// Two callers who ask for the same share one request. The one who gives up leaves that of the other, and the one who
// stays asks again when the other takes theirs back.
func TestCallersOfOneLetterShareARequest(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		type answer struct {
			deadletters.Outcome
			err error
		}
		ask := func(within time.Duration) chan answer {
			c := make(chan answer, 1)
			go func() {
				got, err := o.ask(o.leases, within)
				c <- answer{got, err}
			}()
			time.Sleep(time.Second)
			return c
		}
		first, short, long := ask(time.Minute), ask(10*time.Second), ask(time.Hour)
		if n := len(o.requests()); n != 1 {
			t.Errorf("%d requests of three callers", n)
		}
		if got := <-short; !errors.Is(got.err, deadletters.ErrNotServed) ||
			!strings.HasSuffix(got.err.Error(), "somebody else has asked for the same, and their request stays asked") {
			t.Errorf("the impatient one: %v", got.err)
		}
		if n := len(o.requests()); n != 1 {
			t.Errorf("%d requests after one has given up", n)
		}
		if got := <-first; !errors.Is(got.err, deadletters.ErrNotServed) ||
			!strings.HasSuffix(got.err.Error(), "the request was withdrawn") {
			t.Errorf("the first: %v", got.err)
		}
		time.Sleep(10 * time.Second)
		if n := o.serve(notes.Outcome{Result: notes.Handled, Count: 1}); n != 1 {
			t.Fatalf("%d requests of the one who stays", n)
		}
		if got := <-long; got.Result != deadletters.ResultHandled || got.err != nil {
			t.Errorf("the one who stays: %+v, %v", got.Outcome, got.err)
		}
	})
}

// What is not served yet can be withdrawn, of one key or of all. Who waits for it hears that.
func TestRequestsAreWithdrawn(t *testing.T) {
	for _, rights := range []bool{true, false} {
		inOffice(t, func(t *testing.T, o *office) {
			if !rights {
				o.leases = undeletable{o.leases}
			}
			cities := []string{"London", "Oslo", "Paris"}
			errs := map[string]chan error{}
			for _, city := range cities {
				errs[city] = make(chan error, 1)
				go func() {
					// in another spelling
					_, err := deadletters.Release(t.Context(), o.orders, o.leases, feed.PartitionKey(`[ "`+city+`" ]`))
					errs[city] <- err
				}()
			}
			time.Sleep(time.Second)
			for _, tt := range []struct {
				key  feed.PartitionKey
				want int
			}{{feed.Key("Rome"), 0}, {`["Osl\u006f"]`, 1}, {feed.Key("Oslo"), 0}, {"", 2}, {"", 0}} {
				if n, err := deadletters.Withdraw(t.Context(), o.leases, tt.key); n != tt.want || err != nil {
					t.Errorf("withdrew %d of %q, %v, want %d", n, tt.key, err, tt.want)
				}
			}
			if n := o.serve(notes.Outcome{Result: notes.Handled}); n != 0 {
				t.Errorf("%d requests could be served", n)
			}
			for _, city := range cities {
				if err := <-errs[city]; !errors.Is(err, deadletters.ErrNotServed) ||
					!strings.HasSuffix(err.Error(), "not served: somebody has withdrawn the request") {
					t.Errorf("%s: %v", city, err)
				}
			}
		})
	}
}

// contested is a lease store in which the owner writes a request just before it is withdrawn.
type contested struct {
	feed.LeaseStore
	writes int
}

func (s *contested) Delete(ctx context.Context, r feed.Record) error {
	if s.writes > 0 {
		s.writes--
		if _, err := s.Update(ctx, r); err != nil {
			return err
		}
	}
	return s.LeaseStore.Delete(ctx, r)
}

func TestARequestThatItsOwnerWritesIsWithdrawn(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		if _, err := o.ask(&contested{o.leases, 3}, time.Minute); !errors.Is(err, deadletters.ErrNotServed) ||
			len(o.requests()) != 0 {
			t.Errorf("got %v; left: %+v", err, o.requests())
		}
		go func() { _, _ = o.ask(o.leases, time.Minute) }()
		time.Sleep(time.Second)
		if n, err := deadletters.Withdraw(t.Context(), &contested{o.leases, 3}, ""); n != 1 || err != nil ||
			len(o.requests()) != 0 {
			t.Errorf("withdrew %d, %v; left: %+v", n, err, o.requests())
		}
		time.Sleep(time.Minute)
	})
}

// The source of a unit must know where keys are.
func TestARequestNeedsAPlace(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		type placeless struct{ feed.Source }
		if _, err := deadletters.Release(t.Context(), placeless{o.orders}, o.leases, feed.Key("Paris")); !errors.Is(err,
			errors.ErrUnsupported) {
			t.Errorf("no locator: %v", err)
		}
		if _, err := deadletters.Release(t.Context(), o.orders, o.leases, feed.Key("Paris", 5)); !errors.Is(err,
			feed.ErrBadRequest) {
			t.Errorf("a wrong key: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := deadletters.Redrive(ctx, o.orders, o.leases, feed.Key("Paris"), "")
		if records, _, listErr := o.leases.List(t.Context()); !errors.Is(err, feed.ErrBadRequest) || listErr != nil ||
			len(records) > 0 {
			t.Errorf("a redrive without a letter: %v, and %v is asked for", err, records)
		}
	})
}

// However long a caller has waited, the outcome is heard soon.
func TestAnOutcomeIsHeardSoon(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		begun := time.Now()
		time.AfterFunc(time.Hour, func() { o.serve(notes.Outcome{Result: notes.Handled}) })
		if _, err := o.ask(o.leases, 0); err != nil || time.Since(begun) > time.Hour+2*time.Second {
			t.Errorf("heard after %v, %v", time.Since(begun), err)
		}
	})
}

// lagging is a lease store whose lists lack requests until a time, or fail.
type lagging struct {
	feed.LeaseStore
	until time.Time
	err   error // nil for lists without requests
}

func (s lagging) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	records, now, err := s.LeaseStore.List(ctx)
	if time.Now().Before(s.until) {
		return slices.DeleteFunc(records, func(r feed.Record) bool { return r.Kind == feed.KindRequest }), now, s.err
	}
	return records, now, err
}

// No list must lag, and the network may fail: that takes away no outcome, and leaves no request behind.
func TestARequestOutlivesListsThatFailOrLag(t *testing.T) {
	for _, failed := range []error{nil, errors.New("connection refused")} {
		inOffice(t, func(t *testing.T, o *office) {
			s := lagging{o.leases, time.Now().Add(4 * time.Second), failed}
			time.AfterFunc(10*time.Second, func() { o.serve(notes.Outcome{Result: notes.Handled, Count: 1}) })
			if got, err := o.ask(s, time.Minute); got.Result != deadletters.ResultHandled || err != nil {
				t.Errorf("lists that give %v for a while: %+v, %v", failed, got, err)
			}
		})
	}
	inOffice(t, func(t *testing.T, o *office) {
		s := lagging{o.leases, time.Now().Add(time.Hour), nil}
		if _, err := o.ask(s, time.Second); !errors.Is(err, deadletters.ErrNotServed) || len(o.requests()) != 0 {
			t.Errorf("a caller who gives up before a list has the request: %v; left: %+v", err, o.requests())
		}
		begun := time.Now()
		if _, err := o.ask(s, time.Minute); !errors.Is(err, deadletters.ErrNotServed) ||
			time.Since(begun) > 10*time.Second {
			t.Errorf("lists that lag for ever: %v after %v, want that the request counts as gone", err,
				time.Since(begun))
		}
	})
}

// hanging is a lease store that does not answer a delete.
type hanging struct{ feed.LeaseStore }

func (hanging) Delete(ctx context.Context, _ feed.Record) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestACallerWhoGivesUpWaitsForNoStore(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		begun := time.Now()
		_, err := o.ask(hanging{o.leases}, time.Minute)
		if took := time.Since(begun); took != time.Minute+5*time.Second || !errors.Is(err, deadletters.ErrNotServed) ||
			!strings.Contains(err.Error(), "could not be withdrawn, and stays asked for at most 55s") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// outrun is a lease store in which others delete what is deleted or updated, just before.
type outrun struct {
	feed.LeaseStore
	update func(r feed.Record)
}

func (s outrun) Delete(ctx context.Context, r feed.Record) error {
	return errors.Join(s.LeaseStore.Delete(ctx, r), s.LeaseStore.Delete(ctx, r))
}

func (s outrun) Update(ctx context.Context, r feed.Record) (feed.Record, error) {
	if s.update != nil {
		s.update(r)
	}
	return s.LeaseStore.Update(ctx, r)
}

func TestARequestThatOthersHaveRemovedIsGone(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		s := outrun{LeaseStore: o.leases}
		if _, err := o.ask(s, time.Minute); !errors.Is(err, deadletters.ErrNotServed) ||
			!strings.HasSuffix(err.Error(), "; the request is gone") {
			t.Errorf("a caller who gives up: %v", err)
		}
		go func() { _, _ = o.ask(o.leases, time.Minute) }()
		time.Sleep(time.Second)
		if n, err := deadletters.Withdraw(t.Context(), s, ""); n != 0 || err != nil {
			t.Errorf("withdrew %d, %v, want none of its own", n, err)
		}
		time.Sleep(time.Minute)
	})
}

// A request that was served is asked anew, though somebody else writes or removes its record at that moment.
func TestARequestIsAskedAnewBesideOthers(t *testing.T) {
	for name, meanwhile := range map[string]func(o *office, r feed.Record) error{
		"removed": func(o *office, r feed.Record) error { return o.leases.Delete(o.t.Context(), r) },
		"written": func(o *office, r feed.Record) error {
			r.State = feed.StateRetired
			_, err := o.leases.Update(o.t.Context(), r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOffice(t, func(t *testing.T, o *office) {
				time.AfterFunc(time.Second, func() { o.serve(notes.Outcome{Result: notes.Nothing}) })
				if _, err := o.ask(undeletable{o.leases}, time.Minute); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				once := sync.OnceFunc(func() {
					if err := meanwhile(o, o.requests()[0]); err != nil {
						t.Error(err)
					}
				})
				time.AfterFunc(10*time.Second, func() { o.serve(notes.Outcome{Result: notes.Handled}) })
				got, err := o.ask(outrun{o.leases, func(feed.Record) { once() }}, time.Minute)
				if got.Result != deadletters.ResultHandled || err != nil {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		})
	}
}

// late is a lease store that lists records beyond their time to live, as stores may that remove them now and then.
type late struct{ feed.LeaseStore }

func (s late) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	records, now, err := s.LeaseStore.List(ctx)
	for i, r := range records {
		if r.Kind == feed.KindRequest && r.TTL == 0 {
			records[i].TTL = time.Minute
		}
	}
	return records, now, err
}

// Nobody serves the request of a caller who died long ago: who follows it would wait for ever.
func TestARequestWhoseTimeIsOverIsWrittenAnew(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		if _, err := o.ask(undeletable{o.leases}, time.Second); err == nil {
			t.Fatal("served by nobody")
		}
		r := o.requests()[0]
		r.State, r.TTL = feed.StateLive, 0
		if _, err := o.leases.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		asked := time.Now()
		time.AfterFunc(10*time.Second, func() {
			if r := o.requests()[0]; r.Timestamp.Before(asked) {
				t.Errorf("what is asked is of %v, want it written anew", r.Timestamp)
			}
			o.serve(notes.Outcome{Result: notes.Handled})
		})
		if got, err := o.ask(late{o.leases}, time.Minute); got.Result != deadletters.ResultHandled || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// Whoever has asked first has the outcome, whoever reads it first; and so has the other one who gives up at that
// moment.
func TestCallersOfOneLetterShareTheOutcome(t *testing.T) {
	for after := range 20 {
		inOffice(t, func(t *testing.T, o *office) {
			served := time.Duration(after)*500*time.Millisecond + 3*time.Second
			time.AfterFunc(served, func() { o.serve(notes.Outcome{Result: notes.Handled, Count: 1}) })
			first, other := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := o.ask(o.leases, time.Minute)
				first <- err
			}()
			time.Sleep(700 * time.Millisecond)
			go func() {
				_, err := o.ask(o.leases, served-700*time.Millisecond+time.Millisecond)
				other <- err
			}()
			if err := <-first; err != nil {
				t.Errorf("served after %v: the first caller gets %v", served, err)
			}
			if err := <-other; err != nil {
				t.Errorf("served after %v: the other one, who gives up then, gets %v", served, err)
			}
		})
	}
}

// A caller who asks for what was served a moment ago takes the outcome from nobody.
func TestAnOutcomeThatIsNotReadYetIsNotOverwritten(t *testing.T) {
	for wait := time.Millisecond; wait < 2*time.Second; wait += 300 * time.Millisecond {
		inOffice(t, func(t *testing.T, o *office) {
			time.AfterFunc(20*time.Second, func() { o.serve(notes.Outcome{Result: notes.Handled, Count: 1}) })
			time.AfterFunc(40*time.Second, func() { o.serve(notes.Outcome{Result: notes.Nothing}) })
			first := make(chan deadletters.Outcome, 1)
			go func() {
				got, err := o.ask(o.leases, time.Minute)
				if err != nil {
					t.Errorf("asked again %v after it was served: %v", wait, err)
				}
				first <- got
			}()
			time.Sleep(20*time.Second + wait)
			if got, err := o.ask(o.leases, time.Minute); err != nil {
				t.Errorf("the one who has asked again: %+v, %v", got, err)
			}
			if got := <-first; got.Result != deadletters.ResultHandled || got.Handled != 1 {
				t.Errorf("asked again %v after it was served: the first gets %+v", wait, got)
			}
		})
	}
}

// gap is a lease store whose lists lag for a while from a time on.
type gap struct {
	lagging
	from time.Time
}

func (s gap) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if time.Now().Before(s.from) {
		return s.LeaseStore.List(ctx)
	}
	return s.lagging.List(ctx)
}

// Who asks anew, after the request of somebody else has gone, has not seen the new one in a list yet.
func TestARequestThatIsAskedAnewOutlivesAListThatLags(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		first := make(chan error, 1)
		go func() {
			_, err := o.ask(o.leases, time.Minute)
			first <- err
		}()
		time.Sleep(500 * time.Millisecond)
		time.AfterFunc(5*time.Second, func() {
			if err := o.leases.Delete(t.Context(), o.requests()[0]); err != nil {
				t.Error(err)
			}
		})
		time.AfterFunc(15*time.Second, func() { o.serve(notes.Outcome{Result: notes.Handled, Count: 1}) })
		s := gap{lagging{o.leases, time.Now().Add(9 * time.Second), nil}, time.Now().Add(5 * time.Second)}
		if got, err := o.ask(s, time.Minute); got.Result != deadletters.ResultHandled || err != nil {
			t.Errorf("who has asked anew gets %+v, %v", got, err)
		}
		if err := <-first; !errors.Is(err, deadletters.ErrNotServed) {
			t.Errorf("whose request was withdrawn gets %v", err)
		}
	})
}
