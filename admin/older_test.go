package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// olderOwner is a lease store in which an owner notes at each request that it does not know the action.
type olderOwner struct{ feed.LeaseStore }

// Create creates a record, with the note if it is a request.
func (s olderOwner) Create(ctx context.Context, r feed.Record) (feed.Record, error) {
	if r.Kind == feed.KindRequest {
		r.Properties = notes.SetUnknown(r.Properties, "instance one does not know the action")
	}
	return s.LeaseStore.Create(ctx, r)
}

// A caller learns that the owner of the lease is of an older version, and not only that time is over.
func TestAnOlderOwnerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders, leases := stores(t)
		if _, err := leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1, Owner: "one", Epoch: "e1",
			Expiration: time.Hour,
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Open(orders, olderOwner{leases}, Options{}).Reset(ctx, All(), feed.FromBeginning())
		if !errors.Is(err, ErrUnknownAction) || !errors.Is(err, ErrNotServed) ||
			!strings.Contains(err.Error(), "instance one") {
			t.Errorf("the reset ends with %v, want that the owner does not know the action", err)
		}
	})
}
