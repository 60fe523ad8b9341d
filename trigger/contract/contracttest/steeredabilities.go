package contracttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/trigger/contract"
)

// obeyAble does what a document says about events and questions. Without these abilities it is nothing.
func (s *Steered) obeyAble(ctx context.Context, o order) error {
	switch {
	case !s.isAble:
		return nil
	case o.Do == "heard":
		return s.awaitHeard(ctx, o.N)
	case o.Do == "status":
		return s.askStatus(ctx)
	}
	return s.askCaughtUp(ctx, o.Seconds)
}

// hear notes the text of an event. Ready has none, because libraries say it in other ways.
func (s *Steered) hear(e contract.Event) {
	text := textOf(e)
	if text == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, text)
	close(s.told)
	s.told = make(chan struct{})
}

// textOf returns the text of an event, as docs/program.md has it.
func textOf(e contract.Event) string {
	switch e.Type {
	case contract.KindLease:
		return fmt.Sprintf("lease %s %s", e.Lease, e.What)
	case contract.KindParked:
		return fmt.Sprintf("parked %s: %s", e.Item, e.Cause)
	case contract.KindOutage:
		return "outage " + e.What
	case contract.KindProblem:
		return fmt.Sprintf("problem %s: %s", e.Code, e.Error)
	}
	return ""
}

// awaitHeard waits for n events, and returns their texts as an error.
func (s *Steered) awaitHeard(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		heard, told := slices.Clone(s.heard), s.told
		s.mu.Unlock()
		if len(heard) >= n {
			return errors.New(strings.Join(heard, "; "))
		}
		select {
		case <-told:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// askStatus asks how far behind the unit is, and returns the answer as an error.
func (s *Steered) askStatus(ctx context.Context) error {
	status, err := s.unit.Status(ctx)
	if err != nil {
		return err
	}
	texts := []string{"pending " + countText(status.Pending)}
	for _, l := range status.Leases {
		texts = append(texts, l.Lease+" "+countText(l.Lag))
	}
	return errors.New(strings.Join(texts, "; "))
}

// countText returns a number, or null.
func countText(n *int64) string {
	if n == nil {
		return "null"
	}
	return strconv.FormatInt(*n, 10)
}

// askCaughtUp waits until the unit has caught up; without seconds there is no limit.
func (s *Steered) askCaughtUp(ctx context.Context, seconds float64) error {
	if seconds > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
		defer cancel()
		ctx = limited
	}
	return s.unit.CaughtUp(ctx)
}

// expires is when the tokens of the programs expire.
var expires = time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)

// noScope is the scope of which the programs have no token.
const noScope = "none"

// giveToken gives the scope as a token.
func giveToken(_ context.Context, scope string) (contract.Token, error) {
	if scope == noScope {
		return contract.Token{}, errors.New("no token")
	}
	return contract.Token{Text: scope, Expires: expires}, nil
}
