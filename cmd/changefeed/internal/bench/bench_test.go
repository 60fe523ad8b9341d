package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

func TestFiguresAreATableWithBars(t *testing.T) {
	half := Figure{Name: "half", Value: 12_345, Unit: "writes/s", Detail: "why"}
	half.Against(24_690)
	half.ratioOf(0.55)
	quick := Figure{Name: "quick", Value: 0.123, Unit: "ms", Detail: "how"}
	quick.AtMost(5)
	var out strings.Builder
	if err := writeFigures(&out, []Figure{half, quick}, 0); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"  NAME   VALUE           BASELINE  RATIO                        TARGET        VERDICT",
		"  half   12.3k writes/s  24.7k     0.5    ██████████░░░░░░░░░░  ratio ≥ 0.55  MISSED",
		"  quick  0.123 ms        -         -                            ≤ 5 ms        ok",
		"",
		"half: why",
		"quick: how",
		"",
	}, "\n")
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMedians(t *testing.T) {
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("median is %v, want 5", got)
	}
}

// A machine that gets slower from round to round, or stops in one of them, leaves the ratio of two
// builds alone.
func TestBuildsAreComparedRoundByRound(t *testing.T) {
	round := 0
	speed := []float64{100, 50, 1, 20, 10}
	own := func() (float64, error) { return 3 * speed[round], nil }
	base := func() (float64, error) {
		round++
		if round == 3 {
			return 1000, nil
		}
		return 2 * speed[round-1], nil
	}
	for against, want := range map[string]float64{"another": 1.5, "": 60.0 / 100} {
		round = 0
		var f Figure
		s := &Site{Plan: Plan{Against: against, Log: io.Discard}}
		if err := s.compareInTurns(t.Context(), &f, len(speed), own, base); err != nil {
			t.Fatal(err)
		}
		if *f.Ratio != want || f.Value != 60 || *f.Baseline != 100 {
			t.Errorf("against %q: %v to %v is %v, want 60, 100, %v", against, f.Value, *f.Baseline, *f.Ratio, want)
		}
	}
}

// The binary of the tests starts, says something else than a server, and ends.
func TestABinaryThatIsNoServerIsAnError(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startHost(t.Context(), binary, 1, "-test.run=^$"); err == nil ||
		!strings.Contains(err.Error(), "server said") {
		t.Errorf("got error %v, want one that quotes the binary", err)
	}
}

