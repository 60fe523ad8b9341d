package dashboard

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// Ten viewers get each state, and the unit is listed as often as for one. Without a viewer nobody lists it.
func TestManyViewersCostAsMuchAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{Interval: time.Second})
		d.Show(w.unit(nil))
		n := serve(t, d)
		time.Sleep(time.Minute)
		if got := w.lists.Load(); got != 0 {
			t.Errorf("without a viewer the unit was listed %d times", got)
		}
		var viewers []<-chan string
		var conns []net.Conn
		for range 10 {
			conn := n.connect(t, "")
			conns, viewers = append(conns, conn), append(viewers, partsOf(conn))
		}
		time.Sleep(9*time.Second + 500*time.Millisecond)
		if got := w.lists.Load(); got != 10 {
			t.Errorf("with ten viewers for 9.5 s the unit was listed %d times, want 10", got)
		}
		for i, parts := range viewers {
			if got := count(received(parts), "event: status"); got != 10 {
				t.Errorf("viewer %d got %d states, want 10", i, got)
			}
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		time.Sleep(time.Minute)
		if got := w.lists.Load(); got > 11 {
			t.Errorf("after all have gone the unit was listed %d times, want no more than one more", got)
		}
		again := partsOf(n.connect(t, ""))
		time.Sleep(500 * time.Millisecond)
		if got := count(received(again), "event: status"); got != 1 {
			t.Errorf("a viewer who comes later got %d states at once, want one", got)
		}
	})
}

// A viewer who reads nothing is dropped after a time. Meanwhile others get each state, and events delay nobody.
func TestAViewerWhoNeverReadsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{Interval: time.Second})
		d.Show(w.unit(nil))
		n := serve(t, d)
		n.connect(t, "") // and reads nothing
		other := partsOf(n.connect(t, ""))
		log := d.Events("mailer", "orders")
		for range 1000 {
			before := time.Now()
			log.Ready(t.Context())
			if took := time.Since(before); took != 0 {
				t.Fatalf("an event took %v", took)
			}
		}
		time.Sleep(writeTimeout / 2)
		if got := count(received(other), "event: status"); got != 6 {
			t.Errorf("the other viewer got %d states in %v, want 6", got, writeTimeout/2)
		}
		time.Sleep(writeTimeout)
		d.viewers.mu.Lock()
		left := len(d.viewers.viewers)
		d.viewers.mu.Unlock()
		if left != 1 {
			t.Errorf("%d viewers are left, want the one who reads", left)
		}
	})
}

func TestTooManyViewersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		var joined []*viewer
		for range mostViewers {
			v, err := d.viewers.addViewer()
			if err != nil {
				t.Fatal(err)
			}
			joined = append(joined, v)
		}
		if code, answer := ask[map[string]string](t, d, "/events"); code != http.StatusServiceUnavailable ||
			!strings.Contains(answer["error"], "close one") {
			t.Errorf("one viewer more: %d %v", code, answer)
		}
		for _, v := range joined {
			d.viewers.removeViewer(v)
		}
	})
}

// A browser that connects again gets the events that it has missed, and all if the process is another one.
func TestEventsGoOnWhereABrowserWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		n := serve(t, d)
		log := d.Events("mailer", "orders")
		for _, token := range []string{"one", "two", "three"} {
			log.Acquired(t.Context(), feed.Lease{Token: token, Position: feed.At("5")})
		}
		first := received(partsOf(n.connect(t, "")))
		if got := count(first, "lease acquired"); got != 3 {
			t.Fatalf("%d events, want 3: %q", got, first)
		}
		var position string
		for _, part := range first {
			if id, ok := strings.CutPrefix(part, "id: "); ok && strings.Contains(part, `"two"`) {
				position, _, _ = strings.Cut(id, "\n")
			}
		}
		for _, tt := range []struct {
			header string
			want   int
		}{
			{"", 3},
			{"Last-Event-ID: " + position + "\r\n", 1},
			{"Last-Event-ID: 1." + position[strings.Index(position, ".")+1:] + "\r\n", 3},
			{"Last-Event-ID: " + position + "9\r\n", 3},
			{"Last-Event-ID: nonsense\r\n", 3},
		} {
			if got := count(received(partsOf(n.connect(t, tt.header))), "lease acquired"); got != tt.want {
				t.Errorf("%q: %d events, want %d", tt.header, got, tt.want)
			}
		}
	})
}

