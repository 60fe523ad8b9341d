package kafkapub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// producer sends the records of one call at a time. A client shared by several calls would be quicker, but wrong: if a
// record fails, the client fails all records that wait for the partition with the same error, and may send the second
// record of a key after the first has failed.
type producer struct {
	*kgo.Client
	maxBatch int           // bytes
	timeout  time.Duration // of a record; 0 is no timeout
	isWarm   bool          // the client knows the partitions of the topic
	isSpent  bool          // the client may still have records with an unknown outcome
}

func newProducer(options []kgo.Opt) (*producer, error) {
	client, err := kgo.NewClient(append(slices.Clip(options), kgo.ManualFlushing())...)
	if err != nil {
		return nil, err
	}
	maxBatch, _ := client.OptValue(kgo.ProducerBatchMaxBytes).(int32)
	timeout, _ := client.OptValue(kgo.RecordDeliveryTimeout).(time.Duration)
	return &producer{Client: client, maxBatch: int(maxBatch), timeout: timeout}, nil
}

// produce sends records of one key in order. produce returns how many were accepted, from the first on, and why the
// next was not.
func (p *producer) produce(ctx context.Context, records []*kgo.Record) (n int, err error) {
	most := len(records)
	for n < len(records) {
		run := fitting(records[n:min(n+most, len(records))], p.maxBatch)
		accepted, err := p.send(ctx, run)
		n += accepted
		switch {
		case err == nil:
		case len(run) > 1 && (isTooLarge(err) || errors.Is(err, kerr.InvalidRecord)):
			// the topic may accept less than the client, and an error names the bad record only if the batch has no
			// other
			most = len(run) / 2
		default:
			return n, err
		}
	}
	return n, nil
}

// send sends records that fit into one batch, so that the partition accepts all of them or none. They must not leave
// before the last is added, so the client sends them only at a flush.
func (p *producer) send(ctx context.Context, records []*kgo.Record) (n int, err error) {
	if !p.isWarm {
		records = records[:1] // if the client does not know the partitions yet, records leave one by one
	}
	results := make([]error, len(records))
	for i, r := range records {
		p.Produce(ctx, r, func(_ *kgo.Record, err error) { results[i] = err })
	}
	if p.timeout > 0 { // while a request has no answer, the client ignores the timeout for 20 s
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, p.timeout+grace, fmt.Errorf("no answer within %v", p.timeout))
		defer stop()
	}
	ended, failed := p.Flush(ctx) != nil, -1
	if !ended { // otherwise the client may still write results
		failed = slices.IndexFunc(results, func(err error) bool { return err != nil })
	}
	// the records may notice the end first
	if ended || failed >= 0 && ctx.Err() != nil && errors.Is(results[failed], ctx.Err()) {
		p.isSpent = true
		return 0, context.Cause(ctx)
	}
	if failed >= 0 {
		return failed, results[failed]
	}
	p.isWarm = true
	return len(records), nil
}

// grace is how long the client has to report a more precise error.
const grace = time.Second

// fitting returns as many of the records, from the first on, as fit into one batch, and at least one.
func fitting(records []*kgo.Record, maxBatch int) []*kgo.Record {
	n, size := 1, sizeOf(records[0])
	for n < len(records) && size+sizeOf(records[n]) <= maxBatch {
		size += sizeOf(records[n])
		n++
	}
	return records[:n]
}

// sizeOf returns the largest size of a record in a batch, including a share of the batch's overhead.
func sizeOf(r *kgo.Record) int {
	const aroundRecord, aroundHeader = 100, 10
	size := aroundRecord + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += aroundHeader + len(h.Key) + len(h.Value)
	}
	return size
}

// pool lends producers, and makes no more than are needed at a time.
type pool struct {
	options []kgo.Opt
	slots   chan struct{}  // one for each lent producer
	closing sync.WaitGroup // of spent producers, which takes a while if a broker does not answer

	mu     sync.Mutex
	idle   []*producer
	closed bool
}

// newPool makes a pool of at most size producers. newPool makes the first producer at once, so that invalid options are
// refused.
func newPool(size int, options []kgo.Opt) (*pool, error) {
	first, err := newProducer(options)
	if err != nil {
		return nil, err
	}
	return &pool{options: options, slots: make(chan struct{}, size), idle: []*producer{first}}, nil
}

// take lends a producer. If all are lent, take waits until a producer is put back.
func (p *pool) take(ctx context.Context) (*producer, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	lent, err := p.lastOrNew()
	if err != nil {
		<-p.slots
	}
	return lent, err
}

// lastOrNew returns the producer that was put back last, or a new producer.
func (p *pool) lastOrNew() (*producer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, kgo.ErrClientClosed
	}
	if n := len(p.idle) - 1; n >= 0 {
		last := p.idle[n]
		p.idle = p.idle[:n]
		return last, nil
	}
	return newProducer(p.options)
}

// put takes a producer back.
func (p *pool) put(lent *producer) {
	if lent.isSpent {
		p.closing.Go(lent.Close)
	} else {
		p.mu.Lock()
		p.idle = append(p.idle, lent)
		p.mu.Unlock()
	}
	<-p.slots
}

// close waits for the lent producers, and closes all. No more are lent.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	for _, producer := range p.idle {
		producer.Close()
	}
	p.idle = nil
	p.closing.Wait()
	for range cap(p.slots) {
		<-p.slots // waiting callers find the pool closed
	}
}
