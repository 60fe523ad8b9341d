package changefeed_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// begins runs an instance until it is ready, and returns what it has said of a new unit.
func (w *world) begins(source feed.Source, unit string, o changefeed.Options) (said []feed.NewUnit,
	status changefeed.Status,
) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	ready := make(chan struct{})
	o.Instance, o.Hooks = "a", changefeed.Hooks{
		Begun: func(_ context.Context, u feed.NewUnit) { said = append(said, u) },
		Ready: func(context.Context) { close(ready) },
		Error: func(_ context.Context, err *feed.Error) { w.t.Error(err) },
	}
	p, err := changefeed.New(source, w.unit(unit), &tally{}, o)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	<-ready
	status = p.Status()[0]
	stop()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
	return said, status
}

func TestANewUnitSaysWhatItPassesOver(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.fill(20)
		time.Sleep(time.Minute)
		middle := feed.FromTime(time.Now())
		time.Sleep(time.Minute)
		w.put("oslo", "late", 1)
		passed := func(n int64) *int64 { return &n }
		for _, tt := range []struct {
			name   string
			source feed.Source
			o      changefeed.Options
			start  string
			leases int
			passed *int64
		}{
			{"now", w.orders, changefeed.Options{}, "now", 3, passed(21)},
			{"finer", w.orders, changefeed.Options{MinLeases: 12}, "now", 12, passed(21)},
			{"beginning", w.orders, changefeed.Options{Start: feed.FromBeginning()}, "beginning", 3, passed(0)},
			{"time", w.orders, changefeed.Options{Start: middle}, middle.String(), 3, passed(20)},
			{"uncounted", plainSource(w), changefeed.Options{}, "now", 3, nil},
			{
				"uncounted-beginning", plainSource(w),
				changefeed.Options{Start: feed.FromBeginning()},
				"beginning", 3,
				passed(0),
			},
		} {
			said, status := w.begins(tt.source, tt.name, tt.o)
			if len(said) != 1 || status.Began == nil {
				t.Fatalf("%s: said %v, status %+v", tt.name, said, status)
			}
			got := said[0]
			if got.Start.String() != tt.start || got.Leases != tt.leases || (got.Passed == nil) != (tt.passed == nil) ||
				got.Passed != nil && *got.Passed != *tt.passed {
				t.Errorf("%s: %v, passed %v", tt.name, got, got.Passed)
			}
			if *status.Began != got {
				t.Errorf("%s: status %+v", tt.name, status.Began)
			}
			if said, status := w.begins(tt.source, tt.name, tt.o); len(said) > 0 || status.Began != nil {
				t.Errorf("%s: said again: %v, %v", tt.name, said, status.Began)
			}
		}
	})
}

// stopped is a source whose count does not end before its context does.
type stopped struct {
	feed.Source
	feed.Counter
}

func (stopped) Pending(ctx context.Context, _ feed.Range, _ feed.Position, _ feed.ReadOptions) (feed.Backlog, error) {
	return feed.Backlog{}, pause.For(ctx, time.Hour)
}

func TestANewUnitWaitsABoundedTimeForItsCount(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		begun := time.Now()
		said, _ := w.begins(stopped{Source: w.orders}, "slow", changefeed.Options{})
		if took := time.Since(begun); took > 11*time.Second || len(said) != 1 || said[0].Passed != nil {
			t.Errorf("said %v after %v, want that the number is not known", said, took)
		}
	})
}

// Who sets no hooks learns that changes are passed over.
func TestWhatANewUnitPassesOverIsLoggedByDefault(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		var log strings.Builder
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		w.fill(7)
		for _, tt := range []struct {
			source feed.Source
			unit   string
			start  feed.Start
			want   []string
		}{
			{w.orders, "now", feed.FromNow(), []string{
				"level=WARN", "the unit is new and passes over", "start=now",
				"passed=7",
			}},
			{plainSource(w), "uncounted", feed.FromNow(), []string{"level=WARN", "is not known", "passed=<nil>"}},
		} {
			log.Reset()
			p, err := changefeed.New(tt.source, w.unit(tt.unit), &tally{}, changefeed.Options{Start: tt.start})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
			stop()
			for _, want := range tt.want {
				if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), want) {
					t.Errorf("%s: the log is %q, want %q", tt.unit, log.String(), want)
				}
			}
		}
		log.Reset()
		w.begins(w.orders, "all", changefeed.Options{Start: feed.FromBeginning()})
		none := int64(0)
		changefeed.LogHooks(slog.Default()).Begun(t.Context(), feed.NewUnit{
			Start: feed.FromBeginning(), Leases: 1,
			Passed: &none,
		})
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO") ||
			!strings.Contains(got, "start=beginning leases=1 passed=0") {
			t.Errorf("nothing is passed over: the log is %q, want one line for information", got)
		}
		log.Reset()
		said, _ := w.begins(w.orders, "versions", changefeed.Options{Mode: feed.AllVersionsAndDeletes})
		changefeed.LogHooks(slog.Default()).Begun(t.Context(), said[0])
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO") ||
			!strings.Contains(got, "cannot begin earlier") {
			t.Errorf("all versions and deletes: the log is %q, want one line that advises nothing that cannot be done",
				got)
		}
	})
}
