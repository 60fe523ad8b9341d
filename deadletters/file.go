package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/filelock"
)

// ErrInUse means that another process, or another box of this process, has the file open.
var ErrInUse = errors.New("file of dead letters is in use")

// ErrDamaged means that a line of the file has changed since the write.
var ErrDamaged = errors.New("file of dead letters is damaged")

// ErrNewer means that a later version of changefeed wrote a letter, in a form that this version would misread.
var ErrNewer = errors.New("letter of a later version")

// FileBox is a [feed.LetterBox] in a file of JSON lines. The file belongs to a single host: instances of the unit on
// other hosts do not see these letters. If the range of a held key moves to another host, the other host does not know
// the letters. Only one process at a time has the file open; a lock on the file PATH.lock excludes other processes, but
// [ReadFile] can read the letters meanwhile.
//
// A letter is a line, in the form described in the package comment and with a checksum, crc. A removed letter stays in
// the file, and a later line marks the removal: {"removed":ID,"key":[…],…}. [File] rewrites the file without removed
// letters if these are more than half of the file.
type FileBox struct {
	path, processor string
	lock            io.Closer
	torn            int64

	gate  chan struct{} // protects the fields below
	file  *os.File
	index map[name]place
	size  int64 // of the lines that are safe on the disk
	messy bool  // remains of a failed write may follow those lines
}

// name identifies a letter.
type name struct {
	processor string
	key       feed.PartitionKey
	id        string
}

// place is the place of a letter in the file, and in the order of the key.
type place struct {
	at, size int64 // of its line, without the line break
	lsn      int64
	index    int
}

// File opens the file of a processor's letters, or creates the file. The file may contain letters of other processors,
// which are left alone. File returns [ErrInUse], or [ErrDamaged] with the number of the line and leaves the file
// unchanged, or [feed.ErrBadRequest] if path is no regular file. If a crash has cut the last line short, the line was
// never acknowledged, and File removes the line: see [FileBox.Torn].
func File(path, processor string) (*FileBox, error) {
	if processor == "" {
		return nil, fmt.Errorf("%w: dead letters: processor name is empty: want one such as mailer", feed.ErrBadRequest)
	}
	// Check before taking the lock: otherwise the lock file would stay beside a device or a directory.
	if err := regular(os.Stat(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open dead letters %s: %w", path, err)
	}
	lock, err := filelock.Take(path + ".lock")
	if errors.Is(err, filelock.ErrHeld) {
		err = ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("open dead letters %s: %w", path, err)
	}
	b := &FileBox{path: path, processor: processor, lock: lock, gate: make(chan struct{}, 1)}
	if err := b.openFile(); err != nil {
		if b.file != nil {
			err = errors.Join(err, b.file.Close())
		}
		return nil, errors.Join(fmt.Errorf("open dead letters %s: %w", path, err), lock.Close())
	}
	return b, nil
}

// regular refuses anything but a regular file: letters would be lost in /dev/null.
func regular(info fs.FileInfo, err error) error {
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is %s: want a regular file", feed.ErrBadRequest, info.Mode())
	}
	return err
}

// openFile reads the file and repairs the end.
func (b *FileBox) openFile() (err error) {
	if b.file, err = os.OpenFile(b.path, os.O_RDWR|os.O_CREATE, ownerFile); err != nil {
		return err
	}
	found, err := readLines(b.file)
	if err != nil {
		return err
	}
	info, err := b.file.Stat()
	if err != nil {
		return err
	}
	b.index, b.size, b.torn, b.messy = found.index, found.end, info.Size()-found.end, true
	if found.unended { // a crash lost only the line break
		if err := b.appendLine(nil); err != nil {
			return err
		}
	}
	if found.live < b.size/2 {
		return b.compactFile()
	}
	return syncDir(filepath.Dir(b.path)) // the file may be new
}

// Torn returns how many bytes were removed from the end of the file when it was opened: a line interrupted by a crash.
func (b *FileBox) Torn() int64 { return b.torn }

// Close releases the file.
func (b *FileBox) Close() error {
	b.gate <- struct{}{}
	defer func() { <-b.gate }()
	if err := errors.Join(b.file.Close(), b.lock.Close()); err != nil {
		return fmt.Errorf("close dead letters %s: %w", b.path, err)
	}
	return nil
}

// Put appends a line.
func (b *FileBox) Put(ctx context.Context, l feed.DeadLetter) error {
	text, err := Marshal(b.processor, l)
	if err != nil {
		return err
	}
	key := l.Change.PartitionKey
	err = b.writeLine(ctx, text, func(at int64, size int64) {
		b.index[name{b.processor, key, l.ID}] = place{at, size, l.Change.LSN, l.Index}
	})
	if err != nil {
		return fmt.Errorf("park letter %s of %s in %s: %w", l.ID, key, b.path, err)
	}
	return nil
}

