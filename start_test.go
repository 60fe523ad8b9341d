package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A situation is a unit as its maker left it, and where changes wait in it.
type situation struct {
	maker string
	quiet bool // only one of the two ranges has changes
	make  func(w *world)
	want  map[string]outcome // by our start option
}

// An outcome is what becomes of an instance of ours that joins the unit.
type outcome struct {
	err     error
	handled string // generations of items, in order
}

// The generations of items: before the unit was made, before ours joins, and after.
const (
	all        = "later old pending"
	sinceUnit  = "later pending"
	sinceOurs  = "later"
	unitsStart = "2000-01-01T00:00:10Z" // the bubble's clock begins at 2000-01-01T00:00:00Z
)

// starts are our options; the others are texts of a start.
func option(text string) feed.Start {
	if text == "unset" {
		return feed.Start{}
	}
	start, err := feed.ParseStart(text)
	if err != nil {
		panic(err)
	}
	return start
}

// dotnetUnit writes the documents of a .NET unit whose leases have these tokens.
func dotnetUnit(tokens ...string) func(w *world) {
	return func(w *world) {
		prefix := w.leases.Prefix()
		w.raw(fmt.Sprintf(`{"id":%q}`, prefix+".info"))
		for i, p := range w.partitions() {
			w.raw(fmt.Sprintf(`{"id":%q,"version":0,"_etag":null,"LeaseToken":%q,"FeedRange":{"Range":{"min":%q,"max":%q}},`+
				`"Owner":null,"ContinuationToken":%s,"properties":{},"timestamp":null,"_ts":0,"Mode":"Incremental Feed"}`,
				prefix+".."+p.ID, p.ID, p.Range.Min, p.Range.Max, tokens[i]))
		}
	}
}

// javaUnit writes the documents of a Java unit on EPK ranges with this continuation.
func javaUnit(continuation string) func(w *world) {
	return func(w *world) {
		prefix := w.leases.Prefix()
		w.raw(fmt.Sprintf(`{"id":%q}`, prefix+".info"))
		for _, p := range w.partitions() {
			w.raw(fmt.Sprintf(`{"id":%q,"_etag":null,"LeaseToken":%q,"ContinuationToken":%s,"timestamp":"2022-11-15T17:43:34.634427Z","Owner":null,`+
				`"version":1,"feedRange":{"Range":{"min":%q,"max":%q,"isMinInclusive":true,"isMaxInclusive":false}}}`,
				prefix+".."+p.Range.String(), p.Range.String(), continuation, p.Range.Min, p.Range.Max))
		}
	}
}

// olderJavaUnit writes the documents of a Java unit on partition key range ids.
func olderJavaUnit(w *world) {
	const prefix = "unitlocalhost_default_orders"
	w.raw(fmt.Sprintf(`{"id":%q}`, prefix+".info"))
	for _, p := range w.partitions() {
		w.raw(fmt.Sprintf(`{"id":%q,"_etag":null,"LeaseToken":%q,"ContinuationToken":"\"10\"","timestamp":"2022-11-15T17:43:34.634427Z","Owner":null}`,
			prefix+".."+p.ID, p.ID))
	}
}

