package servicebuspub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

var (
	// ErrNoDuplicateDetection: the entity stores repeated messages twice.
	ErrNoDuplicateDetection = errors.New("duplicate detection is off")
	// ErrNoSessions: no consumer receives the messages of a key in order.
	ErrNoSessions = errors.New("sessions are off")
	// ErrNotFound: the namespace has no queue or topic with this name.
	ErrNotFound = errors.New("not found")
)

// checkEntity reads the settings of the entity, and refuses settings with which an outbox cannot keep its promises.
func (o Options) checkEntity(ctx context.Context, client *admin.Client, entity string) error {
	warn := o.Warn
	if warn == nil {
		warn = func(err error) { slog.Warn("Service Bus", "entity", entity, "error", err) }
	}
	if client == nil {
		warn(fmt.Errorf("whether %s has duplicate detection and sessions is not known: the emulator does not show it",
			entity))
		return nil
	}
	err := judge(ctx, client, entity, warn)
	switch {
	case isForbidden(err):
		warn(fmt.Errorf("whether %s has duplicate detection and sessions is not known: %w", entity, err))
		return nil
	case o.Unfit && (errors.Is(err, ErrNoDuplicateDetection) || errors.Is(err, ErrNoSessions)):
		warn(err)
		return nil
	}
	return err
}

// isForbidden reports whether the credential may not read the settings: reading needs the right to manage, which a
// relay need not have.
func isForbidden(err error) bool {
	said, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && (said.StatusCode == http.StatusUnauthorized || said.StatusCode == http.StatusForbidden)
}

func judge(ctx context.Context, client *admin.Client, entity string, warn func(error)) error {
	queue, err := client.GetQueue(ctx, entity, nil)
	if err != nil {
		return fmt.Errorf("read the settings of queue %s: %w", entity, err)
	}
	if queue != nil && queue.RequiresSession != nil { // a topic has the same address, but no settings of a queue
		return unfit("queue "+entity, on(queue.RequiresDuplicateDetection), on(queue.RequiresSession))
	}
	topic, err := client.GetTopic(ctx, entity, nil)
	switch {
	case err != nil:
		return fmt.Errorf("read the settings of topic %s: %w", entity, err)
	case topic == nil:
		return fmt.Errorf("queue or topic %s: %w", entity, ErrNotFound)
	}
	ordered, err := subscriptions(ctx, client, entity, warn)
	if err != nil {
		return err
	}
	return unfit("topic "+entity, on(topic.RequiresDuplicateDetection), ordered)
}

// subscriptions warns of a topic's subscriptions without sessions. It reports whether some have sessions, or no
// subscription exists yet.
func subscriptions(ctx context.Context, client *admin.Client, topic string, warn func(error)) (ordered bool,
	err error,
) {
	var without []string
	for pages := client.NewListSubscriptionsPager(topic, nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return false, fmt.Errorf("list the subscriptions of topic %s: %w", topic, err)
		}
		for _, s := range page.Subscriptions {
			if on(s.RequiresSession) {
				ordered = true
			} else {
				without = append(without, s.SubscriptionName)
			}
		}
	}
	if ordered {
		for _, name := range without {
			warn(fmt.Errorf("subscription %s of topic %s: %w", name, topic, ErrNoSessions))
		}
	}
	return ordered || len(without) == 0, nil
}

func on(setting *bool) bool { return setting != nil && *setting }

func unfit(entity string, deduplicates, hasSessions bool) error {
	var wrong []error
	if !deduplicates {
		wrong = append(wrong, ErrNoDuplicateDetection)
	}
	if !hasSessions {
		wrong = append(wrong, ErrNoSessions)
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", entity, errors.Join(wrong...))
}
