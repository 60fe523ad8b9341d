package engine

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store is verified before the library opens it, because the library then deletes the files that its manifest does
// not name, and the part of a log that the library cannot read. The verification reads everything that decides about
// this, and writes nothing: the markers, the manifest to its end, the names and sizes of the tables, the logs to
// their ends, the options. The blocks of tables have checksums, which the library verifies at each read.

// lockAndVerify locks the directory and verifies its files. After success, the guard uses a file system that keeps
// the inventory up to date. The exception is a store without an inventory when raise is set: its format must be
// raised first (see format.go).
func lockAndVerify(ctx context.Context, e *Engine, dir string, po *pebble.Options, raise bool) (err error) {
	fs := e.guard.FS
	if e.lock, err = pebble.LockDirectory(dir, fs); err != nil {
		return unusableError{err}
	}
	e.inventory = &inventory{fs: fs, dir: dir, noSync: !e.sync}
	e.inventory.facts, e.newest, err = verify(ctx, fs, dir, e.schema, po)
	if err == nil {
		e.inventory.facts.Format, err = checkFormat(ctx, e, dir, po)
	}
	if err == nil && raise {
		e.raising, err = isOld(e, fs, dir)
	}
	if err == nil && e.inventory.facts.Making {
		err = e.inventory.recordMaking()
	}
	if err != nil {
		_ = e.unlockDirectory()
		if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) {
			return err
		}
		return openFailure(ctx, err)
	}
	po.Lock = e.lock
	if e.raising {
		e.inventory = nil
		return nil
	}
	e.guard.FS = inventoryFS{fs, e.inventory}
	return nil
}

// unlockDirectory unlocks the directory.
func (e *Engine) unlockDirectory() error {
	if e.lock == nil {
		return nil
	}
	return e.lock.Close()
}

// survey is a directory being verified, step by step.
type survey struct {
	ctx   context.Context
	fs    vfs.FS
	dir   string
	names []string
	facts facts
	known bool // the store has an inventory

	marker       string // the newest marker that names a manifest; older markers are to be removed
	manifestName string
	manifest     *manifest
	newest       LogEnd
	schema       Schema
}

// verify refuses a damaged store. verify returns the facts for the inventory, and the state of the newest log's end.
// For a new directory, these are the facts of a store being created.
func verify(ctx context.Context, fs vfs.FS, dir string, keys Schema, o *pebble.Options) (facts, LogEnd, error) {
	s := survey{ctx: ctx, fs: fs, dir: dir, schema: keys}
	var err error
	if s.names, err = fs.List(dir); err != nil {
		return facts{}, LogEnd{}, err
	}
	slices.Sort(s.names)
	if s.facts, s.known, err = readInventory(fs, dir); err != nil {
		return facts{}, LogEnd{}, err
	}
	if store, _ := look(s.names); !store || s.facts.Making {
		return facts{Version: inventoryVersion, Making: true}, LogEnd{}, nil
	}
	// Each step relies on the previous step: a marker names the manifest, and the manifest names all other files.
	for _, step := range []func() error{s.findManifest, s.readManifest, s.verifyTables, s.verifyLogs, func() error {
		return s.verifyOptions(o)
	}, func() error { return s.verifyHeads(o) }} {
		err := step()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return facts{}, LogEnd{}, err
		}
	}
	s.facts.Version = inventoryVersion
	return s.facts, s.newest, nil
}

// look reports whether the names in a directory are those of a store or the rest of a store, and whether there are
// other files. If a marker is lost, the store must not look like an empty directory, because the library would format
// the directory and delete the tables.
func look(names []string) (store, other bool) {
	for _, name := range names {
		switch {
		case name == "LOCK" || name == "lost+found" || name == inventoryNext:
		case ours(name):
			store = true
		default:
			other = true
		}
	}
	return store, other
}

