package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// desk is the lease store as operators read it. They list it until their requests are answered, so a listing is used
// again as long as nothing has been written: a third of a world's time was spent on reading the same documents.
type desk struct {
	*docstore.Leases
	container *docstore.Container

	mu      sync.Mutex
	head    int64 // of the container before records were listed
	records []feed.Record
}

// List implements [feed.LeaseStore]. It may still show a record that has expired since; who waits for a request
// judges that by its time to live.
func (d *desk) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	head := d.container.Head()
	if head == d.head && len(d.records) > 0 {
		return slices.Clone(d.records), time.Now(), nil
	}
	records, now, err := d.Leases.List(ctx)
	if err == nil {
		d.head, d.records = head, records
	}
	return slices.Clone(records), now, err
}
