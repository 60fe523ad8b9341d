//go:build brokers

package broker

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/servicebuspub"
)

// serviceBusVariable is the environment variable with a connection string, which replaces this machine's identity.
const serviceBusVariable = "SERVICEBUS_CONNECTION_STRING"

func openServiceBus(ctx context.Context, address string, s Settings) (Publisher, error) {
	namespace, entity, err := parseServiceBus(address)
	if err != nil {
		return nil, err
	}
	o := servicebuspub.Options{}
	if s.Warn != nil {
		o.Warn = func(err error) { s.Warn(err.Error()) }
	}
	if connection := os.Getenv(serviceBusVariable); connection != "" {
		return servicebuspub.OpenConnectionString(ctx, connection, entity, o)
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return servicebuspub.Open(ctx, namespace, identity, entity, o)
}

func parseServiceBus(address string) (namespace, entity string, err error) {
	namespace, entity, _ = strings.Cut(strings.TrimPrefix(address, "servicebus:"), "/")
	if namespace == "" || entity == "" {
		return "", "",
			errors.New("want servicebus:NAMESPACE/ENTITY, as in servicebus:shop.servicebus.windows.net/contacts")
	}
	return namespace, entity, nil
}

// ConsumeServiceBus passes the events of a queue, or of a subscription of a topic, to a function, as
// [servicebuspub.Consumer] does.
func ConsumeServiceBus(ctx context.Context, address, subscription string,
	handle func(context.Context, outbox.Message) error,
) error {
	client, entity, err := clientOfServiceBus(address)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	return servicebuspub.Consumer{Client: client, Entity: entity, Subscription: subscription}.Run(ctx, handle)
}

func clientOfServiceBus(address string) (client *azservicebus.Client, entity string, err error) {
	namespace, entity, err := parseServiceBus(address)
	if err != nil {
		return nil, "", err
	}
	if connection := os.Getenv(serviceBusVariable); connection != "" {
		client, err = azservicebus.NewClientFromConnectionString(connection, nil)
		return client, entity, err
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, "", err
	}
	client, err = azservicebus.NewClient(namespace, identity, nil)
	return client, entity, err
}
