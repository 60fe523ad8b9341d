package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/outbox"
)

// received is an event as received by the consumer.
type received struct {
	Order    int64           `json:"order"` // order of arrival, from 1
	Subject  string          `json:"subject"`
	Key      string          `json:"key"`
	ID       string          `json:"message_id"`
	Sequence uint64          `json:"sequence"` // number among the events of its contact
	DelayMS  float64         `json:"delay_ms"` // since the event was recorded
	Data     json.RawMessage `json:"data"`
}

func newReceived(order int64, m outbox.Message) received {
	delay := float64(time.Since(m.Time).Microseconds()) / 1000
	return received{order, m.Action, m.Key, m.ID, m.Seq, delay, m.Data}
}

// mostEvents is how many of the latest events a later opened page gets.
const mostEvents = 200

// journal contains the latest events, for the pages that show them.
type journal struct {
	since  string // start of this process, because earlier processes have numbered other events
	mu     sync.Mutex
	last   []received
	news   chan struct{} // closed when there is a new event
	closed bool
}

func newJournal() *journal {
	return &journal{since: strconv.FormatInt(time.Now().UnixNano(), 36), news: make(chan struct{})}
}

func (j *journal) addEvent(e received) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = append(j.last[max(0, len(j.last)-mostEvents+1):], e)
	if !j.closed {
		close(j.news)
		j.news = make(chan struct{})
	}
}

// close ends the streams of all pages, because a server waits for them at its end.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.closed = true
		close(j.news)
	}
}

// eventsAfter returns the events after a number, and a channel that is closed when there are more; nil means that there
// will be no more.
func (j *journal) eventsAfter(order int64) (events []received, news <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.last {
		if e.Order > order {
			events = append(events, e)
		}
	}
	if j.closed {
		return events, nil
	}
	return events, j.news
}

// orderOf returns the number of the last event that a page received, or 0 if the event came from an earlier process.
func (j *journal) orderOf(lastEventID string) int64 {
	since, order, _ := strings.Cut(lastEventID, ".")
	if since != j.since {
		return 0
	}
	n, _ := strconv.ParseInt(order, 10, 64)
	return n
}

// serveEvents streams the events to a page. A page that has lost its connection continues after the last received
// event.
func (j *journal) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	order := j.orderOf(r.Header.Get("Last-Event-ID"))
	for {
		events, news := j.eventsAfter(order)
		for _, e := range events {
			text, _ := json.Marshal(e) // cannot fail: the data came as JSON
			fmt.Fprintf(w, "id: %s.%d\ndata: %s\n\n", j.since, e.Order, text)
			order = e.Order
		}
		if http.NewResponseController(w).Flush() != nil || news == nil {
			return
		}
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}
