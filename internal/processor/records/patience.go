package records

import (
	"context"
	"time"

	"github.com/millrace/changefeed/feed"
)

// StoreTimeout bounds a single request to a lease store.
const StoreTimeout = 65 * time.Second

// PatientStore is a lease store whose writes always end, even if the store never answers. After a timeout the outcome
// is unknown, as after other errors.
type PatientStore struct{ feed.LeaseStore }

// Create implements [feed.LeaseStore].
func (s PatientStore) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	return s.LeaseStore.Create(ctx, l)
}

// Update implements [feed.LeaseStore].
func (s PatientStore) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	return s.LeaseStore.Update(ctx, l)
}

// Delete implements [feed.LeaseStore].
func (s PatientStore) Delete(ctx context.Context, l feed.Record) error {
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	return s.LeaseStore.Delete(ctx, l)
}
