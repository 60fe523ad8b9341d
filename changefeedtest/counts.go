package changefeedtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/changefeed/feed"
)

// Wrappers with counters, for the tests of a program with a processor: the cost of the program is its requests, and if
// a change doubles them, no other test fails.

// Counts counts the requests through its wrappers: requests cost money at the service, so tests assert how many
// requests a processor needs. The zero Counts is ready; you must not copy it.
type Counts struct {
	mu    sync.Mutex
	calls map[Method]int
}

// Source wraps a source. The result has the optional abilities of the source.
func (c *Counts) Source(s feed.Source) feed.Source { return wrapSource(s, c.countCall) }

// Leases wraps a lease store. The result is a [feed.Follower] if the store is.
func (c *Counts) Leases(s feed.LeaseStore) feed.LeaseStore {
	return wrapLeases(s, c.countCall)
}

// Committer wraps a committer.
func (c *Counts) Committer(inner feed.Committer) feed.Committer {
	return wrapCommitter(inner, c.countCall)
}

// countCall counts a call before the call is made, because a failed call costs a request too.
func (c *Counts) countCall(_ context.Context, call Call, do func() error) error {
	c.mu.Lock()
	if c.calls == nil {
		c.calls = map[Method]int{}
	}
	c.calls[call.Method]++
	c.mu.Unlock()
	return do()
}

// Of returns the number of calls of the methods; without methods, the number of all calls.
func (c *Counts) Of(methods ...Method) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(methods) == 0 {
		methods = slices.Collect(maps.Keys(c.calls))
	}
	sum := 0
	for _, m := range methods {
		sum += c.calls[m]
	}
	return sum
}

// Take returns the calls by method and begins anew.
func (c *Counts) Take() map[Method]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// String lists the methods that were called, by name.
func (c *Counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, m := range slices.Sorted(maps.Keys(c.calls)) {
		list = append(list, fmt.Sprintf("%s %d", m, c.calls[m]))
	}
	return strings.Join(list, ", ")
}
