package servicebuspub_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/outbox/servicebuspub"
)

// A queue that keeps messages which are sent again does for nothing that needs each event once.
func ExampleOpenConnectionString() {
	options := settings(pages{"/contacts": queue(false, true)}) // what the namespace says of the queue
	_, err := servicebuspub.OpenConnectionString(context.Background(), connection, "contacts", options)
	fmt.Println(errors.Is(err, servicebuspub.ErrNoDuplicateDetection))
	fmt.Println(err)
	// Output:
	// true
	// open contacts of Service Bus: queue contacts: duplicate detection is off
}
