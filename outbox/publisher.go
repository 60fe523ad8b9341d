package outbox

import (
	"context"
	"errors"
)

// Publisher sends messages to a broker. Package outboxtest proves one.
//
// Publishers are called concurrently, for messages of different keys; those of one key come
// one call after the other.
type Publisher interface {
	// Publish sends messages of one key, in order, and returns how many of them, from the
	// first on, the broker has accepted: n is an honest prefix, as of an io.Writer. With n <
	// len(msgs) there is an error, which says why msgs[n] is not among them; whether those
	// after it have arrived is unknown, and they come again.
	//
	// An error that is [feed.Poison] says that msgs[n] can never be sent; after any
	// other one it is sent again. An [ErrRefused] counts against
	// [changefeed.FailurePolicy.MaxAttempts], other errors do not. A Publisher splits what is too much for one request of its
	// broker, and does not go on with a key after a message that was not accepted.
	Publish(ctx context.Context, msgs []Message) (n int, err error)
}

// ErrNoID: a message has no ID, so that neither its broker nor its consumer would know it again when
// it is published a second time. It comes as [feed.Poison].
var ErrNoID = errors.New("event has no id")

// ErrRefused: the broker has answered, has not taken this message, and may take others. Trying again may
// help or not, so it counts as an attempt. Any other error that is no [feed.Poison] says that the broker does not
// work, and nothing of the message.
var ErrRefused = errors.New("message was refused")

// ErrTooLarge: the broker does not take a message of this size, or the store a batch. From a
// [Publisher] it comes as [feed.Poison].
var ErrTooLarge = errors.New("too large")
