package sim

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The stores as a process sees them, over its link: requests are delayed and lost, and
// times are those of the process's own clock.

// leases is a lease store behind a link.
type leases struct {
	*link
	store feed.LeaseStore
}

// listing is an answer of List and of Follow.
type listing struct {
	records []feed.Record
	cursor  string
	now     time.Time
}

// List is about the whole key space, so an ambush at it splits or merges the first partition.
func (s leases) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	q := parcel{call: "list", of: feed.FullRange(), fate: s.drawFate()}
	got, err := carry(ctx, s.link, q, func(ctx context.Context) (got listing, err error) {
		got.records, got.now, err = s.store.List(ctx)
		return got, err
	})
	return s.shiftAllIn(got.records), got.now.Add(s.skew), err
}

// shiftAllIn moves the store's times to the clock that this instance takes for the store's. The
// effect is the same as if its own clock were off by as much.
func (s leases) shiftAllIn(records []feed.Record) []feed.Record {
	for i := range records {
		records[i] = s.shiftIn(records[i])
	}
	return records
}

// shiftIn is a record as this instance sees it.
func (s leases) shiftIn(record feed.Record) feed.Record {
	return shift(stamped(record, s.wall.fromWall), s.skew)
}

// shiftOut is a record of this instance as the store gets it.
func (s leases) shiftOut(record feed.Record) feed.Record {
	return shift(stamped(record, s.wall.toWall), -s.skew)
}

// stamped is a record whose times of its writer are told by another clock.
func stamped(record feed.Record, told func(time.Time) time.Time) feed.Record {
	record.Timestamp = told(record.Timestamp)
	return dueAt(record, func(due, sent time.Time) (time.Time, time.Time) { return due, told(sent) })
}

// dueAt changes when the create of a lease had to arrive, by the store's clock, and when it was
// sent, by its maker's.
func dueAt(record feed.Record, change func(due, sent time.Time) (time.Time, time.Time)) feed.Record {
	if due, made := notes.ReadDue(record.Properties[notes.DueProperty]); made {
		due.By, due.Sent = change(due.By, due.Sent)
		record.Properties = notes.Set(record.Properties, notes.DueProperty, due.String())
	}
	return record
}

// shift moves all times of a record that the processor compares with a clock.
func shift(record feed.Record, by time.Duration) feed.Record {
	if !record.Updated.IsZero() {
		record.Updated = record.Updated.Add(by)
	}
	if !record.Fence.IsZero() {
		record.Fence = record.Fence.Add(by)
	}
	record.Position = shiftStart(record.Position, by)
	// of the marker
	if start, err := feed.ParseStart(notes.TimeOf(record.Properties[notes.OriginProperty])); err == nil {
		record.Properties = maps.Clone(record.Properties)
		record.Properties[notes.OriginProperty] = notes.PlainTime(shiftStart(feed.Position{Start: start},
			by).Start.String())
	}
	record = dueAt(record, func(due, sent time.Time) (time.Time, time.Time) { return due.Add(by), sent })
	return shiftTarget(shiftJoining(record, by), by)
}

// shiftJoining moves the time until which the lease must exist that a lease is joined into.
func shiftJoining(record feed.Record, by time.Duration) feed.Record {
	if mark, joining := notes.ReadJoining(record.Properties[notes.JoiningProperty]); joining {
		mark.Until = mark.Until.Add(by)
		record.Properties = notes.Set(record.Properties, notes.JoiningProperty, mark.String())
	}
	return record
}

// shiftTarget moves the start time in a request for a reset.
func shiftTarget(record feed.Record, by time.Duration) feed.Record {
	c, err := notes.ReadControl(record.Properties)
	if err != nil || c.To.Start == "" {
		return record
	}
	at, err := records.PositionOf(c.To)
	if err != nil {
		return record
	}
	c.To = records.TargetOf(shiftStart(at, by))
	record.Properties = c.Properties(record.Properties)
	return record
}

// shiftStart moves the start time of a position.
func shiftStart(p feed.Position, by time.Duration) feed.Position {
	if at := p.Start.Time(); !at.IsZero() {
		p.Start = feed.FromTime(at.Add(by))
	}
	return p
}

