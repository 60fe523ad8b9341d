package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
)

// The outbox: the added cost of a batch of the store, how fast a relay publishes, and how soon an event reaches a
// consumer.

const (
	outboxKeys   = 1000
	outboxRounds = 5
	outboxSlice  = 2 * time.Second
	outboxRanges = 4

	commitRatio  = 0.8
	relayEvents  = 100_000
	relayRate    = 50_000
	syncEvents   = 20_000
	syncRate     = 3500
	slowEvents   = 4000
	slowSerially = 200
	slowBroker   = 5 * time.Millisecond
	slowRatio    = 20
	outboxDelay  = 20 // ms
)

// member is the aggregate of these benchmarks; its renaming is the event.
type member struct {
	outbox.Recorder
	Name string `json:"name"`
	Text string `json:"text"`
}

type memberRenamed struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (memberRenamed) EventName() string { return "MemberRenamed" }

// outboxStore is a store with an outbox.
type outboxStore struct {
	s        *Site
	dir      string
	db       *docstore.DB
	members  *docstore.Container
	records  *docstore.Container // the leases
	units    int
	docs     []*outbox.Doc[*member] // by key; each has a single writer
	payloads string
}

func (s *Site) openOutbox(ctx context.Context, name string) (o *outboxStore, err error) {
	o = &outboxStore{s: s, dir: filepath.Join(s.dir, name), payloads: prose()[:400]}
	if o.db, err = docstore.Open(filepath.Join(o.dir, "store"), docstore.Options{}); err != nil {
		return nil, err
	}
	o.members, err = o.db.CreateContainer(ctx, docstore.ContainerSpec{
		ID: "members", Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL), Ranges: outboxRanges,
	})
	if err == nil {
		o.records, err = o.db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	}
	for i := range outboxKeys {
		id := "member-" + strconv.Itoa(i)
		o.docs = append(o.docs, &outbox.Doc[*member]{
			ID: id, PartitionKey: id, Type: "member",
			Data: &member{Text: o.payloads},
		})
	}
	if err == nil {
		err = o.commitByWriters(ctx, outboxKeys, func(ctx context.Context, i int) error {
			u := outbox.NewUnit(o.members, outbox.Options{})
			u.Create(o.docs[i])
			return u.Commit(ctx)
		})
	}
	if err != nil {
		return nil, errors.Join(err, o.db.Close())
	}
	return o, nil
}

// commitByWriters calls do n times, with as many writers as other benchmarks. Each key belongs to a single writer.
func (o *outboxStore) commitByWriters(ctx context.Context, n int, do func(ctx context.Context, key int) error) error {
	var worker atomic.Int64
	return together(ctx, writers, func(ctx context.Context) error {
		first := int(worker.Add(1)) - 1
		keys := (outboxKeys - first + writers - 1) / writers // first, first + writers, …
		for i := first; i < n; i += writers {
			if err := do(ctx, first+i/writers%keys*writers); err != nil {
				return err
			}
		}
		return nil
	})
}

// commitWithEvent commits an object and an event.
func (o *outboxStore) commitWithEvent(ctx context.Context, key int) error {
	d := o.docs[key]
	d.Data.Name = strconv.FormatUint(d.Seq, 10)
	d.Data.Record(memberRenamed{Name: d.Data.Name, Text: o.payloads})
	u := outbox.NewUnit(o.members, outbox.Options{})
	u.Replace(d)
	return u.Commit(ctx)
}

// commitPlainly commits two documents like rename, without the outbox.
func (o *outboxStore) commitPlainly(ctx context.Context, key int, seq *atomic.Int64) error {
	n := seq.Add(1)
	id := "bare-" + strconv.Itoa(key)
	object := fmt.Sprintf(`{"id":%q,"partitionKey":%q,"type":"bare","data":{"name":"%d","text":%q},"ttl":-1}`, id, id,
		n, o.payloads)
	event := fmt.Sprintf(`{"id":"%d","partitionKey":%q,"type":"none","data":{"id":"%d","action":"MemberRenamed","createdAt":"2026-01-01T00:00:00Z","name":"%d","text":%q},"ttl":864000}`, n, id, n, n, o.payloads)
	_, err := o.members.Commit(ctx, feed.Key(id), []feed.Write{
		{Op: feed.WriteUpsert, Body: []byte(object)},
		{Op: feed.WriteCreate, Body: []byte(event)},
	})
	return err
}

// outboxCommit compares a unit of work with a bare batch.
func outboxCommit(ctx context.Context, s *Site) (f Figure, err error) {
	o, err := s.openOutbox(ctx, "outbox-commit")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, o.db.Close()) }()
	var seq atomic.Int64
	var at [writers]int
	next := func(worker int) int { // each key has a single writer
		at[worker]++
		return (worker + writers*at[worker]) % (outboxKeys / writers * writers)
	}
	f.Unit = "commits/s"
	value, baseline, err := s.inTurns(ctx, outboxRounds, f.Unit,
		func() (float64, error) {
			return crowd(ctx, writers, outboxSlice, func(ctx context.Context, worker int) error {
				return o.commitWithEvent(ctx, next(worker))
			})
		},
		func() (float64, error) {
			return crowd(ctx, writers, outboxSlice, func(ctx context.Context, worker int) error {
				return o.commitPlainly(ctx, next(worker), &seq)
			})
		})
	if err != nil {
		return f, err
	}
	f.Value = value
	f.Against(baseline)
	f.ratioOf(commitRatio)
	f.Detail = fmt.Sprintf("units of work by %d writers, of an object under its ETag and an event of 0.5 KB each, "+
		"durable; baseline: the same two documents as one batch of the store", writers)
	return f, nil
}