// An event says what the log says, in a form that a page can show: each fact as a text of a bounded length.
func TestAnEventIsALineOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		hooks := d.Events("mailer", "orders")
		hooks.Acquired(t.Context(), feed.Lease{Token: "-FF", Position: feed.At("5")})
		hooks.BatchDone(t.Context(), feed.BatchDone{Batch: &feed.Batch{}}) // of the level debug
		hooks.Error(t.Context(), &feed.Error{Origin: feed.OriginHandler, Lease: "-FF", Err: errBroken})
		got := d.events.eventsAfter(0)
		if len(got) != 2 || got[0].Text != "lease acquired" || got[0].Level != "INFO" || got[0].Unit != "mailer" ||
			got[0].Container != "orders" || got[0].ID != 1 || !got[0].At.Equal(time.Now()) || got[1].ID != 2 ||
			got[1].Level != "ERROR" {
			t.Fatalf("events %+v", got)
		}
		text, err := json.Marshal(got)
		if err != nil || !strings.Contains(string(text), `{"name":"lease","value":"-FF"}`) ||
			!strings.Contains(string(text), `{"name":"err","value":"the mail server says \u003cb\u003eno`) {
			t.Errorf("%s, %v", text, err)
		}
		log := slog.New(&teller{d.events, name{}, nil, ""}).With("a", 1).WithGroup("g").With("b", time.Unix(0, 0))
		log.Warn("long", "c", strings.Repeat("ä", 5000))
		facts := d.events.eventsAfter(2)[0].Facts
		if len(facts) != 3 || facts[0] != (Fact{"a", "1"}) || facts[1] != (Fact{"g.b", "1970-01-01T00:00:00Z"}) ||
			facts[2].Name != "g.c" || len(facts[2].Value) > 2100 || !strings.Contains(facts[2].Value, "(10000 bytes)") {
			t.Errorf("facts %+v", facts)
		}
	})
}

func TestOnlyTheLastEventsAreKept(t *testing.T) {
	d := New(Options{})
	hooks := d.Events("mailer", "orders")
	for range mostEvents + 50 {
		hooks.Ready(t.Context())
	}
	for after, want := range map[int64]int{
		0: mostEvents, 50: mostEvents, 51: mostEvents - 1, mostEvents + 49: 1, mostEvents + 50: 0, 999: 0,
	} {
		got := d.events.eventsAfter(after)
		if len(got) != want || want > 0 && got[len(got)-1].ID != mostEvents+50 {
			t.Errorf("after %d there are %d events, want %d", after, len(got), want)
		}
	}
}

// What a processor reports arrives at the viewers, beside hooks of its own.
func TestAProcessorTellsItsViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		d := New(Options{})
		var acquired atomic.Int64
		own := changefeed.Hooks{Acquired: func(context.Context, feed.Lease) { acquired.Add(1) }}
		viewer := partsOf(serve(t, d).connect(t, ""))
		p := w.start("a", done, changefeed.Options{Hooks: changefeed.JoinHooks(d.Events("mailer", "orders"), own)})
		d.Show(w.unit(p))
		time.Sleep(time.Minute)
		parts := received(viewer)
		if got := count(parts, "lease acquired"); got != 2 || acquired.Load() != 2 {
			t.Errorf("%d events, %d calls of the own hook, want 2 of each", got, acquired.Load())
		}
	})
}

// A server that shuts down does not wait for those who look.
func TestAServerShutsDownThoughSomebodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		d.Show(w.unit(nil))
		viewer := partsOf(serve(t, d).connect(t, ""))
		if got := count(received(viewer), "event: status"); got != 1 {
			t.Fatalf("%d states, want one", got)
		}
		d.Close()
		d.Close() // once more is no harm
		synctest.Wait()
		for range viewer { // until its end
		}
		d.viewers.mu.Lock()
		defer d.viewers.mu.Unlock()
		if n := len(d.viewers.viewers); n != 0 {
			t.Errorf("%d viewers are left", n)
		}
	})
}