// ours reports whether a name is the name of a store's file.
func ours(name string) bool {
	for _, prefix := range []string{manifestMarker, formatMarker, manifestPrefix, optionsPrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{tableSuffix, logSuffix, blobSuffix} {
		if _, ok := fileNumber(name, suffix); ok {
			return true
		}
	}
	return name == inventoryName
}

func sortedNames(files map[string]uint64) []string { return slices.Sorted(maps.Keys(files)) }

const (
	manifestPrefix = "MANIFEST-"
	markerPrefix   = "marker."
	manifestMarker = "marker.manifest."
	formatMarker   = "marker.format-version."
	optionsPrefix  = "OPTIONS-"
	tableSuffix    = ".sst"
	blobSuffix     = ".blob"
	logSuffix      = ".log"
)

// findManifest finds the manifest. findManifest refuses a store without markers or with another format. The markers
// are empty files, which some copy tools skip. Without them the library would create a new store and delete the
// tables.
func (s *survey) findManifest() (err error) {
	if s.marker, s.manifestName, err = currentManifest(s.names); err != nil {
		return err
	}
	has := func(name string) bool { return strings.HasPrefix(name, formatMarker) }
	if !slices.ContainsFunc(s.names, has) {
		return damaged(formatMarker+"*", "it is missing, though there are files of a store")
	}
	if _, err := pebble.Peek(s.dir, s.fs); err != nil {
		if strings.Contains(err.Error(), "unknown format major version") {
			return newerFormat(err)
		}
		return damaged(formatMarker+"*", "%w", err)
	}
	return nil
}

// currentManifest returns the newest marker and the manifest that it names.
func currentManifest(names []string) (marker, manifest string, err error) {
	newest := uint64(0)
	for _, name := range names {
		if !strings.HasPrefix(name, markerPrefix) {
			continue
		}
		parts := strings.SplitN(name, ".", 4)
		n, err := strconv.ParseUint(parts[min(2, len(parts)-1)], 10, 64)
		if err != nil || len(parts) < 4 {
			return "", "", damaged(name, "it is not a marker")
		}
		// There may be two markers, if the process ended between creating the new marker and removing the old marker.
		if strings.HasPrefix(name, manifestMarker) && (marker == "" || n > newest) {
			marker, manifest, newest = name, parts[3], n
		}
	}
	if marker == "" {
		return "", "", damaged(manifestMarker+"*", "it is missing, though there are files of a store")
	}
	return marker, manifest, nil
}

// readManifest reads the manifest up to its first broken record. If the store was not closed, the manifest may end in
// part of a record. No file has been deleted because of that record, so all files of the previous version still
// exist; the next steps verify this. A complete record after a broken record proves damage, because records are
// written in order.
func (s *survey) readManifest() error {
	name := s.manifestName
	if name == "" {
		return damaged(manifestPrefix+"*", "it is missing")
	}
	file, err := s.fs.Open(s.fs.PathJoin(s.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return damaged(name, "it is missing, though %s names it", s.marker)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	s.manifest = newManifest()
	c := newChunks(file, 0)
	err = c.eachRecord(func(record []byte, ok bool) error {
		if !ok {
			return nil
		}
		if err := s.manifest.applyEdit(record); err != nil {
			return damaged(name, "record %d: %w", s.manifest.edits+1, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case s.manifest.edits == 0:
		return damaged(name, "it has no whole record")
	case c.later > 0:
		return damaged(name, "a record at offset %d is damaged, and %d after it are not", c.broken, c.later)
	}
	return s.sealedManifest(c)
}

// sealedManifest compares the manifest with the inventory. A manifest cut at the end of a record looks
// complete, and the library would bring back an old state. But such a manifest needs logs that, according to the
// inventory, are already in tables, or it is shorter than when the store was closed.
func (s *survey) sealedManifest(c *chunks) error {
	name := s.manifestName
	if s.known && s.manifest.firstLog < s.facts.First {
		return damaged(name, "it ends before the record after which log %06d was needed no more", s.facts.First-1)
	}
	end := s.facts.Closed
	if end != nil && name == end.Manifest && (c.end != end.Size || c.broken >= 0) {
		return damaged(name, "it is whole up to offset %d, and had %d bytes when the store was closed", c.end, end.Size)
	}
	return nil
}

// verifyTables verifies that all files named by the manifest exist and have the right sizes.
func (s *survey) verifyTables() error {
	live := s.manifest.liveFiles()
	for _, name := range s.names {
		number, ok := strings.CutSuffix(name, blobSuffix)
		if _, used := live[number+tableSuffix]; ok && used {
			return damaged(name, "%s has its number", number+tableSuffix)
		}
		number, ok = strings.CutSuffix(name, tableSuffix)
		if _, used := live[number+blobSuffix]; ok && used {
			return damaged(name, "%s has its number", number+blobSuffix)
		}
	}
	for _, name := range sortedNames(live) {
		info, err := s.fs.Stat(s.fs.PathJoin(s.dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist):
			return damaged(name, "it is missing, though %s names it", s.manifestName)
		case err != nil:
			return err
		case uint64(info.Size()) != live[name]:
			return damaged(name, "it has %d bytes, and %d by %s", info.Size(), live[name], s.manifestName)
		}
	}
	return nil
}

// verifyOptions verifies that the library will accept its newest file of options, so the error for a damaged file
// contains its name.
func (s *survey) verifyOptions(o *pebble.Options) error {
	newest, number := "", uint64(0)
	for _, name := range s.names {
		if text, ok := strings.CutPrefix(name, optionsPrefix); ok {
			if n, err := strconv.ParseUint(text, 10, 64); err == nil && n >= number {
				newest, number = name, n
			}
		}
	}
	if newest == "" {
		return nil
	}
	text, err := readAll(s.fs, s.fs.PathJoin(s.dir, newest))
	if err != nil {
		return err
	}
	o = o.Clone() // EnsureDefaults sets the names that the check compares
	o.EnsureDefaults()
	if err := o.CheckCompatibility(s.dir, string(text)); err != nil {
		return damaged(newest, "%w", err)
	}
	return nil
}
