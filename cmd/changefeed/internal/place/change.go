package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// Azure splits and merges by itself, by the size and the throughput of partitions. Only changefeed serve, with a
// special path, and a store, with a method, split and merge on demand.

// A partitionChange asks a server to split or merge partitions.
type partitionChange struct {
	Operation string   `json:"operation"`
	ID        string   `json:"id,omitempty"`
	At        string   `json:"at,omitempty"`
	IDs       []string `json:"ids,omitempty"`
}

// Split splits the partition with an id at a key, or in the middle if at is empty. If there is only one
// partition, id may be empty; with several an empty id is an error of usage, because a wrong guess would change the
// container.
func (c *Container) Split(ctx context.Context, id, at string) ([]feed.Partition, error) {
	if strings.Trim(at, "0123456789abcdefABCDEF") != "" {
		return nil, usage.Flag("at", at, "hex such as 1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF")
	}
	parts, err := c.Source.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	if id == "" && len(parts) == 1 {
		id = parts[0].ID
	}
	if err := among(parts, "ID", id); err != nil {
		return nil, err
	}
	// Effective partition keys are compared as text, in upper case.
	return c.splitPartition(ctx, id, strings.ToUpper(at))
}

// splitPartition splits an existing partition.
func (c *Container) splitPartition(ctx context.Context, id, at string) ([]feed.Partition, error) {
	switch {
	case c.Local == nil:
		return c.askServer(ctx, partitionChange{Operation: "split", ID: id, At: at})
	case at == "":
		return c.Local.Split(ctx, id)
	}
	return c.Local.SplitAt(ctx, id, at)
}

// Merge merges two partitions whose ranges touch.
func (c *Container) Merge(ctx context.Context, id, other string) ([]feed.Partition, error) {
	parts, err := c.Source.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	// Check the ids here, because the server's refusal of a wrong id would not list the others.
	if err := cmp.Or(among(parts, "ID", id), among(parts, "ID", other)); err != nil {
		return nil, err
	}
	if c.Local == nil {
		return c.askServer(ctx, partitionChange{Operation: "merge", IDs: []string{id, other}})
	}
	made, err := c.Local.Merge(ctx, id, other)
	return []feed.Partition{made}, err
}

// among refuses an unknown id before anything is changed, and lists the known ids.
func among(parts []feed.Partition, field, id string) error {
	var ids []string
	for _, partition := range parts {
		if partition.ID == id {
			return nil
		}
		ids = append(ids, partition.ID)
	}
	if id == "" {
		return usage.Error{Err: fmt.Errorf("%s is missing: want one of %s", field, strings.Join(ids, ", "))}
	}
	return usage.Missing{Err: fmt.Errorf("%s is %s: there is no such partition: want one of %s", field, id,
		strings.Join(ids, ", "))}
}

// askServer sends the request to the server. Azure has no such request.
func (c *Container) askServer(ctx context.Context, wanted partitionChange) ([]feed.Partition, error) {
	var made struct {
		PartitionKeyRanges []struct {
			ID           string
			MinInclusive string
			MaxExclusive string
			Parents      []string
		}
	}
	err := c.Account.call(ctx, http.MethodPost, []string{"dbs", c.Address.Database, "colls", c.Address.Container},
		"partitions", wanted, &made)
	// A server without this path answers with one of these.
	if refused, ok := errors.AsType[*callError](err); ok && (refused.status == http.StatusMethodNotAllowed ||
		refused.status == http.StatusNotFound) {
		return nil, fmt.Errorf("%w; only changefeed serve does this on demand", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wanted.Operation, err)
	}
	var parts []feed.Partition
	for _, p := range made.PartitionKeyRanges {
		parts = append(parts, feed.Partition{
			ID: p.ID, Range: feed.Range{Min: p.MinInclusive, Max: p.MaxExclusive},
			Parents: p.Parents,
		})
	}
	return parts, nil
}