func (s leases) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	return s.writeRecord(ctx, "create "+string(record.Kind), record, s.store.Create)
}

func (s leases) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	return s.writeRecord(ctx, s.by.purposeOf(s.by.world.ledger.storedLease(record), record), record, s.store.Update)
}

// writeRecord carries a record to the store, and the stored record back.
func (s leases) writeRecord(ctx context.Context, call string, record feed.Record,
	do func(context.Context, feed.Record) (feed.Record, error),
) (feed.Record, error) {
	q := parcel{call: call, of: record.Range, fate: s.fateOfWrite(call)}
	got, err := carry(ctx, s.link, q, func(ctx context.Context) (feed.Record, error) {
		return do(ctx, s.shiftOut(record))
	})
	return s.shiftIn(got), err
}

func (s leases) Delete(ctx context.Context, record feed.Record) error {
	q := parcel{call: "delete", of: record.Range, fate: s.fateOfWrite("delete")}
	_, err := carry(ctx, s.link, q, func(ctx context.Context) (struct{}, error) {
		if s.by.world.weather.keepers {
			return struct{}{}, feed.ErrForbidden
		}
		return struct{}{}, s.store.Delete(ctx, record)
	})
	return err
}

// followed is leases whose changes can be followed.
type followed struct{ leases }

func (s followed) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	q := parcel{call: "follow", of: feed.FullRange(), fate: s.drawFate()}
	got, err := carry(ctx, s.link, q, func(ctx context.Context) (got listing, err error) {
		got.records, got.cursor, got.now, err = s.store.(feed.Follower).Follow(ctx, cursor)
		return got, err
	})
	return s.shiftAllIn(got.records), got.cursor, got.now.Add(s.skew), err
}

// source is a source behind a link.
type source struct {
	*link
	source feed.Source
}

func (s source) Partitions(ctx context.Context) ([]feed.Partition, error) {
	q := parcel{call: "partitions", of: feed.FullRange(), fate: s.drawFate()}
	return carry(ctx, s.link, q, s.source.Partitions)
}

func (s source) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	q := parcel{call: "read", of: r, fate: s.drawFate()}
	if o.Key != "" {
		q.call = "read key"
	}
	var told answered
	page, err := carry(ctx, s.link, q, func(ctx context.Context) (feed.Page, error) {
		// The model hears of a page as it leaves the store.
		page, err := s.source.Read(ctx, r, shiftStart(from, -s.skew), o)
		switch {
		case err != nil:
		case o.Key != "":
			s.by.world.ledger.noteKeyPage(s.by, r, page)
		default:
			told.note(s.by.world.ledger.notePage(s.by, r, from.Token, page))
		}
		page.Next = shiftStart(page.Next, s.skew)
		return page, err
	})
	if err != nil {
		told.lose()
	}
	return page, err
}

// answered is whether the answer to a read has arrived. A late read may be answered when nobody waits any more.
type answered struct {
	mu     sync.Mutex
	isLost bool
	forget func() // of the model
}

// note notes that the model has heard of the answer.
func (a *answered) note(forget func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forget = forget; a.isLost {
		forget()
	}
}

// lose notes that the answer does not arrive.
func (a *answered) lose() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isLost = true; a.forget != nil {
		a.forget()
	}
}

// TokenLSN implements [feed.Sequencer].
func (s source) TokenLSN(token string) (lsn int64, ok bool) {
	return s.source.(feed.Sequencer).TokenLSN(token)
}

// TokenAfter implements [feed.Sequencer].
func (s source) TokenAfter(lsn int64) string { return s.source.(feed.Sequencer).TokenAfter(lsn) }

// Locate implements [feed.Locator]: no request, so nothing can happen to it.
func (s source) Locate(ctx context.Context, key feed.PartitionKey) (string, error) {
	return s.source.(feed.Locator).Locate(ctx, key)
}

// pushed is a source that can be waited for.
type pushed struct{ source }

func (s pushed) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	return s.source.source.(feed.Waiter).Wait(ctx, r, from)
}
