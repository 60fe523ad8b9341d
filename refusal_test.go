package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestNewRefusesOptionsThatMakeNoSense(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		fine := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
		for _, c := range []struct {
			field   string
			handler feed.Handler
			o       changefeed.Options
			says    []string
		}{
			{"Instance", fine, changefeed.Options{Instance: "  "}, []string{`"  "`}},
			{"handler", nil, changefeed.Options{Instance: "a"}, []string{"nil"}},
			{"handler", feed.HandlerFunc(nil), changefeed.Options{Instance: "a"}, []string{"nil"}},
			{"Renew", fine, changefeed.Options{Instance: "a", Renew: time.Minute}, []string{"1m0s"}},
			{
				"Renew", fine,
				changefeed.Options{Instance: "a", Renew: 20 * time.Second, Expiration: 15 * time.Second},
				[]string{"20s", "13.5s"},
			},
			{"Renew", fine, changefeed.Options{Instance: "a", Renew: -1}, []string{"-1ns"}},
			{"Acquire", fine, changefeed.Options{Instance: "a", Acquire: -time.Second}, []string{"-1s"}},
			{"Expiration", fine, changefeed.Options{Instance: "a", Expiration: -1}, nil},
			{"Poll", fine, changefeed.Options{Instance: "a", Poll: -1}, nil},
			{"Concurrency", fine, changefeed.Options{Concurrency: -1}, []string{"-1"}},
			{
				"OnFailure.MaxAttempts", fine,
				changefeed.Options{OnFailure: changefeed.FailurePolicy{MaxAttempts: -2}},
				[]string{"-2"},
			},
			{
				"OnFailure.MaxAge", fine,
				changefeed.Options{OnFailure: changefeed.FailurePolicy{MaxAge: -time.Second}},
				[]string{"-1s"},
			},
			{"MaxWait", fine, changefeed.Options{MaxWait: -1}, nil},
			{"MaxWait", fine, changefeed.Options{MaxWait: time.Hour}, []string{"1h0m0s", "10m0s"}},
			{"MaxBytes", fine, changefeed.Options{MaxBytes: -1}, nil},
			{"BufferItems", fine, changefeed.Options{BufferItems: -1}, nil},
			{"BufferBytes", fine, changefeed.Options{BufferBytes: -1}, nil},
			{"MaxLeases", fine, changefeed.Options{MaxLeases: -1}, nil},
			{"Weight", fine, changefeed.Options{Weight: -1}, []string{"-1", "1 to 1000"}},
			{"Weight", fine, changefeed.Options{Weight: 1001}, []string{"1001", "1 to 1000"}},
			{
				"OnFailure.DeadLetters", fine,
				changefeed.Options{OnFailure: changefeed.FailurePolicy{DeadLetters: &letterBox{}}},
				[]string{"letterBox", "MaxAttempts"},
			},
			{"OnFailure.HoldKeys", fine, changefeed.Options{OnFailure: changefeed.FailurePolicy{
				HoldKeys:    true,
				MaxAttempts: 1,
			}}, []string{"LetterBox"}},
			{
				"Manual", fine,
				changefeed.Options{Manual: true, OnFailure: changefeed.FailurePolicy{MaxAttempts: 1}},
				[]string{"MaxAttempts"},
			},
			{"Manual", fine, changefeed.Options{Manual: true, OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 1,
				DeadLetters: &letterBox{},
			}}, nil},
			{"Drain", fine, changefeed.Options{Instance: "a", Drain: -1}, nil},
			{"HandlerTimeout", fine, changefeed.Options{Instance: "a", HandlerTimeout: -1}, nil},
			{"RetryMin", fine, changefeed.Options{Instance: "a", RetryMin: -1}, nil},
			{"RetryMax", fine, changefeed.Options{Instance: "a", RetryMin: 2, RetryMax: 1}, []string{"2ns", "1ns"}},
			{"MaxItems", fine, changefeed.Options{Instance: "a", MaxItems: -1}, []string{"-1"}},
			{"MinLeases", fine, changefeed.Options{Instance: "a", MinLeases: 1e9}, []string{"1000000000"}},
			{"CheckpointEvery", fine, changefeed.Options{Instance: "a", CheckpointEvery: -1}, nil},
			{"Manual", fine, changefeed.Options{Instance: "a", Manual: true, CheckpointItems: 5}, nil},
			{"Mode", fine, changefeed.Options{Instance: "a", Mode: 7}, []string{"7"}},
			{"Start", fine, changefeed.Options{
				Instance: "a", Mode: feed.AllVersionsAndDeletes,
				Start: feed.FromBeginning(),
			}, []string{"beginning"}},
			{"Start", fine, changefeed.Options{
				Instance: "a", Mode: feed.AllVersionsAndDeletes,
				Start: feed.FromTime(time.Now()),
			}, []string{"2000-01-01"}},
		} {
			_, err := changefeed.New(w.orders, w.leases, c.handler, c.o)
			var refused *changefeed.OptionError
			if !errors.As(err, &refused) || refused.Field != c.field {
				t.Errorf("%+v: got %v, want an error for %s", c.o, err, c.field)
				continue
			}
			for _, says := range append(c.says, c.field) {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("error %q does not tell %s", err, says)
				}
			}
		}
		if _, err := changefeed.New(nil, w.leases, fine, changefeed.Options{Instance: "a"}); err == nil {
			t.Error("a nil source was taken")
		}
		if _, err := changefeed.New(w.orders, nil, fine, changefeed.Options{Instance: "a"}); err == nil {
			t.Error("a nil lease store was taken")
		}
	})
}

