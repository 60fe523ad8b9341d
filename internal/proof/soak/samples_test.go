package soak_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is one measurement of a figure of a process.
type sample struct {
	at    time.Duration
	value float64
}

// series are the samples of a figure: memory, heap, goroutines or files of a process.
type series struct {
	process, figure string
	samples         []sample
}

// slope is the median of the slopes between all pairs of samples, in units a second (Theil and Sen): single outliers,
// as before and after a collection of garbage, do not count.
func slope(samples []sample) float64 {
	var slopes []float64
	for i, a := range samples {
		for _, b := range samples[i+1:] {
			if b.at > a.at {
				slopes = append(slopes, (b.value-a.value)/(b.at-a.at).Seconds())
			}
		}
	}
	return median(slopes)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// bound is how much a figure may grow within the judged time: a tenth of its median, and a little more, because few
// samples of a small figure say little.
type bound struct{ part, more float64 }

var bounds = map[string]bound{
	"memory": {0.1, 16 << 20}, "heap": {0.1, 16 << 20}, "goroutines": {0.1, 8}, "files": {0.1, 8},
}

// growth is by how much a figure grows from the first to the last of some samples, by their slope, and the most that
// counts as flat.
func growth(figure string, samples []sample) (grown, most float64) {
	if len(samples) < 3 {
		return math.Inf(1), 0
	}
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = s.value
	}
	b := bounds[figure]
	return slope(samples) * (samples[len(samples)-1].at - samples[0].at).Seconds(), b.part*median(values) + b.more
}

// since are the samples from a time on.
func since(samples []sample, from time.Duration) []sample {
	i := slices.IndexFunc(samples, func(s sample) bool { return s.at >= from })
	if i < 0 {
		return nil
	}
	return samples[i:]
}

// row is the line of a series in the table for docs/benchmarks.md.
func (s *series) row(from time.Duration) string {
	judged := since(s.samples, from)
	if len(judged) == 0 {
		return fmt.Sprintf("| %s | %s | no samples | | | |", s.process, s.figure)
	}
	grown, most := growth(s.figure, judged)
	show := func(v float64) string {
		if s.figure == "memory" || s.figure == "heap" {
			return fmt.Sprintf("%.1f MiB", v/(1<<20))
		}
		return fmt.Sprintf("%.0f", v)
	}
	high := 0.0
	for _, v := range s.samples {
		high = max(high, v.value)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s (at most %s) |", s.process, s.figure, show(judged[0].value),
		show(judged[len(judged)-1].value), show(high), show(grown), show(most))
}

func TestASlopeIsFlatOrNot(t *testing.T) {
	of := func(value func(i int) float64) (samples []sample) {
		for i := range 20 {
			samples = append(samples, sample{time.Duration(i) * time.Minute, value(i)})
		}
		return samples
	}
	for name, c := range map[string]struct {
		samples []sample
		flat    bool
	}{
		"the same":                 {of(func(int) float64 { return 100 }), true},
		"up and down":              {of(func(i int) float64 { return 100 + 30*float64(i%2) }), true},
		"one peak":                 {of(func(i int) float64 { return 100 + 900*float64(i/19) }), true},
		"falling":                  {of(func(i int) float64 { return 1000 - 10*float64(i) }), true},
		"one more a minute":        {of(func(i int) float64 { return 30 + float64(i) }), false},
		"growing, with a sawtooth": {of(func(i int) float64 { return 100 + 2*float64(i+5*(i%3)) }), false},
		"too few samples":          {of(func(int) float64 { return 1 })[:2], false},
	} {
		if grown, most := growth("goroutines", c.samples); grown <= most != c.flat {
			t.Errorf("%s: it grows by %v and may by %v, want flat: %v", name, grown, most, c.flat)
		}
	}
	numbers := of(func(i int) float64 { return float64(i) })
	if got := since(numbers, 18*time.Minute); len(got) != 2 || got[0].value != 18 {
		t.Errorf("the last two samples are %v", got)
	}
	s := series{"host-1", "memory", of(func(i int) float64 { return float64(i) * (1 << 20) })}
	const want = "| host-1 | memory | 10.0 MiB | 19.0 MiB | 19.0 MiB | 9.0 MiB"
	if row := s.row(10 * time.Minute); !strings.Contains(row, want) {
		t.Errorf("the row is %s", row)
	}
}
