package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
)

var deployedLoad = flag.Duration("deployed.load", 0,
	"measure memory and processor time of the deployed processor for so long at each rate, as 30s")

// ticks are the clock ticks of a second in /proc.
const ticks = 100

// used returns the resident memory of a process, its maximum, and its processor time so far.
func used(t *testing.T, pid int) (resident, most float64, processor time.Duration) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) float64 {
		_, rest, _ := strings.Cut(string(status), name+":")
		kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		return kb / 1024
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var sum time.Duration
	for _, i := range []int{11, 12} { // utime and stime
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return of("VmRSS"), of("VmHWM"), sum
}

// TestDeployedLoad measures what a processor needs, for the table of docs/deployment.md: the command line of its
// manifest, documents of 1 KB, and a handler in another process that takes everything at once.
func TestDeployedLoad(t *testing.T) {
	if *deployedLoad == 0 {
		t.Skip("a measurement for docs/deployment.md and no check: run it with -deployed.load 30s")
	}
	var handled atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var batch []json.RawMessage
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &batch)
		handled.Add(int64(len(batch)))
	}))
	defer receiver.Close()
	w := newDeployedWorld(t, receiver.URL+"/orders")
	d := w.start("changefeed-0")
	client, err := cosmos.Open(t.Context(), w.account, cosmos.Key(w.key), cosmos.Options{})
	if err != nil {
		t.Fatal(err)
	}
	orders, err := client.Container(t.Context(), "shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, rate := range []int{0, 1000, 10_000} {
		before := handled.Load()
		_, _, spent := used(t, d.cmd.Process.Pid)
		begun := time.Now()
		written := writeAt(t, orders, rate, *deployedLoad)
		took := time.Since(begun)
		d.await("all is handled", func() bool { return handled.Load()-before >= int64(written) })
		resident, most, now := used(t, d.cmd.Process.Pid)
		t.Logf("%6d changes/s wanted, %6.0f written: %3.0f MB, at most %3.0f MB, %5.1f %% of a core", rate,
			float64(written)/took.Seconds(), resident, most, 100*(now-spent).Seconds()/took.Seconds())
	}
	d.end()
}

// writeAt writes documents of 1 KB in batches of 100 at a rate, as far as the server takes them.
func writeAt(t *testing.T, orders *cosmos.Container, rate int, during time.Duration) int {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), during)
	defer stop()
	if rate == 0 {
		<-ctx.Done()
		return 0
	}
	const batch, writers = 100, 4
	batches := make(chan int, writers) // numbers of batches
	var writing sync.WaitGroup
	var written atomic.Int64
	for range writers {
		writing.Go(func() {
			for n := range batches {
				if err := writeBatch(t.Context(), orders, n, batch); err != nil {
					t.Error(err)
				}
				written.Add(batch)
			}
		})
	}
	tick := time.NewTicker(time.Second * batch / time.Duration(rate))
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-ctx.Done():
		case <-tick.C:
			batches <- n
		}
	}
	close(batches)
	writing.Wait()
	return int(written.Load())
}

// writeBatch writes so many documents of a city.
func writeBatch(ctx context.Context, orders *cosmos.Container, n, documents int) error {
	city := fmt.Sprintf("city-%d", n%1000)
	text := strings.Repeat("x", 900)
	var writes []feed.Write
	for i := range documents {
		body := fmt.Appendf(nil, `{"id":"%d","city":%q,"text":%q}`, i, city, text)
		writes = append(writes, feed.Write{Op: feed.WriteUpsert, Body: body})
	}
	_, err := orders.Commit(ctx, feed.Key(city), writes)
	return err
}
