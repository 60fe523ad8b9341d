package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/changefeed"
)

// Azure splits and merges by itself, by the size and the throughput of partitions. To
// do it on demand is a path of changefeed serve, and a call of a store.

// A partitionChange asks a server to split or merge partitions.
type partitionChange struct {
	Operation string   `json:"operation"`
	ID        string   `json:"id,omitempty"`
	At        string   `json:"at,omitempty"`
	IDs       []string `json:"ids,omitempty"`
}

// Split splits a partition at a key, or in the middle if at is empty.
func (c *Container) Split(ctx context.Context, id, at string) ([]changefeed.Partition, error) {
	switch {
	case c.Local == nil:
		return c.change(ctx, partitionChange{Operation: "split", ID: id, At: at})
	case at == "":
		return c.Local.Split(ctx, id)
	}
	return c.Local.SplitAt(ctx, id, at)
}

// Merge merges two partitions whose ranges touch.
func (c *Container) Merge(ctx context.Context, id, other string) ([]changefeed.Partition, error) {
	if c.Local == nil {
		return c.change(ctx, partitionChange{Operation: "merge", IDs: []string{id, other}})
	}
	made, err := c.Local.Merge(ctx, id, other)
	return []changefeed.Partition{made}, err
}

// change asks the server. Azure has no such request.
func (c *Container) change(ctx context.Context, wanted partitionChange) ([]changefeed.Partition, error) {
	var made struct {
		PartitionKeyRanges []struct {
			ID           string
			MinInclusive string
			MaxExclusive string
			Parents      []string
		}
	}
	err := c.Account.call(ctx, http.MethodPost, []string{"dbs", c.Address.Database, "colls", c.Address.Container}, "partitions", wanted, &made)
	// So answers a server that has no such path.
	if refused, ok := errors.AsType[*callError](err); ok && (refused.status == http.StatusMethodNotAllowed || refused.status == http.StatusNotFound) {
		return nil, fmt.Errorf("%w; only changefeed serve does this on demand", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wanted.Operation, err)
	}
	var parts []changefeed.Partition
	for _, p := range made.PartitionKeyRanges {
		parts = append(parts, changefeed.Partition{ID: p.ID, Range: changefeed.Range{Min: p.MinInclusive, Max: p.MaxExclusive}, Parents: p.Parents})
	}
	return parts, nil
}
