package web

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A SparseLog passes on a record per logPause, with the number of records left out before. Errors of clients are
// worth a line, but a thousand faulty clients must not fill the disk.
type SparseLog struct {
	slog.Handler

	mu   sync.Mutex
	next time.Time
	left int // number of records left out since the last record
}

const logPause = time.Second

// Handle implements [slog.Handler].
func (s *SparseLog) Handle(ctx context.Context, r slog.Record) error {
	// Who connects and says nothing, as changefeed doctor and probes of a port do, is no faulty client.
	if strings.HasPrefix(r.Message, "http: TLS handshake error ") && strings.HasSuffix(r.Message, ": EOF") {
		if r.Level = slog.LevelDebug; !s.Enabled(ctx, r.Level) {
			return nil
		}
	}
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
