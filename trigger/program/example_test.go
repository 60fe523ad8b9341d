//go:build unix

package program_test

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/program"
)

// A processor calls the handler; here the example does.
func ExampleNew() {
	handler, err := program.New([]string{"sh", "-c", `echo "attempt $CHANGEFEED_ATTEMPT"; cat`},
		program.Options{Stdout: os.Stdout})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = handler.Handle(context.Background(), &feed.Batch{
		LeaseToken: "-FF", Range: feed.FullRange(), Instance: "mailer-1", Attempt: 1,
		Changes: []feed.Change{{ID: "1", Body: []byte(`{"id":"1","city":"Oslo"}`)}},
	})
	fmt.Println(err)
	// Output:
	// attempt 1
	// {"id":"1","city":"Oslo"}
	// <nil>
}
