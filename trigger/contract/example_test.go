package contract_test

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
)

// Both ends are in one process, with pipes in memory. Usually the host is changefeed run and the program a process.
func ExampleServe() {
	toProgram, fromHost := io.Pipe()
	toHost, fromProgram := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			for _, c := range b.Changes {
				fmt.Println(c.Op, c.ID, string(c.Body))
			}
			return nil
		})
		ended <- contract.Serve(context.Background(), toProgram, fromProgram, handler, contract.ProgramOptions{})
		fromProgram.Close()
	}()
	host, err := contract.Connect(context.Background(), toHost, fromHost, contract.HostOptions{Unit: "mailer"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(host.Handle(context.Background(), &feed.Batch{
		LeaseToken: "-FF", Range: feed.FullRange(), Attempt: 1,
		Changes: []feed.Change{{LSN: 1, ID: "1", PartitionKey: feed.Key("Oslo"), Body: []byte(`{"id":"1"}`)}},
	}))
	host.Stop(0)
	host.Close()
	host.Wait()
	fmt.Println(<-ended)
	// Output:
	// upsert 1 {"id":"1"}
	// <nil>
	// <nil>
}
