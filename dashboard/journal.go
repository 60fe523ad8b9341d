package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// The events on the page.

// mostEvents is how many events a dashboard keeps, for viewers that come later.
const mostEvents = 200

// Event is an event of this process, in the words of the log.
type Event struct {
	Run       int64     `json:"run"` // names the process: another process counts anew
	ID        int64     `json:"id"`  // counts from 1
	At        time.Time `json:"at"`
	Level     string    `json:"level"` // INFO, WARN or ERROR
	Unit      string    `json:"unit"`
	Container string    `json:"container"`
	Text      string    `json:"text"`
	Facts     []Fact    `json:"facts"`
}

// Fact is a detail of an event beside the text.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// journal keeps the last events.
type journal struct {
	tell func() // that there is an event
	run  int64  // start of the process, in milliseconds since 1970

	mu     sync.Mutex
	count  int64
	events []Event
}

// addEvent adds an event.
func (j *journal) addEvent(e Event) {
	j.mu.Lock()
	j.count++
	e.Run, e.ID = j.run, j.count
	if j.events = append(j.events, e); len(j.events) >= 2*mostEvents { // a copy for each event would cost too much
		j.events = append([]Event{}, j.events[len(j.events)-mostEvents:]...)
	}
	j.mu.Unlock()
	j.tell()
}

// eventsAfter returns the kept events after an event.
func (j *journal) eventsAfter(id int64) []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	missing := min(j.count-id, int64(len(j.events)), mostEvents)
	if missing <= 0 {
		return nil
	}
	return append([]Event{}, j.events[int64(len(j.events))-missing:]...)
}

// position is the event that a browser names when it connects again.
func (e *Event) position() string { return fmt.Sprintf("%d.%d", e.Run, e.ID) }

// lastSeen is the ID of the event that a browser names; 0 for an event of another process.
func (j *journal) lastSeen(position string) int64 {
	run, id, _ := strings.Cut(position, ".")
	n, err := strconv.ParseInt(id, 10, 64)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil || run != strconv.FormatInt(j.run, 10) || n < 0 || n > j.count {
		return 0
	}
	return n
}

// Events returns hooks that show the events of a unit as [changefeed.LogHooks] log them, from the level info on. Give
// these hooks to the processor, with your own: changefeed.JoinHooks(d.Events("mailer", "shop/orders"), own). The hooks
// also count the costs of the processor's requests.
func (d *Dashboard) Events(unit, container string) changefeed.Hooks {
	of := name{unit, container}
	events := changefeed.LogHooks(slog.New(&teller{d.events, of, nil, ""}))
	return changefeed.JoinHooks(events, d.spent.costsOf(of).hooks())
}

// teller makes events of the lines of a log.
type teller struct {
	to    *journal
	of    name
	facts []Fact
	group string
}

// Enabled implements [slog.Handler].
func (t *teller) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements [slog.Handler].
func (t *teller) Handle(_ context.Context, r slog.Record) error {
	facts := append([]Fact{}, t.facts...)
	r.Attrs(func(a slog.Attr) bool {
		facts = append(facts, t.factOf(a))
		return true
	})
	t.to.addEvent(Event{
		At: r.Time.UTC(), Level: r.Level.String(), Unit: t.of.unit, Container: t.of.container, Text: r.Message,
		Facts: facts,
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (t *teller) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *t
	more.facts = append([]Fact{}, t.facts...)
	for _, a := range attrs {
		more.facts = append(more.facts, t.factOf(a))
	}
	return &more
}

// WithGroup implements [slog.Handler].
func (t *teller) WithGroup(group string) slog.Handler {
	more := *t
	more.group = strings.TrimPrefix(t.group+"."+group, ".")
	return &more
}

// factOf is an attribute as text. A stack is for the log.
func (t *teller) factOf(a slog.Attr) Fact {
	const most = 2000
	value := a.Value.Resolve()
	text := value.String()
	if at, ok := value.Any().(time.Time); ok {
		text = at.UTC().Format(time.RFC3339)
	} else if err, ok := value.Any().(error); ok {
		text = err.Error()
	}
	if len(text) > most {
		text = fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
	}
	return Fact{strings.TrimPrefix(t.group+"."+a.Key, "."), text}
}
