package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// paper keeps what is logged, and when.
type paper struct {
	lines []string
	times []time.Time
}

// Write takes a line of a [slog.TextHandler], which writes one at a time.
func (p *paper) Write(line []byte) (int, error) {
	_, rest, _ := strings.Cut(string(line), "origin=")
	p.lines, p.times = append(p.lines, strings.TrimSpace(rest)), append(p.times, time.Now())
	return len(line), nil
}

// busiest is the largest number of lines within a minute.
func (p *paper) busiest() (most int) {
	for i, begin := range p.times {
		n := 0
		for _, at := range p.times[i:] {
			if at.Sub(begin) < time.Minute {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func (p *paper) hooks() changefeed.Hooks {
	return changefeed.LogHooks(slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelError})))
}

// activity is an id as an account has one in each of its errors.
func activity() string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", rand.Uint32(), rand.Uint64()>>16)
}

// letters are a name without a digit, which nobody can tell from words.
func letters() string {
	var b strings.Builder
	for range 12 {
		b.WriteByte(byte('a' + rand.IntN(26)))
	}
	return b.String()
}

// TestAnOutageIsAFewLinesAMinute has an instance with 20 leases work for a while, and then
// takes its source, its lease store or its handler away. Each error has a text of its own.
func TestAnOutageIsAFewLinesAMinute(t *testing.T) {
	answer := func(sentinel error, text string) func() error {
		return func() error {
			return fmt.Errorf("POST /dbs/shop/colls/orders/docs: %w: %s (activity %s)", sentinel, text, activity())
		}
	}
	for _, tt := range []struct {
		name    string
		fail    func() error
		handler bool // fails, and not the two stores
		most    int  // lines a minute
	}{
		{
			"the container was deleted", answer(feed.ErrNotFound, `{"Errors":["Owner resource does not exist"]}`),
			false,
			3,
		},
		{"the key was taken back", answer(feed.ErrForbidden, "blocked by policy"), false, 3},
		{"throttled", func() error {
			return &feed.ThrottledError{After: time.Duration(1+rand.IntN(500)) * time.Millisecond}
		}, false, 3},
		{"the name is not found", func() error {
			server := fmt.Sprintf("127.0.0.53:%d", 1024+rand.IntN(60000))
			return &net.OpError{
				Op: "dial", Net: "tcp",
				Err: &net.DNSError{Err: "no such host", Name: "contoso.documents.azure.com", Server: server},
			}
		}, false, 3},
		{"the server is gone", func() error {
			from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1024 + rand.IntN(60000)}
			return &net.OpError{
				Op: "read", Net: "tcp", Source: from,
				Err: os.NewSyscallError("read", syscall.ECONNRESET),
			}
		}, false, 3},
		{"the handler fails", func() error { return errors.New("exit status 1") }, true, 1},
		{"the handler names its request", func() error {
			return fmt.Errorf("mail: 503: request %s", activity())
		}, true, 1},
		{"the handler names what nobody can fold", func() error {
			return errors.New("no stock of " + letters())
		}, true, 20},
		{"a source that names what nobody can fold", func() error {
			return errors.New("no such thing: " + letters())
		}, false, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 20, func(t *testing.T, w *world) {
				testOutage(t, w, tt.fail, tt.handler, tt.most)
			})
		})
	}
}

