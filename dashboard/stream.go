package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Server-sent events: the state of the units after each listing, and the events.

const (
	mostViewers   = 100
	writeTimeout  = 10 * time.Second       // a viewer that takes no bytes for so long is dropped
	eventsEvery   = 100 * time.Millisecond // so many events cost each viewer little
	reconnectTime = 2 * time.Second        // after which a browser connects again
)

// hub are the viewers.
type hub struct {
	mu      sync.Mutex
	viewers map[*viewer]bool
}

// viewer is a connection. A viewer is notified of events and takes them later, so a slow viewer delays nobody.
type viewer struct {
	news chan struct{} // holds one
}

// errManyViewers is why a viewer is refused.
var errManyViewers = errors.New("more than " + strconv.Itoa(mostViewers) + " viewers look already: close one")

// addViewer adds a viewer.
func (h *hub) addViewer() (*viewer, error) {
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
	return v, nil
}

// removeViewer removes a viewer.
func (h *hub) removeViewer(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
}

// notifyViewers tells all viewers that there are events.
func (h *hub) notifyViewers() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.viewers {
		select {
		case v.news <- struct{}{}:
		default: // the earlier news are still waiting
		}
	}
}

// serveEvents answers GET /events until the viewer goes.
func (d *Dashboard) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead { // a client that keeps the connection would wait for an answer to the next request
		return
	}
	v, err := d.viewers.addViewer()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer d.viewers.removeViewer(v)
	w.WriteHeader(http.StatusOK)
	to := stream{w, http.NewResponseController(w)}
	to.send("retry: %d\n\n", reconnectTime.Milliseconds())
	lastEvent := d.events.lastSeen(r.Header.Get("Last-Event-ID"))
	ticks := time.NewTicker(d.o.Interval)
	defer ticks.Stop()
	var pause <-chan time.Time // until events are sent, if there are some
	listing := d.survey(r.Context())
	listed := listing.done // nil until the next tick
	for isTold := true; ; {
		if isTold {
			for _, e := range d.events.eventsAfter(lastEvent) {
				to.send("id: %s\nevent: event\ndata: %s\n\n", e.position(), jsonOf(e))
				lastEvent = e.ID
			}
		}
		if err := to.flush(); err != nil {
			return
		}
		isTold = false
		select {
		case <-r.Context().Done():
			return
		case <-d.closed:
			return
		case <-v.news:
			if pause == nil {
				pause = time.After(eventsEvery)
			}
		case <-pause:
			pause, isTold = nil, true
		case <-listed:
			listed = nil
			to.send("event: status\ndata: %s\n\n", listing.status.json)
		case <-ticks.C:
			if listed == nil {
				listing = d.survey(r.Context())
				listed = listing.done
			}
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

// flush sends the written bytes.
func (s stream) flush() error { return s.at.Flush() }
