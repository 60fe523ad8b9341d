package web

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// Whoever asks for the store of a server has it from before its first request to after its last one, and each request
// is told.
func TestTheStoreAndTheRequestsOfAServerAreTold(t *testing.T) {
	var opened *docstore.DB
	var told atomic.Int64
	isServed, closed := false, 0
	o := Options{
		Dir: filepath.Join(t.TempDir(), "data"),
		Opened: func(db *docstore.DB) (func(), error) {
			opened = db
			return func() {
				closed++
				if err := db.Health().Err; err != nil {
					t.Errorf("the store was closed before: %v", err)
				}
			}, nil
		},
		RequestDone: func(_ context.Context, r cosmosrest.RequestDone) {
			if r.Status == http.StatusUnauthorized {
				told.Add(1)
			}
		},
	}
	err := serve(t, o, func(e Endpoints) {
		isServed = true
		if opened == nil || closed != 0 {
			t.Errorf("while it is served, the store was told %t, and closed %d times", opened != nil, closed)
		}
		answer, err := http.Get(e.Endpoint)
		if err != nil {
			t.Error(err)
			return
		}
		_ = answer.Body.Close()
	})
	if err != nil || !isServed || closed != 1 || told.Load() != 1 {
		t.Errorf("closed %d times, told %d requests, want 1 of each: %v", closed, told.Load(), err)
	}
	o.Opened = func(*docstore.DB) (func(), error) { return nil, errors.ErrUnsupported }
	if err := serve(t, o, func(Endpoints) { t.Error("served") }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without what asks for the store: %v", err)
	}
}
