package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The inventory is a file of the store that lists the logs and, after a clean end, how far
// the newest log and the manifest reach. The library keeps neither: it reads the logs that
// it finds, and takes the first broken record of the last log for the point of a power
// loss, so a log that was deleted or cut by a copy tool would go unnoticed. Tables need no
// entry, since the manifest names them.
//
// The file is replaced as a whole when a log is made and when the store is closed. In
// between it may name logs that are gone, but only those before the first log that the
// manifest still wants. A log that it does not name has just been made and is empty.
//
// A store of an earlier version, without an inventory, is accepted as it is and gets one.

const (
	inventoryName = "INVENTORY"
	inventoryNext = inventoryName + ".next" // takes its place
)

// facts are the content of the inventory.
type facts struct {
	Version int
	Making  bool     `json:",omitempty"` // the first open has not finished: nothing is acknowledged
	Format  string   `json:",omitempty"` // of the store; older builds did not write it
	NoSync  bool     `json:",omitempty"` // the newest log was written without waiting for the disk
	First   uint64   // logs before this one are in tables
	Logs    []uint64 // those from First on
	Closed  *ending  `json:",omitempty"` // the store was closed
}

// ending is how far the files of a closed store reach.
type ending struct {
	Log      uint64
	LogEnd   int64 // with its trailer
	Manifest string
	Size     int64
}

// errUnrecorded means that a log was made and could not be written into the inventory.
var errUnrecorded = errors.New("a new log is not in " + inventoryName)

// inventoryVersion is the version of the form of facts.
const inventoryVersion = 1

// inventory keeps the facts of an open store.
type inventory struct {
	fs     vfs.FS
	dir    string
	noSync bool

	mu     sync.Mutex
	facts  facts
	newest *atomic.Int64 // bytes written to the newest log; nil before there is one
}

// readInventory reads the facts and reports whether there is an inventory.
func readInventory(fs vfs.FS, dir string) (f facts, found bool, err error) {
	b, err := readAll(fs, fs.PathJoin(dir, inventoryName))
	if errors.Is(err, os.ErrNotExist) {
		return f, false, nil
	}
	if err != nil {
		return f, false, err
	}
	text, sum, _ := bytes.Cut(b, []byte{'\n'})
	if string(sum) != inventorySum(text) {
		return f, true, damaged(inventoryName, "its checksum is wrong")
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, true, damaged(inventoryName, "%w", err)
	}
	if f.Version != inventoryVersion {
		return f, true, fmt.Errorf("%w: %s has version %d, this version reads %d: nothing was changed; open the store with the version that wrote it",
			ErrFormat, inventoryName, f.Version, inventoryVersion)
	}
	return f, true, nil
}

// inventorySum is the last line of an inventory: the checksum of those before.
func inventorySum(text []byte) string {
	return fmt.Sprintf("%08x\n", crc32.Checksum(text, castagnoli))
}

func readAll(fs vfs.FS, path string) ([]byte, error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(file)
	return b, errors.Join(err, file.Close())
}

// save replaces the file: written beside, synced, renamed. When save returns, the file
// is on the disk, and so are the names of all files that were made before, because the
// sync of the directory covers them too.
func (v *inventory) save() error {
	v.facts.Logs = slices.DeleteFunc(v.facts.Logs, func(n uint64) bool { return n < v.facts.First })
	text, err := json.Marshal(v.facts)
	if err != nil {
		return err
	}
	path, next := v.fs.PathJoin(v.dir, inventoryName), v.fs.PathJoin(v.dir, inventoryNext)
	file, err := v.fs.Create(next, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write([]byte(string(text) + "\n" + inventorySum(text)))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := v.fs.Rename(next, path); err != nil {
		return err
	}
	return syncDir(v.fs, v.dir)
}

// recordMaking records that a store is being made. A store whose making was interrupted has
// acknowledged nothing, so it is made from the beginning.
func (v *inventory) recordMaking() error {
	if err := v.save(); err != nil {
		return err
	}
	names, err := v.fs.List(v.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if ours(name) && name != inventoryName {
			if err := v.fs.Remove(v.fs.PathJoin(v.dir, name)); err != nil {
				return err
			}
		}
	}
	return syncDir(v.fs, v.dir)
}

// recordOpened records that the store has been opened for the first time.
func (v *inventory) recordOpened() error {
	if v == nil || !v.facts.Making {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts.Making = false
	return v.save()
}

// recordFormat records the format that the store has now.
func (v *inventory) recordFormat(format string) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts.Format = format
	return v.save()
}

// sealLogs records where the files of a closed store end: from now on a shorter file is
// damage and not the trace of a power loss.
func (v *inventory) sealLogs() error {
	if v == nil {
		return nil
	}
	names, err := v.fs.List(v.dir)
	if err != nil {
		return err
	}
	_, m, err := currentManifest(names)
	if err != nil {
		return err
	}
	info, err := v.fs.Stat(v.fs.PathJoin(v.dir, m))
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.facts.Logs); v.newest != nil {
		v.facts.Closed = &ending{Log: v.facts.Logs[n-1], LogEnd: v.newest.Load(), Manifest: m, Size: info.Size()}
	}
	return v.save()
}

