package cosmos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestTheLagOnOurServerIsExact has leases of whole partitions, of parts of them, and of
// one that was split meanwhile.
func TestTheLagOnOurServerIsExact(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	stored := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 5})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	client := s.client(t, master, nil)
	leases := unit(t, client, "unit")
	parts, err := stored.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range parts {
		for _, r := range p.Range.Cut(1 + i%3) {
			lease := feed.Record{
				Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r,
				Position: feed.Position{Start: feed.FromBeginning()},
			}
			if _, err := leases.Create(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 120 {
		if err := put(t.Context(), stored, fmt.Sprintf(`{"id":"%d","pk":"k%d"}`, i%110, i%110)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if err := stored.Delete(t.Context(), feed.Key(fmt.Sprint("k", i)), fmt.Sprint(i), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stored.Split(t.Context(), parts[0].ID); err != nil {
		t.Fatal(err)
	}
	lags, err := changefeed.Estimate(t.Context(), find(t, client, "items"), leases)
	if err != nil || len(lags) != 9 {
		t.Fatalf("%d lags, %v, want 9", len(lags), err)
	}
	var sum int64
	for _, l := range lags {
		want, err := stored.Pending(t.Context(), l.Lease.Range, l.Lease.Position, feed.ReadOptions{})
		if err != nil || l.Err != nil || !l.Exact || l.Pending != want.Items || !l.Oldest.Equal(want.Oldest) {
			t.Errorf("lag of %s is %+v, want %+v, %v, exactly", l.Lease.Token, l, want, err)
		}
		sum += l.Pending
	}
	if sum != 100 {
		t.Errorf("the leases have %d changes together, want 100", sum)
	}
}

// TestAzureCountsNothing has an account that says nothing of counting.
func TestAzureCountsNothing(t *testing.T) {
	b, err := (&account{}).open(t, cosmos.Options{}).Pending(t.Context(), feed.FullRange(), feed.Position{},
		feed.ReadOptions{})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("counted %+v, %v, want %v", b, err, errors.ErrUnsupported)
	}
}

// TestAnAnswerWithoutACountIsAnError has a proxy that does not know the header: a page
// comes in place of a count.
func TestAnAnswerWithoutACountIsAnError(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	stored := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	if err := put(t.Context(), stored, `{"id":"a","pk":"k"}`); err != nil {
		t.Fatal(err)
	}
	client := s.client(t, master, tripper(func(r *http.Request) (*http.Response, error) {
		r.Header.Del("X-Changefeed-Count-Pending")
		return s.transport.RoundTrip(r)
	}))
	counter := find(t, client, "items")
	from := feed.Position{Start: feed.FromBeginning()}
	if b, err := counter.Pending(t.Context(), feed.FullRange(), from, feed.ReadOptions{}); err == nil {
		t.Errorf("counted %+v, want an error", b)
	}
	if _, err := counter.Pending(t.Context(), feed.Range{Min: "1", Max: "1"}, from, feed.ReadOptions{}); !errors.Is(err,
		feed.ErrBadRequest) {
		t.Errorf("count of an empty range: %v, want a bad request", err)
	}
}

// TestACountMayTakeAMinute has a server that counts for longer than other requests may take.
func TestACountMayTakeAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 50 * time.Second
		a := &account{regions: waits, trouble: func(r *http.Request, _ int) (*http.Response, error) {
			select {
			case <-time.After(long):
				return say(200, `{"items":7}`), nil
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			}
		}}
		begun := time.Now()
		b, err := counter(t, a).Pending(t.Context(), feed.FullRange(), feed.At(`"5"`), feed.ReadOptions{})
		if err != nil || b.Items != 7 || time.Since(begun) != long {
			t.Errorf("counted %+v, %v after %v, want 7 after %v", b, err, time.Since(begun), long)
		}
	})
}

func TestACountMayBeOfOneKey(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	stored := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	for i := range 5 {
		if err := put(t.Context(), stored, fmt.Sprintf(`{"id":"%d","pk":"k%d"}`, i, i%2)); err != nil {
			t.Fatal(err)
		}
	}
	from := feed.Position{Start: feed.FromBeginning()}
	counter := find(t, s.client(t, master, nil), "items")
	b, err := counter.Pending(t.Context(), feed.FullRange(), from, feed.ReadOptions{Key: feed.Key("k0")})
	if err != nil || b.Items != 3 {
		t.Errorf("counted %+v, %v, want 3 of the key", b, err)
	}
}

func TestACountThatIsWrongIsNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		r   feed.Range
		key feed.PartitionKey
	}{
		"an empty range":           {feed.Range{Min: "1", Max: "1"}, ""},
		"a key of too many levels": {feed.FullRange(), feed.Key("a", "b")},
	} {
		a := &account{regions: waits, trouble: refuse(0, 0)}
		b, err := counter(t, a).Pending(t.Context(), c.r, feed.At(`"5"`), feed.ReadOptions{Key: c.key})
		if !errors.Is(err, feed.ErrBadRequest) || len(a.asked) > 0 {
			t.Errorf("%s: %+v, %v after %d requests, want a bad request", name, b, err, len(a.asked))
		}
	}
}

func counter(t *testing.T, a *account) feed.Counter {
	t.Helper()
	return a.open(t, cosmos.Options{})
}
