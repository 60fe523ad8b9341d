package servicebuspub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/millrace/changefeed/internal/cloudevent"
	"github.com/millrace/changefeed/outbox"
)

// Consumer reads the events of a queue with sessions, or of a subscription with sessions.
type Consumer struct {
	Client       *azservicebus.Client
	Entity       string // the queue or the topic
	Subscription string // of the topic; empty for a queue

	// Sessions is how many sessions, and so keys, are read at the same time; 1 by default.
	Sessions int
}

// Run passes each event to your function, the events of a key one after the other in their order. Run ends when ctx
// ends, or when your function returns an error, which Run returns. If your function returns nil, the event is
// completed; otherwise the event is redelivered, to this consumer or another, before the later events of its key.
//
// For each event your function has as long as the entity locks a session. An event may be redelivered, as after a
// crash: use [outbox.Unit.Once] to give each event its effect once. A message that is no event of an outbox becomes a
// dead letter of the entity.
//
// A lost connection is made again. If the service returns an error that no retry can mend, such as a missing entity,
// Run ends.
func (c Consumer) Run(ctx context.Context, handle func(context.Context, outbox.Message) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, max(1, c.Sessions))
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() {
			defer stop()
			errs[i] = c.readSessions(ctx, handle)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// errHandler distinguishes an error of the user's function from errors of the service.
type errHandler struct{ error }

func (e errHandler) Unwrap() error { return e.error }

// linger is how long a consumer waits for a further event of a session before it reads another session. pause is the
// wait after an error before the consumer asks the service again.
const (
	linger = 200 * time.Millisecond
	pause  = time.Second
)

// readSessions reads sessions in turn.
func (c Consumer) readSessions(ctx context.Context, handle func(context.Context, outbox.Message) error) error {
	for ctx.Err() == nil {
		err := c.readSession(ctx, handle)
		if of, ok := errors.AsType[errHandler](err); ok {
			return of.error
		}
		switch {
		case err == nil, ctx.Err() != nil, hasCode(err, azservicebus.CodeTimeout): // no session has events
		case hasCode(err, azservicebus.CodeConnectionLost), hasCode(err, azservicebus.CodeLockLost):
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		default:
			return fmt.Errorf("consume %s of Service Bus: %w", c.Entity, err)
		}
	}
	return nil
}

func hasCode(err error, code azservicebus.Code) bool {
	said, ok := errors.AsType[*azservicebus.Error](err)
	return ok && said.Code == code
}

// readSession reads the next session with events, until the session has no more or half of its lock time has passed:
// the other half is for the event in the handler, and then other sessions have their turn.
func (c Consumer) readSession(ctx context.Context, handle func(context.Context, outbox.Message) error) error {
	s, err := c.accept(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer stop()
		_ = s.Close(ctx) // the lock frees the session's messages at the latest
	}()
	leave := time.Now().Add(time.Until(s.LockedUntil()) / 2)
	for time.Now().Before(leave) {
		waiting, stop := context.WithTimeout(ctx, linger)
		msgs, err := s.ReceiveMessages(waiting, 1, nil) // not more: if an event fails, no later event may be completed
		stop()
		if len(msgs) == 0 && waiting.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := consume(ctx, s, msgs[0], handle); err != nil {
			return err
		}
	}
	return nil
}

func (c Consumer) accept(ctx context.Context) (*azservicebus.SessionReceiver, error) {
	if c.Subscription == "" {
		return c.Client.AcceptNextSessionForQueue(ctx, c.Entity, nil)
	}
	return c.Client.AcceptNextSessionForSubscription(ctx, c.Entity, c.Subscription, nil)
}

func consume(ctx context.Context, s *azservicebus.SessionReceiver, received *azservicebus.ReceivedMessage,
	handle func(context.Context, outbox.Message) error,
) error {
	m, err := Message(received)
	if err != nil {
		text := err.Error()
		return s.DeadLetterMessage(ctx, received, &azservicebus.DeadLetterOptions{
			Reason:           &malformed,
			ErrorDescription: &text,
		})
	}
	if err := handle(ctx, m); err != nil {
		return errHandler{fmt.Errorf("consume event %s: %w", m.ID, err)}
	}
	return s.CompleteMessage(context.WithoutCancel(ctx), received, nil) // the event is handled
}

var malformed = cloudevent.ErrMalformed.Error()

// Message returns the event in a received message.
func Message(m *azservicebus.ReceivedMessage) (outbox.Message, error) {
	attributes := map[string]string{}
	for name, value := range m.ApplicationProperties {
		if name, ok := strings.CutPrefix(name, prefix); ok {
			attributes[name] = fmt.Sprint(value)
		}
	}
	return cloudevent.Message(attributes, m.Body)
}
