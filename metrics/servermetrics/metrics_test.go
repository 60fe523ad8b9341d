package servermetrics_test

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/metrics/servermetrics"
)

// signed records a request that comes now, or a while ago, and whose client is ahead.
func (w *world) signed(ahead, took time.Duration) {
	came := time.Now().Add(-took)
	w.m.RequestDone(w.Context(), cosmosrest.RequestDone{
		Began: came, Duration: took, Signed: came.Add(ahead).Truncate(time.Second),
	})
}

// The skew is that of the clock that is furthest off, ahead or behind, in this minute and the minute before.
func TestTheSkewIsThatOfTheClockThatIsFurthestOff(t *testing.T) {
	inWorld(t, func(w *world) {
		is := func(want float64) {
			t.Helper()
			if got := w.only("changefeed.server.clock_skew"); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("at %v the skew is %v, want %v", time.Now(), got, want)
			}
		}
		unknown := math.NaN()
		w.m.RequestDone(w.Context(), cosmosrest.RequestDone{Began: time.Now()}) // nobody has signed it
		is(unknown)
		time.Sleep(900 * time.Millisecond)
		w.signed(0, 0) // signs the second that has begun
		is(0)
		w.signed(5*time.Second, 0)
		is(5)
		w.signed(-100*time.Second, 0)
		w.signed(50*time.Second, 0)
		is(-100)
		time.Sleep(time.Minute) // the next one
		is(-100)
		w.signed(7*time.Second, 30*time.Second) // a read that has waited since the minute before
		is(-100)
		time.Sleep(time.Minute)
		is(7)
		time.Sleep(time.Minute)
		is(unknown)
		w.signed(3*time.Second, 0)
		time.Sleep(time.Hour)
		is(unknown)
	})
}

// A store that is closed has no metrics, also if nobody has called stop.
func TestAClosedStoreIsAbsent(t *testing.T) {
	inWorld(t, func(w *world) {
		if got := w.only("changefeed.store.documents"); got != 0 {
			t.Errorf("an empty store has %v documents", got)
		}
		w.check(w.db.Close())
		for _, s := range w.read() {
			if strings.HasPrefix(s.name, "changefeed.store.") && !s.isHistogram { // the syncs have been
				t.Errorf("of a closed store there is %v", s)
			}
		}
		w.check(w.stop())
	})
}

// What clients send as methods makes no series of their own, and an answer from 500 on has an error.type.
func TestTheSeriesOfRequestsAreLimited(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, method := range []string{"BREW", "get", "", "x x"} {
			w.m.RequestDone(w.Context(), cosmosrest.RequestDone{
				Operation: "_OTHER", Method: method, Scheme: "https", Status: http.StatusServiceUnavailable,
			})
		}
		const of = "db.operation.name=_OTHER,error.type=503,http.request.method=_OTHER,http.response.status_code=503," +
			"url.scheme=https"
		if got := w.of("http.server.request.duration"); len(got) != 1 || got[of].count != 4 {
			t.Errorf("the series are %v", got)
		}
		if got := w.of("changefeed.server.refused")["http.response.status_code=503"].value; got != 4 {
			t.Errorf("%v are counted as refused, want 4", got)
		}
	})
}

// A request that is recorded costs no allocation.
func TestARequestAllocatesNothing(t *testing.T) {
	m, err := servermetrics.New(servermetrics.Options{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, now := t.Context(), time.Now()
	r := cosmosrest.RequestDone{
		Operation: "read_item", Method: "GET", Scheme: "http", Status: http.StatusTooManyRequests, Charge: 1,
		Began: now, Signed: now,
	}
	if n := testing.AllocsPerRun(1000, func() { m.RequestDone(ctx, r) }); n > 0 {
		t.Errorf("%v allocations a request", n)
	}
}
