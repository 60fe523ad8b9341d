package cosmos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	_ feed.LeaseStore = leaseStore(nil)
	_ feed.Follower   = leaseStore(nil)
)

// leaseStore is what OpenLeases gives.
type leaseStore interface {
	feed.LeaseStore
	feed.Follower
}

// losing loses the replies of writes while it is on, and counts the writes.
type losing struct {
	to    http.RoundTripper
	on    atomic.Bool
	count atomic.Int64
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.to.RoundTrip(r)
	if !l.on.Load() || r.Method == http.MethodGet || r.Header.Get("x-ms-documentdb-isquery") != "" || err != nil {
		return resp, err
	}
	l.count.Add(1)
	_, err = io.Copy(io.Discard, resp.Body)
	return nil, errors.Join(lostReply, err, resp.Body.Close())
}

// TestAWriteWhoseReplyIsLost is sent once, takes effect, and ends as an error that is
// neither a conflict nor a missing record. The id of a host goes by another way.
func TestAWriteWhoseReplyIsLost(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	l := &losing{to: s.transport}
	leases := unit(t, s.client(t, master, l), "unit")
	ctx := t.Context()
	lost := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, lostReply) || slices.ContainsFunc(sentinels, func(s error) bool {
			return errors.Is(err, s)
		}) || l.count.Load() != 1 {
			t.Errorf("%s: %v after %d requests, want the lost reply after one", what, err, l.count.Load())
		}
		l.on.Store(false)
		l.count.Store(0)
	}
	for _, record := range []feed.Record{{Kind: feed.KindLease, Token: "0"}, {Kind: feed.KindHost, Token: "h/e"}} {
		l.on.Store(true)
		_, err := leases.Create(ctx, record)
		lost("Create", err)
		if _, err = leases.Create(ctx, record); !errors.Is(err, feed.ErrConflict) {
			t.Errorf("Create again: %v, want ErrConflict", err)
		}
		listed, _, err := leases.List(ctx)
		if err != nil || len(listed) != 1 {
			t.Fatalf("List: %d records, %v", len(listed), err)
		}
		l.on.Store(true)
		_, err = leases.Update(ctx, listed[0])
		lost("Update", err)
		if _, err = leases.Update(ctx, listed[0]); !errors.Is(err, feed.ErrPrecondition) {
			t.Errorf("Update again: %v, want ErrPrecondition", err)
		}
		if listed, _, err = leases.List(ctx); err != nil {
			t.Fatal(err)
		}
		l.on.Store(true)
		lost("Delete", leases.Delete(ctx, listed[0]))
		if err = leases.Delete(ctx, listed[0]); !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("Delete again: %v, want ErrNotFound", err)
		}
	}
}

// TestFollowGoesOnThroughASplit splits the lease container between and during calls.
func TestFollowGoesOnThroughASplit(t *testing.T) {
	for _, push := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, cosmosrest.Options{})
			s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
			container := s.create(t, docstore.ContainerSpec{
				ID: "leases", Paths: []string{"/id"},
				DefaultTTL: new(docstore.NoDefaultTTL),
			})
			via := http.RoundTripper(s.transport)
			if !push {
				via = polled(via)
			}
			leases := unit(t, s.client(t, master, via), "unit")
			_, cursor, _, err := leases.Follow(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for i := range 60 {
				if i == 20 || i == 40 {
					reshape(t, container, false)
				}
				if _, err := leases.Create(t.Context(),
					feed.Record{Kind: feed.KindLease, Token: fmt.Sprint(i)}); err != nil {
					t.Fatal(err)
				}
				if i%3 == 0 {
					cursor = follow(t, leases, cursor, seen)
				}
			}
			for len(seen) < 60 {
				cursor = follow(t, leases, cursor, seen)
			}
		})
	}
}

// follow follows once, for at most a minute.
func follow(t *testing.T, leases leaseStore, cursor string, seen map[string]bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed, next, _, err := leases.Follow(ctx, cursor)
	if err != nil {
		t.Fatalf("Follow(%s) with %d records seen: %v", cursor, len(seen), err)
	}
	for _, l := range changed {
		seen[l.Token] = true
	}
	return next
}

// What comes shortly behind a change is told with it: the cursor has passed both.
func TestFollowTellsTheWholeOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{})
		s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
		s.create(t, docstore.ContainerSpec{
			ID: "leases", Paths: []string{"/id"},
			DefaultTTL: new(docstore.NoDefaultTTL),
		})
		leases := unit(t, s.client(t, master, nil), "unit")
		_, cursor, _, err := leases.Follow(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			for i := range 4 {
				time.Sleep(200 * time.Millisecond) // so that the burst is longer than what is gathered at once
				if _, err := leases.Create(t.Context(),
					feed.Record{Kind: feed.KindLease, Token: fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
			}
		})
		seen := map[string]bool{}
		for len(seen) < 4 {
			cursor = follow(t, leases, cursor, seen)
		}
		writing.Wait()
	})
}

