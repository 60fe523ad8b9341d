package fleet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// story notes what units do, in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *story) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

// unit returns a member that runs until its context ends, and then drains for a while.
func (s *story) unit(name string, drain time.Duration) Member {
	return Member{Name: name, Identity: name, Run: func(ctx context.Context) error {
		s.add(name + " begins")
		<-ctx.Done()
		time.Sleep(drain) // virtual: the drain of a unit
		s.add(name + " ends")
		return nil
	}}
}

// quiet is a fleet that logs nothing.
func quiet() *Fleet { return New(slog.New(slog.DiscardHandler)) }

func TestAnExchangeDrainsBeforeItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		f := quiet()
		ctx, end := context.WithCancel(t.Context())
		f.Exchange(ctx, []Member{s.unit("same", 0), s.unit("old", time.Minute)})
		synctest.Wait()
		s.take()
		waited := make(chan error, 1)
		go func() { waited <- f.Wait() }()
		f.Exchange(ctx, []Member{s.unit("same", 0), s.unit("new", 0)})
		synctest.Wait()
		if got, want := s.take(), []string{"old ends", "new begins"}; !slices.Equal(got, want) {
			t.Errorf("exchanged: %q, want %q", got, want)
		}
		end()
		if err := <-waited; err != nil {
			t.Errorf("ended with %v", err)
		}
		if got := s.take(); len(got) != 2 {
			t.Errorf("at the end: %q, want two units", got)
		}
	})
}

// While all units are exchanged none runs, and this is no end.
func TestAnExchangeOfAllUnitsIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		f := quiet()
		ctx, end := context.WithCancel(t.Context())
		f.Exchange(ctx, []Member{s.unit("old", time.Minute)})
		waited := make(chan error, 1)
		go func() { waited <- f.Wait() }()
		f.Exchange(ctx, []Member{s.unit("new", 0)})
		synctest.Wait()
		select {
		case err := <-waited:
			t.Errorf("the fleet has ended with %v", err)
		default:
		}
		end()
		<-waited
	})
}

// A unit that fails is started again, after pauses that grow, and from the first one after a long run.
func TestAUnitThatFailsIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Duration
		lives := []time.Duration{0, 0, 0, 0, 0, 0, 0, 2 * time.Minute, 0, 0}
		start, ended := time.Now(), time.Now()
		ctx, end := context.WithCancel(t.Context())
		f := quiet()
		f.Exchange(ctx, []Member{{Name: "a", Identity: "a", Run: func(context.Context) error {
			begun = append(begun, time.Since(ended))
			time.Sleep(lives[len(begun)-1]) // virtual: the life of a unit
			ended = time.Now()
			if len(begun) == len(lives) {
				end()
			}
			return errors.New("broken")
		}}})
		if err := f.Wait(); err == nil || err.Error() != "broken" {
			t.Errorf("ended with %v", err)
		}
		var want []time.Duration
		for _, seconds := range []int{0, 1, 2, 4, 8, 16, 30, 30, 1, 2} {
			want = append(want, time.Duration(seconds)*time.Second)
		}
		if !slices.Equal(begun, want) {
			t.Errorf("pauses %v, want %v, in %v", begun, want, time.Since(start))
		}
	})
}

// A unit that ends by itself is not started again, not even by an exchange, and its error is that of the fleet.
func TestAUnitThatEndsByItselfIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := map[string]int{}
		var mu sync.Mutex
		once := func(name string, err error) Member {
			return Member{Name: name, Identity: name, Once: true, Run: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				runs[name]++
				return err
			}}
		}
		asks := once("asks", nil)
		asks.Once = false
		members := []Member{once("good", nil), once("bad", errors.New("left")), asks}
		var log bytes.Buffer
		f := New(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		f.Exchange(t.Context(), members)
		_ = f.Wait()
		f.Exchange(t.Context(), members)
		if err := f.Wait(); err == nil || err.Error() != "left" {
			t.Errorf("ended with %v", err)
		}
		if runs["good"] != 1 || runs["bad"] != 1 || runs["asks"] != 1 {
			t.Errorf("runs %v, want one each", runs)
		}
		for _, said := range []string{"unit=bad error=left", "as its program has asked, and is not started again\" unit=asks"} {
			if strings.Count(log.String(), said) != 1 {
				t.Errorf("the log has not %q, or not once: %s", said, &log)
			}
		}
	})
}

// The end of a unit that has not begun its work is no error.
func TestAnEndDuringTheStartIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		f := quiet()
		f.Exchange(ctx, []Member{{Name: "a", Identity: "a", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}})
		end(errors.New("signal"))
		if err := f.Wait(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}
