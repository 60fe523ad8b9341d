package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// Items whose place in the target has moved
//
// If a property of the target's partition key is edited in the source, the item gets another place in the target, and
// the document at its old place must go. A store tells the version before, and so the old place. An account tells it
// for deletes only. So after a replace the target is asked for the documents with the item's id. Those that name the
// item, by the partition key of the source, are at its places.

// mayMove reports whether an edit can change an item's place in the target: not if the target's key is made of the
// source's key and the id, which never change.
func (c *copier) mayMove() bool {
	return c.mapper.transform != nil || slices.ContainsFunc(c.target.paths, func(path pkey.Path) bool {
		isSame := func(other pkey.Path) bool { return slices.Equal(path, other) }
		return !isSame(pkey.Path{"id"}) && !slices.ContainsFunc(c.source.paths, func(p pkey.Path) bool {
			return isSame(p)
		})
	})
}

// maxAsked is the most ids of a query.
const maxAsked = 256

// findPlaces adds to subjects the places of the documents in the target that name them.
func (c *copier) findPlaces(ctx context.Context, subjects []*subject) error {
	byID := map[string][]*subject{}
	var ids []string
	for _, s := range subjects {
		if !s.isLost {
			continue
		}
		if byID[s.id] == nil {
			ids = append(ids, s.id)
		}
		byID[s.id] = append(byID[s.id], s)
	}
	for some := range slices.Chunk(ids, maxAsked) {
		if err := c.ask(ctx, some, byID); err != nil {
			return fmt.Errorf("look for items that have moved: %w", err)
		}
	}
	return nil
}

// ask asks the target for documents with some ids.
func (c *copier) ask(ctx context.Context, ids []string, byID map[string][]*subject) error {
	var q items.Query
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprintf("@i%d", i)
		value, err := json.Marshal(id)
		if err != nil {
			return err
		}
		q.Parameters = append(q.Parameters, items.Parameter{Name: names[i], Value: value})
	}
	q.Text = "SELECT * FROM c WHERE c.id IN (" + strings.Join(names, ", ") + ")"
	_, err := c.documents.Run(ctx, q, func(row json.RawMessage) error {
		key, err := c.source.keyOf(row)
		if err != nil {
			return nil // it names no item
		}
		at, err := c.target.keyOf(row)
		if err != nil {
			return err
		}
		id := idOf(row)
		for _, s := range byID[id] {
			if s.key == key {
				s.spots = append(s.spots, spot{at, id})
			}
		}
		return nil
	})
	return err
}