// A page that cannot be read is an error: the cursor must not move past it.
func TestFollowStopsAtAPageThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{}
		a.trouble = refuse(0, 0)
		leases := a.leases(t, a.open(t, cosmos.Options{}))
		a.trouble = func(*http.Request, int) (*http.Response, error) {
			return say(200, `{"Documents":[{"id":"unit`, "etag", `"12"`), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, next, _, err := leases.Follow(ctx, `{"-FF":"\"1\""}`)
		if err == nil || ctx.Err() != nil || next != "" {
			t.Errorf("cursor %q, %v: want the error of the page, and no cursor", next, err)
		}
	})
}

// TestFollowKeepsItsPace has a follower that nothing happens to for almost ten minutes.
func TestFollowKeepsItsPace(t *testing.T) {
	for _, c := range []struct {
		push bool
		want int // requests, with the first one
	}{{true, 21}, {false, 119}} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, cosmosrest.Options{})
			s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
			s.create(t, docstore.ContainerSpec{
				ID: "leases", Paths: []string{"/id"},
				DefaultTTL: new(docstore.NoDefaultTTL),
			})
			m := &meter{to: s.transport, count: map[string]int{}}
			if !c.push {
				m.to = polled(m.to)
			}
			leases := unit(t, s.client(t, master, m), "unit")
			_, cursor, _, err := leases.Follow(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			enough := errors.New("enough")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Minute-9*time.Second, enough)
			defer cancel()
			if changed, _, _, err := leases.Follow(ctx, cursor); !errors.Is(err, enough) {
				t.Errorf("Follow: %v, %v", changed, err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if got := m.count["leases feed"]; got < c.want-1 || got > c.want+1 {
				t.Errorf("push %v: %d requests in ten minutes, want %d", c.push, got, c.want)
			}
		})
	}
}

func TestWhatFollowRefuses(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}})
	leases := unit(t, s.client(t, master, nil), "unit")
	for _, cursor := range []string{"x", `"12"`, `{"no range":"\"1\""}`} {
		if changed, _, _, err := leases.Follow(t.Context(), cursor); err == nil {
			t.Errorf("Follow(%s): %v, want an error", cursor, changed)
		}
	}
}

// TestTheStoresTimeIsNeverBehindARecord has a server whose clock differs from that of
// its records.
func TestTheStoresTimeIsNeverBehindARecord(t *testing.T) {
	const date = "Fri, 02 Jan 2026 03:04:05 GMT"
	dated := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		ts   time.Time
		want time.Time
	}{
		{dated.Add(-time.Hour), dated},
		{dated.Add(3 * time.Second), dated.Add(3 * time.Second)},
	} {
		a := &account{}
		leases := a.leases(t, (&account{}).open(t, cosmos.Options{}))
		a.trouble = func(*http.Request, int) (*http.Response, error) {
			body := fmt.Sprintf(`{"Documents":[{"id":"%s..0","LeaseToken":"0","_ts":%d,"_etag":"\"e\""}]}`,
				leases.Prefix(), c.ts.Unix())
			return say(200, body, "Date", date), nil
		}
		records, now, err := leases.List(t.Context())
		if err != nil || len(records) != 1 || !now.Equal(c.want) {
			t.Errorf("List: %d records, now %v, %v: want %v", len(records), now, err, c.want)
		}
	}
}

// TestAListHasSeveralPages follows the continuation.
func TestAListHasSeveralPages(t *testing.T) {
	a := &account{}
	leases := a.leases(t, (&account{}).open(t, cosmos.Options{}))
	a.trouble = func(r *http.Request, n int) (*http.Response, error) {
		body := fmt.Sprintf(`{"Documents":[{"id":"%s..%d","LeaseToken":"%d"},{"id":"other"}]}`, leases.Prefix(), n, n)
		if want := []string{"", "to 2", "to 3"}[n-1]; r.Header.Get("x-ms-continuation") != want {
			t.Errorf("continuation of page %d is %q, want %q", n, r.Header.Get("x-ms-continuation"), want)
		}
		return say(200, body, "x-ms-continuation", []string{"to 2", "to 3", ""}[n-1]), nil
	}
	records, _, err := leases.List(t.Context())
	var tokens []string
	for _, l := range records {
		tokens = append(tokens, l.Token)
	}
	if got := strings.Join(tokens, " "); err != nil || got != "1 2 3" {
		t.Errorf("List: %s, %v", got, err)
	}
}

