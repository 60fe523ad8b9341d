package cosmos_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The estimator in each case in which users found other estimators wrong: G1 to G6 of what they suffer from, and their
// acceptance test 11. Each case runs on an embedded store, on the server of this module through package cosmos, and on
// an account that counts nothing, as Azure.

// estimated is a monitored container, with the leases of a unit.
type estimated struct {
	t       *testing.T
	stored  *docstore.Container // the monitored container
	records *docstore.Container // the leases
	source  feed.Source
	leases  interface {
		feed.LeaseStore
		Prefix() string
	}
}

// uncounting is a source that counts nothing.
type uncounting struct {
	feed.Source
	feed.Sequencer
}

// views are the ways to a container.
var views = []string{"embedded", "server", "account that counts nothing"}

// newEstimated makes a world.
func newEstimated(t *testing.T, view string, spec docstore.ContainerSpec) *estimated {
	s := serve(t, cosmosrest.Options{})
	spec.ID, spec.Paths = "items", []string{"/pk"}
	e := &estimated{t: t, stored: s.create(t, spec)}
	e.records = s.create(t, docstore.LeaseSpec("leases"))
	if view == "embedded" {
		leases, err := docstore.NewLeases(t.Context(), e.records, "unit", e.stored)
		if err != nil {
			t.Fatal(err)
		}
		e.source, e.leases = e.stored, leases
		return e
	}
	client := s.client(t, master, nil)
	items := find(t, client, "items")
	e.source, e.leases = items, unit(t, client, "unit")
	if view != "server" {
		e.source = uncounting{items, items}
	}
	return e
}

// write writes n documents, each of a key of its own, one transaction each.
func (e *estimated) write(from, to int) {
	e.t.Helper()
	for i := from; i < to; i++ {
		if err := put(e.t.Context(), e.stored, fmt.Sprintf(`{"id":"%d","pk":"k%d"}`, i, i)); err != nil {
			e.t.Fatal(err)
		}
	}
}

// writeAtOnce writes n documents of a key in a single transaction.
func (e *estimated) writeAtOnce(key string, n int) {
	e.t.Helper()
	var all []feed.Write
	for i := range n {
		all = append(all, feed.Write{Body: json.RawMessage(fmt.Sprintf(`{"id":"%d","pk":%q}`, i, key))})
	}
	if _, err := e.stored.Commit(e.t.Context(), feed.Key(key), all); err != nil {
		e.t.Fatal(err)
	}
}

// begin makes the leases of a unit, and ends before anything is handled: the handler fails.
func (e *estimated) begin(o changefeed.Options) {
	e.t.Helper()
	o.Instance = "one"
	failing := func(context.Context, *feed.Batch) error { return errors.New("downstream is not there") }
	e.run(failing, o)
}

// run runs an instance for a minute.
func (e *estimated) run(handle func(context.Context, *feed.Batch) error, o changefeed.Options) {
	e.t.Helper()
	o.Hooks.Error = func(context.Context, *feed.Error) {}
	p, err := changefeed.New(e.source, e.leases, feed.HandlerFunc(handle), o)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		e.t.Fatal(err)
	}
}