// Remove appends a line that marks the removal.
func (b *FileBox) Remove(ctx context.Context, key feed.PartitionKey, id string) error {
	n := name{b.processor, spelled(key), id}
	if there, err := b.hasLetter(ctx, n); err != nil || !there {
		return err
	}
	err := b.writeLine(ctx, removal(n), func(int64, int64) { delete(b.index, n) })
	if err != nil {
		return fmt.Errorf("remove letter %s of %s from %s: %w", id, key, b.path, err)
	}
	return nil
}

func (b *FileBox) hasLetter(ctx context.Context, n name) (there bool, err error) {
	if err := b.enterGate(ctx); err != nil {
		return false, err
	}
	defer b.leaveGate()
	_, there = b.index[n]
	return there, nil
}

// enterGate waits for the gate. The gate is a channel because writing takes time.
func (b *FileBox) enterGate(ctx context.Context) error {
	if ctx.Err() != nil { // a select may take the gate although ctx has ended
		return context.Cause(ctx)
	}
	select {
	case b.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *FileBox) leaveGate() { <-b.gate }

// writeLine appends a line, and notes the place once the line is safe.
func (b *FileBox) writeLine(ctx context.Context, text []byte, note func(at, size int64)) error {
	if err := b.enterGate(ctx); err != nil {
		return err
	}
	defer b.leaveGate()
	at, text := b.size, sealed(text)
	if err := b.appendLine(text); err != nil {
		return err
	}
	note(at, int64(len(text)))
	return nil
}

// appendLine writes a line after the last safe line. First appendLine cuts off the remains of a failed write, because
// the disk may have any part of them.
func (b *FileBox) appendLine(text []byte) error {
	if b.messy {
		if err := b.file.Truncate(b.size); err != nil {
			return err
		}
	}
	b.messy = true
	line := append(text[:len(text):len(text)], '\n')
	if _, err := b.file.WriteAt(line, b.size); err != nil {
		return err
	}
	if err := syncFile(b.file); err != nil {
		return err
	}
	b.messy, b.size = false, b.size+int64(len(line))
	return nil
}

// syncFile makes a file safe on the disk; a test keeps synced bytes, and loses the rest.
var syncFile = (*os.File).Sync

// Letters yields the letters that exist at the time of the call.
func (b *FileBox) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		if err := b.enterGate(ctx); err != nil {
			yield(feed.DeadLetter{}, err)
			return
		}
		index := maps.Clone(b.index)
		b.leaveGate()
		letters(ctx, b.file, index, b.processor, spelled(key))(yield)
	}
}

// ReadFile yields the letters of a processor in a file, even if another process has the file open. ReadFile has the
// errors of [File], except for [ErrInUse]. [ErrDamaged] comes after the readable letters. If a damaged line was a
// removal, the removed letter is among them.
func ReadFile(ctx context.Context, path, processor string) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(feed.DeadLetter{}, fmt.Errorf("read dead letters: %w", err))
			return
		}
		defer f.Close()
		err = regular(f.Stat())
		var found content
		if err == nil {
			found, err = readLines(f)
		}
		if err == nil || errors.Is(err, ErrDamaged) {
			for l, err := range letters(ctx, f, found.index, processor, "") {
				if !yield(l, err) || err != nil {
					return
				}
			}
		}
		if err != nil {
			yield(feed.DeadLetter{}, fmt.Errorf("read dead letters %s: %w", path, err))
		}
	}
}

// letters reads the letters of an index that belong to a processor and, unless key is empty, to a key.
func letters(ctx context.Context, f io.ReaderAt, index map[name]place, processor string,
	key feed.PartitionKey,
) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		maps.DeleteFunc(index, func(n name, _ place) bool {
			return n.processor != processor || key != "" && n.key != key
		})
		order := slices.SortedFunc(maps.Keys(index), func(x, y name) int {
			a, b := index[x], index[y]
			return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.index, b.index))
		})
		for _, n := range order {
			l, err := letterAt(f, index[n])
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if err != nil {
				yield(feed.DeadLetter{}, fmt.Errorf("read letter %s of %s: %w", n.id, n.key, err))
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// letterAt reads a letter again: the index has only places, because documents may be large and letters many.
func letterAt(f io.ReaderAt, p place) (feed.DeadLetter, error) {
	text := make([]byte, p.size)
	if _, err := f.ReadAt(text, p.at); err != nil {
		return feed.DeadLetter{}, err
	}
	text, err := unsealed(text)
	if err != nil {
		return feed.DeadLetter{}, err
	}
	return parse(text)
}
