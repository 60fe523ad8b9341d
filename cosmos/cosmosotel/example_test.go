package cosmosotel_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmos/cosmosotel"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
)

// The spans of a client that opens a container.
func Example() {
	ctx := context.Background()
	server, err := cosmostest.Start(ctx, cosmostest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	orders, err := server.FreshContainer(ctx, "/city")
	if err != nil {
		log.Fatal(err)
	}

	spans := tracetest.NewInMemoryExporter() // a program has one that sends them
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	client, err := cosmos.OpenString(ctx, server.ConnectionString(), cosmos.Options{
		Transport: cosmosotel.Transport(server.Client, cosmosotel.Options{TracerProvider: provider}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Container(ctx, orders.Database(), orders.ID()); err != nil {
		log.Fatal(err)
	}
	for _, s := range spans.GetSpans() {
		for _, a := range s.Attributes {
			if a.Key == "db.operation.name" || a.Key == "db.response.status_code" {
				fmt.Println(a.Key, a.Value.AsString())
			}
		}
	}
	// Output:
	// db.operation.name read_account
	// db.response.status_code 200
	// db.operation.name read_container
	// db.response.status_code 200
}
