//go:build brokers

package broker

import (
	"strings"
	"testing"
)

func TestAddressesOfTaggedBrokers(t *testing.T) {
	t.Setenv(serviceBusVariable, "nonsense")
	for address, want := range map[string]string{
		"kafka:broker:9092":                "want kafka:HOST:PORT/TOPIC",
		"servicebus:shop":                  "want servicebus:NAMESPACE/ENTITY",
		"servicebus:shop/orders":           "make a client of Service Bus",
		"amqp://host/v":                    "want ?exchange=NAME",
		"amqp://host/v?exchange=a&queue=b": "want ?exchange=NAME",
		"amqp://u:secret@ho st/":           "want amqp://USER:PASSWORD@HOST",
	} {
		if p, err := Open(t.Context(), "to", address, Settings{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", address, p, err, want)
		}
	}
	for _, address := range []string{"kafka:a:9092,b:9092/topic", "amqp://guest:guest@localhost/%2f?exchange=events"} {
		p, err := Open(t.Context(), "to", address, Settings{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
