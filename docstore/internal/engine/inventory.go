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

// The inventory is a file of the store, a list of the logs. If the store was closed, the inventory also records how far
// the newest log and the manifest reach. The library records neither: the library reads the logs that exist, and treats
// the first broken record of the last log as the point of a power loss. So a log deleted, or cut by a copy tool, would
// go unnoticed. Tables need no entry, because the manifest names them.
//
// The file is replaced as a whole when a log is created and when the store is closed. In between, the inventory may
// list deleted logs, but only those before the first log the manifest still needs. An unlisted log has just been
// created and is empty.
//
// A store of an earlier version has no inventory. The engine accepts its files as they are, and creates an inventory.

const (
	inventoryName = "INVENTORY"
	inventoryNext = inventoryName + ".next" // renamed to inventoryName when complete
)

// facts is the content of the inventory.
type facts struct {
	Version int
	Making  bool     `json:",omitempty"` // the first open has not finished: no write was acknowledged
	Format  string   `json:",omitempty"` // of the store; older builds did not write the format
	NoSync  bool     `json:",omitempty"` // the newest log was written without waiting for the disk
	First   uint64   // earlier logs are in tables
	Logs    []uint64 // logs from First onward
	Closed  *ending  `json:",omitempty"` // set if the store was closed
}

// ending records how far the files of a closed store reach.
type ending struct {
	Log      uint64
	LogEnd   int64  // with its trailer
	Sum      uint32 `json:",omitempty"` // checksum of the newest log up to LogEnd; older builds did not write Sum
	Manifest string
	Size     int64
}

// errUnrecorded means: a log was created but could not be recorded in the inventory.
var errUnrecorded = errors.New("a new log is not in " + inventoryName)

// inventoryVersion is the version of the format of facts.
const inventoryVersion = 1

// inventory keeps the facts of an open store.
type inventory struct {
	fs     vfs.FS
	dir    string
	noSync bool

	mu     sync.Mutex
	facts  facts
	newest *logBytes // written to the newest log; nil if there is no log yet
}

// readInventory reads the facts; found is false if there is no inventory.
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
		return f, true,
			fmt.Errorf("%w: %s has version %d, this version reads %d: nothing was changed; open the store with the "+
				"version that wrote it",
				ErrFormat, inventoryName, f.Version, inventoryVersion)
	}
	return f, true, nil
}

// inventorySum returns the last line of an inventory: the checksum of the lines before.
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

// save replaces the file: save writes a new file under another name, then syncs and renames the new file. When save
// returns, the file is on the disk, and so are the names of all files created before, because the sync of the
// directory covers them too.
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

// recordMaking records the beginning of the store's creation. If the creation is interrupted, no write was
// acknowledged, so the store is created again from the beginning.
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

// recordOpened records the first opening of the store.
func (v *inventory) recordOpened() error {
	if v == nil || !v.facts.Making {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts.Making = false
	return v.save()
}

// recordFormat records the present format of the store.
func (v *inventory) recordFormat(format string) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts.Format = format
	return v.save()
}

// sealLogs records where the files of a closed store end. From now on a shorter file is damage, not the trace of a
// power loss.
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
		v.facts.Closed = &ending{
			Log: v.facts.Logs[n-1], LogEnd: v.newest.size.Load(), Sum: v.newest.checksum(),
			Manifest: m, Size: info.Size(),
		}
	}
	return v.save()
}

// addLog records a new log before anything is written to the log. If the log were not in the inventory, the loss of
// the log would not be noticed.
func (v *inventory) addLog(num uint64) (*logBytes, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newest = &logBytes{}
	v.facts.Closed, v.facts.NoSync = nil, v.noSync
	if !slices.Contains(v.facts.Logs, num) { // already listed if the creation of a log is retried after an error
		v.facts.Logs = append(v.facts.Logs, num)
	}
	return v.newest, v.save()
}

