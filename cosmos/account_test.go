package cosmos_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
)

func TestAFailedRegionComesLastForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{regions: twoRegions, trouble: refuse(1, 503)}
		items := a.open(t, cosmos.Options{PreferredRegions: []string{"West Europe"}})
		for range 3 {
			if err := read(t.Context(), items); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		if err := read(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(a.asked, " "); got != "w n n n w" {
			t.Errorf("asked %q, want w n n n w", got)
		}
	})
}

// TestOneRequestTriesAFailedRegion has many readers and a region that is dead for ten
// minutes: each minute one of them finds out, and the others need not wait for it.
func TestOneRequestTriesAFailedRegion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{regions: twoRegions, trouble: refuse(0, 0)}
		dead, tries := true, 0
		items := a.open(t, cosmos.Options{PreferredRegions: []string{"West Europe"}}, func(r *http.Request) bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			is := dead && r.URL.Host == "w.example" && strings.HasSuffix(r.URL.Path, "/docs")
			if is {
				tries++
			}
			return is
		})
		var reading sync.WaitGroup
		for range 20 {
			reading.Go(func() {
				for range 600 {
					if err := read(t.Context(), items); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		reading.Wait()
		if tries < 25 || tries > 32 { // all of them at first, then one each 75 s
			t.Errorf("%d requests went to the dead region, want about 28", tries)
		}
		dead, a.asked = false, nil
		time.Sleep(2 * time.Minute)
		for range 3 {
			if err := read(t.Context(), items); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(a.asked, " "); got != "w w w" {
			t.Errorf("asked %q, want w w w", got)
		}
	})
}

func TestTheAccountIsReadAnewWhenItIsOldOrAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{regions: twoRegions, trouble: func(_ *http.Request, n int) (*http.Response, error) {
			if n == 3 {
				return nil, lostReply
			}
			return nil, nil
		}}
		items := a.open(t, cosmos.Options{})
		for i, c := range []struct {
			after time.Duration
			want  int
		}{{time.Minute, 1}, {5 * time.Minute, 2}, {31 * time.Second, 3}, {time.Second, 3}, {5 * time.Minute, 4}} {
			time.Sleep(c.after)
			if err := read(t.Context(), items); err != nil {
				t.Fatal(err)
			}
			if a.account != c.want {
				t.Errorf("read %d: account read %d times, want %d", i, a.account, c.want)
			}
		}
	})
}

// TestADeadEndpointDoesNotHideAFailover has the endpoint and the write region hang, and
// the other region take over.
func TestADeadEndpointDoesNotHideAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{regions: twoRegions, trouble: refuse(0, 0)}
		dead := false
		items := a.open(t, cosmos.Options{}, func(r *http.Request) bool {
			return dead && !strings.HasPrefix(r.URL.Host, "w.")
		})
		a.regions = strings.NewReplacer("n.example", "w.example", "w.example", "n.example").Replace(twoRegions)
		dead = true
		if err := write(t.Context(), items); err == nil {
			t.Fatal("a write to a dead region succeeds")
		}
		time.Sleep(31 * time.Second)
		if err := write(t.Context(), items); err != nil {
			t.Errorf("write after the failover: %v", err)
		}
	})
}

// TestAnAccountThatHangsHoldsUpOneRequest has regions that go on answering reads, while nobody
// describes the account. One request in a while waits for that, and not for long.
func TestAnAccountThatHangsHoldsUpOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{regions: twoRegions, trouble: refuse(0, 0)}
		dead := false
		items := a.open(t, cosmos.Options{}, func(r *http.Request) bool { return dead && r.URL.Path == "/" })
		time.Sleep(6 * time.Minute)
		dead = true
		var first sync.WaitGroup
		begun := time.Now()
		first.Go(func() {
			if err := read(t.Context(), items); err != nil || time.Since(begun) > 30*time.Second {
				t.Errorf("the first read: %v after %v, want none within 30 s", err, time.Since(begun))
			}
		})
		time.Sleep(time.Millisecond)
		for _, wait := range []func(){func() {}, first.Wait} {
			wait()
			begun := time.Now()
			for range 10 {
				if err := read(t.Context(), items); err != nil || time.Since(begun) > 0 {
					t.Errorf("%v after %v, want none at once", err, time.Since(begun))
				}
			}
		}
	})
}

