package changefeed_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/nethost"
)

// A register is what the hosts of a mixed unit handle: who has a key in hand, and which
// of its changes came when.
type register struct {
	t     *testing.T
	mu    sync.Mutex
	hands map[feed.PartitionKey]hand
	first map[feed.PartitionKey][]int64 // LSNs in the order of their first handling
	by    map[string]int                // changes by host
	late  time.Duration                 // the longest that a host went on with a key that another had begun on
	bound time.Duration                 // of late
}

type hand struct {
	host, before string
	since, until time.Time
}

// handle takes a moment for each change.
func (g *register) handle(ctx context.Context, host string, changes []feed.Change) error {
	for _, c := range changes {
		const moment = 20 * time.Millisecond
		g.take(host, c.PartitionKey, time.Now().Add(moment))
		if !waitFor(ctx, moment) {
			g.take(host, c.PartitionKey, time.Now())
			return ctx.Err()
		}
		g.done(host, c)
	}
	return nil
}

// settled is after how long a key may have gone back to an earlier host in good order.
const settled = 5 * time.Second

func (g *register) take(host string, key feed.PartitionKey, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, h := time.Now(), g.hands[key]
	switch {
	case h.host == host:
		h.until = until
	case h.before == host && now.Sub(h.since) < settled:
		g.late = max(g.late, until.Sub(h.since))
	default:
		g.late = max(g.late, h.until.Sub(now))
		h = hand{host: host, before: h.host, since: now, until: until}
	}
	g.hands[key] = h
}

func (g *register) done(host string, c feed.Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by[host]++
	if slices.Contains(g.first[c.PartitionKey], c.LSN) {
		return
	}
	g.first[c.PartitionKey] = append(g.first[c.PartitionKey], c.LSN)
}

// Handle makes it the handler of ours.
func (g *register) Handle(ctx context.Context, b *feed.Batch) error {
	return g.handle(ctx, "go-1", b.Changes)
}

// count is how many changes a host has handled since it was last asked.
func (g *register) count(host string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.by[host]
	g.by[host] = 0
	return n
}

// check wants each change of each key, in order, in one hand at a time.
func (g *register) check(written map[feed.PartitionKey][]int64) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	lost := 0
	for key, want := range written {
		got := g.first[key]
		if !slices.IsSorted(got) {
			g.t.Errorf("changes of %s were first handled in the order %v", key, got)
		}
		for _, lsn := range want {
			if !slices.Contains(got, lsn) {
				lost++
			}
		}
	}
	if lost > 0 {
		g.t.Errorf("%d changes were lost", lost)
	}
	if g.late > g.bound {
		g.t.Errorf("a host went on with a key for %v after another had begun on it, want at most %v", g.late, g.bound)
	}
}

// A mixed is a unit that .NET hosts and ours share, while changes are written.
type mixed struct {
	*world
	*register
	written map[feed.PartitionKey][]int64
	n       int
}

// write puts changes of many keys, one each 50 ms, for a while; every one is of an item
// of its own, so that none is replaced by a later one.
func (m *mixed) write(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); m.n++ {
		city := fmt.Sprint("city-", m.n%23)
		lsn := m.put(city, fmt.Sprint("item-", m.n), m.n)
		key := feed.Key(city)
		m.written[key] = append(m.written[key], lsn)
		time.Sleep(50 * time.Millisecond)
	}
}

// startNet starts a host of the .NET processor.
func (m *mixed) startNet(name string, born feed.Start) (stop, kill func()) {
	h := &nethost.Host{
		Orders: m.orders, Leases: m.container, Prefix: m.leases.Prefix(), Name: name, Born: born,
		Handle: func(ctx context.Context, _ string, _ feed.Range, changes []feed.Change) error {
			return m.handle(ctx, name, changes)
		},
		Failed: func(err error) { m.world.t.Error(err) },
	}
	return h.Start(m.world.t.Context())
}