// ends runs a processor that must refuse by itself.
func (w *world) ends(o changefeed.Options) error {
	w.t.Helper()
	o.Instance = "b"
	p, err := changefeed.New(w.orders, w.leases, &tally{}, o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	return p.Run(ctx)
}

func TestAStartThatLeasesWouldIgnoreIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.stop(t)
		if err := w.ends(changefeed.Options{Start: feed.FromBeginning()}); !errors.Is(err, feed.ErrStartIgnored) {
			t.Errorf("got %v, want ErrStartIgnored", err)
		}
		at := feed.FromTime(time.Now())
		if err := w.ends(changefeed.Options{Start: at}); !errors.Is(err, feed.ErrStartIgnored) ||
			!strings.Contains(err.Error(), at.String()) {
			t.Errorf("got %v, want ErrStartIgnored with the time", err)
		}
	})
}

func TestTheStartThatLeasesWereMadeWithIsWelcomeAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for range 2 {
			p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
			time.Sleep(time.Minute)
			p.stop(t)
		}
		p := w.run("a", &tally{}, changefeed.Options{}) // no start is no claim
		time.Sleep(time.Minute)
		p.stop(t)
	})
}

func TestAModeThatLeasesWereNotMadeForIsRefused(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.stop(t)
		err := w.ends(changefeed.Options{Mode: feed.AllVersionsAndDeletes})
		if !errors.Is(err, feed.ErrModeChanged) {
			t.Errorf("got %v, want ErrModeChanged", err)
		}
		if err != nil && !strings.Contains(err.Error(), "processor name") {
			t.Errorf("error %q does not tell what to do", err)
		}
	})
}

func TestALeaseContainerWithAnotherPartitionKeyIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		wrong := w.create(docstore.ContainerSpec{ID: "wrong", Paths: []string{"/city"}})
		_, err := docstore.NewLeases(t.Context(), wrong, "unit", w.orders)
		if err == nil || !strings.Contains(err.Error(), "/city") || !strings.Contains(err.Error(), "/id") {
			t.Errorf("got %v, want an error that tells /city and /id", err)
		}
		for _, name := range []string{"", " ", "a/b"} {
			if _, err := docstore.NewLeases(t.Context(), w.container, name, w.orders); !errors.Is(err,
				docstore.ErrProcessorName) {
				t.Errorf("processor name %q: %v", name, err)
			}
		}
	})
}