// TestAWriteRegionThatMovedIsLookedForAtOnce has a request to another region fail at the same time, after which the
// account is read in half a minute only.
func TestAWriteRegionThatMovedIsLookedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []string
		a := &account{regions: twoRegions, trouble: func(r *http.Request, _ int) (*http.Response, error) {
			if r.Method != http.MethodPost {
				return nil, nil
			}
			if written = append(written, r.URL.Host); r.URL.Host == "n.example" {
				return say(403, "{}", "x-ms-substatus", "3"), nil
			}
			return nil, nil
		}}
		o := cosmos.Options{PreferredRegions: []string{"West Europe"}, RequestTimeout: 100 * time.Millisecond}
		items := a.open(t, o, func(r *http.Request) bool {
			return r.Method == http.MethodGet && r.URL.Host == "w.example" && strings.HasSuffix(r.URL.Path, "/docs")
		})
		a.regions = strings.NewReplacer("n.example", "w.example", "w.example", "n.example").Replace(twoRegions)
		var reading sync.WaitGroup
		reading.Go(func() {
			if err := read(t.Context(), items); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(80 * time.Millisecond) // so that the region fails between the two attempts of the write
		if err := write(t.Context(), items); err != nil || !slices.Equal(written, []string{"n.example", "w.example"}) {
			t.Errorf("%v, written to %q, want to the old region and then to the new one", err, written)
		}
		reading.Wait()
	})
}

// An account says https of its regions, also where something on the way speaks http.
func TestRegionsAreAskedAsTheEndpointIs(t *testing.T) {
	a := &account{regions: twoRegions, trouble: refuse(0, 0)}
	client, err := cosmos.Open(t.Context(), "http://g.example", cosmos.Key("a2V5"), cosmos.Options{Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	items, err := client.Container(t.Context(), "db", "items")
	if err != nil {
		t.Fatal(err)
	}
	if err := read(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	if got := a.log[len(a.log)-1].URL; got.Scheme != "http" || got.Host != "n.example" {
		t.Errorf("asked %s, want a region by http", got)
	}
}

// A caller who gives up says nothing of the region that was asked.
func TestARegionIsNotToBlameForAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{regions: twoRegions, trouble: hang(1)}
		items := a.open(t, cosmos.Options{PreferredRegions: []string{"West Europe"}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := read(ctx, items); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read: %v, want the end of its context", err)
		}
		if err := read(t.Context(), items); err != nil || strings.Join(a.asked, " ") != "w w" {
			t.Errorf("asked %q, %v, want w w", a.asked, err)
		}
	})
}

// A region that refuses a request has answered: it is not down any more.
func TestARegionThatRefusesServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{regions: twoRegions, trouble: func(_ *http.Request, n int) (*http.Response, error) {
			switch n {
			case 1:
				return say(503, "{}"), nil
			case 3:
				return say(404, "{}"), nil
			}
			return nil, nil
		}}
		items := a.open(t, cosmos.Options{PreferredRegions: []string{"West Europe"}})
		for i, want := range []error{nil, feed.ErrNotFound, nil} {
			if err := read(t.Context(), items); !errors.Is(err, want) {
				t.Errorf("read %d: %v, want %v", i, err, want)
			}
			if i == 0 {
				time.Sleep(2 * time.Minute)
			}
		}
		if got := strings.Join(a.asked, " "); got != "w n w w" {
			t.Errorf("asked %q, want w n w w", got)
		}
	})
}