// addLog records a new log before anything is written to it. An inventory that lacked
// the log could not refuse a store that lost it.
func (v *inventory) addLog(num uint64) (*atomic.Int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newest = &atomic.Int64{}
	v.facts.Closed, v.facts.NoSync = nil, v.noSync
	if !slices.Contains(v.facts.Logs, num) { // the making of a log is tried again after an error
		v.facts.Logs = append(v.facts.Logs, num)
	}
	return v.newest, v.save()
}

// dropLog records that a log is not needed any more. The file is not saved for that,
// since a log that is named but before First is not looked for.
func (v *inventory) dropLog(num uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts.First = max(v.facts.First, num+1)
}

// logNumber returns the number in the name of a log.
func logNumber(name string) (uint64, bool) { return fileNumber(name, logSuffix) }

// IsLog reports whether a name is that of a log.
func IsLog(file string) bool {
	_, ok := logNumber(file)
	return ok
}

// fileNumber returns the number in the name of a file of a kind, if the name is written
// as the library writes it. Other spellings are other programs' files.
func fileNumber(name, suffix string) (uint64, bool) {
	text, ok := strings.CutSuffix(name, suffix)
	if !ok || len(text) < 6 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && fmt.Sprintf("%06d", n) == text
}

// inventoryFS is a file system that records the making and dropping of logs. The library
// has no hook that comes before the first write to a log; its file system does.
type inventoryFS struct {
	vfs.FS
	inv *inventory
}

// Unwrap returns the file system below.
func (fs inventoryFS) Unwrap() vfs.FS { return fs.FS }

// Create records a new log.
func (fs inventoryFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := fs.FS.Create(name, category)
	return fs.noteOpened(name, file, err)
}

// ReuseForWrite records a new log in the place of one that is no longer needed.
func (fs inventoryFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	fs.dropRemoved(old)
	file, err := fs.FS.ReuseForWrite(old, name, category)
	return fs.noteOpened(name, file, err)
}

// Remove records that a log is gone.
func (fs inventoryFS) Remove(name string) error {
	err := fs.FS.Remove(name)
	if err == nil {
		fs.dropRemoved(name)
	}
	return err
}

// logNumber returns the number of a log of the store; logs of copies are not the store's.
func (fs inventoryFS) logNumber(name string) (uint64, bool) {
	num, ok := logNumber(fs.PathBase(name))
	return num, ok && fs.PathJoin(fs.inv.dir, fs.PathBase(name)) == fs.PathJoin(name)
}

// dropRemoved takes a log that was removed out of the inventory.
func (fs inventoryFS) dropRemoved(name string) {
	if num, ok := fs.logNumber(name); ok {
		fs.inv.dropLog(num)
	}
}

// noteOpened adds a log that was opened to the inventory, and counts the bytes written to it. A log
// that cannot be recorded is not used, because its loss would go unnoticed.
func (fs inventoryFS) noteOpened(name string, file vfs.File, err error) (vfs.File, error) {
	num, ok := fs.logNumber(name)
	if err != nil || !ok {
		return file, err
	}
	written, err := fs.inv.addLog(num)
	if err != nil {
		_ = file.Close() // holds nothing yet
		return nil, fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	return countedLog{file, written}, nil
}

// countedLog is the newest log. Its length is wanted when the store is closed, and the
// file's size does not tell: room in advance counts, and an old log's rest does.
type countedLog struct {
	vfs.File
	written *atomic.Int64
}

// Write counts the bytes written.
func (l countedLog) Write(b []byte) (int, error) {
	n, err := l.File.Write(b)
	l.written.Add(int64(n))
	return n, err
}