// A write of a lease says what it cost, also where its id cannot be in a path.
func TestAWriteOfALeaseSaysItsCharge(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	for _, processor := range []string{"unit", "50% unit"} {
		leases := unit(t, s.client(t, master, nil), processor)
		made, err := leases.Create(t.Context(), feed.Record{Kind: feed.KindLease, Token: "0"})
		if err != nil || made.Charge < 1 {
			t.Errorf("%s: create: charge %v, %v", processor, made.Charge, err)
		}
		written, err := leases.Update(t.Context(), made)
		if err != nil || written.Charge < 1 {
			t.Errorf("%s: update: charge %v, %v", processor, written.Charge, err)
		}
	}
}

// TestALeaseIsWrittenUnderItsConditionAlone has records without a version, with that of all, and with one that no
// header can have.
func TestALeaseIsWrittenUnderItsConditionAlone(t *testing.T) {
	a := &account{}
	leases := a.leases(t, a.open(t, cosmos.Options{}))
	for name, write := range map[string]func(etag string) error{
		"update": func(etag string) error {
			_, err := leases.Update(t.Context(), feed.Record{Kind: feed.KindLease, Token: "0", ETag: etag})
			return err
		},
		"delete": func(etag string) error {
			return leases.Delete(t.Context(), feed.Record{Kind: feed.KindLease, Token: "0", ETag: etag})
		},
	} {
		for etag, want := range map[string]string{"": `"no version"`, "*": `"no version"`, `"e"`: `"e"`} {
			_ = write(etag) // the account answers with no document
			if got := a.log[len(a.log)-1].Header.Get("If-Match"); got != want {
				t.Errorf("%s of version %q is sent with the condition %q, want %q", name, etag, got, want)
			}
		}
		sent := len(a.log)
		if err := write("a\nb"); !errors.Is(err, feed.ErrBadRequest) || len(a.log) > sent {
			t.Errorf("%s of a version that no header can have: %v after %d requests, want a bad request", name, err,
				len(a.log)-sent)
		}
	}
}

// The service's gateway reads some characters of a path in its own way.
func TestAnIDThatNoPathCanHaveIsInTheBody(t *testing.T) {
	for id, want := range map[string]string{
		"a b": "DELETE", "a~2Fb": "DELETE",
		"a%b": "POST", "a/b": "POST", `a\b`: "POST", "a#b": "POST", "a?b": "POST", "a\tb": "POST", "a\nb": "POST",
		"a ": "POST",
	} {
		a := &account{}
		leases := a.leases(t, a.open(t, cosmos.Options{}))
		a.trouble = func(*http.Request, int) (*http.Response, error) { return say(200, `[{"statusCode":204}]`), nil }
		err := leases.Delete(t.Context(), feed.Record{Kind: feed.KindLease, Token: "0", ID: id, ETag: `"e"`})
		if got := a.log[len(a.log)-1].Method; err != nil || got != want {
			t.Errorf("%q is deleted by %s, %v, want %s", id, got, err, want)
		}
	}
}

