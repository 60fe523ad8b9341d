package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
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
	dir := t.TempDir()
	out := command(t, "bench", "rebalance_100", "-o", "json", "-d", dir)
	var got figure
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("output %q: %v", out, err)
	}
	if got.Name != "rebalance_100" || !got.OK || got.Value <= 0 || got.Baseline == nil || *got.Ratio != got.Value / *got.Baseline {
		t.Errorf("got %s", out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v, want nothing", left, err)
	}
}

func TestFiguresAreATableWithBars(t *testing.T) {
	half := figure{Name: "half", Value: 12_345, Unit: "writes/s", Detail: "why"}
	half.against(24_690)
	half.ratioOf(0.55)
	quick := figure{Name: "quick", Value: 0.123, Unit: "ms", Detail: "how"}
	quick.atMost(5)
	var out strings.Builder
	if err := writeFigures(&out, []figure{half, quick}, 0); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"NAME   VALUE           BASELINE  RATIO                        TARGET        ",
		"half   12.3k writes/s  24.7k     0.5    ██████████░░░░░░░░░░  ratio ≥ 0.55  MISSED",
		"quick  0.123 ms        -         -                            ≤ 5 ms        ok",
		"",
		"half: why",
		"quick: how",
		"",
	}, "\n")
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMediansAndQuantiles(t *testing.T) {
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("median is %v, want 5", got)
	}
	sorted := []float64{1, 2, 3, 4}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := quantile(sorted, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %v, want 0", got)
	}
}

func TestDocumentsOfTheBenchmarksHaveTheirSize(t *testing.T) {
	for _, n := range []int{0, 12345, 199_999} {
		key, body := docOf(n)
		if len(body) != docBytes || !json.Valid(body) || !strings.Contains(string(body), strings.Trim(string(key), "[]")) {
			t.Errorf("document %d of %s has %d bytes: %.80s", n, key, len(body), body)
		}
	}
}

func TestAnInterruptedBenchmarkHasNoFigure(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		for _, name := range []string{"durable_overwrite", "idle_requests", "idle_1000"} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			var out bytes.Buffer
			root := rootCommand(new(bool))
			root.SetArgs([]string{"bench", name, "-o", form, "-d", t.TempDir()})
			root.SetOut(&out)
			root.SetErr(io.Discard)
			err := root.ExecuteContext(ctx) // would take much longer
			if !errors.Is(err, errInterrupted) || out.Len() > 0 {
				t.Errorf("%s as %s: got %v with output %q, want %v and none", name, form, err, out.String(), errInterrupted)
			}
		}
	}
}

func TestACrowdThatIsInterruptedHasNoRate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := crowd(ctx, 2, time.Minute, func(context.Context, int) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}
