package cosmosrest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
)

// patience is what clients of .NET have: so many tries after the first, and so long in all.
const (
	tries    = 9
	patience = 30 * time.Second
)

// insist sends a request as a client of .NET does, which waits for as long as it is told when it is throttled. It
// returns the last status, and how often the request was refused.
func (w *world) insist(t *testing.T, method, path, body string) (status, refused int) {
	t.Helper()
	waited := time.Duration(0)
	for {
		a := w.do(t, method, path, keyed, body)
		if a.status != http.StatusTooManyRequests {
			return a.status, refused
		}
		refused++
		wait := retryAfter(t, a)
		if waited += wait; refused > tries || waited > patience {
			return a.status, refused
		}
		time.Sleep(wait)
	}
}

func TestThoseWhoAreRefusedTogetherAreServedOneAfterTheOther(t *testing.T) {
	for _, c := range []struct {
		clients, bytes int
		within         time.Duration
	}{
		{60, 2 << 10, 3 * time.Second},
		{300, 2 << 10, 15 * time.Second},
		{8, 200 << 10, 25 * time.Second}, // each takes seconds of the throughput
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.clients, c.bytes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{})
				w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
				begun := time.Now()
				most := 0
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range c.clients {
					all.Go(func() {
						body := fmt.Sprintf(`{"id":"%d","pk":"p","text":%q}`, i, strings.Repeat("x", c.bytes))
						status, refused := w.insist(t, "POST", "/dbs/db/colls/c/docs", body)
						if status != http.StatusCreated {
							t.Errorf("client %d gave up with %d after %d refusals", i, status, refused)
						}
						mu.Lock()
						defer mu.Unlock()
						most = max(most, refused)
					})
				}
				all.Wait()
				if took := time.Since(begun); took > c.within {
					t.Errorf("all were served after %v, the last after %d refusals: want %v", took, most, c.within)
				}
			})
		})
	}
}

func TestPromisesThatNobodyKeepsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSmallWorld(t)
		w.drain(t, "c")
		longest := time.Duration(0)
		for range 10_000 { // a client that does not wait
			a := w.do(t, "GET", "/dbs/db/colls/c/docs/1", keyed, "")
			a.want(t, http.StatusTooManyRequests)
			longest = max(longest, retryAfter(t, a))
		}
		if longest > meter.MaxPromise {
			t.Errorf("it was told to wait for %v, want %v at most", longest, meter.MaxPromise)
		}
		time.Sleep(time.Second)
		if _, refusal := w.drain(t, "c"); retryAfter(t, refusal) > 50*time.Millisecond {
			t.Errorf("the first to be refused is told to wait for %v", retryAfter(t, refusal))
		}
	})
}
