package docstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The store itself needs only containers: a database is the first half of a container's name. A database has a record
// because REST clients create, list and replace databases, and because a container's resource id begins with that of
// its database.

// DefaultDatabase holds the containers whose specification names no database. The store creates this database with
// the first such container, so your program does not need to create a database.
const DefaultDatabase = "default"

// Database is a set of containers. The value is a copy, made when you called the method that returned it.
type Database struct {
	ID      string
	RID     string    // resource id; changes if the database is deleted and created again
	ETag    string    // quoted; changes with each change
	Changed time.Time // of the last change

	// Meta is your own JSON. The store keeps Meta and never reads it.
	Meta json.RawMessage `json:",omitempty"`
}

// CreateDatabase adds a database. The error is [feed.ErrConflict] if the id is taken.
func (db *DB) CreateDatabase(ctx context.Context, id string, meta json.RawMessage) (Database, error) {
	var database Database
	err := checkName("database id", id)
	if err == nil {
		err = db.committer.runAlone(ctx, func(g *group) (err error) {
			if _, taken := db.database(id); taken {
				return fmt.Errorf("it exists: %w", feed.ErrConflict)
			}
			database, err = g.newDatabase(id, meta)
			return err
		})
	}
	if err != nil {
		return Database{}, fmt.Errorf("create database %q: %w", id, err)
	}
	return database.clone(), nil
}

// newDatabase stores a new database. The default database has the resource id of the store, because stores that are
// older than databases gave their containers ids below that id.
func (g *group) newDatabase(id string, meta json.RawMessage) (Database, error) {
	database := Database{ID: id, RID: g.db.RID(), Meta: meta}
	if id != DefaultDatabase {
		var rid [4]byte
		for used := true; used; used = g.db.ridTaken(database.RID) {
			_, _ = rand.Read(rid[:]) // never fails, as documented
			rid[3] &= 0x7f
			database.RID = encodeRID(rid[:])
		}
	}
	return g.storeDatabase(database)
}

func (db *DB) ridTaken(rid string) bool {
	return rid == db.RID() || slices.ContainsFunc(db.Databases(), func(database Database) bool {
		return database.RID == rid
	})
}

// storeDatabase writes a database with a new ETag. Readers see the database when the group is safe.
func (g *group) storeDatabase(database Database) (Database, error) {
	db := g.db
	database.Meta = slices.Clone(database.Meta)
	database.ETag, database.Changed = db.tags.tag(), time.Now().UTC().Truncate(time.Millisecond)
	b, err := json.Marshal(database)
	if err != nil {
		return database, err
	}
	g.set(databaseKey(database.ID), b)
	g.publish = append(g.publish, func() {
		next := maps.Clone(*db.databases.Load())
		next[database.ID] = database
		db.databases.Store(&next)
	})
	return database, nil
}

// ReplaceDatabase replaces the Meta of a database.
func (db *DB) ReplaceDatabase(ctx context.Context, id string, meta json.RawMessage) (Database, error) {
	return db.UpdateDatabase(ctx, id, func(json.RawMessage) (json.RawMessage, error) { return meta, nil })
}

// UpdateDatabase is [DB.ReplaceDatabase] with a function: change receives the present Meta and returns the new Meta.
// As with [DB.UpdateContainer], no other change comes in between, and change must be fast. An error of change is
// returned as it is.
func (db *DB) UpdateDatabase(ctx context.Context, id string, change func(meta json.RawMessage) (json.RawMessage,
	error),
) (Database, error) {
	var database Database
	var refused error
	err := db.committer.runAlone(ctx, func(g *group) (err error) {
		old, ok := db.database(id)
		if !ok {
			return feed.ErrNotFound
		}
		if old.Meta, refused = change(slices.Clone(old.Meta)); refused != nil {
			return refused
		}
		database, err = g.storeDatabase(old)
		return err
	})
	switch {
	case refused != nil:
		return Database{}, refused
	case err != nil:
		return Database{}, fmt.Errorf("replace database %q: %w", id, err)
	}
	return database.clone(), nil
}

// DeleteDatabase removes a database with all its containers. If DeleteDatabase fails, some containers may be gone
// already: each container is a separate commit, so other writers do not wait for the whole database.
func (db *DB) DeleteDatabase(ctx context.Context, id string) error {
	if _, err := db.Database(id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	for _, c := range db.Containers() {
		if c.Database() != id {
			continue
		}
		if err := db.DeleteContainer(ctx, c.Name()); err != nil && !errors.Is(err, feed.ErrNotFound) {
			return fmt.Errorf("delete database %q: %w", id, err)
		}
	}
	err := db.committer.runAlone(ctx, func(g *group) error {
		if _, ok := db.database(id); !ok {
			return feed.ErrNotFound
		}
		for name := range *db.containers.Load() {
			if strings.HasPrefix(name, id+"/") {
				return fmt.Errorf("container %q was created meanwhile: %w", name, feed.ErrConflict)
			}
		}
		g.drop(databaseKey(id), 0)
		g.publish = append(g.publish, func() {
			next := maps.Clone(*db.databases.Load())
			delete(next, id)
			db.databases.Store(&next)
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete database %q: %w", id, err)
	}
	return nil
}

// Database returns the database with this id, or [feed.ErrNotFound].
func (db *DB) Database(id string) (Database, error) {
	if err := db.closed(); err != nil {
		return Database{}, err
	}
	database, ok := db.database(id)
	if !ok {
		return Database{}, fmt.Errorf("database %q: %w", id, feed.ErrNotFound)
	}
	return database.clone(), nil
}

// DatabaseETag returns the ETag of the database with this id, or "" if the database does not exist. This is a fast
// way to find out whether the database has changed.
func (db *DB) DatabaseETag(id string) string {
	database, _ := db.database(id)
	return database.ETag
}

// clone returns a copy without shared memory.
func (d Database) clone() Database {
	d.Meta = slices.Clone(d.Meta)
	return d
}

func (db *DB) database(id string) (Database, bool) {
	database, ok := (*db.databases.Load())[id]
	return database, ok
}

// Databases returns all databases, sorted by id.
func (db *DB) Databases() []Database {
	all := *db.databases.Load()
	list := make([]Database, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[id].clone())
	}
	return list
}

// readDatabases reads the records of all databases.
func (ld loader) readDatabases() error {
	all := map[string]Database{}
	ld.db.databases.Store(&all)
	return ld.eachRecord(tableDatabase, func(key, value []byte) error {
		var database Database
		if err := json.Unmarshal(value, &database); err != nil {
			return fmt.Errorf("%w: read database %q: %w", ErrCorrupt, key[1:], err)
		}
		all[database.ID] = database
		return nil
	})
}

// containerRID returns the resource id of a container, as the service builds them: the 4 bytes of the database, then
// a number of 4 bytes whose first bit is set. SDKs use that bit and the length to tell which kind of resource an id
// names.
func containerRID(database Database, num uint32) (string, error) {
	own, err := decodeRID(database.RID)
	if err != nil {
		return "", err
	}
	return encodeRID(binary.BigEndian.AppendUint32(own, num|1<<31)), nil
}

// checkName refuses names that the service refuses: empty, longer than 255 bytes, or
// with a character that would change the meaning of a URL.
func checkName(field, id string) error {
	if id == "" || len(id) > maxName || strings.ContainsAny(id, `/\?#`) {
		return refuse(`%s is %q: want 1 to %d bytes, none of / \ ? #`, field, id, maxName)
	}
	return nil
}

// qualified returns the full name, database/container, of a name that may omit the default database.
func qualified(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return DefaultDatabase + "/" + name
}