// raw writes a document among the leases.
func (w *world) raw(doc string) {
	w.t.Helper()
	var id string
	if _, err := fmt.Sscanf(doc, `{"id":%q`, &id); err != nil {
		w.t.Fatal(err)
	}
	_, err := w.container.Commit(w.t.Context(), feed.Key(id), []feed.Write{{Op: feed.WriteCreate, Body: []byte(doc)}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) prefix() string {
	w.t.Helper()
	id := w.records(feed.KindLease)[0].ID
	return id[:strings.Index(id, "..")]
}

func TestBrokenLeaseDocumentsAreReportedAndLeftAlone(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Second)
		prefix := w.prefix()
		w.raw(fmt.Sprintf(`{"id":%q}`, prefix+"..99"))
		w.raw(fmt.Sprintf(`{"id":%q,"LeaseToken":7}`, prefix+"..98"))
		w.raw(fmt.Sprintf(`{"id":%q,"LeaseToken":"97","FeedRange":"all"}`, prefix+"..97"))
		w.fill(10)
		time.Sleep(2 * time.Minute)
		if items, again := y.items(); items != 10 || again != 0 {
			t.Errorf("got %d items, %d again", items, again)
		}
		for _, token := range []string{"..99", "..98", "..97"} {
			found := false
			p.errs.mu.Lock()
			for _, err := range p.errs.errs {
				found = found || errors.Is(err, feed.ErrBadLease) && strings.Contains(err.Error(), token[2:])
			}
			p.errs.mu.Unlock()
			if !found {
				t.Errorf("the broken lease %s was not reported", token)
			}
		}
		p.stop(t)
	})
}

func TestASecondLeaseForARangeIsReportedAndIgnored(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Second)
		w.raw(fmt.Sprintf(`{"id":%q,"version":0,"LeaseToken":"0","FeedRange":{"Range":{"min":"","max":"FF"}},"Owner":null,"ContinuationToken":null,"properties":{}}`,
			w.prefix()+"..0"))
		w.fill(10)
		time.Sleep(5 * time.Minute)
		if items, again := y.items(); items != 10 || again != 0 {
			t.Errorf("got %d items, %d again", items, again)
		}
		if p.errs.find(feed.ErrOverlap) == nil {
			t.Error("not reported")
		}
		p.stop(t)
	})
}

func TestADeletedLeaseIsMadeAgainFromWhereTheUnitBegan(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(10)
		time.Sleep(time.Minute)
		lost := w.records(feed.KindLease)[0]
		if err := w.leases.Delete(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		w.fill(10)
		time.Sleep(10 * time.Minute)
		w.tiles()
		if n := w.pending(); n != 0 {
			t.Errorf("%d pending", n)
		}
		if p.errs.find(feed.ErrHole) == nil {
			t.Error("the hole was not reported")
		}
		if items, _ := y.items(); items != 10 {
			t.Errorf("got %d items", items)
		}
		p.stop(t)
	})
}

// Leases as a .NET processor leaves them are continued where they are.
func TestLeasesOfAnotherProcessorAreContinued(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(10)
		setup := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		setup.stop(t)
		prefix := w.prefix()
		for _, l := range w.records(feed.KindLease) {
			if err := w.leases.Delete(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		head := fmt.Sprintf("%q", fmt.Sprint(`"`, w.put("oslo", "before", 1), `"`))
		p := w.partitions()
		w.raw(fmt.Sprintf(`{"id":%q,"version":0,"_etag":"","LeaseToken":%q,"FeedRange":{"Range":{"min":%q,"max":%q}},"Owner":"net-1","ContinuationToken":%s,"properties":{"theirs":"kept"},"timestamp":"2000-01-01T00:00:00.1234567Z","Mode":"Incremental Feed","surprise":[1,2]}`,
			prefix+".."+p[0].ID, p[0].ID, p[0].Range.Min, p[0].Range.Max, head))
		w.raw(fmt.Sprintf(`{"id":%q,"LeaseToken":%q,"Owner":null,"ContinuationToken":%s}`, prefix+".."+p[1].ID, p[1].ID,
			head))
		w.fill(10)
		y := &tally{}
		b := w.run("b", y, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		if items, again := y.items(); items != 10 || again != 0 {
			t.Errorf("got %d items, %d again; want the 10 behind the stored positions", items, again)
		}
		for _, l := range w.records(feed.KindLease) {
			if l.Version != 0 || l.Owner != "b" {
				t.Errorf("lease %s has version %d and owner %q", l.Token, l.Version, l.Owner)
			}
			if l.Token == p[0].ID && (l.Properties["theirs"] != "kept" ||
				!strings.Contains(string(l.Raw), `"surprise":[1,2]`)) {
				t.Errorf("what others keep in the lease is gone: %s", l.Raw)
			}
		}
		b.stop(t)
	})
}
