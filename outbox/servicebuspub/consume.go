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

// Consumer reads the events of a queue with sessions, or of such a subscription of a topic.
type Consumer struct {
	Client       *azservicebus.Client
	Entity       string // the queue or the topic
	Subscription string // of the topic; empty for a queue

	// Sessions is how many sessions, and so keys, are read at once; 1 by default.
	Sessions int
}

// Run hands each event to a function, those of a key one after the other in their order, until ctx
// ends or the function returns an error, which Run returns. An event is completed after the function
// has returned nil for it; else it comes again, to this consumer or another one, before the later
// events of its key.
//
// The function has as long for an event as the entity locks a session. An event may come a
// second time, as after a crash: [outbox.Unit.Once] gives it its effect once. A message that is no event of
// an outbox becomes a dead letter of the entity.
//
// A connection that is lost is made again. An error of the service that no retry can mend, such as
// that the entity does not exist, ends Run.
func (c Consumer) Run(ctx context.Context, handle func(context.Context, outbox.Message) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, max(1, c.Sessions))
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() {
			defer stop()
			errs[i] = c.read(ctx, handle)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// errHandler keeps an error of the user's function apart from those of the service.
type errHandler struct{ error }

func (e errHandler) Unwrap() error { return e.error }

// How long to wait for a further event of a session before another session has its turn, and before the service is asked
// again after an error.
const (
	linger = 200 * time.Millisecond
	pause  = time.Second
)

// read reads sessions in turn.
func (c Consumer) read(ctx context.Context, handle func(context.Context, outbox.Message) error) error {
	for ctx.Err() == nil {
		err := c.session(ctx, handle)
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

// session reads the next session that has events, until it has no more or half of its lock's time has passed: the other
// half is for the event in hand, and others have their turn.
func (c Consumer) session(ctx context.Context, handle func(context.Context, outbox.Message) error) error {
	s, err := c.accept(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer stop()
		_ = s.Close(ctx) // what it has is free at the latest when its lock ends
	}()
	leave := time.Now().Add(time.Until(s.LockedUntil()) / 2)
	for time.Now().Before(leave) {
		waiting, stop := context.WithTimeout(ctx, linger)
		msgs, err := s.ReceiveMessages(waiting, 1, nil) // not more: after one that fails no later one may be completed
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

func consume(ctx context.Context, s *azservicebus.SessionReceiver, received *azservicebus.ReceivedMessage, handle func(context.Context, outbox.Message) error) error {
	m, err := Message(received)
	if err != nil {
		text := err.Error()
		return s.DeadLetterMessage(ctx, received, &azservicebus.DeadLetterOptions{Reason: &malformed, ErrorDescription: &text})
	}
	if err := handle(ctx, m); err != nil {
		return errHandler{fmt.Errorf("consume event %s: %w", m.ID, err)}
	}
	return s.CompleteMessage(context.WithoutCancel(ctx), received, nil) // it is handled
}

var malformed = cloudevent.ErrMalformed.Error()

// Message is the event that a received message was.
func Message(m *azservicebus.ReceivedMessage) (outbox.Message, error) {
	attributes := map[string]string{}
	for name, value := range m.ApplicationProperties {
		if name, ok := strings.CutPrefix(name, prefix); ok {
			attributes[name] = fmt.Sprint(value)
		}
	}
	return cloudevent.Message(attributes, m.Body)
}
