package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
)

func TestVirtualTimeRunsInAnyProgram(t *testing.T) {
	failure := errors.New("as planned")
	for range 2 {
		var took time.Duration
		err := inVirtualTime(func() error {
			begun := time.Now()
			time.Sleep(time.Hour)
			took = time.Since(begun)
			return failure
		})
		if took != time.Hour || !errors.Is(err, failure) {
			t.Errorf("got %v and error %v, want an hour and the error of the function", took, err)
		}
	}
}

func TestABenchmarkInVirtualTimeMeetsItsTarget(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	var out, log bytes.Buffer
	if err := run(t.Context(), []string{"rebalance_100", "-o", "json"}, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	var got bench.Figure
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("output %q: %v", out.String(), err)
	}
	if got.Name != "rebalance_100" || !got.OK || got.Value <= 0 || got.Baseline == nil ||
		*got.Ratio != got.Value / *got.Baseline {
		t.Errorf("got %s", out.String())
	}
}

func TestAnInterruptInRealTimeEndsVirtualTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	var out, log bytes.Buffer
	err := run(ctx, []string{"idle_requests"}, &out, &log) // would take much longer
	if !errors.Is(err, bench.ErrInterrupted) || out.Len() > 0 {
		t.Errorf("got %v with output %q, want %v and none", err, out.String(), bench.ErrInterrupted)
	}
}

func TestACommandLineIsChecked(t *testing.T) {
	for _, args := range [][]string{{"nothing"}, {"idle_requests", "-o", "xml"}, {"--no"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
