package contracttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/trigger/contract"
)

// order is the document of a change: what the handler of a test shall do with the change. docs/program.md has the list.
type order struct {
	ID      string  `json:"id"`
	Do      string  `json:"do"`
	Error   string  `json:"error"`
	Seconds float64 `json:"seconds"`
	Code    int     `json:"code"`
	Key     string  `json:"key"`
	N       int     `json:"n"`
}

// Handler returns the handler with which a program of the contract is tested, as a Go program has it: the documents say
// what it shall do. The functions end the process and print a line: [os.Exit] and, for one, [log.Print].
func Handler(exit func(code int), printLine func(text string)) *Steered {
	return &Steered{
		exit: exit, printLine: printLine, counts: map[string]int{}, met: make(chan struct{}), told: make(chan struct{}),
	}
}

// Steered is a [feed.Handler] that does what the documents say.
type Steered struct {
	exit      func(code int)
	printLine func(text string)
	unit      contract.Unit
	isAble    bool // hears events and asks questions

	mu      sync.Mutex
	counts  map[string]int // the last number of each key
	meeting int            // batches that wait for each other
	met     chan struct{}
	heard   []string      // the texts of the events
	told    chan struct{} // closed at the next event
}

// WithAbilities adds to the options of the program that the handler hears events, asks about the unit and gives tokens.
func (s *Steered) WithAbilities(o contract.ProgramOptions) contract.ProgramOptions {
	s.isAble = true
	o.Event, o.Unit, o.Token = s.hear, &s.unit, giveToken
	return o
}

// Handle does what the documents of a batch say, one change after another.
func (s *Steered) Handle(ctx context.Context, b *feed.Batch) error {
	items := map[int]error{}
	for i, c := range b.Changes {
		if c.Body == nil { // a delete
			continue
		}
		var o order
		if err := json.Unmarshal(c.Body, &o); err != nil {
			return err
		}
		err := s.obey(ctx, b, o)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch o.Do {
		case "fail", "poison":
			items[i] = err
		case "stop", "outage":
			return &feed.Failure{
				Done: i, Err: err, Outage: o.Do == "outage", After: time.Duration(o.Seconds * float64(time.Second)),
			}
		default:
			if err != nil {
				return err
			}
		}
	}
	if len(items) > 0 {
		return &feed.Failure{Items: maps.Clone(items)}
	}
	return nil
}

// obey does what a document says.
func (s *Steered) obey(ctx context.Context, b *feed.Batch, o order) error {
	switch o.Do {
	case "fail", "stop", "outage", "fail all":
		return errors.New(o.Error)
	case "poison", "poison all":
		return feed.Poison(errors.New(o.Error))
	case "sleep":
		return pause.For(ctx, time.Duration(o.Seconds*float64(time.Second)))
	case "wait":
		<-ctx.Done()
	case "exit":
		s.exit(o.Code)
	case "print":
		s.printLine(o.Error)
	case "count":
		return s.count(o)
	case "meet":
		return s.meet(ctx, o.N)
	case "checkpoint":
		return b.Checkpoint(ctx)
	case "heard", "status", "caughtup":
		return s.obeyAble(ctx, o)
	}
	return nil
}

// count fails unless the numbers of a key come one after another.
func (s *Steered) count(o order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.counts[o.Key]
	if o.N != last+1 {
		return fmt.Errorf("%s: %d comes after %d", o.Key, o.N, last)
	}
	s.counts[o.Key] = o.N
	return nil
}

// meet waits until n batches are in the handler at once.
func (s *Steered) meet(ctx context.Context, n int) error {
	s.mu.Lock()
	met := s.met
	if s.meeting++; s.meeting == n {
		close(s.met)
		s.meeting, s.met = 0, make(chan struct{})
	}
	s.mu.Unlock()
	select {
	case <-met:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
