package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Server-sent events: the state of the units whenever it was listed, and what happens.

const (
	mostViewers   = 100
	writeTimeout  = 10 * time.Second // a viewer that takes no bytes for so long is dropped
	reconnectTime = 2 * time.Second  // after which a browser connects again
)

// hub are the viewers. While there are any, one loop lists the units for all of them.
type hub struct {
	events *journal

	mu      sync.Mutex
	viewers map[*viewer]bool
	stop    context.CancelFunc // of the loop; nil while nobody looks
	status  []byte             // the last state as JSON
	round   int64              // counts the states
}

// viewer is a connection. It is told that there is news, and takes what is newest when it can, so a slow viewer misses
// states and delays nobody.
type viewer struct {
	news chan struct{} // holds one
}

// errManyViewers is why a viewer is refused.
var errManyViewers = errors.New("more than " + strconv.Itoa(mostViewers) + " viewers look already: close one")

// join adds a viewer. The first one starts the loop.
func (h *hub) join(loop func(context.Context)) (*viewer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= mostViewers {
		return nil, errManyViewers
	}
	if h.viewers == nil {
		h.viewers = map[*viewer]bool{}
	}
	v := &viewer{make(chan struct{}, 1)}
	h.viewers[v] = true
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go loop(ctx)
	}
	return v, nil
}

// leave removes a viewer. The last one ends the loop.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.viewers, v); len(h.viewers) == 0 {
		h.stop()
		h.stop, h.status = nil, nil // an old state is no news to who comes later
	}
}

// publish gives all viewers a state, unless their loop has ended meanwhile.
func (h *hub) publish(ctx context.Context, status []byte) {
	h.mu.Lock()
	if ctx.Err() == nil {
		h.status, h.round = status, h.round+1
	}
	h.mu.Unlock()
	h.notify()
}

// notify tells all viewers that there is news.
func (h *hub) notify() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.viewers {
		select {
		case v.news <- struct{}{}:
		default: // it has not taken the news before
		}
	}
}

// latest returns the last state, if it comes after one that a viewer has.
func (h *hub) latest(seen int64) (status []byte, round int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.round <= seen {
		return nil, seen
	}
	return h.status, h.round
}

// watch lists the units again and again until ctx ends.
func (d *Dashboard) watch(ctx context.Context) {
	ticks := time.NewTicker(d.o.Interval)
	defer ticks.Stop()
	for {
		text, err := json.Marshal(d.surveyed(ctx))
		if err != nil { // a number that is none, which would be a mistake of ours
			text = fmt.Appendf(nil, `{"version":%d,"units":[],"error":"the state is no JSON"}`, statusVersion)
		}
		d.viewers.publish(ctx, text)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// serveEvents answers GET /events until the viewer goes.
func (d *Dashboard) serveEvents(w http.ResponseWriter, r *http.Request) {
	v, err := d.viewers.join(d.watch)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer d.viewers.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	to := stream{w, http.NewResponseController(w)}
	to.send("retry: %d\n\n", reconnectTime.Milliseconds())
	lastEvent := d.events.seen(r.Header.Get("Last-Event-ID"))
	lastRound := int64(0)
	alive := time.NewTicker(writeTimeout)
	defer alive.Stop()
	for {
		for _, e := range d.events.after(lastEvent) {
			if text, err := json.Marshal(e); err == nil {
				to.send("id: %s\nevent: event\ndata: %s\n\n", e.position(), text)
			}
			lastEvent = e.ID
		}
		var status []byte
		if status, lastRound = d.viewers.latest(lastRound); status != nil {
			to.send("event: status\ndata: %s\n\n", status)
		}
		if err := to.flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-v.news:
		case <-alive.C:
			to.send(": still here\n\n")
		}
	}
}

// stream writes to a viewer.
type stream struct {
	w  http.ResponseWriter
	at *http.ResponseController
}

// send writes a part, for which the viewer has some time. An error shows in flush.
func (s stream) send(format string, args ...any) {
	_ = s.at.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	_, _ = fmt.Fprintf(s.w, format, args...)
}

// flush sends what was written.
func (s stream) flush() error { return s.at.Flush() }
