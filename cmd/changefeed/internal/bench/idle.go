package bench

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// Leases without work. A unit may have thousands of leases, most of them idle at any time, so their cost decides
// whether a processor can run inside a service.

// The limits fit a small service that runs a processor besides its other work.
const (
	idleLeases  = 1000
	idleWatch   = 17 * time.Second // time in which each lease is renewed once
	idleHeap    = 64               // MB
	idleCPU     = 0.1              // of a core
	bytesPerMB  = 1 << 20
	fullCollect = 2 // collections after which finalizers hold no memory
)

// idle1000 measures the heap and the processor time of leases without work. There are far more leases than most
// containers have, so a cost per lease shows.
func idle1000(ctx context.Context, s *Site) (f Figure, err error) {
	db, err := docstore.Open(filepath.Join(s.dir, "idle"), docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	documents, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "documents", Paths: []string{"/city"}})
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
	team := &fleet.Fleet{Source: documents, Leases: leases, Look: time.Second / 10, Report: s.Complain}
	defer func() {
		if serr := team.Stop(); err == nil {
			err = serr
		}
	}()
	before := live()
	handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	if _, err := team.Start(ctx, handler, changefeed.Options{Instance: "bench", MinLeases: idleLeases}); err != nil {
		return f, err
	}
	if _, err := team.Balanced(ctx, 1); err != nil {
		return f, err
	}
	s.reportProgress("watching %d leases for %v", idleLeases, idleWatch)
	// The heap is measured before and after the watch, and the larger value counts, because leases may hold more
	// memory while they are acquired than later, or the reverse.
	held := live()
	begun, used := time.Now(), busy()
	if err := pause.For(ctx, idleWatch); err != nil {
		return f, err
	}
	cpu := (busy() - used).Seconds() / time.Since(begun).Seconds()
	f.Unit, f.Value = "MB", float64(max(held, live())-before)/bytesPerMB
	f.AtMost(idleHeap)
	f.OK = f.OK && cpu <= idleCPU
	f.Target += fmt.Sprintf(", CPU ≤ %g%%", 100*idleCPU)
	f.Detail = fmt.Sprintf("live heap that one processor with %d idle leases adds, those of its store's memory "+
		"included, over %v; %.1f%% of one core, in which each lease is renewed every 17 s",
		idleLeases, idleWatch, 100*cpu)
	return f, nil
}

// live returns the size of the heap in use.
func live() int64 {
	for range fullCollect {
		runtime.GC()
	}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	return int64(heap[0].Value.Uint64())
}
