package bench

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// A dashboard beside a busy processor. Whoever looks must not slow the processor down, so the cost of a viewer is the
// difference of the processor time with and without one.

const (
	uiRounds  = 7
	uiWatch   = 4 * time.Second
	uiRate    = 10_000 // changes a second
	uiBatch   = 20     // changes of a commit
	uiLeases  = 4
	uiMost    = 2.0 // percent of a core
	inPercent = 100
)

// stageUI is a busy unit with a dashboard.
type stageUI struct {
	documents *docstore.Container
	server    *httptest.Server
	handled   atomic.Int64
	states    int // that viewers have received
}

// uiViewer measures what a viewer of the dashboard costs.
func uiViewer(ctx context.Context, s *Site) (f Figure, err error) {
	db, err := docstore.OpenContext(ctx, filepath.Join(s.dir, "ui"), docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	spec := docstore.ContainerSpec{ID: "documents", Paths: []string{"/city"}, Ranges: uiLeases}
	documents, err := db.CreateContainer(ctx, spec)
	if err != nil {
		return f, err
	}
	records, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		return f, err
	}
	leases, err := docstore.NewLeases(ctx, records, "bench", documents)
	if err != nil {
		return f, err
	}
	stage := &stageUI{documents: documents}
	d := dashboard.New(dashboard.Options{Name: "bench"})
	team := &fleet.Fleet{Source: documents, Leases: leases, Look: time.Second / 10, Report: s.Complain}
	defer func() { err = cmp.Or(err, team.Stop()) }()
	options := changefeed.Options{Instance: "bench", Hooks: d.Events("bench", "documents")}
	if _, err := team.Start(ctx, feed.HandlerFunc(stage.handle), options); err != nil {
		return f, err
	}
	if _, err := team.Balanced(ctx, 1); err != nil {
		return f, err
	}
	defer d.Show(dashboard.Unit{Name: "bench", Container: "documents", Source: documents, Leases: leases})()
	stage.server = httptest.NewServer(d)
	defer stage.server.Close()
	return stage.measure(ctx, s)
}

// handle counts changes.
func (u *stageUI) handle(_ context.Context, b *feed.Batch) error {
	u.handled.Add(int64(len(b.Changes)))
	return nil
}

// measure compares rounds with a viewer and without.
func (u *stageUI) measure(ctx context.Context, s *Site) (f Figure, err error) {
	f.Unit = "% of a core"
	with, without, err := s.inTurns(ctx, uiRounds, f.Unit,
		func() (float64, error) { return u.round(ctx, true) }, func() (float64, error) { return u.round(ctx, false) })
	if err != nil {
		return f, err
	}
	f.Value = max(0, with-without)
	f.AtMost(uiMost)
	f.OK = f.OK && u.states > 0
	f.Detail = fmt.Sprintf("processor time that a viewer of the dashboard adds: %.1f%% of a core with one, %.1f%% without, "+
		"at %d changes/s on %d leases, each commit synced, %d rounds of %v; %d states were sent, %d changes handled", with,
		without, uiRate, uiLeases, uiRounds, uiWatch, u.states, u.handled.Load())
	return f, nil
}

// round returns the percentage of a core that the process needs while changes are written.
func (u *stageUI) round(ctx context.Context, isSeen bool) (float64, error) {
	seen := &seenStates{}
	if isSeen {
		if err := seen.watch(ctx, u.server.URL+"/events"); err != nil {
			return 0, err
		}
	}
	used, begun := busy(), time.Now()
	if err := writeAtRate(ctx, u.documents, uiWatch); err != nil {
		return 0, err
	}
	share := inPercent * (busy() - used).Seconds() / time.Since(begun).Seconds()
	u.states += seen.stop()
	return share, nil
}

// writeAtRate writes changes at an even rate for some time.
func writeAtRate(ctx context.Context, c *docstore.Container, length time.Duration) error {
	begun := time.Now()
	commits := int(length.Seconds() * uiRate / uiBatch)
	for i := range commits {
		due := begun.Add(time.Duration(float64(i) * uiBatch / uiRate * float64(time.Second)))
		if err := pause.For(ctx, time.Until(due)); err != nil {
			return err
		}
		city := fmt.Sprintf("city-%d", i%1000)
		writes := make([]feed.Write, uiBatch)
		for n := range writes {
			writes[n].Body = fmt.Appendf(nil, `{"id":"%d","city":%q,"total":%d}`, n, city, i)
		}
		if _, err := c.Commit(ctx, feed.Key(city), writes); err != nil {
			return err
		}
	}
	return pause.For(ctx, time.Until(begun.Add(length)))
}

// seenStates are the states that a viewer has received.
type seenStates struct {
	n       int
	end     context.CancelFunc
	reading sync.WaitGroup
}

// watch receives states until stop is called.
func (v *seenStates) watch(ctx context.Context, url string) error {
	ctx, v.end = context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, bytesPerMB)
	v.reading.Go(func() {
		defer answer.Body.Close()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event: status") {
				v.n++
			}
		}
	})
	return nil
}

// stop ends the viewer, and returns how many states it has received.
func (v *seenStates) stop() int {
	if v.end == nil {
		return 0
	}
	v.end()
	v.reading.Wait()
	return v.n
}