// relayAll publishes the events of the store and returns the rate per second.
func (o *outboxStore) relayAll(ctx context.Context, to outbox.Publisher, n int64,
	options changefeed.Options,
) (perSecond float64, err error) {
	c := newCounter(n)
	counting := publisherFunc(func(ctx context.Context, msgs []outbox.Message) (int, error) {
		c.begin()
		done, err := to.Publish(ctx, msgs)
		c.add(done)
		return done, err
	})
	relay, err := outbox.NewRelay(counting, outbox.RelayOptions{})
	if err != nil {
		return 0, err
	}
	o.units++
	leases, err := docstore.NewLeases(ctx, o.records, fmt.Sprint("relay-", o.units), o.members)
	if err != nil {
		return 0, err
	}
	options.Instance, options.Start, options.Drain = "bench", feed.FromBeginning(), 100*time.Millisecond
	options.Hooks.Error = func(_ context.Context, err *feed.Error) { o.s.Complain(options.Instance, err) }
	p, err := changefeed.New(o.members, leases, relay, options)
	if err != nil {
		return 0, err
	}
	err = untilClosed(ctx, p, c.over, func() {})
	return c.perSecond(), err
}

type publisherFunc func(ctx context.Context, msgs []outbox.Message) (int, error)

// Publish calls the function.
func (f publisherFunc) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	return f(ctx, msgs)
}

// outboxRelay measures a relay to NATS in this process.
func outboxRelay(events int, least float64, sync time.Duration, about string) func(context.Context, *Site) (Figure,
	error) {
	return func(ctx context.Context, s *Site) (f Figure, err error) {
		o, err := s.openOutbox(ctx, "outbox-relay-"+about)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, o.db.Close()) }()
		if err := o.commitByWriters(ctx, events, o.commitWithEvent); err != nil {
			return f, err
		}
		f.Unit = "events/s"
		var rates []float64
		for n := range outboxRounds {
			rate, err := o.toNATS(ctx, fmt.Sprint("nats-", n), int64(events), sync)
			if err != nil {
				return f, err
			}
			rates = append(rates, rate)
			s.reportProgress("round %d of %d: %s events/s", n+1, outboxRounds, amount(rate))
		}
		f.Value = median(rates)
		f.atLeast(least)
		f.Detail = fmt.Sprintf("%d events of %d keys from a feed of %d partitions to embedded NATS JetStream on "+
			"disk, %s, one relay", events, outboxKeys, outboxRanges, about)
		return f, nil
	}
}

func (o *outboxStore) toNATS(ctx context.Context, name string, n int64, sync time.Duration) (perSecond float64,
	err error,
) {
	to, err := natspub.Embedded(ctx, filepath.Join(o.dir, name), natspub.Options{SyncEvery: sync})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return o.relayAll(ctx, to, n, changefeed.Options{})
}

// outboxSlowBroker compares publishing keys in parallel with publishing events in sequence, if the broker is slow.
func outboxSlowBroker(ctx context.Context, s *Site) (f Figure, err error) {
	o, err := s.openOutbox(ctx, "outbox-slow")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, o.db.Close()) }()
	if err := o.commitByWriters(ctx, slowEvents, o.commitWithEvent); err != nil {
		return f, err
	}
	slow := publisherFunc(func(ctx context.Context, msgs []outbox.Message) (int, error) {
		for i := range msgs {
			if err := pause.For(ctx, slowBroker); err != nil {
				return i, err
			}
		}
		return len(msgs), nil
	})
	f.Unit = "events/s"
	value, serial, err := s.inTurns(ctx, outboxRounds, f.Unit,
		func() (float64, error) { return o.relayAll(ctx, slow, slowEvents, changefeed.Options{}) },
		func() (float64, error) { return o.publishSerially(ctx, slow, slowSerially) })
	if err != nil {
		return f, err
	}
	f.Value = value
	f.Against(serial)
	f.ratioOf(slowRatio)
	f.Detail = fmt.Sprintf("%d events of %d keys to a broker that takes %v to acknowledge each; baseline: one event "+
		"after the other, as the sample of the service's article sends them", slowEvents, outboxKeys, slowBroker)
	return f, nil
}

// publishSerially publishes the first n events of the feed in sequence.
func (o *outboxStore) publishSerially(ctx context.Context, to outbox.Publisher, n int) (perSecond float64, err error) {
	decode := outbox.EventsOfType(outbox.EventType)
	begun, sent := time.Now(), 0
	for page, err := range changefeed.Pull(ctx, o.members, feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
		changefeed.PullOptions{}) {
		if err != nil {
			return 0, err
		}
		for i := range page.Changes {
			m, ok, err := decode(&page.Changes[i])
			if err != nil {
				return 0, err
			}
			if !ok {
				continue
			}
			if _, err := to.Publish(ctx, []outbox.Message{m}); err != nil {
				return 0, err
			}
			if sent++; sent == n {
				return float64(n) / time.Since(begun).Seconds(), nil
			}
		}
	}
	return 0, errors.New("the feed has ended too soon")
}
