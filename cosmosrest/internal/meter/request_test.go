package meter

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

func TestAQueryThatIsNotDoneInTimeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(NewLoad().Request(t.Context()))
		defer m.End()
		m.Limit()
		for _, query := range []string{
			"SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a",
			"SELECT VALUE x FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a WHERE x < 0",
		} {
			parsed, err := sql.Parse(query)
			if err != nil {
				t.Fatal(err)
			}
			b, err := parsed.Bind(nil)
			if err != nil {
				t.Fatal(err)
			}
			b.Meter(m)
			time.Sleep(MaxCompute + time.Second)
			doc := []byte(`{"a":[` + strings.Repeat("1,", 2000) + `1]}`)
			if b.Streams() {
				err = b.Rows(doc, func([]byte) error { return nil })
			} else {
				err = b.NewRun().Add(doc)
			}
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Status != http.StatusRequestTimeout ||
				!strings.Contains(e.Message, "has not computed its rows within 30s") {
				t.Errorf("%s: %v: want a 408 with the cause", query, err)
			}
			if m.work > 2*FreeWork {
				t.Errorf("%s: it went on for %d units of work", query, m.work)
			}
			m.work, m.asked = 0, 0
		}
	})
}

func TestATurnPassesOnWhenOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := NewLoad()
		load.turns = make(chan struct{}, 1)
		one, other := new(load.Request(t.Context())), new(load.Request(t.Context()))
		if err := one.Work(FreeWork); err != nil {
			t.Fatal(err)
		}
		served := make(chan error)
		go func() { served <- other.Work(FreeWork) }()
		synctest.Wait()
		if err := one.Work(FreeWork); err != nil || !one.turning {
			t.Errorf("the turn ended early: %v", err)
		}
		time.Sleep(turn)
		ended := make(chan error)
		go func() { ended <- one.Work(FreeWork) }()
		if err := <-served; err != nil || !other.turning {
			t.Errorf("who waited got no turn: %v", err)
		}
		synctest.Wait()
		other.End()
		if err := <-ended; err != nil || !one.turning {
			t.Errorf("the turn did not come back: %v", err)
		}
		one.End()
		if len(load.turns) != 0 {
			t.Error("a turn is taken for ever")
		}
	})
}

// Who gets no turn is told to come when those who wait now may have had theirs.
func TestAQueryWithoutATurnWaitsForThoseWhoWaitNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := NewLoad()
		load.turns = make(chan struct{}, 1)
		for range 10 { // which have had theirs
			before := load.Request(t.Context())
			if err := before.Work(FreeWork); err != nil {
				t.Fatal(err)
			}
			before.End()
		}
		holder, late := new(load.Request(t.Context())), new(load.Request(t.Context()))
		if err := holder.Work(FreeWork); err != nil {
			t.Fatal(err)
		}
		err := late.Work(FreeWork)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Status != http.StatusTooManyRequests || e.After != turn {
			t.Errorf("%v: want a 429 with one turn to wait", err)
		}
	})
}

// A query that computes leaves more of the processors to others while these come.
func TestAQueryRestsLongerWhileOtherRequestsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := NewLoad()
		m := new(load.Request(t.Context()))
		defer m.End()
		for n, step := range []struct {
			others int
			rest   time.Duration
		}{{0, 0}, {0, breath}, {3, longBreath}, {0, breath}, {1, longBreath}} { // the first has no turn yet
			for range step.others {
				other := load.Request(t.Context())
				other.End()
			}
			began := time.Now()
			if err := m.Work(FreeWork); err != nil {
				t.Fatal(err)
			}
			if rest := time.Since(began); rest != step.rest {
				t.Errorf("step %d, after %d other requests: rested for %v, want %v", n, step.others, rest, step.rest)
			}
		}
	})
}