// waitFor waits, and tells whether it was for the whole time.
func waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// shared waits until each of the owners has leases and none is free.
func (m *mixed) shared(names ...string) {
	m.world.t.Helper()
	for begun := time.Now(); time.Since(begun) < 5*time.Minute; m.write(time.Second) {
		owners := m.owners()
		if all := !slices.ContainsFunc(names, func(n string) bool {
			return owners[n] == 0
		}); all && len(owners) == len(names) {
			return
		}
	}
	m.world.t.Errorf("owners are %v, want %v", m.owners(), names)
}

func inMixed(t *testing.T, test func(t *testing.T, m *mixed)) {
	t.Helper()
	inWorld(t, 4, func(t *testing.T, w *world) {
		m := &mixed{world: w, written: map[feed.PartitionKey][]int64{}, register: &register{
			t: t, hands: map[feed.PartitionKey]hand{}, first: map[feed.PartitionKey][]int64{}, by: map[string]int{},
		}}
		m.put("elsewhere", "first", 0) // so that the others are idle when the unit begins
		test(t, m)
		time.Sleep(3 * time.Minute) // longer than any expiry
		m.check(m.written)
	})
}

// The bar for units of others: ours joins one that a .NET host works on, shares it, goes
// on through splits of either's leases, and leaves it, with nothing lost, each key in
// order and in one hand at a time.
func TestAUnitAtWorkIsJoinedSharedAndLeft(t *testing.T) {
	inMixed(t, func(t *testing.T, m *mixed) {
		stopNet, _ := m.startNet("net-1", feed.FromBeginning())
		m.write(5 * time.Second)
		ours := m.run("go-1", m.register, changefeed.Options{Start: feed.FromBeginning()})
		m.shared("net-1", "go-1")
		m.count("net-1")
		m.count("go-1")
		m.write(time.Minute)
		if net, own := m.count("net-1"), m.count("go-1"); net == 0 || own == 0 {
			t.Errorf("the .NET host handled %d changes, ours %d, want some by each", net, own)
		}
		for n := range 4 {
			m.split(2 * n)
			m.write(20 * time.Second)
		}
		m.shared("net-1", "go-1")
		ours.stop(t)
		m.shared("net-1")
		m.write(2 * settled)
		ours = m.run("go-1", m.register, changefeed.Options{})
		m.shared("net-1", "go-1")
		m.write(2 * settled)
		stopNet()
		m.shared("go-1")
		m.write(10 * time.Second)
		time.Sleep(time.Minute)
		ours.stop(t)
		m.tiles()
	})
}

// The other way about: a .NET host joins a unit of ours and steals its share, is killed
// without a goodbye after splits, and another one takes over when ours has crashed. A
// .NET host begins on what it steals at once, so ours can only be quick to stop: it hears
// of the theft from the feed of the lease container.
func TestAUnitOfOursIsJoinedAndTakenOverByDotNet(t *testing.T) {
	inMixed(t, func(t *testing.T, m *mixed) {
		m.bound = 5 * time.Second // ours hears of a steal by the feed of the leases, and asks
		ours := m.run("go-1", m.register, changefeed.Options{Start: feed.FromBeginning()})
		m.shared("go-1")
		_, kill := m.startNet("net-1", feed.FromNow())
		m.shared("net-1", "go-1")
		m.split(0)
		m.write(2 * time.Second)
		m.split(4)
		m.write(7 * time.Second)
		kill()
		m.shared("go-1")
		stop, _ := m.startNet("net-2", feed.FromNow())
		m.shared("net-2", "go-1")
		ours.kill(t)
		m.shared("net-2")
		m.merge(0)
		m.write(10 * time.Second)
		time.Sleep(time.Minute)
		stop()
	})
}

// A unit that ours began from the beginning, killed before it has handled anything, is
// gone on with by a .NET host that would begin from now.
func TestADotNetHostGoesOnFromAUnitThatWeBegan(t *testing.T) {
	inMixed(t, func(t *testing.T, m *mixed) {
		m.write(3 * time.Second)
		time.Sleep(time.Minute)
		ours := m.run("go-1", &tally{before: func(ctx context.Context, _ *feed.Batch) error {
			<-ctx.Done()
			return ctx.Err()
		}}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(900 * time.Millisecond)
		ours.kill(t)
		stop, _ := m.startNet("net-1", feed.FromNow())
		m.shared("net-1")
		time.Sleep(time.Minute)
		stop()
	})
}
