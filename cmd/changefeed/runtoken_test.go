package main

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/program"
)

// A token of the parent process is good until it expires, so it is not asked for with each request.
func TestALentTokenExpiresAsTheParentSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		fromProgram, toHost := io.Pipe()
		expires := time.Now().Add(time.Hour).UTC()
		served := make(chan error, 1)
		go func() {
			nothing := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
			served <- contract.Serve(t.Context(), fromHost, toHost, nothing, contract.ProgramOptions{
				Token: func(_ context.Context, scope string) (contract.Token, error) {
					return contract.Token{Text: "for " + scope, Expires: expires}, nil
				},
			})
			toHost.Close()
		}()
		parent, err := program.Attach(t.Context(), fromProgram, toProgram, program.WorkerOptions{
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		identity := lentIdentity{parent}
		got, err := identity.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://a/.default"}})
		if err != nil || got.Token != "for https://a/.default" || !got.ExpiresOn.Equal(expires) {
			t.Errorf("got %+v, %v, want a token until %v", got, err, expires)
		}
		if _, err := identity.GetToken(t.Context(), policy.TokenRequestOptions{}); err == nil {
			t.Error("a token of no scope was given")
		}
		parent.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
