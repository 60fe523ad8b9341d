package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/memnet"
)

// Creating leases in a throttled container, over the client and the server.

const (
	createLeases = 1000
	createWrites = 100 // writes per second that the container accepts
	writeCharge  = 5.5 // request units of a small document
	createSlack  = 1.3
)

// create1000 measures how long a new unit takes to create its leases if the container throttles the unit, over the
// client and the server.
func create1000(ctx context.Context, s *bench.Site) (f bench.Figure, err error) {
	var took time.Duration
	err = onStage(ctx, s, createLeases, func(ctx context.Context, st *stage) error {
		return st.overHTTP(ctx, createWrites*writeCharge, func(source feed.Source, leases feed.LeaseStore) error {
			took, err = untilReady(ctx, source, leases, st)
			return err
		})
	})
	f.Unit, f.Value = "s", took.Seconds()
	f.Against(createLeases / createWrites)
	f.Target, f.OK = fmt.Sprintf("ratio ≤ %g", createSlack), *f.Ratio <= createSlack
	f.Detail = fmt.Sprintf("virtual time, %d leases over HTTP, the container has %g RU/s and a lease costs %g; "+
		"baseline: as many writes at that rate",
		createLeases, createWrites*writeCharge, writeCharge)
	return f, err
}

// untilReady runs a new unit until its leases exist.
func untilReady(ctx context.Context, source feed.Source, leases feed.LeaseStore, st *stage) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	begun := time.Now()
	var took time.Duration
	var reported []error
	o := st.options
	o.Instance = "host-1"
	o.Hooks.Error = func(_ context.Context, err *feed.Error) {
		// Errors reported after the unit is ready are caused by the stop.
		if took == 0 {
			reported = append(reported, err)
		}
	}
	o.Hooks.Ready = func(context.Context) {
		took = time.Since(begun)
		stop()
	}
	p, err := changefeed.New(source, leases, st.handler, o)
	if err == nil {
		err = p.Run(ctx)
	}
	return took, errors.Join(append(reported, err)...)
}

// overHTTP serves the stage's store with so many request units a second for each container, and calls play with the
// client's view of the store. The network is in memory, because virtual time works only with such a network.
func (st *stage) overHTTP(ctx context.Context, throughput int,
	play func(feed.Source, feed.LeaseStore) error,
) (err error) {
	handler, err := cosmosrest.New(st.db, cosmosrest.Options{
		Throughput: throughput,
		Hosts:      []string{"account.example"},
	})
	if err != nil {
		return err
	}
	l := memnet.Listen()
	web := &http.Server{Handler: handler}
	transport := &http.Transport{DialContext: l.DialContext, MaxIdleConnsPerHost: 100}
	var serving sync.WaitGroup
	serving.Go(func() {
		if serr := web.Serve(l); !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
	})
	defer serving.Wait()
	defer web.Close()
	defer transport.CloseIdleConnections()
	client, err := cosmos.Open(ctx, "http://account.example", cosmos.Key(cosmosrest.EmulatorKey),
		cosmos.Options{Transport: &http.Client{Transport: transport}})
	if err != nil {
		return err
	}
	documents, err := client.Container(ctx, docstore.DefaultDatabase, "documents")
	if err != nil {
		return err
	}
	records, err := client.Container(ctx, docstore.DefaultDatabase, "leases")
	if err != nil {
		return err
	}
	leases, err := cosmos.OpenLeases(ctx, records, "create", documents, cosmos.LeaseOptions{})
	if err != nil {
		return err
	}
	return play(documents, leases)
}
