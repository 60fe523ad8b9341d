package unload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/filelock"
	"github.com/millrace/changefeed/internal/keyspace"
)

const (
	markSuffix = ".mark"
	lockSuffix = ".lock"
	tailLength = 4096 // bytes of the file that the mark knows by their checksum
)

// File is the file of an export. An export that was interrupted goes on in the same file.
type File struct {
	*os.File
	Before int64 // documents of an earlier call

	path   string
	kept   int64 // documents of the mark that is stored
	mark   mark
	places []position
	unlock func() error
}

// OpenFile opens the file of an export of a container. If an interrupted export of the same documents has left the
// file, OpenFile cuts the part after the mark, and [File.WriteDocuments] goes on. Any other file is refused, unless
// restart says that the file may be overwritten.
func OpenFile(path string, c *place.Container, o Options, restart bool) (f *File, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("write export: %w", err)
	}
	f = &File{path: path, mark: mark{Container: c.Address.Name(), Made: made(c), Selection: o.String()}}
	lock, err := filelock.TakeTemporary(path + lockSuffix)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, fmt.Errorf("--to is %s: another export writes this file: want another file", path)
	case err != nil:
		return nil, usage.Path("--to", path, err)
	}
	f.unlock = lock.Close
	defer func() {
		if err != nil {
			_ = f.Close() // the error says more
		}
	}()
	found := false
	if !restart {
		if found, err = f.readMark(o); err != nil {
			return f, err
		}
	}
	flags := os.O_RDWR | os.O_CREATE | os.O_EXCL
	if restart {
		flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	}
	if found {
		flags = os.O_RDWR
	}
	if f.File, err = os.OpenFile(path, flags, 0o644); err != nil {
		return f, f.explain(err, found)
	}
	if found {
		return f, f.cut()
	}
	f.places = []position{{o.Range, ""}}
	return f, f.save()
}

// explain explains why the file cannot be opened.
func (f *File) explain(err error, found bool) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return usage.Flag("to", f.path, "a file that does not exist yet, or one that an interrupted export has left; "+
			"--restart overwrites the file")
	case found && errors.Is(err, fs.ErrNotExist):
		return usage.Flag("to", f.path, "the file that an interrupted export has left, which is gone, although its mark "+
			f.path+markSuffix+" is there; --restart begins anew")
	}
	return usage.Path("--to", f.path, err)
}

// made tells a container from others of the same name.
func made(c *place.Container) string {
	if c.Local != nil {
		dir, _ := filepath.Abs(c.Address.Dir) // fails only without a working directory, and then says less
		return dir + " " + c.Local.RID()
	}
	return c.Account.Endpoint + " " + c.Remote.RID()
}

// cut cuts the part after the mark. A file that is not as the mark says is refused.
func (f *File) cut() error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read export: %w", err)
	}
	tail, err := f.tail(min(f.mark.Size, info.Size()))
	if err != nil {
		return err
	}
	if info.Size() < f.mark.Size || tail != f.mark.Tail {
		return usage.Flag("to", f.path, fmt.Sprintf("the file as the interrupted export has left it, with %d bytes or "+
			"more: the file has been changed; --restart begins anew", f.mark.Size))
	}
	if err := f.Truncate(f.mark.Size); err != nil {
		return fmt.Errorf("cut export: %w", err)
	}
	if _, err := f.Seek(f.mark.Size, io.SeekStart); err != nil {
		return fmt.Errorf("cut export: %w", err)
	}
	return nil
}

// tail returns the checksum of the bytes before a size.
func (f *File) tail(size int64) (uint64, error) {
	from := max(0, size-tailLength)
	text := make([]byte, size-from)
	if _, err := f.ReadAt(text, from); err != nil {
		return 0, fmt.Errorf("read export: %w", err)
	}
	return checksum(text), nil
}

// WriteDocuments writes the documents that the file does not have yet. After that the file is done, and has no mark.
func (f *File) WriteDocuments(ctx context.Context, source feed.Source, o Options) (err error) {
	if o.Count == nil {
		o.Count = new(atomic.Int64)
	}
	o.Count.Store(f.Before)
	f.places, err = o.write(ctx, source, f.File, f.places, func(left []position) error {
		f.places, f.mark.Documents = left, o.Count.Load()
		return f.save()
	})
	if errors.Is(err, feed.ErrAhead) {
		return fmt.Errorf("--to is %s: its mark %s does not belong to this state of the container: %w --restart begins anew",
			f.path, f.path+markSuffix, err)
	}
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	if err := os.Remove(f.path + markSuffix); err != nil {
		return fmt.Errorf("remove mark: %w", err)
	}
	return nil
}

// save stores the mark, as a whole or not at all.
func (f *File) save() (err error) {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	if f.mark.Size, err = f.Seek(0, io.SeekCurrent); err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	if f.mark.Tail, err = f.tail(f.mark.Size); err != nil {
		return err
	}
	f.mark.Left = nil
	for _, p := range f.places {
		f.mark.Left = append(f.mark.Left, placeOf{p.Range.String(), p.after})
	}
	text, err := f.mark.text()
	if err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	if err := os.WriteFile(f.path+markSuffix+".new", text, 0o644); err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	if err := os.Rename(f.path+markSuffix+".new", f.path+markSuffix); err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	f.kept = f.mark.Documents
	return nil
}

// Kept returns how many documents the mark has. These documents stay when the export goes on, and others come again.
func (f *File) Kept() int64 { return f.kept }

// Close closes the file.
func (f *File) Close() error {
	var err error
	if f.File != nil {
		err = f.File.Close()
	}
	return cmp.Or(err, f.unlock())
}

// String describes which documents are selected.
func (o Options) String() string {
	words := []string{"--range " + o.Range.String()}
	if o.Key != "" {
		words = append(words, "--key "+string(o.Key))
	}
	if o.System {
		words = append(words, "--system")
	}
	return strings.Join(words, " ")
}

// position is a range, and the token up to which the range is written; empty is the beginning.
type position struct {
	feed.Range
	after string
}

// start returns where to read on.
func (p position) start() feed.Position {
	if p.after == "" {
		return feed.Position{Start: feed.FromBeginning()}
	}
	return feed.At(p.after)
}

// advance notes that a part of a place is written up to a position. The part is a whole place, or the piece of a place
// after a split.
func advance(places []position, part feed.Range, after string) (all []position) {
	for _, p := range places {
		if !p.Contains(part) {
			all = append(all, p)
			continue
		}
		for _, rest := range keyspace.Uncovered(p.Range, []feed.Range{part}) {
			all = append(all, position{rest, p.after})
		}
		all = append(all, position{part, after})
	}
	return all
}
