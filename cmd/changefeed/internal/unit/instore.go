package unit

import (
	"context"
	"slices"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Units of a store that this process has open: a server shows the units of its clients.

// Found is a unit of a store.
type Found struct {
	Name, Container string // as those of Unit
	In              string // the name of the container of its records
	Source          feed.Source
	Leases          feed.LeaseStore

	// Letters are the dead letters of the unit; nil unless exactly one container beside the leases can have letters.
	Letters feed.LetterBox

	Places Places
}

// Places are where the containers of a unit are in a store or an account, as DATABASE/CONTAINER.
type Places struct {
	Leases, Monitored string
	Letters           string // empty if the letters are not known
}

// Under returns the commands about the unit with a name, if the store is served at an address. Commands look for the
// monitored container in the database of the leases, unless they name another place.
func (p Places) Under(url, name string) Commands {
	made := Commands{Leases: url + p.Leases, Name: name}
	of := func(path string) string { return path[:strings.LastIndexByte(path, '/')+1] }
	if of(p.Leases) != of(p.Monitored) {
		made.Source = url + p.Monitored
	}
	if p.Letters != "" {
		made.Letters = url + p.Letters
	}
	return made
}

// pathOf is the place of a container.
func pathOf(a place.Address) string { return a.Database + "/" + a.Container }

// mostRecords is how many documents a container may have that is searched for leases. A larger container is a user's
// container, which would take long to read.
const mostRecords = 20_000

// mostRead is how many bytes of documents are read of a container: some times as many as so many records have.
const mostRead = 64 << 20

// FindIn finds the units in the containers of a store that may have leases.
func FindIn(ctx context.Context, db *docstore.DB) (found []Found, err error) {
	all := db.Containers()
	for _, c := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.Count() > mostRecords {
			continue
		}
		leases := place.Stored(c, place.Address{Database: c.Database(), Container: c.ID()})
		if checkLeaseKey(leases) != nil {
			continue
		}
		ids, err := idsOf(ctx, leases.Source)
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			continue
		}
		// Most containers are of users. Only for those that seem to be monitored stores are opened, which costs much.
		// They may be in another database than the leases.
		var monitored []*place.Container
		for _, other := range all {
			if seemsMonitored(other, ids) {
				monitored = append(monitored, place.Stored(other, place.Address{
					Database:  other.Database(),
					Container: other.ID(),
				}))
			}
		}
		units, err := findUnits(ctx, registry{leases, monitored}, ids)
		if err != nil {
			return nil, err
		}
		addLetters(all, c.Database(), units)
		found = append(found, units...)
	}
	return found, nil
}

// idsOf returns the ids of documents that may be records: each has a dot. If there is too much to read, there are none.
func idsOf(ctx context.Context, c feed.Source) (ids []string, err error) {
	from := feed.Position{Start: feed.FromBeginning()}
	count, size := 0, 0
	for page, err := range changefeed.Pull(ctx, c, feed.FullRange(), from, changefeed.PullOptions{}) {
		if err != nil {
			return nil, err
		}
		for i := range page.Changes {
			doc := &page.Changes[i]
			count, size = count+1, size+len(doc.Body)
			if strings.Contains(doc.ID, ".") {
				ids = append(ids, doc.ID)
			}
		}
		if count > mostRecords || size > mostRead {
			return nil, nil
		}
	}
	return ids, context.Cause(ctx)
}

// seemsMonitored reports whether an id may be that of a record of a unit on a container: the prefix ends with the
// resource id or the name of the container.
func seemsMonitored(c *docstore.Container, ids []string) bool {
	byRID, byName := "_"+c.RID()+".", "_"+c.ID()+"."
	return slices.ContainsFunc(ids, func(id string) bool {
		return strings.Contains(id, byRID) || strings.Contains(id, byName)
	})
}

// findUnits finds the units of a container.
func findUnits(ctx context.Context, r registry, ids []string) (found []Found, err error) {
	suffixes, err := r.listSuffixes(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		name, monitored := unitOf(suffixes, id)
		if name == "" || slices.ContainsFunc(found, func(f Found) bool {
			return f.Name == name && f.Container == monitored.Address.Name()
		}) {
			continue
		}
		store, err := OpenStore(ctx, r.leases, name, monitored)
		if err != nil {
			return nil, err
		}
		found = append(found, Found{
			Name: name, Container: monitored.Address.Name(), In: r.leases.Address.Name(), Source: monitored.Source,
			Leases: store, Places: Places{Leases: pathOf(r.leases.Address), Monitored: pathOf(monitored.Address)},
		})
	}
	return found, nil
}

// addLetters adds the dead letters of units whose leases are in a database.
func addLetters(all []*docstore.Container, database string, units []Found) {
	var in *docstore.Container
	for _, c := range all {
		if c.Database() != database || !slices.Equal(c.Spec().Paths, []string{LettersPath}) {
			continue
		}
		if in != nil {
			return
		}
		in = c
	}
	if in == nil {
		return
	}
	for i := range units {
		u := &units[i]
		monitored, isStored := u.Source.(*docstore.Container)
		if !isStored || u.Name == Unnamed {
			continue
		}
		if box, err := deadletters.Container(in, u.Name, monitored); err == nil {
			u.Letters, u.Places.Letters = box, in.Database()+"/"+in.ID()
		}
	}
}
