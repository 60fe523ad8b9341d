package changefeed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fleet is a world for balance: leases, and the hosts that see them.
type fleet struct {
	leases []Record
	hosts  []owner
	now    time.Time
}

func newFleet(leases int, hosts ...string) *fleet {
	f := &fleet{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i, r := range FullRange().Cut(leases) {
		f.leases = append(f.leases, Record{
			Kind: KindLease, ID: fmt.Sprintf("unit..%03d", i), Token: r.String(), Range: r, Updated: f.now, Expiration: time.Minute,
		})
	}
	for _, h := range hosts {
		f.hosts = append(f.hosts, owner{h, "epoch-" + h})
	}
	return f
}

func (f *fleet) situation() situation {
	return situation{leases: f.leases, hosts: f.hosts, now: f.now, expiration: time.Minute}
}

// round lets every host act once on the same knowledge and returns how many leases
// moved; two hosts that reach for one lease fail the test.
func (f *fleet) round(t interface{ Fatalf(string, ...any) }) (moves int) {
	next := slices.Clone(f.leases)
	touched := map[Range]owner{}
	set := func(r Range, by, to owner) {
		if other, twice := touched[r]; twice {
			t.Fatalf("%v and %v both move lease %s", other, by, r)
		}
		touched[r] = by
		i := slices.IndexFunc(next, func(l Record) bool { return l.Range == r })
		next[i].Owner, next[i].Epoch, next[i].Updated = to.instance, to.epoch, f.now
	}
	for _, h := range f.hosts {
		p := balance(f.situation(), h)
		for _, l := range slices.Concat(p.take, p.steal) {
			set(l.Range, h, h)
		}
		for r, to := range p.give {
			set(r, h, to)
		}
	}
	f.leases = next
	return len(touched)
}

func (f *fleet) counts() map[owner]int {
	n := map[owner]int{}
	for _, l := range f.leases {
		n[l.owner()]++
	}
	return n
}

func (f *fleet) give(n int, to owner) {
	for i := range f.leases {
		if f.leases[i].Free() && n > 0 {
			f.leases[i].Owner, f.leases[i].Epoch = to.instance, to.epoch
			n--
		}
	}
}

func TestBalanceCases(t *testing.T) {
	const foreign = "dotnet"
	for _, c := range []struct {
		name  string
		hosts []string
		owned map[string]int // foreign owners have no epoch
		total int
		want  map[string]int // after one round
		moves int
	}{
		{"no leases", []string{"a"}, nil, 0, map[string]int{}, 0},
		{"one host takes all free leases at once", []string{"a"}, nil, 100, map[string]int{"a": 100}, 100},
		{"two hosts share free leases", []string{"a", "b"}, nil, 9, map[string]int{"a": 5, "b": 4}, 9},
		{"a newcomer is given half", []string{"a", "b"}, map[string]int{"a": 100}, 100, map[string]int{"a": 50, "b": 50}, 50},
		{"nothing moves when quotas hold", []string{"a", "b"}, map[string]int{"a": 4, "b": 5}, 9, map[string]int{"a": 4, "b": 5}, 0},
		{"more hosts than leases", []string{"a", "b", "c"}, map[string]int{"a": 2}, 2, map[string]int{"a": 1, "b": 1}, 1},
		{"a foreign owner is a worker and is stolen from", []string{"a"}, map[string]int{foreign: 10}, 10, map[string]int{foreign: 5, "a": 5}, 5},
		{"a foreign owner below its quota is left to itself", []string{"a"}, map[string]int{"a": 5, foreign: 5}, 10, map[string]int{"a": 5, foreign: 5}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(c.total, c.hosts...)
			if c.total == 0 {
				f.leases = nil
			}
			for _, name := range append(c.hosts, foreign) {
				o := owner{name, "epoch-" + name}
				if name == foreign {
					o.epoch = ""
				}
				f.give(c.owned[name], o)
			}
			moves := f.round(t)
			got := map[string]int{}
			for o, n := range f.counts() {
				got[o.instance] = n
			}
			if moves != c.moves || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v after %d moves, want %v after %d", got, moves, c.want, c.moves)
			}
		})
	}
}

func TestExpiredLeasesAreTakenByAllSurvivorsAtOnce(t *testing.T) {
	f := newFleet(300, "a", "b", "c", "d")
	f.round(t)
	f.hosts = f.hosts[:3]
	for i := range f.leases {
		if f.leases[i].Owner == "d" {
			f.leases[i].Updated = f.now.Add(-2 * time.Minute)
		}
	}
	if moves := f.round(t); moves != 75 {
		t.Errorf("%d leases moved, want the 75 of the dead host", moves)
	}
	for o, n := range f.counts() {
		if n != 100 {
			t.Errorf("%v has %d leases, want 100", o, n)
		}
	}
}

func TestLeasesOfAHostThatHasJustDiedAreLeftToExpire(t *testing.T) {
	f := newFleet(10, "a", "b")
	f.round(t)
	f.hosts = f.hosts[:1]
	if moves := f.round(t); moves != 0 {
		t.Errorf("%d leases moved before they had expired", moves)
	}
}

func TestALeaseBehindAFenceIsNotMoved(t *testing.T) {
	f := newFleet(1, "a")
	f.leases[0].Fence = f.now.Add(time.Second)
	if p := balance(f.situation(), f.hosts[0]); len(p.take) != 0 {
		t.Errorf("took %v", p.take)
	}
	f.now = f.now.Add(2 * time.Second)
	if p := balance(f.situation(), f.hosts[0]); len(p.take) != 1 {
		t.Errorf("took %d leases after the fence, want 1", len(p.take))
	}
}

func TestOverdueLeasesAreAnybodys(t *testing.T) {
	f := newFleet(4, "a", "b")
	s := f.situation()
	s.overdue = map[string]bool{}
	for _, l := range f.leases {
		s.overdue[l.ID] = true
	}
	if p := balance(s, f.hosts[0]); len(p.take) != 4 {
		t.Errorf("took %d of 4 leases that nobody took", len(p.take))
	}
}

// From any distribution the fleet is balanced after one round of shared knowledge, with
// no more moves than the excess asks for, and then rests.
func TestBalanceConvergesInOneRoundWithMinimalMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.IntRange(1, 60).Draw(t, "leases")
		names := []string{"a", "b", "c", "d", "e", "f", "g"}[:rapid.IntRange(1, 7).Draw(t, "hosts")]
		f := newFleet(leases, names...)
		for i := range f.leases {
			if h := rapid.IntRange(-1, len(names)-1).Draw(t, "owner"); h >= 0 {
				f.leases[i].Owner, f.leases[i].Epoch = f.hosts[h].instance, f.hosts[h].epoch
			}
		}
		need := 0
		low, high := leases/len(names), (leases+len(names)-1)/len(names)
		free := f.counts()[owner{}]
		excess := 0
		for _, h := range f.hosts {
			excess += max(0, f.counts()[h]-high)
			need += max(0, low-f.counts()[h])
		}
		moves := f.round(t)
		if most := max(free+excess, need, free); moves > most+len(names) {
			t.Fatalf("%d moves for %d free, %d in excess, %d needed", moves, free, excess, need)
		}
		for _, h := range f.hosts {
			if n := f.counts()[h]; n < low || n > high {
				t.Fatalf("%v has %d of %d leases, want %d to %d", h, n, leases, low, high)
			}
		}
		if moves := f.round(t); moves != 0 {
			t.Fatalf("%d more moves when balanced", moves)
		}
	})
}