// Each build measures the whole benchmark by itself, in turns, and says what it has found.
func TestTwoBuildsMeasureTheWholeBenchmark(t *testing.T) {
	dir := t.TempDir()
	build := func(name, figure string) string {
		file := filepath.Join(dir, name)
		script := "#!/bin/sh\necho \"$@\" >> " + file + ".log\necho '" + figure + "'\n"
		if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	own := build("own", `{"name":"memory_bound","value":90,"unit":"MB","detail":"small"}`)
	other := build("other", `{"name":"memory_bound","value":100,"unit":"MB","detail":"large"}`)
	chosen, err := Choose(All(), []string{"memory_bound"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Measure(t.Context(), chosen, Plan{
		Dir: dir, Against: other, Binary: own, Report: report.New(report.JSON, &out),
		Log: io.Discard,
	}); err != nil {
		t.Fatal(err)
	}
	var f Figure
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	if f.Value != 90 || *f.Baseline != 100 || *f.Ratio != 0.9 || !f.OK || f.Unit != "MB" ||
		!strings.Contains(f.Detail, "small") || !strings.Contains(f.Detail, "large") {
		t.Errorf("figure %+v", f)
	}
	for file, want := range map[string]int{own: buildRounds + 1, other: buildRounds} {
		asked, err := os.ReadFile(file + ".log")
		if lines := strings.Split(strings.TrimSpace(string(asked)), "\n"); err != nil || len(lines) != want ||
			!strings.HasPrefix(lines[0], "bench memory_bound --dir ") {
			t.Errorf("%s was asked %q, %v: want %d times", file, lines, err, want)
		}
	}
}

// The benchmark is about the process of the server: what is resident now, what was at most, and which part of it is of
// files.
func TestTheMemoryOfAServerIsThatOfItsProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not show the memory of a process in a file")
	}
	h := &host{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
	data := bytes.Repeat([]byte{1}, 64<<20)
	with := h.readFootprint()
	runtime.KeepAlive(data)
	data = nil
	debug.FreeOSMemory()
	without := h.readFootprint()
	if with.resident < 64<<20 || with.own < 64<<20 || with.own >= with.resident {
		t.Errorf("with 64 MB of data there are %d MB, %d of them not of files", with.resident>>20, with.own>>20)
	}
	// The kernel counts pages per thread and adds them up now and then, so a peak may be a little less than what was
	// resident.
	if without.peak < with.resident-8<<20 || without.resident > with.resident-48<<20 {
		t.Errorf("with the data there were %s, without it %s", with, without)
	}
}

func TestDocumentsOfTheBenchmarksHaveTheirSize(t *testing.T) {
	for _, n := range []int{0, 12345, 199_999} {
		key, body := docOf(n)
		if len(body) != docBytes || !json.Valid(body) ||
			!strings.Contains(string(body), strings.Trim(string(key), "[]")) {
			t.Errorf("document %d of %s has %d bytes: %.80s", n, key, len(body), body)
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

func TestAnInterruptedBenchmarkHasNoFigure(t *testing.T) {
	for _, form := range []report.Form{report.Table, report.JSON} {
		chosen, err := Choose(All(), []string{"durable_overwrite", "idle_1000"})
		if err != nil || len(chosen) != 2 {
			t.Fatal(chosen, err)
		}
		for _, b := range chosen {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			dir := t.TempDir()
			var out bytes.Buffer
			// would take much longer
			err := Measure(ctx, []Benchmark{b}, Plan{Dir: dir, Report: report.New(form, &out), Log: io.Discard})
			if !errors.Is(err, ErrInterrupted) || out.Len() > 0 {
				t.Errorf("%s as %v: got %v with output %q, want %v and none", b.Name, form, err, out.String(),
					ErrInterrupted)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left %v, %v, want nothing", left, err)
			}
		}
	}
}

func TestFiguresBeforeAFailureAreShown(t *testing.T) {
	failing := errors.New("disk is full")
	var out bytes.Buffer
	err := Measure(t.Context(), []Benchmark{
		{Name: "good", Run: func(context.Context, *Site) (Figure, error) { return Figure{Value: 4711, OK: true}, nil }},
		{Name: "bad", Run: func(context.Context, *Site) (Figure, error) { return Figure{}, failing }},
	}, Plan{Dir: t.TempDir(), Report: report.New(report.Table, &out), Log: io.Discard})
	if !errors.Is(err, failing) || !strings.Contains(out.String(), "good") || strings.Contains(out.String(), "bad") {
		t.Errorf("got %v with output %q, want %v and the figure of good", err, out.String(), failing)
	}
}

func TestFiguresFitTheirTerminal(t *testing.T) {
	all := []Figure{{
		Name: "serve_upsert_nosync", Value: 12_345_678, Unit: "requests/lease/min", Baseline: new(23_456_789.0),
		Ratio:  new(0.526),
		Detail: strings.Repeat("a few words of what was measured and how, ", 5), Target: "≤ 0.25 requests/lease/min",
		OK: true,
	}}
	for _, width := range []int{40, 80, 120, 0} {
		var out bytes.Buffer
		if err := writeFigures(&out, all, width); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if most := widest(got); width > 0 && most > width {
			t.Errorf("at %d columns a line has %d:\n%s", width, most, got)
		}
		for _, want := range []string{
			"serve_upsert_nosync", "12.35M requests/lease/min", "23.46M", "0.526", "≤ 0.25",
			"ok",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("at %d columns %q is missing:\n%s", width, want, got)
			}
		}
	}
}

// widest is the longest line of a text.
func widest(text string) (most int) {
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}
