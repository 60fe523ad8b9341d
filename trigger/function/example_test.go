//go:build unix

package function_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// copies is a container for the output binding copies.
type copies struct{}

// Upsert implements function.Upserter.
func (copies) Upsert(_ context.Context, document json.RawMessage) error {
	fmt.Println("copy", string(document))
	return nil
}

// A program that is not there is an outage, so no change is at fault.
func ExampleHost() {
	app := &function.App{
		Dir:     ".",
		Program: function.Program{Executable: "sh", Arguments: []string{"-c", `"exit 1"`}, Start: time.Minute},
		Functions: []function.Function{{
			Name: "Seen", Trigger: function.Trigger{Name: "docs"}, Outputs: []function.Output{{Name: "copies"}},
		}},
	}
	host, err := function.NewHost(app, function.HostOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	host.Start(ctx)
	defer host.Close()
	handler := host.Handler(&app.Functions[0], map[string]function.Upserter{"copies": copies{}})
	err = handler.Handle(ctx, &feed.Batch{Attempt: 1, Changes: []feed.Change{{Body: []byte(`{"id":"1"}`)}}})
	fmt.Println(err)
	// Output: sh has ended: exit status 1
}
