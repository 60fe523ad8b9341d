//go:build brokers

package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/kafkapub"
	"github.com/millrace/changefeed/outbox/rabbitpub"
	"github.com/millrace/changefeed/outbox/servicebuspub"
)

// tagged opens the brokers with large clients, by the scheme of the address.
var tagged = map[string]func(ctx context.Context, address string) (publisher, error){
	"servicebus": openServiceBus, "kafka": openKafka, "amqp": openRabbit, "amqps": openRabbit,
}

// serviceBusVariable is the environment variable with a connection string, which replaces this machine's identity.
const serviceBusVariable = "SERVICEBUS_CONNECTION_STRING"

// parseServiceBus parses servicebus:NAMESPACE/ENTITY.
func parseServiceBus(address string) (namespace, entity string, err error) {
	namespace, entity, _ = strings.Cut(strings.TrimPrefix(address, "servicebus:"), "/")
	if namespace == "" || entity == "" {
		return "", "",
			errors.New("want servicebus:NAMESPACE/ENTITY, as in servicebus:shop.servicebus.windows.net/contacts")
	}
	return namespace, entity, nil
}

func openServiceBus(ctx context.Context, address string) (publisher, error) {
	namespace, entity, err := parseServiceBus(address)
	if err != nil {
		return nil, err
	}
	if connection := os.Getenv(serviceBusVariable); connection != "" {
		return servicebuspub.OpenConnectionString(ctx, connection, entity, servicebuspub.Options{})
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return servicebuspub.Open(ctx, namespace, identity, entity, servicebuspub.Options{})
}

func openKafka(_ context.Context, address string) (publisher, error) {
	seeds, topic, _ := strings.Cut(strings.TrimPrefix(address, "kafka:"), "/")
	if seeds == "" || topic == "" {
		return nil, errors.New("want kafka:HOST:PORT/TOPIC, with several brokers separated by commas")
	}
	return kafkapub.New(strings.Split(seeds, ","), topic, kafkapub.Options{})
}

// openRabbit splits the exchange from the address, because amqp does not know this part.
func openRabbit(_ context.Context, address string) (publisher, error) {
	at, err := url.Parse(address)
	if err != nil || at.Query().Get("exchange") == "" {
		// url's error contains the password
		return nil, errors.New("want amqp://USER:PASSWORD@HOST/VHOST?exchange=NAME")
	}
	exchange := at.Query().Get("exchange")
	at.RawQuery = ""
	return rabbitpub.New(at.String(), exchange, rabbitpub.Options{})
}

// consumeServiceBus passes the events of a queue, or of a subscription of a topic, to a function.
func consumeServiceBus(ctx context.Context, address, subscription string,
	handle func(context.Context, outbox.Message) error,
) error {
	namespace, entity, err := parseServiceBus(address)
	if err != nil {
		return err
	}
	client, err := serviceBusClient(namespace)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	return servicebuspub.Consumer{Client: client, Entity: entity, Subscription: subscription}.Run(ctx, handle)
}

func serviceBusClient(namespace string) (*azservicebus.Client, error) {
	if connection := os.Getenv(serviceBusVariable); connection != "" {
		return azservicebus.NewClientFromConnectionString(connection, nil)
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return azservicebus.NewClient(namespace, identity, nil)
}
