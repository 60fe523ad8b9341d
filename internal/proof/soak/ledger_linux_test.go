package soak_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ledger compares what was acknowledged with what was handled and published.
type ledger struct {
	mu     sync.Mutex
	orders map[string]int // by city: the number of the last version that was acknowledged
	writes int
	events map[string]int // how often each was published; those that were not, 0
}

func newLedger() *ledger { return &ledger{orders: map[string]int{}, events: map[string]int{}} }

func (l *ledger) wrote(city string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[city] = max(l.orders[city], n)
	l.writes++
}

func (l *ledger) committed(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[event] += 0
}

func (l *ledger) published(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[event]++
}

// unpublished counts the events that were not published, and those published more than once.
func (l *ledger) unpublished() (none, again int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.events {
		if n == 0 {
			none++
		}
		again += max(0, n-1)
	}
	return none, again
}

// account is what the log of a unit says.
type account struct {
	lines, again, back int // changes handled; the same once more; older ones than were handled before of their key
	missing            []string
	size               int64
}

// read reads the log of a unit from an offset. What is missing is the keys whose last acknowledged version is not in
// the log.
func (l *ledger) read(log string, from int64) (a account, err error) {
	file, err := os.Open(log)
	if err != nil {
		return a, err
	}
	defer file.Close()
	last := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		city, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return a, fmt.Errorf("%s has the line %q: %w", log, lines.Text(), err)
		}
		if a.size += int64(len(lines.Bytes())) + 1; a.size > from {
			a.lines++
			if n == last[city] {
				a.again++
			}
			if n < last[city] {
				a.back++
			}
		}
		last[city] = max(last[city], n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for city, n := range l.orders {
		if last[city] < n {
			a.missing = append(a.missing, fmt.Sprintf("%s: %d after %d", city, n, last[city]))
		}
	}
	return a, lines.Err()
}
