package changefeedtest

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Wrappers between a processor and its store. They are exported so that you can test your own handlers under the same
// faults as the processor itself.

// Method names a method of the wrapped interfaces.
type Method string

// The methods.
const (
	SourcePartitions Method = "Source.Partitions"
	SourceRead       Method = "Source.Read"
	SourceWait       Method = "Source.Wait"
	SourcePending    Method = "Source.Pending"
	SourceLocate     Method = "Source.Locate"
	LeaseList        Method = "LeaseStore.List"
	LeaseCreate      Method = "LeaseStore.Create"
	LeaseUpdate      Method = "LeaseStore.Update"
	LeaseDelete      Method = "LeaseStore.Delete"
	LeaseFollow      Method = "LeaseStore.Follow"
	CommitterCommit  Method = "Committer.Commit"
)

// Call is a call to a wrapped store.
type Call struct {
	Method Method
	// On is the subject of the call: a range, a lease token, a partition key; empty for
	// Partitions, List and Follow.
	On string
}

// around is called instead of the call, and makes the call. All wrappers use an around, so faults and counts see the
// same calls.
type around func(ctx context.Context, c Call, call func() error) error

// wrapSource wraps a source with its optional abilities. Each combination of abilities has its own type, because a type
// assertion on the result must have the same answer as on the source.
func wrapSource(inner feed.Source, a around) feed.Source {
	s := source{inner, a}
	waits, isWaiter := inner.(feed.Waiter)
	counts, isCounter := inner.(feed.Counter)
	locates, isLocator := inner.(feed.Locator)
	w, c, l := waiter{waits, a}, counter{counts, a}, locator{locates, a}
	switch [...]bool{isWaiter, isCounter, isLocator} {
	case [...]bool{true, false, false}:
		return waitingSource{s, w}
	case [...]bool{false, true, false}:
		return countingSource{s, c}
	case [...]bool{true, true, false}:
		return struct {
			waitingSource
			counter
		}{waitingSource{s, w}, c}
	case [...]bool{false, false, true}:
		return locatingSource{s, l}
	case [...]bool{true, false, true}:
		return struct {
			locatingSource
			waiter
		}{locatingSource{s, l}, w}
	case [...]bool{false, true, true}:
		return struct {
			locatingSource
			counter
		}{locatingSource{s, l}, c}
	case [...]bool{true, true, true}:
		return struct {
			locatingSource
			waiter
			counter
		}{locatingSource{s, l}, w, c}
	}
	return s
}

// Sources with a single ability.
type (
	waitingSource struct {
		source
		waiter
	}
	countingSource struct {
		source
		counter
	}
	locatingSource struct {
		source
		locator
	}
)

type source struct {
	source feed.Source
	around around
}

func (s source) Partitions(ctx context.Context) (parts []feed.Partition, err error) {
	err = s.around(ctx, Call{Method: SourcePartitions}, func() (err error) {
		parts, err = s.source.Partitions(ctx)
		return err
	})
	return onlyGood(parts, err)
}

func (s source) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (page feed.Page,
	err error,
) {
	err = s.around(ctx, Call{SourceRead, r.String()}, func() (err error) {
		page, err = s.source.Read(ctx, r, from, o)
		return err
	})
	return onlyGood(page, err)
}

// TokenLSN passes the call on to the [feed.Sequencer]. It makes no request, so there is no fault and no count.
func (s source) TokenLSN(token string) (lsn int64, ok bool) {
	q, ok := s.source.(feed.Sequencer)
	if !ok {
		return 0, false
	}
	return q.TokenLSN(token)
}

// TokenAfter passes the call on to the [feed.Sequencer].
func (s source) TokenAfter(lsn int64) string {
	if q, ok := s.source.(feed.Sequencer); ok {
		return q.TokenAfter(lsn)
	}
	return ""
}

// waiter, counter and follower are the optional abilities, each by itself, because a wrapper must have exactly the
// abilities of its store.
type waiter struct {
	waiter feed.Waiter
	around around
}

func (w waiter) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	return w.around(ctx, Call{SourceWait, r.String()}, func() error { return w.waiter.Wait(ctx, r, from) })
}

type counter struct {
	counter feed.Counter
	around  around
}

func (c counter) Pending(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (b feed.Backlog,
	err error,
) {
	err = c.around(ctx, Call{SourcePending, r.String()}, func() (err error) {
		b, err = c.counter.Pending(ctx, r, from, o)
		return err
	})
	return onlyGood(b, err)
}

type locator struct {
	locator feed.Locator
	around  around
}

func (l locator) Locate(ctx context.Context, key feed.PartitionKey) (epk string, err error) {
	err = l.around(ctx, Call{SourceLocate, string(key)}, func() (err error) {
		epk, err = l.locator.Locate(ctx, key)
		return err
	})
	return onlyGood(epk, err)
}

// wrapLeases wraps a lease store, as a [feed.Follower] if the store is one.
func wrapLeases(inner feed.LeaseStore, a around) feed.LeaseStore {
	s := leases{inner, a}
	if follows, ok := inner.(feed.Follower); ok {
		return struct {
			leases
			follower
		}{s, follower{follows, a}}
	}
	return s
}

type leases struct {
	store  feed.LeaseStore
	around around
}

func (s leases) List(ctx context.Context) (records []feed.Record, now time.Time, err error) {
	err = s.around(ctx, Call{Method: LeaseList}, func() (err error) {
		records, now, err = s.store.List(ctx)
		return err
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return records, now, nil
}

func (s leases) Create(ctx context.Context, record feed.Record) (created feed.Record, err error) {
	err = s.around(ctx, Call{LeaseCreate, record.Token}, func() (err error) {
		created, err = s.store.Create(ctx, record)
		return err
	})
	return onlyGood(created, err)
}

func (s leases) Update(ctx context.Context, record feed.Record) (updated feed.Record, err error) {
	err = s.around(ctx, Call{LeaseUpdate, record.Token}, func() (err error) {
		updated, err = s.store.Update(ctx, record)
		return err
	})
	return onlyGood(updated, err)
}

func (s leases) Delete(ctx context.Context, record feed.Record) error {
	return s.around(ctx, Call{LeaseDelete, record.Token}, func() error { return s.store.Delete(ctx, record) })
}

type follower struct {
	follower feed.Follower
	around   around
}

func (f follower) Follow(ctx context.Context, cursor string) (changed []feed.Record, next string, now time.Time,
	err error,
) {
	err = f.around(ctx, Call{Method: LeaseFollow}, func() (err error) {
		changed, next, now, err = f.follower.Follow(ctx, cursor)
		return err
	})
	if err != nil {
		return nil, "", time.Time{}, err
	}
	return changed, next, now, nil
}

func wrapCommitter(inner feed.Committer, a around) feed.Committer {
	return committer{inner, a}
}

type committer struct {
	committer feed.Committer
	around    around
}

func (c committer) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) (results []feed.Result,
	err error,
) {
	err = c.around(ctx, Call{CommitterCommit, string(key)}, func() (err error) {
		results, err = c.committer.Commit(ctx, key, writes)
		return err
	})
	return onlyGood(results, err)
}

// onlyGood drops the value of a call after an error, including lost replies: a caller must not see a result that the
// network would not have delivered.
func onlyGood[T any](value T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return value, nil
}

// wait waits, unless the context ends.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return pause.For(ctx, d)
}

// throttledFor returns the pause in an error, 0 if the error is no throttling.
func throttledFor(err error) time.Duration {
	if throttled, ok := errors.AsType[*feed.ThrottledError](err); ok {
		return throttled.After
	}
	return 0
}