// How late an instance hears of others is bounded from one read to the next, whatever it does meanwhile. Where the
// server holds reads, it hears at once. Of other units it hears nothing.
func TestFollowTellsWhatItHasInTime(t *testing.T) {
	for _, c := range []struct {
		push        bool
		after, most time.Duration
	}{{true, 0, 500 * time.Millisecond}, {false, 4 * time.Second, 1100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, cosmosrest.Options{})
			s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
			s.create(t, docstore.ContainerSpec{
				ID: "leases", Paths: []string{"/id"},
				DefaultTTL: new(docstore.NoDefaultTTL),
			})
			via := http.RoundTripper(s.transport)
			if !c.push {
				via = polled(via)
			}
			client := s.client(t, master, via)
			leases := unit(t, client, "unit")
			_, cursor, _, err := leases.Follow(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range []leaseStore{unit(t, client, "other"), leases} {
				if _, err := of.Create(t.Context(), feed.Record{Kind: feed.KindLease, Token: "0"}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(c.after)
			begun := time.Now()
			changed, _, _, err := leases.Follow(t.Context(), cursor)
			if err != nil || len(changed) != 1 || changed[0].Err != nil || time.Since(begun) > c.most {
				t.Errorf("push %t: %v, %v after %v, want the lease within %v", c.push, changed, err, time.Since(begun),
					c.most)
			}
		})
	}
}

// A range that was split has no answer, and so no time: the store's time is that of the others.
func TestTheStoresTimeIsKeptThroughASplit(t *testing.T) {
	dated := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 20 { // the ranges are read in any order
		synctest.Test(t, func(t *testing.T) {
			l := &layout{account: &account{}, ranges: []string{"-1F-1 1F-FF-2", "-1F-1 1F-2F-3 2F-FF-4"}}
			prefix := ""
			l.trouble = func(r *http.Request, n int) (*http.Response, error) {
				switch id := r.Header.Get("x-ms-documentdb-partitionkeyrangeid"); {
				case r.Method == http.MethodPost:
					return say(200, `{"Documents":[]}`), nil
				case id == "1":
					body := `{"Documents":[{"id":"` + prefix + `..0","LeaseToken":"0"}]}`
					return say(200, body, "etag", `"9"`, "Date", dated.Format(http.TimeFormat)), nil
				}
				return l.trip(r, n)
			}
			leases := l.leases(t)
			prefix = leases.Prefix()
			changed, next, now, err := leases.Follow(t.Context(), `{"-1F":"\"5\"","1F-FF":"\"5\""}`)
			const want = `{"-1F":"\"9\"","1F-2F":"\"5\"","2F-FF":"\"5\""}`
			if err != nil || len(changed) != 1 || !now.Equal(dated) || next != want {
				t.Errorf("%v at %v, %s, %v, want the lease at %v, %s", changed, now, next, err, dated, want)
			}
		})
	}
}

// leases is a lease store in a container whose partitions change.
func (l *layout) leases(t *testing.T) *cosmos.Leases {
	t.Helper()
	via := transporter(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/colls/leases") {
			return byID{l.account}.Do(r)
		}
		return l.Do(r)
	})
	client, err := cosmos.Open(t.Context(), "https://g.example", cosmos.Key("a2V5"), cosmos.Options{Transport: via})
	if err != nil {
		t.Fatal(err)
	}
	container, err := client.Container(t.Context(), "db", "leases")
	if err != nil {
		t.Fatal(err)
	}
	s, err := cosmos.OpenLeases(t.Context(), container, "unit", l.container(t), cosmos.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A range without a continuation would be followed from the next read on, and what changes until then would not be
// told.
func TestThePresentIsThatOfEveryRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &layout{account: &account{}, ranges: []string{"-1F-1 1F-FF-2", "-1F-1 1F-2F-3 2F-FF-4"}}
		l.trouble = func(r *http.Request, n int) (*http.Response, error) {
			if r.Method == http.MethodPost {
				return say(200, `{"Documents":[]}`), nil
			}
			return l.trip(r, n)
		}
		_, cursor, _, err := l.leases(t).Follow(t.Context(), "")
		if want := `{"-1F":"\"9\"","1F-2F":"\"9\"","2F-FF":"\"9\""}`; err != nil || cursor != want {
			t.Errorf("the present is %s, %v, want %s", cursor, err, want)
		}
	})
}

// .NET gave each lease a partition key of its own until its version 3.59, and addresses it by that for ever.
func TestALeaseIsWrittenUnderTheKeyThatItHas(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	spec := docstore.ContainerSpec{
		ID: "leases", Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL),
	}
	container := s.create(t, spec)
	leases := unit(t, s.client(t, master, nil), "unit")
	if err := put(t.Context(), container,
		`{"id":"`+leases.Prefix()+`..0","partitionKey":"5f1c","LeaseToken":"0"}`); err != nil {
		t.Fatal(err)
	}
	listed, _, err := leases.List(t.Context())
	if err != nil || len(listed) != 1 {
		t.Fatalf("%v, %v, want the lease", listed, err)
	}
	written, err := leases.Update(t.Context(), listed[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := leases.Delete(t.Context(), written); err != nil || container.Count() != 0 {
		t.Errorf("%v, with %d documents left", err, container.Count())
	}
}

// A unit is opened more than once, as to look for units with similar names. The log says once what its container lacks.
func TestAContainerWithoutATimeToLiveIsNamedOnce(t *testing.T) {
	srv := cosmostest.NewTestServer(t)
	for id, path := range map[string]string{"leases": "/id", "orders": "/pk"} {
		spec := docstore.ContainerSpec{ID: id, Paths: []string{path}}
		if _, err := srv.DB.CreateContainer(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	o := cosmos.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	client, err := cosmos.Open(t.Context(), srv.URL, cosmos.Key(srv.Key), o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, name := range []string{"mailer", "mailer", "hook"} {
		orders, err := client.Container(t.Context(), "default", "orders")
		if err != nil {
			t.Fatal(err)
		}
		leases, err := client.Container(t.Context(), "default", "leases")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cosmos.OpenLeases(t.Context(), leases, name, orders, cosmos.LeaseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "lease container has no time to live"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, &log)
	}
}
