package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/millrace/changefeed/outbox"
)

// consumer prints each event once, even after several deliveries. A consumer remembers the ids of the latest events,
// which is enough because its only effect is a printed line. If your consumer writes to a container, use
// [outbox.Unit.Once].
type consumer struct {
	to     io.Writer
	asJSON bool
	events *journal
	order  int64
	seen   recent
}

// handleMessage processes a message. Messages come in turn. If handleMessage returns an error, the same message comes
// again.
func (c *consumer) handleMessage(m outbox.Message) error {
	if c.seen.has(m.ID) {
		return nil
	}
	e := newReceived(c.order+1, m)
	if err := c.printEvent(e); err != nil {
		return err
	}
	c.order++
	c.seen.add(m.ID)
	c.events.addEvent(e)
	return nil
}

func (c *consumer) printEvent(e received) error {
	if c.asJSON {
		return json.NewEncoder(c.to).Encode(e)
	}
	_, err := fmt.Fprintf(c.to, "%5d  %-30s %s  #%-3d %s  %.1f ms\n", e.Order, e.Subject, e.Key, e.Sequence, e.ID,
		e.DelayMS)
	return err
}

// mostSeen is how many ids are remembered: more than a relay can publish again after a crash.
const mostSeen = 10_000

// recent remembers the latest ids.
type recent struct {
	known map[string]bool
	order []string // next is the index of the oldest
	next  int
}

func (r *recent) has(id string) bool { return r.known[id] }

func (r *recent) add(id string) {
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[id] = true
	if len(r.order) < mostSeen {
		r.order = append(r.order, id)
		return
	}
	delete(r.known, r.order[r.next])
	r.order[r.next] = id
	r.next = (r.next + 1) % mostSeen
}
