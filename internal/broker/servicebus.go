//go:build brokers

package broker

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/changefeed/outbox/servicebuspub"
)

// serviceBusVariable is the environment variable with a connection string, in place of this machine's identity.
const serviceBusVariable = "SERVICEBUS_CONNECTION_STRING"

func openServiceBus(ctx context.Context, address string, s Settings) (Publisher, error) {
	namespace, entity, _ := strings.Cut(strings.TrimPrefix(address, "servicebus:"), "/")
	if namespace == "" || entity == "" {
		return nil, errors.New("want servicebus:NAMESPACE/ENTITY, as in servicebus:shop.servicebus.windows.net/contacts")
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
