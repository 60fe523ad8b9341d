package web

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A SparseLog passes on one record in logPause, with how many it left out before. What clients do wrong is worth a line, and
// a thousand clients who do it must not fill the disk.
type SparseLog struct {
	slog.Handler

	mu   sync.Mutex
	next time.Time
	left int // out, since the last one
}

const logPause = time.Second

// Handle implements [slog.Handler].
func (s *SparseLog) Handle(ctx context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Time.Before(s.next) {
		s.left++
		return nil
	}
	if s.left > 0 {
		r.AddAttrs(slog.Int("left_out", s.left))
	}
	s.next, s.left = r.Time.Add(logPause), 0
	return s.Handler.Handle(ctx, r)
}
