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
	leases := 0
	for line := range strings.Lines(command(c.T, "leases", c.base+"/leases", "-o", "json")) {
		var r unit.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.Fatal(err)
		}
		if r.Kind != unit.KindLease {
			continue
		}
		leases++
		if r.Owner != "" || r.Lag == nil || *r.Lag != 0 {
			c.Errorf("got %s, want a free lease with nothing behind", line)
		}
	}
	if leases == 0 {
		c.Error("there are no leases")
	}
}
