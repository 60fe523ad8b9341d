package instance

import (
	"context"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// The highest values of options that the plans of all instances depend on. If a presence record has a higher value,
// somebody else has written the record, and the value does not count.
const (
	MaxMinLeases = 100_000
	MaxWeight    = 1000
)

// Options are the processor's options, with their defaults; changefeed.Options describes each.
type Options struct {
	Instance        string
	Variant         feed.Variant // what this instance runs
	Start           feed.Start
	Mode            feed.Mode
	MaxItems        int
	MinLeases       int
	MaxLeases       int
	Weight          int
	ShareByLoad     bool
	Poll            time.Duration
	Acquire         time.Duration
	Renew           time.Duration
	Expiration      time.Duration
	Drain           time.Duration
	HandlerTimeout  time.Duration
	RetryMin        time.Duration
	RetryMax        time.Duration
	MaxBytes        int
	MaxWait         time.Duration
	Filter          func(c *feed.Change) bool
	Concurrency     int
	BufferItems     int
	BufferBytes     int64
	MaxAttempts     int
	MaxAge          time.Duration
	DeadLetters     feed.DeadLetters
	MaxSetAside     int
	HoldKeys        bool
	Manual          bool
	CheckpointItems int
	CheckpointEvery time.Duration
}

// HasPolicy reports whether a failing change is ever separated from its batch.
func (o *Options) HasPolicy() bool { return o.MaxAttempts > 0 || o.MaxAge > 0 }

// Margin returns how long before another instance could take its lease an owner stops: for clocks with different
// speeds, and for the handler to notice.
func (o *Options) Margin() time.Duration { return o.Expiration / 10 }

// Trust returns how long an owner works on a lease after it began to write the lease.
func (o *Options) Trust() time.Duration { return o.Expiration - o.Margin() }

// retryBackoff returns the pause before a failed request is repeated.
func (o *Options) retryBackoff() pause.Backoff {
	return pause.Backoff{Min: o.RetryMin, Max: o.RetryMax}
}

// CallHook calls a hook, unless it is unset. Its context has the values of that of the run, and does not end.
func CallHook[E any](in *Instance, hook func(context.Context, E), event E) {
	if hook != nil {
		hook(in.Base, event)
	}
}
