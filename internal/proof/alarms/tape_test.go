package alarms_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// interval is the time between two scrapes, and between two evaluations of the rules.
const interval = 15 * time.Second

// tape is what Prometheus has scraped, in the notation of promtool.
type tape struct {
	now    int
	values map[string][]float64 // by series; NaN is no sample
}

func newTape() *tape { return &tape{values: map[string][]float64{}} }

// record adds a sample of the present scrape.
func (p *tape) record(name string, labels map[string]string, v float64) {
	var pairs []string
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if !strings.HasPrefix(label, "otel_scope_") { // they are the same everywhere, and no rule reads them
			pairs = append(pairs, fmt.Sprintf("%s=%q", label, labels[label]))
		}
	}
	series := name + "{" + strings.Join(pairs, ", ") + "}"
	values := p.values[series]
	for len(values) < p.now {
		values = append(values, math.NaN())
	}
	p.values[series] = append(values, math.Round(v*10)/10)
}

// next ends a scrape.
func (p *tape) next() { p.now++ }

// notation returns the values of a series as promtool reads them. A series without a sample is stale at once, as after
// a scrape without it.
func (p *tape) notation(series string) string {
	values := slices.Clone(p.values[series])
	for len(values) < p.now {
		values = append(values, math.NaN())
	}
	var words []string
	for i := 0; i < len(values); {
		if math.IsNaN(values[i]) {
			n := 1
			for i+n < len(values) && math.IsNaN(values[i+n]) {
				n++
			}
			words = append(words, gap(n, i > 0)...)
			i += n
			continue
		}
		n, step := 1, 0.0
		for i+n < len(values) {
			d := math.Round((values[i+n]-values[i+n-1])*10) / 10
			if math.IsNaN(d) || n > 1 && d != step {
				break
			}
			step, n = d, n+1
		}
		if n < 3 {
			words, i = append(words, short(values[i])), i+1
			continue
		}
		words = append(words, fmt.Sprintf("%s%sx%d", short(values[i]), signed(step), n-1))
		i += n
	}
	return strings.Join(words, " ")
}

// gap is some scrapes without a sample.
func gap(n int, ends bool) (words []string) {
	if ends {
		words, n = append(words, "stale"), n-1
	}
	if n > 0 {
		words = append(words, fmt.Sprintf("_x%d", n))
	}
	return words
}

func short(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func signed(v float64) string {
	if v < 0 {
		return short(v)
	}
	return "+" + short(v)
}
