package changefeed_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// A world of lists and maps for the differential test of progress: a feed, a lease store
// that fails, processes that come and go. What a lease may say is in progressmodel_test.go.

// entry is a change of the feed: its place is the key.
type entry struct {
	lsn   int64
	place string
}

// scripted is the world of one seed.
type scripted struct {
	o     changefeed.Options
	model *progress

	mu     sync.Mutex
	rng    *rand.Rand
	calm   bool
	feed   []entry
	bounds []string // of the partitions
	leases map[string]feed.Record
	writes int
}

var errScript = errors.New("script: not this time")

func (s *scripted) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.calm && s.rng.IntN(n) == 0
}

func (s *scripted) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(d)))
}

// write adds a transaction of some changes of one key.
func (s *scripted) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lsn := int64(1)
	if len(s.feed) > 0 {
		lsn = s.feed[len(s.feed)-1].lsn + 1 + s.rng.Int64N(3)
	}
	place := fmt.Sprintf("%02X", s.rng.IntN(places))
	for range 1 + s.rng.IntN(6)*s.rng.IntN(2) {
		s.feed = append(s.feed, entry{lsn, place})
	}
}

// places is how many keys there are.
const places = 0x40

// split cuts a partition in two, if it can be.
func (s *scripted) split(place int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut(place)
}

// splitFailing cuts the first key off each lease whose first change has failed. One of the parts does not have that
// change.
func (s *scripted) splitFailing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		if from, err := strconv.ParseInt("0"+l.Range.Min, 16, 0); err == nil && l.Kind == feed.KindLease &&
			l.Attempts > 0 {
			s.cut(int(from) + 1)
		}
	}
}

func (s *scripted) cut(place int) {
	if at := fmt.Sprintf("%02X", place); 0 < place && place < places && !slices.Contains(s.bounds, at) &&
		len(s.bounds) < 8 {
		s.bounds = append(s.bounds, at)
		slices.Sort(s.bounds)
	}
}

// positionOf is how far a token is.
func positionOf(token string) int64 {
	lsn, _ := service.LSN(token) // none is the beginning
	return lsn
}

// client is the world as one process reaches it.
type client struct {
	*scripted
	name string
	dead bool // guarded by scripted.mu
}

// TokenLSN implements [feed.Sequencer].
func (c *client) TokenLSN(token string) (lsn int64, ok bool) { return service.LSN(token) }

// TokenAfter implements [feed.Sequencer].
func (c *client) TokenAfter(lsn int64) string { return service.Token(lsn) }

func (c *client) Partitions(context.Context) ([]feed.Partition, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []feed.Partition
	for i, from := range c.bounds {
		to := "FF"
		if i+1 < len(c.bounds) {
			to = c.bounds[i+1]
		}
		list = append(list, feed.Partition{ID: from + "-", Range: feed.Range{Min: from, Max: to}})
	}
	return list, nil
}

func (c *client) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	c.model.reads(c, r, positionOf(from.Token))
	time.Sleep(c.upTo(5 * time.Millisecond))
	if c.chance(15) {
		return feed.Page{}, errScript
	}
	partitions, err := c.Partitions(ctx)
	if !slices.ContainsFunc(partitions, func(p feed.Partition) bool { return p.Range.Contains(r) }) {
		return feed.Page{}, cmp.Or(err, feed.ErrGone)
	}
	c.mu.Lock()
	page := feed.Page{Next: feed.At(`"0"`)}
	if n := len(c.feed); n > 0 {
		page.Next = feed.At(strconv.Quote(strconv.FormatInt(c.feed[n-1].lsn, 10)))
	}
	for _, e := range c.feed {
		if e.lsn <= positionOf(from.Token) || !r.Holds(e.place) {
			continue
		}
		if n := len(page.Changes); o.MaxItems > 0 && n >= o.MaxItems && page.Changes[n-1].LSN != e.lsn {
			page.Next = feed.At(strconv.Quote(strconv.FormatInt(page.Changes[n-1].LSN, 10)))
			break
		}
		page.Changes = append(page.Changes, feed.Change{ID: e.place, PartitionKey: feed.Key(e.place), LSN: e.lsn})
	}
	c.mu.Unlock()
	c.model.gets(c, r, page)
	return page, nil
}