// Each change that is parked is a line with its letter, those that are held are one a minute for each key, and together
// they are few.
func TestParkedChangesAreAFewLinesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		written := func(want int, words ...string) {
			t.Helper()
			if n := strings.Count(log.String(), "\n"); n != want {
				t.Errorf("%d lines, want %d:\n%s", n, want, &log)
			}
			for _, w := range words {
				if !strings.Contains(log.String(), w) {
					t.Errorf("%q is not in\n%s", w, &log)
				}
			}
			log.Reset()
			time.Sleep(time.Minute)
		}
		park := changefeed.LogHooks(slog.Default()).Parked
		letter := func(id string, d feed.Disposition) {
			park(t.Context(), feed.DeadLetter{
				ID: id, Disposition: d,
				Change: feed.Change{ID: "item", PartitionKey: feed.Key("oslo")},
			})
		}
		letter("1.a", feed.DispositionFailed)
		for i := range 100 {
			letter(fmt.Sprint(i, ".b"), feed.DispositionHeld)
		}
		written(2, "level=WARN", "letter=1.a", "item=item", "letter=0.b", `key="[\"oslo\"]"`)
		letter("100.b", feed.DispositionHeld)
		for i := range 30 {
			letter(fmt.Sprint(i, ".c"), feed.DispositionPoison)
		}
		written(20, "repeated=99", "letter=18.c")
		letter("30.c", feed.DispositionPoison)
		written(1, "unwritten=11")
	})
}

// Who sets no hooks learns what was parked.
func TestWhatIsParkedIsLoggedByDefault(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var log strings.Builder
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		w.put("oslo", "bad", 1)
		p := w.run("a", failsOn(onID("bad")), changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: &letterBox{}},
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "change parked") {
			t.Errorf("the log is %q", got)
		}
	})
}

func testOutage(t *testing.T, w *world, fail func() error, handler bool, most int) {
	var out atomic.Bool
	down := func() error {
		if out.Load() && !handler {
			return fail()
		}
		return nil
	}
	source := &hookedSource{
		Container: w.orders,
		read: func(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
			if err := down(); err != nil {
				return feed.Page{}, err
			}
			return w.orders.Read(ctx, r, from, o)
		},
		wait: func(ctx context.Context, r feed.Range, from feed.Position) error {
			if err := down(); err != nil {
				return err
			}
			return w.orders.Wait(ctx, r, from)
		},
	}
	p := &paper{}
	processor, err := changefeed.New(source, failingStore(w, down),
		feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			if out.Load() && handler {
				return fail()
			}
			return nil
		}), changefeed.Options{Instance: "a", Start: feed.FromBeginning(), Hooks: p.hooks()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- processor.Run(ctx) }()
	time.Sleep(time.Minute)
	synctest.Wait()
	if len(p.lines) > 0 {
		t.Fatalf("written before the outage: %v", p.lines)
	}
	out.Store(true)
	begin := time.Now()
	w.fill(200)
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if len(p.lines) == 0 || p.times[0].Sub(begin) > 20*time.Second {
		t.Errorf("the outage of %v was not written soon: %v", begin, p.times)
	}
	if n := p.busiest(); n > most || n == 0 {
		t.Errorf("%d lines within a minute, want at most %d:\n%s", n, most,
			strings.Join(p.lines[:min(30, len(p.lines))], "\n"))
	}
	out.Store(false)
	cancel()
	if err := <-done; errors.Is(err, feed.ErrLeasesGone) != errors.Is(fail(), feed.ErrNotFound) {
		t.Error(err)
	}
}

// failingStore is a lease store that is down now and then.
func failingStore(w *world, down func() error) *hookedStore {
	s := &hookedStore{Leases: w.leases}
	s.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
		if err := down(); err != nil {
			return nil, time.Time{}, err
		}
		return w.leases.List(ctx)
	}
	write := func(do func(context.Context, feed.Record) (feed.Record, error)) func(context.Context,
		feed.Record) (feed.Record, error) {
		return func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := down(); err != nil {
				return l, err
			}
			return do(ctx, l)
		}
	}
	s.create, s.update = write(w.leases.Create), write(w.leases.Update)
	s.follow = func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
		if err := down(); err != nil {
			return nil, "", time.Time{}, err
		}
		return w.leases.Follow(ctx, cursor)
	}
	return s
}

func TestAnErrorThatComesAgainIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paper{}
		h := p.hooks()
		outage := errors.New("connection refused")
		for n := range 150 { // two and a half minutes of two leases
			for _, lease := range []string{"0", "1"} {
				h.Error(t.Context(), &feed.Error{Origin: feed.OriginSource, Lease: lease, Err: outage})
			}
			if n == 5 {
				h.Error(t.Context(), &feed.Error{Origin: feed.OriginHandler, Lease: "0", Err: outage})
			}
			time.Sleep(time.Second)
		}
		want := []string{
			`source lease=0 err="connection refused"`,
			`handler lease=0 err="connection refused"`,
			`source lease=0 err="connection refused" repeated=119 leases=2`,
			`source lease=0 err="connection refused" repeated=119 leases=2`,
		}
		if !slices.Equal(p.lines, want) {
			t.Errorf("written:\n%s\nwant\n%s", strings.Join(p.lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Batches name their items and keys. Those that fail for the same cause are one line all the same.
func TestBatchesThatFailForTheSameCauseAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paper{}
		h := p.hooks()
		for range 30 {
			h.Error(t.Context(), &feed.Error{Origin: feed.OriginHandler, Lease: "0", Err: &feed.BatchError{
				Attempt: 1, Count: 1, IDs: []string{letters()}, Key: feed.Key(letters()),
				Err: errors.New("connection refused"),
			}})
		}
		if len(p.lines) != 1 {
			t.Errorf("%d lines, want 1:\n%s", len(p.lines), strings.Join(p.lines, "\n"))
		}
	})
}

// What somebody must mend is written for each lease: folded, all but one would be unknown.
func TestWhatMustBeMendedIsWrittenForEachLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paper{}
		h := p.hooks()
		for range 2 {
			for i := range 3 {
				lease := fmt.Sprint("lease", i)
				h.Error(t.Context(), &feed.Error{
					Origin: feed.OriginLeaseStore, Lease: lease,
					Err: fmt.Errorf("read: %w", feed.ErrBadLease),
				})
				h.Error(t.Context(), &feed.Error{
					Origin: feed.OriginBalancer,
					Err:    fmt.Errorf("%w: %d-%d", feed.ErrOverlap, i, i+1),
				})
				h.Error(t.Context(), &feed.Error{Origin: feed.OriginHandler, Lease: lease, Err: feed.ErrHandlerStuck})
			}
		}
		if len(p.lines) != 9 {
			t.Errorf("%d lines, want 3 for each of 3 leases:\n%s", len(p.lines), strings.Join(p.lines, "\n"))
		}
	})
}

// What there was no room for is counted.
func TestErrorsThatAreNotWrittenAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paper{}
		h := p.hooks()
		for range 50 {
			h.Error(t.Context(), &feed.Error{Origin: feed.OriginHandler, Lease: "0", Err: errors.New(letters())})
		}
		time.Sleep(time.Minute)
		h.Error(t.Context(), &feed.Error{Origin: feed.OriginHandler, Lease: "0", Err: errors.New("one more")})
		want := `handler lease=0 err="one more" unwritten=30`
		if n := len(p.lines); n != 21 || p.lines[n-1] != want {
			t.Errorf("%d lines, the last %q; want 21 and %q", n, p.lines[n-1], want)
		}
	})
}

// TestNoErrorSaysTheSameTwice deletes both containers under an instance: the stores say
// what they were doing, and who called them does not say it again.
func TestNoErrorSaysTheSameTwice(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		p := w.runWith(w.orders, w.leases, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		if err := errors.Join(w.db.DeleteContainer(t.Context(), "orders"),
			w.db.DeleteContainer(t.Context(), "leases")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		all := p.errs.all()
		if len(all) < 5 {
			t.Errorf("%d errors, want more without containers", len(all))
		}
		for _, err := range all {
			words := strings.Split(err.Error(), ": ")
			if len(slices.Compact(slices.Clone(words))) < len(words) {
				t.Errorf("says the same twice: %v", err)
				break
			}
		}
		p.cancel()
		<-p.done
	})
}
