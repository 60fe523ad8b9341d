package outbox_test

import (
	"fmt"
	"time"

	"github.com/millrace/changefeed/outbox"
)

func ExampleMessage_CloudEvent() {
	m := outbox.Message{
		ID: "1", Key: "ada", Action: "ContactCreatedEvent", Source: "/contacts", Seq: 7,
		Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Data: []byte(`{}`),
	}
	for name, value := range m.CloudEvent() {
		fmt.Printf("ce-%s: %s\n", name, value)
	}
	// Output:
	// ce-specversion: 1.0
	// ce-id: 1
	// ce-source: /contacts
	// ce-type: ContactCreatedEvent
	// ce-subject: ada
	// ce-time: 2026-03-04T05:06:07Z
	// ce-partitionkey: ada
	// ce-sequence: 00000000000000000007
}
