package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// RelayHooks are called with the events of a relay, from many goroutines, and must return soon.
type RelayHooks struct {
	// Publishing is called before messages of one key are sent, with the context of the call. Publishing may return
	// another context, for example to begin a span, and may set a TraceParent that is empty. The returned function is
	// called with the outcome. Package outboxotel has such a hook for OpenTelemetry.
	Publishing func(ctx context.Context, msgs []Message) (context.Context, func(n int, err error))

	// Expiring is called for an event that could not be published yet and expires after left; if left is negative, the
	// event has expired. Expiring is called when the broker refuses a message, at most once a minute for each partition
	// key. If you do not set Expiring, the relay writes a warning to slog.Default.
	Expiring func(m Message, left time.Duration)
}

func logExpiring(m Message, left time.Duration) {
	slog.Warn("event expires before it is published", "key", m.Key, "id", m.ID, "action", m.Action, "left",
		left.Round(time.Second))
}

// alarmEvery is the shortest time between two calls of Expiring for a key.
const alarmEvery = time.Minute

// RelayStatus describes the progress of a relay.
type RelayStatus struct {
	Published int64         // messages that the broker has accepted
	Failed    int64         // failed calls of the publisher, whatever the broker said
	Parked    int64         // events that the processor has parked, or held
	Err       error         // why the last call failed; nil after a success
	Lag       time.Duration // between the time of the last accepted event and its acceptance

	Waiting int       // partition keys whose next event has not been accepted
	Oldest  time.Time // when the oldest of these events was committed; zero if there is none
	Expires time.Time // when the first of them expires; zero if there is none, or never
}

// Status returns the progress of the relay. Status does not include changes that no processor has read yet: for those,
// call [changefeed.Estimate].
func (r *Relay) Status() RelayStatus {
	h := &r.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.status
	s.Waiting = len(h.waiting)
	for _, w := range h.waiting {
		s.Oldest = earlier(s.Oldest, w.committed)
		s.Expires = earlier(s.Expires, w.expires)
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Close forgets the events of a lease, because another owner will publish them.
func (r *Relay) Close(_ context.Context, l feed.Lease, _ feed.Reason) error {
	r.hand.mu.Lock()
	defer r.hand.mu.Unlock()
	for p := range r.hand.waiting {
		if p.lease == l.Token {
			delete(r.hand.waiting, p)
		}
	}
	for p := range r.hand.early {
		if p.lease == l.Token {
			delete(r.hand.early, p)
		}
	}
	return nil
}

// hand contains the events in the relay's hand.
type hand struct {
	mu      sync.Mutex
	status  RelayStatus
	waiting map[place]*waiting
	looked  time.Time // when the last search for alarms began
	// the ids of moved events published before their place in the feed was reached
	early map[place]map[string]bool
}

// place identifies a waiting event's lease and key.
type place struct {
	lease string
	key   feed.PartitionKey
}

func placeOf(lease string, c *feed.Change) place { return place{lease, c.PartitionKey} }

// waiting is the next event of a key, which is not published yet.
type waiting struct {
	event              Message
	committed, expires time.Time
	warn               time.Time // when to warn
	alarmed            time.Time // when the hook was last called
}

// takeNext notes the next event of a key. A parked change is outside the feed and waits among the dead letters.
func (r *Relay) takeNext(b *feed.Batch, e event) {
	if b.Redriven {
		return
	}
	next := &waiting{event: e.Message, committed: e.change.Time}
	if next.event.ID == "" { // the event is unreadable
		next.event.ID, next.event.Key = e.change.ID, keyOf(e.change)
	}
	if ttl := ttlOf(e.change); ttl > 0 {
		next.expires = e.change.Time.Add(ttl)
		next.warn = next.expires.Add(-cmp.Or(r.opts.Alarm, ttl/5))
	}
	r.hand.put(placeOf(b.LeaseToken, e.change), next)
}

func (h *hand) put(at place, next *waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.waiting[at]; before != nil {
		next.alarmed = before.alarmed
	}
	h.waiting[at] = next
}

// giveAlarms gives the due alarms for all waiting events: in an outage the processor calls the relay for a single key
// now and then, which says nothing about the others.
func (r *Relay) giveAlarms(now time.Time) {
	for _, w := range r.hand.dueForAlarm(now) {
		r.opts.Hooks.Expiring(w.event, w.expires.Sub(now))
	}
}

// dueForAlarm returns the events for a warning. The search runs at most once a second, because there may be many
// events.
func (h *hand) dueForAlarm(now time.Time) (due []waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.looked) < time.Second {
		return nil
	}
	h.looked = now
	for _, w := range h.waiting {
		if !w.warn.IsZero() && !now.Before(w.warn) && now.Sub(w.alarmed) >= alarmEvery {
			w.alarmed = now
			due = append(due, *w)
		}
	}
	return due
}

func (h *hand) remove(at place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, at)
}

func (h *hand) park(at place) {
	h.remove(at)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Parked++
}

// countCall notes the outcome of a call.
func (h *hand) countCall(accepted []Message, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Published += int64(len(accepted))
	if h.status.Err = err; err != nil {
		h.status.Failed++
	}
	if n := len(accepted); n > 0 {
		h.status.Lag = time.Since(accepted[n-1].Time)
	}
}

// ttlOf returns the time to live of a document itself, 0 if it has none.
func ttlOf(c *feed.Change) time.Duration {
	var ttl int64
	if json.Unmarshal(rawjson.Lookup(c.Body, "ttl"), &ttl) != nil || ttl <= 0 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}
