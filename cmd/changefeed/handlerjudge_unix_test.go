//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
)

// handledTimes says how often each order has had its effect, by its name.
func (c *suiteCell) handledTimes() map[string]int {
	c.Helper()
	times := map[string]int{}
	for _, n := range c.noted(noteHandled) {
		times[n.name()]++
	}
	return times
}

// name is the id of the order.
func (n suiteNote) name() string { return fmt.Sprintf("%s-%d", n.Key, n.N) }

// missing are the orders that were written and have had no effect, except for some, in order.
func (c *suiteCell) missing(except ...string) (all []string) {
	c.Helper()
	times := c.handledTimes()
	for _, key := range slices.Sorted(maps.Keys(c.written)) {
		for n := 1; n <= c.written[key]; n++ {
			name := fmt.Sprintf("%s-%d", key, n)
			if times[name] == 0 && !slices.Contains(except, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// awaitAllHandled waits until each order was handled, except for some.
func (c *suiteCell) awaitAllHandled(except ...string) {
	c.Helper()
	c.await("all orders are handled", func() bool { return len(c.missing(except...)) == 0 })
}

// checkOrder wants the orders of each key in their order: before an order come all smaller ones, except for those that
// were never handled; and what comes again comes in order too.
func (c *suiteCell) checkOrder(except ...string) {
	c.Helper()
	seen := map[string]bool{}
	last := map[string]int{} // by batch and key
	for _, n := range c.noted(noteHandled) {
		for before := n.N - 1; before > 0; before-- {
			if name := fmt.Sprintf("%s-%d", n.Key, before); !seen[name] && !slices.Contains(except, name) {
				c.Errorf("%s is handled before %s", n.name(), name)
			}
		}
		seen[n.name()] = true
		if at := n.Batch + n.Key; last[at] >= n.N {
			c.Errorf("%s comes after %d in its batch", n.name(), last[at])
		} else {
			last[at] = n.N
		}
	}
}

// checkOnce wants that no order was handled twice, except for some.
func (c *suiteCell) checkOnce(except ...string) {
	c.Helper()
	for name, times := range c.handledTimes() {
		if times > 1 && !slices.Contains(except, name) {
			c.Errorf("%s was handled %d times", name, times)
		}
	}
}

// checkPositions wants all leases free, with nothing behind them.
func (c *suiteCell) checkPositions() {
	c.Helper()
	leases := c.leases()
	if len(leases) == 0 {
		c.Error("there are no leases")
	}
	for _, r := range leases {
		if r.Owner != "" || r.Lag == nil || *r.Lag != 0 {
			c.Errorf("got %+v, want a free lease with nothing behind", r)
		}
	}
}

// behind is the number of changes behind the stored positions; -1 if there are no leases yet.
func (c *suiteCell) behind() (n int64) {
	c.Helper()
	leases := c.leases()
	if len(leases) == 0 {
		return -1
	}
	for _, r := range leases {
		if r.Lag == nil {
			return -1
		}
		n += *r.Lag
	}
	return n
}

// leases are the leases of the unit.
func (c *suiteCell) leases() (all []unit.Row) {
	c.Helper()
	for line := range strings.Lines(command(c.T, "leases", c.base+"/leases", "-o", "json")) {
		var r unit.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.Fatal(err)
		}
		if r.Kind == unit.KindLease {
			all = append(all, r)
		}
	}
	return all
}

// suiteLetter is a dead letter as dlq list prints it.
type suiteLetter struct {
	Item, Cause, Disposition string
	Attempts                 int
}

// checkLetters waits until there are so many dead letters, and wants these. A cause is a part of that of the letter.
// How often a held change has come is none of the promises.
func (c *suiteCell) checkLetters(want ...suiteLetter) {
	c.Helper()
	var got []suiteLetter
	c.await(fmt.Sprintf("there are %d dead letters", len(want)), func() bool {
		got = nil
		for line := range strings.Lines(command(c.T, "dlq", "list", c.base+"/letters", "--name", suiteUnit, "-o", "json")) {
			var l struct {
				Kind string
				suiteLetter
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				c.Fatal(err)
			}
			if l.Kind == "letter" {
				got = append(got, l.suiteLetter)
			}
		}
		return len(got) == len(want)
	})
	slices.SortFunc(got, func(a, b suiteLetter) int { return strings.Compare(a.Item, b.Item) })
	for i, w := range want {
		g := got[i]
		if g.Item != w.Item || g.Disposition != w.Disposition || !strings.Contains(g.Cause, w.Cause) ||
			g.Attempts != w.Attempts && w.Disposition != "held" {
			c.Errorf("got the dead letter %+v, want %+v", g, w)
		}
	}
}

// awaitAttempt waits until a batch has come for the nth time, if the dialect tells that.
func (c *suiteCell) awaitAttempt(n int) {
	c.Helper()
	if !c.kind.tellsAttempt {
		return
	}
	c.await(fmt.Sprintf("a batch with the attempt %d", n), func() bool {
		return slices.ContainsFunc(c.noted(noteBatch), func(b suiteNote) bool { return b.Attempt == n })
	})
}
