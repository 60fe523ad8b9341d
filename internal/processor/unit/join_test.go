package unit

import (
	"maps"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// Of a pair with two owners, the owner that has room receives the other lease, and of equal ones the owner with fewer
// leases, and then the first by name.
func TestTheOwnerWithRoomReceivesALease(t *testing.T) {
	for _, c := range []struct {
		left, right         string
		owned               [2]int
		mostLeft, mostRight int
		atLeft              bool
	}{
		{"a", "b", [2]int{1, 1}, 0, 0, true},
		{"b", "a", [2]int{1, 1}, 0, 0, false},
		{"a", "b", [2]int{2, 1}, 0, 0, false},
		{"b", "a", [2]int{1, 2}, 0, 0, true},
		{"a", "b", [2]int{1, 3}, 1, 0, false},
		{"a", "b", [2]int{3, 1}, 0, 1, true},
		{"a", "b", [2]int{1, 3}, 2, 0, true},
		{"a", "b", [2]int{1, 3}, 1, 3, true},
	} {
		left, right := balance.Owner{Instance: c.left, Epoch: "1"}, balance.Owner{Instance: c.right, Epoch: "1"}
		s := situation{capacity: map[balance.Owner]balance.Capacity{
			left: {Most: c.mostLeft}, right: {Most: c.mostRight},
		}}
		owned := map[balance.Owner]int{left: c.owned[0], right: c.owned[1]}
		if got := s.joinsAtLeft(left, right, owned); got != c.atLeft {
			t.Errorf("%+v: the left owner receives the lease: %v", c, got)
		}
	}
}

// An owner that has as many leases as it may have receives one more for one pair, and no second one for another pair.
func TestAFullOwnerReceivesALeaseOnce(t *testing.T) {
	for _, c := range []struct{ owned, most, received int }{
		{2, 2, 1}, {1, 2, 2}, {3, 2, 0}, {0, 1, 2}, {2, 0, 5},
	} {
		to := balance.Owner{Instance: "a", Epoch: "1"}
		s := situation{capacity: map[balance.Owner]balance.Capacity{to: {Most: c.most}}}
		owned, received := map[balance.Owner]int{to: c.owned}, 0
		for range 5 {
			if s.receives(to, owned) {
				received++
			}
		}
		if received != c.received || owned[to] != c.owned+received {
			t.Errorf("%+v: received %d and has %d", c, received, owned[to])
		}
	}
}

// An instance shows that it never joins leases, and each instance knows that of itself and of the others. An instance
// of an older version says nothing, and joins.
func TestAnInstanceShowsThatItNeverJoins(t *testing.T) {
	for _, never := range []bool{false, true} {
		in := instancetest.Idle(t.Context(), nil, instance.Options{})
		in.NeverJoin = never
		want := map[string]string{}
		if never {
			want[notes.NeverJoinProperty] = "yes"
		}
		if got := sharing(in); !maps.Equal(got, want) {
			t.Errorf("never joins %v: properties %v, want %v", never, got, want)
		}
		u, now := New(in), time.Now()
		u.in.View.Heard(nil, now)
		for name, properties := range map[string]map[string]string{
			"old": nil, "never": {notes.NeverJoinProperty: "yes"},
		} {
			u.in.View.Put(feed.Record{
				Kind: feed.KindHost, ID: name, Token: name, Owner: name, Epoch: "1", Properties: properties,
				Updated: now, Expiration: time.Minute,
			})
		}
		s := u.balancer.situation()
		if len(s.alive) != 3 || s.keeping[in.Me] != never || s.keeping[balance.Owner{Instance: "old", Epoch: "1"}] ||
			!s.keeping[balance.Owner{Instance: "never", Epoch: "1"}] {
			t.Errorf("never joins %v: of %v these never join: %v", never, s.alive, s.keeping)
		}
	}
}