func (c *client) List(context.Context) ([]feed.Record, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, time.Time{}, errScript
	}
	var list []feed.Record
	for _, l := range c.leases {
		list = append(list, l)
	}
	return list, time.Now(), nil
}

// try carries out a write, or not, and tells the writer, or not.
func (c *client) try(l feed.Record, apply func(stored feed.Record, present bool) error) (feed.Record, error) {
	time.Sleep(c.upTo(5 * time.Millisecond))
	lost := c.chance(12)
	if c.chance(12) {
		return l, errScript
	}
	if c.chance(30) {
		return l, &feed.ThrottledError{After: c.upTo(time.Second)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return l, errScript
	}
	stored, present := c.leases[l.ID]
	if err := apply(stored, present); err != nil {
		return l, err
	}
	c.writes++
	l.ETag, l.Updated = strconv.Itoa(c.writes), time.Now()
	if _, stays := c.leases[l.ID]; stays {
		c.leases[l.ID] = l
	}
	if lost {
		return l, errScript
	}
	return l, nil
}

func (c *client) Create(_ context.Context, l feed.Record) (feed.Record, error) {
	l.ID = fmt.Sprint(l.Kind, l.Token)
	return c.try(l, func(_ feed.Record, present bool) error {
		if present {
			return feed.ErrConflict
		}
		c.model.creates(c.scripted, l)
		c.leases[l.ID] = l
		return nil
	})
}

func (c *client) Update(_ context.Context, l feed.Record) (feed.Record, error) {
	sent := c.model.sends(c, l)
	got, err := c.try(l, func(stored feed.Record, present bool) error {
		switch {
		case !present:
			return feed.ErrNotFound
		case stored.ETag != l.ETag:
			return feed.ErrConflict
		}
		c.model.stores(c.scripted, l)
		return nil
	})
	if err == nil {
		c.model.answers(sent)
	}
	return got, err
}

func (c *client) Delete(_ context.Context, l feed.Record) error {
	_, err := c.try(l, func(stored feed.Record, present bool) error {
		switch {
		case !present:
			return feed.ErrNotFound
		case stored.ETag != l.ETag:
			return feed.ErrConflict
		}
		delete(c.leases, l.ID)
		return nil
	})
	return err
}

// Handle does what the script says, and tells the model.
func (c *client) Handle(ctx context.Context, b *feed.Batch) error {
	c.model.begins(c, b)
	time.Sleep(c.upTo(20 * time.Millisecond))
	switch {
	case c.chance(9):
		return c.model.fails(ctx, b)
	case c.chance(25):
		panic(c.model.fails(ctx, b))
	case c.chance(12): // too slow, but it heeds its context
		<-ctx.Done()
		if c.chance(2) {
			if c.o.Manual {
				c.checkpointLater(ctx, b)
			}
			return c.model.fails(ctx, b)
		}
	}
	if !c.o.Manual {
		c.model.succeeds(b)
		return nil
	}
	if c.chance(4) { // later, perhaps after later ones
		c.checkpointLater(ctx, b)
	} else if !c.chance(5) {
		c.checkpoint(ctx, b)
		if c.chance(6) {
			return c.model.fails(ctx, b)
		}
	}
	c.model.succeeds(b)
	return nil
}

func (c *client) checkpointLater(ctx context.Context, b *feed.Batch) {
	delay := c.upTo(30 * time.Second)
	if c.chance(2) {
		delay /= 100
	}
	time.AfterFunc(delay, func() { c.checkpoint(context.WithoutCancel(ctx), b) })
}

func (c *client) checkpoint(ctx context.Context, b *feed.Batch) {
	if c.chance(6) { // a caller without patience
		impatient, cancel := context.WithTimeout(ctx, c.upTo(10*time.Millisecond))
		defer cancel()
		ctx = impatient
	}
	asked := c.model.asks(c, b)
	err := b.Checkpoint(ctx)
	c.model.answered(ctx, c, b, asked, err)
}
