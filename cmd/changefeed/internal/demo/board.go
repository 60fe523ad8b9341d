package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// The board has only the information that a user of the library has: its lag comes from the estimator, and its owners
// from the leases. So the board shows the same as an operator would see, at the same time.

// board is the table of the demo: the leases, the lag and the rate of each instance.
type board struct {
	d     *performance
	every time.Duration
	last  time.Time
	rates map[string]float64
}

const (
	liveEvery  = 250 * time.Millisecond
	plainEvery = 2 * time.Second
	keySpace   = 64  // width of the picture of all keys, in characters
	rateBar    = 24  // maximum; less on a narrow terminal
	rowWidth   = 66  // width of a row without its bar; a narrower terminal has fewer columns
	fullRate   = 400 // changes per second of a full bar
	smoothing  = 0.4 // weight of the newest rate
)

// newBoard creates a board. In a terminal the board is drawn often; if each drawing is a new line, drawings are rare.
func newBoard(d *performance) *board {
	b := &board{d: d, every: plainEvery, last: time.Now(), rates: map[string]float64{}}
	if d.screen.canRedraw() {
		b.every = liveEvery
	}
	return b
}

// keepUpToDate updates the board until ctx ends.
func (b *board) keepUpToDate(ctx context.Context) {
	for pause.For(ctx, b.every) == nil {
		lags, err := changefeed.Estimate(ctx, b.d.orders, b.d.fleet.Leases)
		if err != nil {
			continue // in the middle of a split; the next look will succeed
		}
		rows := b.rows(lags)
		if b.d.screen.canRedraw() {
			b.d.screen.replaceTable(b.layOut(rows, lags))
		} else {
			b.d.screen.writeEvent("%s", summary(b.headLine(rows), rows))
		}
	}
}

// row is the state of an instance.
type row struct {
	name, state string
	leases      int
	lag         int64
	rate        float64
	p50, p99    float64
}

// rows returns the instances, including killed instances, because the others wait for their leases.
func (b *board) rows(lags []changefeed.Lag) (rows []row) {
	now := time.Now()
	spent := now.Sub(b.last).Seconds()
	b.last = now
	for _, i := range b.d.fleet.Instances() {
		r := row{name: i.Name(), state: "working"}
		if i.Killed() {
			r.state = "killed"
		}
		for _, lag := range lags {
			if lag.Lease.Owner == i.Name() {
				r.leases, r.lag = r.leases+1, r.lag+lag.Pending
			}
		}
		m := b.d.ledger.Take(i.Name())
		// Batches come in bursts, so without smoothing the rate would flicker.
		b.rates[i.Name()] += smoothing * (float64(m.Handled)/spent - b.rates[i.Name()])
		r.rate, r.p50, r.p99 = b.rates[i.Name()], fleet.Quantile(m.Waits, 0.5), fleet.Quantile(m.Waits, 0.99)
		rows = append(rows, r)
	}
	return rows
}

// headLine returns the state of the whole demo in words.
func (b *board) headLine(rows []row) string {
	written, handled := b.d.ledger.Totals()
	lag := int64(0)
	rate := 0.0
	for _, r := range rows {
		lag, rate = lag+r.lag, rate+r.rate
	}
	return fmt.Sprintf("%d written, %d handled, lag %d, %.0f changes/s", written, handled, lag, rate)
}

// summary returns the board in a single line.
func summary(head string, rows []row) string {
	var hosts []string
	for _, r := range rows {
		hosts = append(hosts, fmt.Sprintf("%s %d", r.name, r.leases))
	}
	return head + "; leases: " + strings.Join(hosts, ", ")
}

// layOut lays out the board. A narrow terminal has no bars, because they only repeat a figure, and an even narrower one
// has no latencies.
func (b *board) layOut(rows []row, lags []changefeed.Lag) []line {
	bar, room := rateBar, b.d.screen.Room()
	narrow := room > 0 && room < rowWidth
	if room > 0 {
		bar = max(0, min(rateBar, room-rowWidth))
	}
	heading := fmt.Sprintf("%-10s %-8s %6s %7s  %-*s %9s %9s %9s", "INSTANCE", "STATE", "LEASES", "LAG", bar, "",
		"CHANGES/S", "P50 ms", "P99 ms")
	if narrow {
		heading = fmt.Sprintf("%-10s %6s %7s %9s", "INSTANCE", "LEASES", "LAG", "CHANGES/S")
	}
	lines := []line{{}}
	for text := range strings.SplitSeq(terminal.Wrap(b.headLine(rows), 0, room, 0), "\n") {
		lines = append(lines, line{{text, bold}})
	}
	lines = append(lines, line{{heading, dim}})
	for n, r := range rows {
		style := colour(n)
		if r.state == "killed" {
			style = alarming
		}
		if narrow { // the style alone says that the instance was killed
			lines = append(lines, line{
				{fmt.Sprintf("%-10s", r.name), style},
				{fmt.Sprintf(" %6d %7d %9.0f", r.leases, r.lag, r.rate), plain},
			})
			continue
		}
		full := min(bar, int(r.rate/fullRate*float64(bar)+0.5))
		lines = append(lines, line{
			{fmt.Sprintf("%-10s %-8s", r.name, r.state), style},
			{fmt.Sprintf(" %6d %7d  ", r.leases, r.lag), plain},
			{strings.Repeat("█", full), style},
			{strings.Repeat("·", bar-full), dim},
			{fmt.Sprintf(" %9.0f %9.1f %9.1f", r.rate, r.p50, r.p99), plain},
		})
	}
	lines = append(lines, b.drawKeys(lags))
	for text := range strings.SplitSeq(terminal.Wrap(legend, 0, room, 0), "\n") {
		lines = append(lines, line{{text, dim}})
	}
	return lines
}

// legend explains the picture of the keys.
const legend = "each ▕ begins a lease; its digits are the number of its host, ? is none"

// colour returns the style of an instance.
func colour(n int) string { return fmt.Sprint(36 - n%5) } // cyan, magenta, blue, yellow, green

// drawKeys draws the key space: each lease is as wide as its range and shows the number of its owner.
func (b *board) drawKeys(lags []changefeed.Lag) line {
	all := b.d.fleet.Instances()
	picture := line{{"keys ", dim}}
	space := keySpace
	if room := b.d.screen.Room(); room > 0 {
		space = max(1, min(keySpace, room-len("keys ▏")))
	}
	for _, lag := range lags {
		i := slices.IndexFunc(all, func(i *fleet.Instance) bool { return i.Name() == lag.Lease.Owner })
		text, style := "?", alarming
		if i >= 0 && !all[i].Killed() {
			text, style = lag.Lease.Owner[len(lag.Lease.Owner)-1:], colour(i)
		}
		width := edgeAt(lag.Lease.Range.Max, space) - edgeAt(lag.Lease.Range.Min, space)
		picture = append(picture, span{"▕", dim}, span{strings.Repeat(text, max(0, width-1)), style})
	}
	return append(picture, span{"▏", dim})
}

// edgeAt returns the place of an edge of a range in a picture of the key space of some characters. Hashes begin below
// 40.
func edgeAt(edge string, space int) int {
	// The two highest bits of a hash are never set, so no hash is above this end.
	const end = 0x4000
	at, err := strconv.ParseUint((edge + "0000")[:4], 16, 16)
	if err != nil || at > end {
		at = end
	}
	return int(at) * space / end
}
