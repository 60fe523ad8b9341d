package outbox

import (
	"context"
	"errors"
)

// Publisher sends messages to a broker. Package outboxtest proves a Publisher.
//
// Publishers are called concurrently for messages of different keys, and one call after the other for messages of the
// same key.
type Publisher interface {
	// Publish sends messages of one key, in order, and returns how many of them, from the first on, the broker has
	// accepted. The count n must be honest, as of an io.Writer. If n < len(msgs), Publish returns an error that says
	// why msgs[n] was not accepted; whether later messages have arrived is unknown, and they are sent again.
	//
	// If the error is [feed.Poison], msgs[n] can never be sent; after any other error msgs[n] is sent again. An
	// [ErrRefused] counts against [changefeed.FailurePolicy.MaxAttempts], other errors do not. If messages exceed a
	// request of the broker, the Publisher splits them. After a message that was not accepted, the Publisher sends no
	// later message of its key.
	Publish(ctx context.Context, msgs []Message) (n int, err error)
}

// ErrNoID: the message has no ID, so neither the broker nor the consumer could recognize a second publication. A
// Publisher returns ErrNoID as [feed.Poison].
var ErrNoID = errors.New("event has no id")

// ErrRefused: the broker has answered and has not accepted this message, but may accept others. A retry may help or
// not, so the refusal counts as an attempt. Any other error that is no [feed.Poison] says that the broker does not
// work, and nothing about the message.
var ErrRefused = errors.New("message was refused")

// ErrTooLarge: the broker refuses a message of this size, or the store refuses a batch of this size. A [Publisher]
// returns ErrTooLarge as [feed.Poison].
var ErrTooLarge = errors.New("too large")