// split splits the partition of a number.
func (e *estimated) split(n int) {
	e.t.Helper()
	parts, err := e.stored.Partitions(e.t.Context())
	if err == nil {
		_, err = e.stored.Split(e.t.Context(), parts[n].ID)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// recorded stores the lease documents that another kind of processor wrote in a situation.
func (e *estimated) recorded(what string) {
	e.t.Helper()
	text, err := os.ReadFile("testdata/leases.ndjson")
	if err != nil {
		e.t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var line struct {
			What     string
			Document map[string]any
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			e.t.Fatal(err)
		}
		if line.What != what {
			continue
		}
		id := line.Document["id"].(string)
		line.Document["id"] = e.leases.Prefix() + id[strings.Index(id, "."):]
		doc, err := json.Marshal(line.Document)
		if err == nil {
			err = put(e.t.Context(), e.records, string(doc))
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
}

// pendingOf reads the changes that a lease has not handled, one by one.
func (e *estimated) pendingOf(l feed.Lease) (n int64, oldest time.Time) {
	e.t.Helper()
	o := changefeed.PullOptions{ReadOptions: feed.ReadOptions{Mode: l.Mode}}
	for page, err := range changefeed.Pull(e.t.Context(), e.stored, l.Range, l.Position, o) {
		if err != nil {
			e.t.Fatal(err)
		}
		for _, ch := range page.Changes {
			if n++; oldest.IsZero() || ch.Time.Before(oldest) {
				oldest = ch.Time
			}
		}
	}
	return n, oldest
}

// estimateCase is a case.
type estimateCase struct {
	name    string
	spec    docstore.ContainerSpec
	prepare func(e *estimated)
	leases  int
	want    int64 // pending in total
	bound   bool  // an account that counts nothing has more changes than an estimate reads
	stuck   []feed.Stuck
	unknown bool // the total
}

var estimateCases = []estimateCase{
	{
		name: "G1: before the first checkpoint, what was there before the unit does not count", leases: 1, want: 7,
		prepare: func(e *estimated) {
			e.write(0, 50)
			e.begin(changefeed.Options{Start: feed.FromNow()})
			e.write(50, 57)
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G1: before the first checkpoint, from the beginning", leases: 1, want: 9,
		prepare: func(e *estimated) {
			e.write(0, 9)
			e.begin(changefeed.Options{Start: feed.FromBeginning()})
		},
		stuck: []feed.Stuck{feed.StuckFailing, feed.StuckStopped},
	},
	{
		name: "G1: before the first checkpoint, from a time", leases: 1, want: 3,
		prepare: func(e *estimated) {
			e.write(0, 5)
			time.Sleep(time.Second)
			start := time.Now().Truncate(time.Second).Add(time.Second)
			e.write(5, 125) // in the second before the start
			time.Sleep(2 * time.Second)
			e.write(125, 128)
			if _, err := e.leases.Create(e.t.Context(), feed.Record{
				Kind: feed.KindLease, Version: 1, Token: "-FF", Range: feed.FullRange(),
				Position: feed.Position{Start: feed.FromTime(start)},
			}); err != nil {
				e.t.Fatal(err)
			}
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G1: a unit that never ran", unknown: true,
		prepare: func(e *estimated) { e.write(0, 9) },
	},
	{
		name: "G2: five changes in a transaction", leases: 1, want: 5,
		prepare: func(e *estimated) {
			e.begin(changefeed.Options{})
			e.writeAtOnce("k", 5)
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G2: three hundred changes in three transactions", leases: 1, want: 300, bound: true,
		prepare: func(e *estimated) {
			e.begin(changefeed.Options{})
			for i := range 3 {
				e.writeAtOnce(fmt.Sprint("k", i), 100)
			}
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G3: one change", leases: 4, want: 1, spec: docstore.ContainerSpec{Ranges: 4},
		prepare: func(e *estimated) {
			e.begin(changefeed.Options{})
			e.write(0, 1)
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G3: no change, in idle ranges", leases: 4, want: 0, spec: docstore.ContainerSpec{Ranges: 4},
		prepare: func(e *estimated) {
			e.write(0, 9)
			e.begin(changefeed.Options{})
		},
	},
	{
		name: "G4: after splits while nobody ran", leases: 2, want: 20, spec: docstore.ContainerSpec{Ranges: 2},
		prepare: func(e *estimated) {
			e.begin(changefeed.Options{})
			e.write(0, 10)
			e.split(0)
			e.split(2)
			e.write(10, 20)
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G5: a lag that nobody works on says why", leases: 1, want: 2,
		prepare: func(e *estimated) {
			e.write(0, 2)
			e.begin(changefeed.Options{Start: feed.FromBeginning()})
		},
		stuck: []feed.Stuck{feed.StuckFailing, feed.StuckStopped},
	},
	{
		name: "G6: several leases of a partition", leases: 8, want: 60, spec: docstore.ContainerSpec{Ranges: 2},
		prepare: func(e *estimated) {
			e.begin(changefeed.Options{MinLeases: 8})
			e.write(0, 60)
			e.write(0, 30) // again: latest versions count once
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G6: several partitions of a server", leases: 16, want: 90, spec: docstore.ContainerSpec{Ranges: 16},
		prepare: func(e *estimated) {
			e.begin(changefeed.Options{})
			e.write(0, 90)
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G6: deletes in all versions mode", leases: 2, want: 35,
		spec: docstore.ContainerSpec{Ranges: 2, Retention: time.Hour},
		prepare: func(e *estimated) {
			e.begin(changefeed.Options{Mode: feed.AllVersionsAndDeletes})
			e.write(0, 15)
			e.write(0, 10)
			for i := range 10 {
				if err := e.stored.Delete(e.t.Context(), feed.Key(fmt.Sprint("k", i)), fmt.Sprint(i), ""); err != nil {
					e.t.Fatal(err)
				}
			}
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G6: leases of .NET, stopped", leases: 2, want: 25, spec: docstore.ContainerSpec{Ranges: 2},
		prepare: func(e *estimated) {
			e.write(0, 40)
			e.recorded("stopped")
			e.write(40, 65)
		},
		stuck: []feed.Stuck{feed.StuckStopped},
	},
	{
		name: "G6: leases of .NET, idle", leases: 4, want: 0, spec: docstore.ContainerSpec{Ranges: 4},
		prepare: func(e *estimated) {
			e.write(0, 50)
			e.recorded("idle")
		},
	},
	{
		name: "G6: leases of .NET before their first checkpoint, and killed", leases: 4, want: -1, unknown: true,
		spec: docstore.ContainerSpec{Ranges: 4},
		prepare: func(e *estimated) {
			e.write(0, 3)
			e.recorded("killed")
			e.write(3, 30)
			time.Sleep(2 * time.Minute)
		},
		stuck: []feed.Stuck{feed.StuckExpired, feed.StuckNoStart},
	},
	{
		name: "G6: a lease of Java", leases: 1, want: 8,
		prepare: func(e *estimated) {
			e.write(0, 42)
			e.recorded("java")
			e.write(42, 50)
		},
	},
}

func TestTheEstimateIsTheCountedTruthG1ToG6(t *testing.T) {
	for _, c := range estimateCases {
		for _, view := range views {
			t.Run(c.name+"/"+view, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := newEstimated(t, view, c.spec)
					c.prepare(e)
					est, err := new(changefeed.Estimator).Measure(t.Context(), e.source, e.leases)
					if err != nil || len(est.Leases) != c.leases {
						t.Fatalf("%d leases, %v, want %d", len(est.Leases), err, c.leases)
					}
					bound := c.bound && view == views[2]
					e.checkLags(est, bound)
					e.checkTotal(est, c, bound)
					e.checkWatermark(est)
					if sends := view != views[0]; (est.Cost.Requests > 0) != sends || (est.Cost.Charge > 0) != sends {
						t.Errorf("the estimate cost %+v", est.Cost)
					}
				})
			})
		}
	}
}

// checkLags compares each lag with the changes that the feed has.
func (e *estimated) checkLags(est changefeed.Estimation, bound bool) {
	e.t.Helper()
	for _, l := range est.Leases {
		if !l.Known() {
			continue
		}
		want, oldest := e.pendingOf(l.Lease)
		late := l.Oldest.Sub(oldest).Abs() // the service's times are whole seconds
		if exact := l.Pending == want; l.Exact == bound || !bound && !exact || late >= time.Second {
			e.t.Errorf("lease %s: %d pending, exact %t, since %v; want %d since %v", l.Lease.Token, l.Pending, l.Exact,
				l.Oldest, want, oldest)
		}
	}
}

// checkTotal compares the total with what the case has written.
func (e *estimated) checkTotal(est changefeed.Estimation, c estimateCase, bound bool) {
	e.t.Helper()
	t := est.Total
	if t.Known() == c.unknown || !c.unknown && (t.Exact == bound || !bound && t.Pending != c.want) {
		e.t.Errorf("total %d, exact %t, %v; want %d", t.Pending, t.Exact, t.Err, c.want)
	}
	if !slices.Equal(t.Stuck, c.stuck) {
		e.t.Errorf("stuck because %v, want %v", t.Stuck, c.stuck)
	}
}

// checkWatermark checks that no pending change, and no later one, is before the watermark, and that there is one.
func (e *estimated) checkWatermark(est changefeed.Estimation) {
	e.t.Helper()
	mark := est.Total.Watermark
	if mark.IsZero() != !est.Total.Known() {
		e.t.Fatalf("watermark %v, total %v", mark, est.Total.Err)
	}
	if mark.IsZero() {
		return
	}
	if err := put(e.t.Context(), e.stored, `{"id":"later","pk":"later"}`); err != nil {
		e.t.Fatal(err)
	}
	first := est.At
	for _, l := range est.Leases {
		n, oldest := e.pendingOf(l.Lease)
		if n > 0 && oldest.Before(mark) {
			e.t.Errorf("a change of %v is pending, the watermark is %v", oldest, mark)
		}
		if n > 0 && oldest.Before(first) {
			first = oldest
		}
	}
	if behind := first.Sub(mark); behind > 7*time.Second {
		e.t.Errorf("the watermark is %v before the oldest pending change", behind)
	}
}

// The cost of an estimate is that of all requests, with those that were sent again.
func TestTheCostOfAnEstimateIsWhatWasSent(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	stored := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 2})
	s.create(t, docstore.LeaseSpec("leases"))
	var counting sync.Mutex // an estimate counts several leases at once
	var sent, lost int
	var units float64
	client := s.client(t, master, tripper(func(r *http.Request) (*http.Response, error) {
		counting.Lock()
		defer counting.Unlock()
		sent++
		if lost < 1 && r.Header.Get("X-Changefeed-Count-Pending") != "" {
			lost++
			return nil, errors.New("the connection broke")
		}
		answer, err := s.transport.RoundTrip(r)
		if err == nil {
			charge, _ := strconv.ParseFloat(answer.Header.Get("X-Ms-Request-Charge"), 64)
			units += charge
		}
		return answer, err
	}))
	items, leases := find(t, client, "items"), unit(t, client, "unit")
	for _, r := range feed.FullRange().Cut(2) {
		if _, err := leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r,
			Position: feed.Position{Start: feed.FromBeginning()},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(t.Context(), stored, `{"id":"1","pk":"k"}`); err != nil {
		t.Fatal(err)
	}
	sent, units = 0, 0
	est, err := new(changefeed.Estimator).Measure(t.Context(), items, leases)
	if err != nil || est.Cost.Requests != sent || est.Cost.Charge != units || sent != 4 || units < 3 {
		t.Errorf("the estimate cost %+v, %v, with %d requests for %v units; want a listing, and a count of each of 2 "+
			"leases, one of them twice", est.Cost, err, sent, units)
	}
}
