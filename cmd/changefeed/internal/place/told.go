package place

import (
	"context"
	"log/slog"
	"sync"
)

// A told is a log in which what a client says about a container is there once for all openers that share their stores:
// a host opens an account for the check and for each unit, and each client would say it again.
type told struct {
	slog.Handler

	said *sync.Map // of texts
}

// Handle implements [slog.Handler].
func (h told) Handle(ctx context.Context, r slog.Record) error {
	container := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "container" {
			container = a.Value.String()
		}
		return true
	})
	if container != "" {
		if _, again := h.said.LoadOrStore(container+"\n"+r.Message, true); again {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h told) WithAttrs(all []slog.Attr) slog.Handler { return told{h.Handler.WithAttrs(all), h.said} }

// WithGroup implements [slog.Handler].
func (h told) WithGroup(name string) slog.Handler { return told{h.Handler.WithGroup(name), h.said} }

// clientLog returns the log for the client of an account; nil is silence.
func (o *Opener) clientLog() *slog.Logger {
	if o.Log == nil {
		return nil
	}
	return slog.New(told{o.Log.Handler(), &o.stores.said})
}
