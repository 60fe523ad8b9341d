//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
)

// handledTimes says how often each order has had its effect, by its name.
func (c *suiteCell) handledTimes() map[string]int {
	c.Helper()
	times := map[string]int{}
	for _, n := range c.noted(noteHandled) {
		times[n.name()]++
	}
	return times
}

// name is the id of the order.
func (n suiteNote) name() string { return fmt.Sprintf("%s-%d", n.Key, n.N) }

// missing are the orders that were written and have had no effect, except for some, in order.
func (c *suiteCell) missing(except ...string) (all []string) {
	c.Helper()
	times := c.handledTimes()
	for _, key := range slices.Sorted(maps.Keys(c.written)) {
		for n := 1; n <= c.written[key]; n++ {
			name := fmt.Sprintf("%s-%d", key, n)
			if times[name] == 0 && !slices.Contains(except, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// awaitAllHandled waits until each order was handled, except for some.
func (c *suiteCell) awaitAllHandled(except ...string) {
	c.Helper()
	c.await("all orders are handled", func() bool { return len(c.missing(except...)) == 0 })
}

// checkOrder wants that what the handlers have written down is in order.
func (c *suiteCell) checkOrder(except ...string) {
	c.Helper()
	for _, wrong := range judgeOrder(c.noted(noteHandled), except, c.maxAttempts == 0) {
		c.Error(wrong)
	}
}

// judgeOrder says what is wrong with the order in which orders were handled:
//
//   - before an order of a key come all smaller ones, except for those that are never handled;
//   - in a batch, the orders of a key come in their order;
//   - without a limit, the position of a batch is stored before the next batch but one begins. So what comes again is
//     never from before the beginnings of the last two batches.
func judgeOrder(handled []suiteNote, except []string, isUnlimited bool) (wrong []string) {
	seen := map[string]bool{}
	last := map[string]int{}     // by batch and key
	began := map[string][2]int{} // by key, the first orders of its last two batches
	for _, n := range handled {
		for before := n.N - 1; before > 0; before-- {
			if name := fmt.Sprintf("%s-%d", n.Key, before); !seen[name] && !slices.Contains(except, name) {
				wrong = append(wrong, fmt.Sprintf("%s is handled before %s", n.name(), name))
			}
		}
		seen[n.name()] = true
		at := n.Batch + " " + n.Key
		if last[at] == 0 {
			before, newest := began[n.Key][0], began[n.Key][1]
			if isUnlimited && n.N < min(before, newest) {
				wrong = append(wrong, fmt.Sprintf("%s comes again, after batches that began with %d and %d",
					n.name(), before, newest))
			}
			began[n.Key] = [2]int{newest, n.N}
		} else if last[at] >= n.N {
			wrong = append(wrong, fmt.Sprintf("%s comes after %d in its batch", n.name(), last[at]))
		}
		last[at] = n.N
	}
	return wrong
}

// checkOnce wants that no order was handled twice, except for some.
func (c *suiteCell) checkOnce(except ...string) {
	c.Helper()
	for name, times := range c.handledTimes() {
		if times > 1 && !slices.Contains(except, name) {
			c.Errorf("%s was handled %d times", name, times)
		}
	}
}

// checkPositions wants all leases free, with nothing behind them.
func (c *suiteCell) checkPositions() {
	c.Helper()
	leases := c.leases()
	if len(leases) == 0 {
		c.Error("there are no leases")
	}
	for _, r := range leases {
		if r.Owner != "" || r.Lag == nil || *r.Lag != 0 {
			c.Errorf("got %+v, want a free lease with nothing behind", r)
		}
	}
}

// leases are the leases of the unit.
func (c *suiteCell) leases() (all []unit.Row) {
	c.Helper()
	for line := range strings.Lines(command(c.T, "leases", c.base+"/leases", "-o", "json")) {
		var r unit.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.Fatal(err)
		}
		if r.Kind == unit.KindLease {
			all = append(all, r)
		}
	}
	return all
}

// suiteLetter is a dead letter as dlq list prints it.
type suiteLetter struct {
	Item, Cause, Disposition string
	Attempts                 int
}

// checkLetters waits until there are so many dead letters, and wants these. A cause is a part of that of the letter.
// Attempts are compared if some are wanted.
func (c *suiteCell) checkLetters(want ...suiteLetter) {
	c.Helper()
	var got []suiteLetter
	c.await(fmt.Sprintf("there are %d dead letters", len(want)), func() bool {
		got = nil
		list := command(c.T, "dlq", "list", c.base+"/letters", "--name", suiteUnit, "-o", "json")
		for line := range strings.Lines(list) {
			var l struct {
				Kind string
				suiteLetter
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				c.Fatal(err)
			}
			if l.Kind == "letter" {
				got = append(got, l.suiteLetter)
			}
		}
		return len(got) == len(want)
	})
	slices.SortFunc(got, func(a, b suiteLetter) int { return strings.Compare(a.Item, b.Item) })
	for i, w := range want {
		g := got[i]
		if g.Item != w.Item || g.Disposition != w.Disposition || !strings.Contains(g.Cause, w.Cause) ||
			g.Attempts != w.Attempts && w.Attempts > 0 {
			c.Errorf("got the dead letter %+v, want %+v", g, w)
		}
	}
}

// awaitAttempt waits until a batch has come for the nth time, if the dialect tells that.
func (c *suiteCell) awaitAttempt(n int) {
	c.Helper()
	if !c.kind.tellsAttempt {
		return
	}
	c.await(fmt.Sprintf("a batch with the attempt %d", n), func() bool {
		return slices.ContainsFunc(c.noted(noteBatch), func(b suiteNote) bool { return b.Attempt == n })
	})
}

func TestTheJudgeOfHandlersSeesWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, journal, want string }{
		{"all well", "b1:1 b1:2 b2:3", ""},
		{"a batch comes again", "b1:1 b1:2 b2:1 b2:2 b3:3", ""},
		{"a part of a batch comes again", "b1:1 b1:2 b2:2 b3:3", ""},
		{"skipped", "b1:1 b2:3", "k-3 is handled before k-2"},
		{"parked", "b1:1 b2:5", ""},
		{"turned round", "b1:2 b1:1", "k-2 is handled before k-1"},
		{"turned round when it comes again", "b1:1 b1:2 b2:2 b2:1", "k-1 comes after 2 in its batch"},
		{"the last two batches come again", "b1:1 b2:2 b3:1 b4:2 b5:1 b5:2 b6:3 b7:2", ""},
		{
			"a stored batch comes again", "b1:1 b2:2 b3:3 b4:1",
			"k-1 comes again, after batches that began with 2 and 3",
		},
		{
			"a stored batch comes again at last", "b1:1 b2:2 b3:3 b4:2 b5:1",
			"k-1 comes again, after batches that began with 3 and 2",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var handled []suiteNote
			for word := range strings.FieldsSeq(tt.journal) {
				batch, n, _ := strings.Cut(word, ":")
				number, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				handled = append(handled, suiteNote{Batch: batch, Key: "k", N: number})
			}
			except := []string{"k-4"}
			if tt.name == "parked" {
				except = []string{"k-2", "k-3", "k-4"}
			}
			if got := strings.Join(judgeOrder(handled, except, true), "; "); !strings.Contains(got, tt.want) ||
				(got == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
