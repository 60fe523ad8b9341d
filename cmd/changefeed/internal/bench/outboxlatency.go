package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
)

// How soon an event reaches its consumer: store, relay, broker and consumer run in a single process, at a rate far
// below the limit of each.

// outboxLatency measures the time from the commit of an event to its arrival at a consumer.
func outboxLatency(ctx context.Context, s *Site) (f Figure, err error) {
	o, err := s.openOutbox(ctx, "outbox-latency")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, o.db.Close()) }()
	to, err := natspub.Embedded(ctx, filepath.Join(o.dir, "nats"), natspub.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	d := &delays{committed: map[string]time.Time{}}
	sub, err := to.Conn().Subscribe("outbox.>", d.arrived)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, sub.Unsubscribe()) }()
	relay, err := outbox.NewRelay(to, outbox.RelayOptions{})
	if err != nil {
		return f, err
	}
	leases, err := docstore.NewLeases(ctx, o.records, "latency", o.members)
	if err != nil {
		return f, err
	}
	team := &fleet.Fleet{Source: o.members, Leases: leases, Look: time.Millisecond, Report: s.Complain}
	if _, err := team.Start(ctx, relay, changefeed.Options{Instance: "bench"}); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, team.Stop()) }()
	if _, err := team.Balanced(ctx, 1); err != nil {
		return f, err
	}
	var medians, tails []float64
	for n := range steadyRounds {
		all, err := o.commitSteadily(ctx, d)
		if err != nil {
			return f, err
		}
		medians, tails = append(medians, all[len(all)/2]), append(tails, all[len(all)*99/100])
		s.reportProgress("round %d of %d: p50 %.2f ms, p99 %.2f ms of %d events", n+1, steadyRounds, medians[n],
			tails[n], len(all))
	}
	f.Unit, f.Value = "ms", median(tails)
	f.AtMost(outboxDelay)
	f.Detail = fmt.Sprintf("99 of 100 events are with a consumer so soon after their commit was acknowledged, half "+
		"of them within %.2f ms; %d commits/s, store and embedded NATS sync each", median(medians), steadyRate)
	return f, nil
}

// commitSteadily commits events for a while, waits until all have arrived, and returns their delays in ms, sorted.
func (o *outboxStore) commitSteadily(ctx context.Context, d *delays) (all []float64, err error) {
	tick := time.NewTicker(time.Second / steadyRate)
	defer tick.Stop()
	for n, end := 0, time.Now().Add(steadySlice); time.Now().Before(end); n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := o.commitWithEvent(ctx, n%outboxKeys); err != nil {
			return nil, err
		}
		d.commit(o.docs[n%outboxKeys])
	}
	// An event that arrived early was removed when its commit was recorded, so there is no second wait for this
	// event.
	for !d.complete() {
		if err := pause.For(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
	return d.take(), nil
}

// delays are the times between commits and arrivals.
type delays struct {
	mu        sync.Mutex
	committed map[string]time.Time // by object and number, until the event arrives
	early     map[string]time.Time // arrivals before the commit was acknowledged
	all       []float64
}

func eventName(key string, seq uint64) string { return key + "/" + strconv.FormatUint(seq, 10) }

func (d *delays) commit(of *outbox.Doc[*member]) {
	now, name := time.Now(), eventName(of.PartitionKey, of.Seq)
	d.mu.Lock()
	defer d.mu.Unlock()
	// The consumer received the event before the writer got its answer. Such a delay counts as zero, not as negative.
	if _, ok := d.early[name]; ok {
		delete(d.early, name)
		d.all = append(d.all, 0)
		return
	}
	d.committed[name] = now
}

func (d *delays) arrived(m *nats.Msg) {
	now := time.Now()
	event, err := natspub.Message(m.Header, m.Data)
	if err != nil || !json.Valid(m.Data) {
		return // then the round does not end
	}
	name := eventName(event.Key, event.Seq)
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.committed[name]
	if !ok {
		if d.early == nil {
			d.early = map[string]time.Time{}
		}
		d.early[name] = now
		return
	}
	delete(d.committed, name)
	d.all = append(d.all, float64(now.Sub(at))/float64(time.Millisecond))
}

func (d *delays) complete() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.committed) == 0
}

func (d *delays) take() []float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all
	d.all = nil
	slices.Sort(all)
	return all
}
