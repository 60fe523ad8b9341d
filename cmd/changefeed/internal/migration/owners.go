package migration

import (
	"context"
	"fmt"

	"github.com/millrace/changefeed/feed"
)

// The owners of documents that seem to be left over
//
// A document names its item, unless a transform has changed its id. Then only the whole source tells that it belongs to
// none: the item may have been deleted when the source was read, and made again since.

// hidesOwners reports whether documents that seem to be left over may belong to items on which the transform fails: it
// alone knows what these become.
func (w *comparison) hidesOwners() bool {
	return w.mapper.transform != nil && (w.hides || w.result.Uncopied > 0)
}

// findOwners reads the whole source again for the items of documents that seem to be left over, after their etags.
func (w *comparison) findOwners(ctx context.Context, all []*candidate) error {
	left := map[spot]*candidate{}
	for _, c := range all {
		if c.hasTarget && !c.hasSource && w.mapper.transform != nil {
			left[c.at] = c
		}
	}
	if len(left) == 0 || w.hidesOwners() {
		return nil
	}
	err := w.each(ctx, len(all), func(i int) error {
		c := all[i]
		if left[c.at] != c {
			return nil
		}
		has, err := w.target.read(ctx, c.at.key, c.at.id, "", true)
		if err != nil {
			return fmt.Errorf("read %v in the target: %w", c.at, err)
		}
		c.etag = has.etag
		return nil
	})
	if err != nil {
		return err
	}
	return w.pages(ctx, w.source, func(changes []feed.Change) error {
		versions := make([]document, len(changes))
		for i, ch := range changes {
			versions[i] = document{ch.Body, ch.ETag, ch.Time}
		}
		maps, err := w.mapper.apply(ctx, versions, false)
		for i, m := range maps {
			w.hides = w.hides || m.err != nil
			for _, d := range m.documents {
				if c := left[d.spot]; c != nil {
					c.items = append(c.items, &subject{key: changes[i].PartitionKey, id: changes[i].ID})
				}
			}
		}
		return err
	})
}