// byAddress has a unit made by a client that calls this machine 127.0.0.1.
func byAddress(make func(*world)) func(w *world) {
	return func(w *world) {
		make(w)
		for _, kind := range []feed.Kind{feed.KindLease, feed.KindInfo} {
			for _, l := range w.records(kind) {
				w.raw(strings.Replace(string(l.Raw), "unitlocalhost_", "unit127.0.0.1_", 1))
				if err := w.leases.Delete(w.t.Context(), l); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
}

// ourUnit begins a unit and kills it before it has handled anything.
func ourUnit(start string) func(w *world) {
	return func(w *world) {
		p := w.run("first", &tally{before: func(context.Context, *feed.Batch) error {
			return errors.New("not yet")
		}}, changefeed.Options{Start: option(start)})
		time.Sleep(500 * time.Millisecond)
		p.kill(w.t)
	}
}

// javaState is the base64 of a state that says LEASE and an ETag of 2.
const javaState = `"eyJWIjoxLCJSaWQiOiJyIiwiTW9kZSI6IklOQ1JFTUVOVEFMIiwiU3RhcnRGcm9tIjp7IlR5cGUiOiJMRUFTRSIsIkV0YWciOiJcIjJcIiJ9fQ=="`

// always is the same outcome whatever our option is.
func always(o outcome) map[string]outcome {
	return map[string]outcome{"unset": o, "beginning": o, "now": o, unitsStart: o}
}

var situations = []situation{
	{maker: "dotnet, idle since its start", make: dotnetUnit("null", "null"), want: map[string]outcome{
		"unset":     {err: feed.ErrNoStart},
		"beginning": {handled: all}, unitsStart: {handled: sinceUnit}, "now": {handled: sinceOurs},
	}},
	{maker: "dotnet, one range idle", make: dotnetUnit(`"\"10\""`, "null"), quiet: true, want: map[string]outcome{
		"unset": {err: feed.ErrNoStart}, unitsStart: {handled: sinceUnit},
	}},
	{
		maker: "dotnet, with positions", make: dotnetUnit(`"\"10\""`, `"\"10\""`),
		want: always(outcome{handled: sinceUnit}),
	},
	{
		maker: "dotnet by 127.0.0.1", make: byAddress(dotnetUnit(`"\"10\""`, `"\"10\""`)),
		want: always(outcome{handled: sinceUnit}),
	},
	{maker: "java on partition key ranges", make: olderJavaUnit, want: always(outcome{err: feed.ErrForeignLease})},
	{
		maker: "java by 127.0.0.1", make: byAddress(javaUnit(javaState)),
		want: always(outcome{err: feed.ErrForeignLease}),
	},
	{maker: "java, idle since its start", make: javaUnit("null"), want: always(outcome{err: feed.ErrForeignLease})},
	{maker: "java, with positions", make: javaUnit(javaState), want: always(outcome{err: feed.ErrForeignLease})},
	{maker: "ours from the beginning", make: ourUnit("beginning"), want: map[string]outcome{
		"unset": {handled: all}, "beginning": {handled: all},
		unitsStart: {err: feed.ErrStartIgnored}, "now": {err: feed.ErrStartIgnored},
	}},
	{maker: "ours from a time", make: ourUnit(unitsStart), want: map[string]outcome{
		"unset": {handled: sinceUnit}, unitsStart: {handled: sinceUnit},
		"beginning": {err: feed.ErrStartIgnored}, "now": {err: feed.ErrStartIgnored},
	}},
	{maker: "ours from now", make: ourUnit("unset"), want: map[string]outcome{
		"unset": {handled: sinceUnit}, "now": {handled: sinceUnit},
		"beginning": {err: feed.ErrStartIgnored}, unitsStart: {err: feed.ErrStartIgnored},
	}},
}

// Whoever made the leases, and wherever changes wait: what our option promises is
// handled, or the unit is refused by name before anything is.
func TestALeaseBeginsWhereItsUnitDidOrWhereWeSayOrIsRefused(t *testing.T) {
	for _, s := range situations {
		for _, start := range slices.Sorted(maps.Keys(s.want)) {
			t.Run(fmt.Sprintf("%s, our start %s", s.maker, start), func(t *testing.T) {
				inWorld(t, 2, func(t *testing.T, w *world) { s.join(t, w, start) })
			})
		}
	}
}

// generation writes items of both ranges, or of the first alone.
func (w *world) generation(name string, onlyFirst bool) {
	w.t.Helper()
	first := w.partitions()[0].Range
	for n, i := 0, 0; n < 10; i++ {
		city := fmt.Sprint("city-", i)
		at, err := w.orders.Locate(w.t.Context(), feed.Key(city))
		if err != nil {
			w.t.Fatal(err)
		}
		if onlyFirst && !first.Holds(at) {
			continue
		}
		w.put(city, name, n)
		n++
	}
}

func (s situation) join(t *testing.T, w *world, start string) {
	t.Helper()
	w.generation("old", false)
	time.Sleep(20 * time.Second)
	s.make(w)
	w.leases = w.unit("unit")
	time.Sleep(10 * time.Second)
	w.generation("pending", s.quiet)
	time.Sleep(5 * time.Minute)

	ready := make(chan struct{})
	y := &tally{}
	p := w.run("ours", y, changefeed.Options{
		Start: option(start),
		Hooks: changefeed.Hooks{Ready: func(context.Context) { close(ready) }},
	})
	want := s.want[start]
	select {
	case <-ready:
	case err := <-p.done:
		if n, _ := y.items(); n != 0 || !errors.Is(err, want.err) || want.err == nil {
			t.Errorf("Run: %v after %d items, want %v before any", err, n, want.err)
		}
		return
	}
	if want.err != nil {
		t.Errorf("the hook said Ready, want %v", want.err)
	}
	time.Sleep(time.Second)
	w.generation("later", s.quiet)
	time.Sleep(5 * time.Minute)
	p.stop(t)
	if got := y.generations(); got != want.handled {
		t.Errorf("handled %q, want %q", got, want.handled)
	}
	if _, again := y.items(); again != 0 {
		t.Errorf("%d items came again", again)
	}
	for _, l := range w.records(feed.KindLease) {
		if l.Position.Token == "" {
			t.Errorf("lease %s has no token: another processor would begin at a start of its own", l.ID)
		}
	}
}

// generations are the names of the generations that were handled in full.
func (y *tally) generations() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	count := map[string]int{}
	for name := range y.seen {
		count[name[strings.LastIndex(name, "]")+1:]]++
	}
	var names []string
	for name, n := range count {
		if n != 10 {
			name = fmt.Sprintf("%d of 10 %s", n, name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// From the first document on, each lease of ours has a token, whatever its start: a .NET
// host that goes on after a crash would otherwise begin where its own options say.
func TestALeaseHasATokenFromItsFirstDocument(t *testing.T) {
	for _, start := range []feed.Start{{}, feed.FromBeginning(), feed.FromNow()} {
		inWorld(t, 2, func(t *testing.T, w *world) {
			w.generation("old", true)
			time.Sleep(time.Minute)
			at := start
			if start == feed.FromNow() {
				at = feed.FromAgo(10 * time.Second)
			}
			p := w.run("a", &tally{before: func(ctx context.Context, _ *feed.Batch) error {
				<-ctx.Done()
				return ctx.Err()
			}}, changefeed.Options{Start: at})
			time.Sleep(100 * time.Millisecond)
			for _, l := range w.records(feed.KindLease) {
				if !strings.Contains(string(l.Raw), `"ContinuationToken":"\"`) {
					t.Errorf("from %v the lease is %s, want a ContinuationToken", at, l.Raw)
				}
			}
			p.cancel()
			<-p.done
		})
	}
}

// The lag of a lease without a position counts from where its unit began; where nobody
// says that, it is not known.
func TestTheLagOfALeaseWithoutAPositionIsThatOfItsUnit(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.generation("old", false)
		dotnetUnit("null", "null")(w)
		lags, err := changefeed.Estimate(t.Context(), w.orders, w.leases)
		if err != nil || len(lags) != 2 {
			t.Fatalf("got %v, %v, want two lags", lags, err)
		}
		for _, l := range lags {
			if !errors.Is(l.Err, feed.ErrNoStart) {
				t.Errorf("lease %s: %d pending, %v, want ErrNoStart", l.Lease.Token, l.Pending, l.Err)
			}
		}
		marker := w.records(feed.KindInfo)[0]
		marker.Properties = map[string]string{"start": "beginning", "origin": "beginning"}
		if _, err := w.leases.Update(t.Context(), marker); err != nil {
			t.Fatal(err)
		}
		if n := w.pending(); n != 10 {
			t.Errorf("%d pending, want the 10 since the unit began", n)
		}
	})
}

// undeletable is a store whose caller lacks the right to delete.
type undeletable struct{ *docstore.Leases }

func (undeletable) Delete(context.Context, feed.Record) error { return feed.ErrForbidden }

// The lock of an instance that died is taken over without the right to delete, and freed
// so that the next unit of that name need not wait for it.
func TestAnExpiredLockIsTakenOverWithoutTheRightToDelete(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		if _, err := w.leases.Create(t.Context(), feed.Record{Kind: feed.KindLock, Timestamp: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for range 2 {
			ready := make(chan struct{})
			p, err := changefeed.New(w.orders, undeletable{w.leases}, &tally{}, changefeed.Options{
				Instance: "a", Hooks: changefeed.Hooks{
					Ready: func(context.Context) { close(ready) },
					Error: func(_ context.Context, err *feed.Error) { t.Errorf("reported: %v", err) },
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			done := make(chan error, 1)
			begun := time.Now()
			go func() { done <- p.Run(ctx) }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatalf("Run: %v", err)
			}
			if wait := time.Since(begun); wait > 5*time.Second {
				t.Errorf("ready after %v", wait)
			}
			cancel()
			<-done
			for _, kind := range []feed.Kind{feed.KindInfo, feed.KindLease} {
				for _, l := range w.records(kind) {
					if err := w.leases.Delete(t.Context(), l); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}

// A relative start is where it was when the first lease was made, also if the rest of the
// leases are made by a program that is started again later.
func TestAnInterruptedCreationGoesOnFromItsFirstStart(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := changefeed.Options{MinLeases: 8, Start: feed.FromAgo(15 * time.Minute)}
		var made atomic.Int64
		broken := &hookedStore{Leases: w.leases}
		broken.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && made.Add(1) > 4 {
				return l, errors.New("away")
			}
			return w.leases.Create(ctx, l)
		}
		first := w.runWith(w.orders, broken, "a", &tally{}, o)
		time.Sleep(5 * time.Second)
		first.stop(t)
		w.fill(64)
		time.Sleep(time.Hour)
		y := &tally{}
		o.Start = feed.FromAgo(15 * time.Minute)
		second := w.run("b", y, o)
		time.Sleep(3 * time.Minute)
		if items, again := y.items(); items != 64 || again != 0 {
			t.Errorf("got %d items of 64, %d again", items, again)
		}
		second.stop(t)
	})
}
