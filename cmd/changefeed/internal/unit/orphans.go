package unit

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
	"github.com/millrace/changefeed/internal/sentence"
)

// A container that was dropped and made anew has another resource id, and the units of the container have other
// documents. The old documents stay, and no processor reads them again.

// An Orphan is a document of a unit whose container does not exist any more.
type Orphan struct {
	Kind  feed.Kind
	ID    string
	Token string
	Why   string
	Left  string // why the removal must wait; empty if possible now

	doc feed.Change
}

// orphanAge is how long no document of a container that does not exist may have been written.
const orphanAge = 10 * time.Minute

// Orphans returns the documents of the units with a name whose containers do not exist any more, also those that cannot
// be removed yet, because a document of the same unit was written lately. among are the containers of the same store
// or, in an account, of the same database. That a container of another account or database does not exist cannot be
// known here, so its leases are no orphans.
func Orphans(ctx context.Context, leases *place.Container, among []*place.Container, name string) (found []Orphan,
	err error,
) {
	known, err := knownPrefixes(ctx, leases, among, name)
	if err != nil {
		return nil, err
	}
	documents, err := everything(ctx, leases.Source)
	if err != nil {
		return nil, err
	}
	store, err := OpenStore(ctx, leases, name, leases)
	if err != nil {
		return nil, err
	}
	_, now, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	last := map[string]time.Time{} // write of a document, by the prefix
	for _, doc := range documents {
		prefix, ok := known.orphaned(doc.ID)
		if !ok {
			continue
		}
		quiet := now.Sub(doc.Time)
		if doc.Time.After(last[prefix]) {
			last[prefix] = doc.Time
		}
		kind, token, _ := leasedoc.KindOf(prefix, doc.ID)
		found = append(found, Orphan{
			Kind: kind, ID: doc.ID, Token: token, doc: doc,
			Why: fmt.Sprintf("its container does not exist any more, and it was last written %v ago",
				terminal.Exact(quiet.Round(time.Second))),
		})
	}
	for i := range found {
		prefix, _ := known.orphaned(found[i].ID)
		if quiet := now.Sub(last[prefix]); quiet <= orphanAge {
			found[i].Left = fmt.Sprintf("its container does not exist any more; its unit was last written %s ago: it can be "+
				"removed at %s", sentence.Duration(quiet), sentence.Clock(last[prefix].Add(orphanAge), now))
		}
	}
	slices.SortFunc(found, func(a, b Orphan) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}

// prefixes are the beginnings of the ids of a name's documents, for the containers that exist.
type prefixes struct {
	databases [][2]string // a prefix up to the container's resource id, and the resource id of the database
	rids      []string    // resource ids of the containers
}

// knownPrefixes returns the prefixes of a name. The lease container itself exists, so there is one at least.
func knownPrefixes(ctx context.Context, leases *place.Container, among []*place.Container, name string) (p prefixes,
	err error,
) {
	for _, c := range append(slices.Clone(among), leases) {
		store, err := OpenStore(ctx, leases, name, c)
		if err != nil {
			return p, err
		}
		rid := c.Concrete().RID()
		p.rids = append(p.rids, rid)
		for _, prefix := range store.Searched() {
			// Java's older leases have names in the place of resource ids, so nothing is known of their containers.
			database, ok := strings.CutSuffix(prefix, "_"+rid)
			if _, of, is := cutLast(database, "_"); ok && is {
				p.databases = append(p.databases, [2]string{database + "_", of})
			}
		}
	}
	return p, nil
}

// cutLast cuts a text at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// orphaned returns the prefix of a document, if the document belongs to the unit of a container that does not exist.
func (p prefixes) orphaned(id string) (prefix string, ok bool) {
	for _, database := range p.databases {
		rest, ok := strings.CutPrefix(id, database[0])
		rid, _, dotted := strings.Cut(rest, ".")
		if !ok || !dotted || slices.Contains(p.rids, rid) || !isContainerOf(rid, database[1]) {
			continue
		}
		prefix = database[0] + rid
		if _, _, ok := leasedoc.KindOf(prefix, id); ok {
			return prefix, true
		}
	}
	return "", false
}

// isContainerOf reports whether a text is the resource id of a container of a database: that id begins with the
// database's.
func isContainerOf(rid, database string) bool {
	decode := func(text string) ([]byte, error) {
		return base64.StdEncoding.Strict().DecodeString(strings.ReplaceAll(text, "-", "/"))
	}
	const length = 8
	begin, err := decode(database)
	whole, ridErr := decode(rid)
	return err == nil && ridErr == nil && len(whole) == length && len(begin) > 0 && bytes.HasPrefix(whole, begin)
}

// Remove removes an orphan, if nobody has written the document since. left says why the orphan stays.
func (o Orphan) Remove(ctx context.Context, leases *place.Container) (left string, err error) {
	if o.Left != "" {
		return o.Left, nil
	}
	err = leases.Commit(ctx, o.doc.PartitionKey, []feed.Write{{Op: feed.WriteDelete, ID: o.ID, IfMatch: o.doc.ETag}})
	switch {
	case errors.Is(err, feed.ErrConflict), errors.Is(err, feed.ErrNotFound):
		return "it was written or removed meanwhile", nil
	case errors.Is(err, feed.ErrForbidden):
		return "the right to delete is missing", nil
	case err != nil:
		return err.Error(), fmt.Errorf("remove %s: %w", o.ID, err)
	}
	return "", nil
}
