package sim

import (
	"context"
	"maps"
	"time"

	"github.com/millrace/changefeed"
)

// The stores as a process sees them, over its link: requests are delayed and lost, and
// times are those of the process's own clock.

// leases is a lease store behind a link.
type leases struct {
	*link
	store changefeed.LeaseStore
}

// listing is an answer of List and of Follow.
type listing struct {
	records []changefeed.Record
	cursor  string
	now     time.Time
}

// List is about the whole key space, so an ambush at it splits or merges the first partition.
func (s leases) List(ctx context.Context) ([]changefeed.Record, time.Time, error) {
	q := parcel{call: "list", of: changefeed.FullRange(), fate: s.fate()}
	got, err := carry(ctx, s.link, q, func(ctx context.Context) (got listing, err error) {
		got.records, got.now, err = s.store.List(ctx)
		return got, err
	})
	return s.seen(got.records), got.now.Add(s.skew), err
}

// seen moves the store's times to the clock that this instance takes for the store's. The
// effect is the same as if its own clock were off by as much.
func (s leases) seen(records []changefeed.Record) []changefeed.Record {
	for i := range records {
		records[i] = s.read(records[i])
	}
	return records
}

// read is a record as this instance sees it.
func (s leases) read(l changefeed.Record) changefeed.Record {
	l.Timestamp = s.wall.written(l.Timestamp)
	return shift(l, s.skew)
}

// sent is a record of this instance as the store gets it.
func (s leases) sent(l changefeed.Record) changefeed.Record {
	l.Timestamp = s.wall.write(l.Timestamp)
	return shift(l, -s.skew)
}

// shift moves all times of a record that the processor compares with a clock.
func shift(l changefeed.Record, by time.Duration) changefeed.Record {
	if !l.Updated.IsZero() {
		l.Updated = l.Updated.Add(by)
	}
	if !l.Fence.IsZero() {
		l.Fence = l.Fence.Add(by)
	}
	l.Position = shiftStart(l.Position, by)
	if start, err := changefeed.ParseStart(l.Properties["origin"]); err == nil { // of the marker
		l.Properties = maps.Clone(l.Properties)
		l.Properties["origin"] = shiftStart(changefeed.Position{Start: start}, by).Start.String()
	}
	return l
}

// shiftStart moves the start time of a position.
func shiftStart(p changefeed.Position, by time.Duration) changefeed.Position {
	if at := p.Start.Time(); !at.IsZero() {
		p.Start = changefeed.FromTime(at.Add(by))
	}
	return p
}

func (s leases) Create(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	return s.write(ctx, "create "+string(l.Kind), l, s.store.Create)
}

func (s leases) Update(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	return s.write(ctx, s.by.meaning(s.by.world.ledger.stored(l), l), l, s.store.Update)
}

// write carries a record to the store, and the stored record back.
func (s leases) write(ctx context.Context, call string, l changefeed.Record, do func(context.Context, changefeed.Record) (changefeed.Record, error)) (changefeed.Record, error) {
	q := parcel{call: call, of: l.Range, fate: s.fateOfWrite(call)}
	got, err := carry(ctx, s.link, q, func(ctx context.Context) (changefeed.Record, error) { return do(ctx, s.sent(l)) })
	return s.read(got), err
}

func (s leases) Delete(ctx context.Context, l changefeed.Record) error {
	q := parcel{call: "delete", of: l.Range, fate: s.fateOfWrite("delete")}
	_, err := carry(ctx, s.link, q, func(ctx context.Context) (struct{}, error) {
		if s.by.world.weather.keepers {
			return struct{}{}, changefeed.ErrForbidden
		}
		return struct{}{}, s.store.Delete(ctx, l)
	})
	return err
}

// followed is leases whose changes can be followed.
type followed struct{ leases }

func (s followed) Follow(ctx context.Context, cursor string) ([]changefeed.Record, string, time.Time, error) {
	q := parcel{call: "follow", of: changefeed.FullRange(), fate: s.fate()}
	got, err := carry(ctx, s.link, q, func(ctx context.Context) (got listing, err error) {
		got.records, got.cursor, got.now, err = s.store.(changefeed.Follower).Follow(ctx, cursor)
		return got, err
	})
	return s.seen(got.records), got.cursor, got.now.Add(s.skew), err
}

// source is a source behind a link.
type source struct {
	*link
	source changefeed.Source
}

func (s source) Partitions(ctx context.Context) ([]changefeed.Partition, error) {
	q := parcel{call: "partitions", of: changefeed.FullRange(), fate: s.fate()}
	return carry(ctx, s.link, q, s.source.Partitions)
}

func (s source) Read(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Page, error) {
	q := parcel{call: "read", of: r, fate: s.fate()}
	return carry(ctx, s.link, q, func(ctx context.Context) (changefeed.Page, error) {
		page, err := s.source.Read(ctx, r, shiftStart(from, -s.skew), o)
		if err == nil {
			s.by.world.ledger.read(s.by, r, from.Token, page)
		}
		page.Next = shiftStart(page.Next, s.skew)
		return page, err
	})
}

// pushed is a source that can be waited for.
type pushed struct{ source }

func (s pushed) Wait(ctx context.Context, r changefeed.Range, from changefeed.Position) error {
	return s.source.source.(changefeed.Waiter).Wait(ctx, r, from)
}