// dropLog records that a log is no longer needed. This does not save the file, because no check looks for a listed log
// before First.
func (v *inventory) dropLog(num uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.facts.First = max(v.facts.First, num+1)
}

// logNumber returns the number in the name of a log.
func logNumber(name string) (uint64, bool) { return fileNumber(name, logSuffix) }

// IsLog reports whether file is the name of a log.
func IsLog(file string) bool {
	_, ok := logNumber(file)
	return ok
}

// fileNumber returns the number in the name of a file, if the name is spelled as in the library. Files with other
// spellings belong to other programs.
func fileNumber(name, suffix string) (uint64, bool) {
	text, ok := strings.CutSuffix(name, suffix)
	if !ok || len(text) < 6 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && fmt.Sprintf("%06d", n) == text
}

// inventoryFS is a file system that records when logs are created and dropped. The library has no hook before the first
// write to a log, but creates logs through its file system.
type inventoryFS struct {
	vfs.FS
	inv *inventory
}

// Unwrap returns the underlying file system.
func (fs inventoryFS) Unwrap() vfs.FS { return fs.FS }

// Create records a new log.
func (fs inventoryFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := fs.FS.Create(name, category)
	return fs.noteOpened(name, file, err)
}

// ReuseForWrite records a new log in the file of an old log.
func (fs inventoryFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	fs.dropRemoved(old)
	file, err := fs.FS.ReuseForWrite(old, name, category)
	return fs.noteOpened(name, file, err)
}

// Remove records the removal of a log.
func (fs inventoryFS) Remove(name string) error {
	err := fs.FS.Remove(name)
	if err == nil {
		fs.dropRemoved(name)
	}
	return err
}

// logNumber returns the number of a log of the store. Logs of copies do not count.
func (fs inventoryFS) logNumber(name string) (uint64, bool) {
	num, ok := logNumber(fs.PathBase(name))
	return num, ok && fs.PathJoin(fs.inv.dir, fs.PathBase(name)) == fs.PathJoin(name)
}

// dropRemoved removes a deleted log from the inventory.
func (fs inventoryFS) dropRemoved(name string) {
	if num, ok := fs.logNumber(name); ok {
		fs.inv.dropLog(num)
	}
}

// noteOpened adds a newly opened log to the inventory, and counts the bytes written to the log. A log that cannot be
// recorded is not used, because its loss would not be noticed.
func (fs inventoryFS) noteOpened(name string, file vfs.File, err error) (vfs.File, error) {
	num, ok := fs.logNumber(name)
	if err != nil || !ok {
		return file, err
	}
	written, err := fs.inv.addLog(num)
	if err != nil {
		_ = file.Close() // the file is still empty
		return nil, fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	return countedLog{file, written}, nil
}

// logBytes is the number of bytes written to a log, and their checksum. The checksum tells the log from the log of
// another store with the same length. A single goroutine of the library writes to a log.
type logBytes struct {
	size  atomic.Int64
	sum   atomic.Uint32
	short atomic.Bool // a write was not whole, so sum is unknown
}

// checksum is that of all bytes; 0 is unknown.
func (l *logBytes) checksum() uint32 {
	if l.short.Load() {
		return 0
	}
	return l.sum.Load()
}

// countedLog is the newest log. A countedLog counts the written bytes, because closing the store needs the log's
// length. The file's size is no substitute: the size includes reserved space, and the rest of an old log whose file
// was reused.
type countedLog struct {
	vfs.File
	written *logBytes
}

// Write counts the bytes written. It sums them before, because a file may change the bytes given.
func (l countedLog) Write(b []byte) (int, error) {
	sum := crc32.Update(l.written.sum.Load(), castagnoli, b)
	n, err := l.File.Write(b)
	l.written.size.Add(int64(n))
	l.written.sum.Store(sum)
	if n < len(b) {
		l.written.short.Store(true)
	}
	return n, err
}
