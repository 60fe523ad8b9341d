package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// The benchmarks of a server under attack. Clients with a key read at a steady rate while attackers load the server.
// The figure is how much longer these reads take than without the attack. There are several kinds of clients, because
// each suffers from another weakness: waiting polls, new connections, point reads.

// The results that clients with a key must get during an attack, and the load that they make.
const (
	attackReads    = 1000 // point reads a second
	attackQuiet    = 5 * time.Second
	attackFor      = 10 * time.Second
	attackRatio    = 5  // limit of the 99th percentile relative to the quiet phase
	attackLimit    = 20 // ms
	attackMemory   = 1 << 30
	attackPolls    = 8 // feeds that wait for changes
	attackPoll     = 4 * time.Second
	attackNewcomer = 100 * time.Millisecond // between new clients
)

// siege is a server with its attackers and its other clients.
type siege struct {
	s     *Site
	t     *wired
	polls atomic.Int64 // number of polls with the right answer
	came  atomic.Int64 // number of new clients that were served
	peak  atomic.Int64 // highest memory of the server, in bytes

	mu    sync.Mutex
	wrong []error // errors that clients with a key got
}

// recordFault records an error that a client with a key should not have got.
func (g *siege) recordFault(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, err)
}

// besieged makes a benchmark: reads without an attack, and then while attack runs. attack returns when its context
// ends, and reports the answers that the attackers got.
func besieged(name string, attack func(ctx context.Context, g *siege) (string, error)) func(context.Context,
	*Site) (Figure, error) {
	return func(ctx context.Context, s *Site) (f Figure, err error) {
		f.Unit = "ms"
		t, err := s.startWired(ctx, name, serveDocs)
		if err != nil {
			return f, err
		}
		defer func() { err = t.end(err) }()
		g := &siege{s: s, t: t}
		// The documents of the attack exist in the quiet phase too, so the attack is the only difference.
		if err := g.writeDocuments(); err != nil {
			return f, err
		}
		quiet, err := g.runClients(ctx, attackQuiet)
		if err != nil {
			return f, err
		}
		var met string
		var failed error
		attacked, stop := context.WithCancel(ctx)
		var attackers sync.WaitGroup
		attackers.Go(func() { met, failed = attack(attacked, g) })
		waits, err := g.runClients(ctx, attackFor)
		stop()
		attackers.Wait()
		if err = errors.Join(err, failed); err != nil {
			return f, err
		}
		g.compareReads(&f, quiet, waits, met)
		return f, nil
	}
}

// compareReads compares the reads during the attack with those before. With only the ratio, a slow machine with slow
// reads would pass, so there is a limit in milliseconds too.
func (g *siege) compareReads(f *Figure, quiet, waits []float64, met string) {
	f.Value = fleet.Quantile(waits, 0.99)
	f.Against(fleet.Quantile(quiet, 0.99))
	f.Target = fmt.Sprintf("ratio ≤ %d, ≤ %d ms, %d MB, nobody cut", attackRatio, attackLimit, attackMemory>>20)
	f.OK = *f.Ratio <= attackRatio && f.Value <= attackLimit && g.peak.Load() <= attackMemory && len(g.wrong) == 0
	f.Detail = fmt.Sprintf("99 of 100 of %d signed point reads a second; half of them within %.2f ms; memory %d MB "+
		"at most; %d polls waited, %d new clients came, %d were cut; %s",
		attackReads, fleet.Quantile(waits, 0.5), g.peak.Load()>>20, g.polls.Load(), g.came.Load(), len(g.wrong), met)
	if len(g.wrong) > 0 {
		f.Detail += fmt.Sprintf("; the first: %v", g.wrong[0])
	}
}

// runClients lets clients with a key read, wait and connect for a time, and returns how long each read took, in
// milliseconds.
func (g *siege) runClients(ctx context.Context, d time.Duration) (sorted []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { g.watchMemory(ctx) })
	work.Go(func() { g.connectClients(ctx) })
	for range attackPolls {
		work.Go(func() { g.waitForChanges(ctx) })
	}
	waits := make([][]float64, serveSockets)
	for i, w := range g.t.served.sockets {
		work.Go(func() { waits[i] = g.readSteadily(ctx, w) })
	}
	work.Wait()
	sorted = slices.Concat(waits...)
	slices.Sort(sorted)
	if len(sorted) == 0 {
		err = errors.New("no point read was answered")
	}
	return sorted, err
}

// readSteadily reads at a steady rate. If a read begins late because the previous read took long, its time counts from
// the due time. Otherwise a server that stops would count as only a single slow read, not as a slow read for every
// waiting client.
func (g *siege) readSteadily(ctx context.Context, w *socket) (waits []float64) {
	const every = time.Second * serveSockets / attackReads
	op := readOne(g.t.docs)
	// Connections begin at a random time within a period, so their reads do not come in bursts.
	due := time.Now().Add(time.Duration(rand.Int64N(int64(every))))
	for ; ; due = due.Add(every) {
		if pause.For(ctx, time.Until(due)) != nil {
			return waits
		}
		if err := op(w); err != nil {
			g.recordFault(fmt.Errorf("point read: %w", err))
			return waits
		}
		waits = append(waits, float64(time.Since(due).Microseconds())/1000)
	}
}

// waitForChanges follows a feed without changes, with polls that the server holds.
func (g *siege) waitForChanges(ctx context.Context) {
	w, err := dialSocket(g.t.served.addr, g.t.served.key)
	if err != nil {
		g.recordFault(err)
		return
	}
	defer w.Close()
	// The first request asks for the present position. The server does not hold this request, because the header for
	// the wait is empty.
	etag := "*"
	poll := fmt.Sprintf("x-ms-cosmos-max-polling-interval: %d\r\n", attackPoll.Milliseconds())
	for header := ""; ctx.Err() == nil; header = poll {
		begun := time.Now()
		a, err := w.sendAndRead(feedRequest(0, etag, header))
		if err == nil {
			err = a.wantStatus(http.StatusNotModified)
		}
		if took := time.Since(begun); err == nil && header != "" && took < attackPoll-time.Second {
			err = fmt.Errorf("it was held for %v", took)
		}
		if err != nil {
			g.recordFault(fmt.Errorf("poll: %w", err))
			return
		}
		etag = a.etag
		g.polls.Add(1)
	}
}

// connectClients repeatedly connects new clients with a key.
func (g *siege) connectClients(ctx context.Context) {
	op := readOne(g.t.docs)
	for pause.For(ctx, attackNewcomer) == nil {
		w, err := dialSocket(g.t.served.addr, g.t.served.key)
		if err == nil {
			err = op(w)
			_ = w.Close()
		}
		if err != nil {
			g.recordFault(fmt.Errorf("new client: %w", err))
			continue
		}
		g.came.Add(1)
	}
}

// watchMemory records the server's highest memory.
func (g *siege) watchMemory(ctx context.Context) {
	for pause.For(ctx, 50*time.Millisecond) == nil {
		g.peak.Store(max(g.peak.Load(), g.t.served.memoryNow()))
	}
}

// outcomes counts the answers that attackers got.
type outcomes struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *outcomes) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[what]++
}

func (t *outcomes) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for what, n := range t.counts {
		parts = append(parts, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
