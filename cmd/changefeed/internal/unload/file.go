package unload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
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

// An export of millions of documents must not start again after an interruption. The mark says up to which byte the
// file has whole pages, and at which positions the feed goes on after them. What is behind that byte, such as half a
// line, is cut, because the feed has that still. The file is synced before the mark is written, so the mark is never
// ahead.

// mark records how far an export into a file has come. The mark is beside the file until the export is done.
type mark struct {
	Container string    `json:"container"` // its name, for people
	Made      string    `json:"made"`      // directory or account, and resource id: a container may be made anew
	Selection string    `json:"selection"`
	Documents int64     `json:"documents"`
	Size      int64     `json:"size"` // of the file
	Tail      uint64    `json:"tail"` // checksum of the last bytes of the file
	Left      []placeOf `json:"left"` // what is still to be read; they tile the selected range
}

// placeOf is a range, and the position up to which the range is written.
type placeOf struct {
	Range string `json:"range"`
	After string `json:"after,omitempty"` // a continuation token; empty is the beginning
}

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
	mark   mark
	places []position
	unlock func() error
}

// OpenFile opens the file of an export of a container. If an interrupted export of the same documents has left the
// file, OpenFile cuts what its mark does not know, and [File.WriteDocuments] goes on. Any other file is refused, unless
// restart says that the file may be overwritten.
func OpenFile(path string, c *place.Container, o Options, restart bool) (f *File, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("write export: %w", err)
	}
	f = &File{path: path, mark: mark{Container: c.Address.Name(), Made: made(c), Selection: o.String()}}
	lock, err := filelock.Take(path + lockSuffix)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, fmt.Errorf("--to is %s: another export writes this file: want another file", path)
	case err != nil:
		return nil, usage.Path("--to", path, err)
	}
	f.unlock = func() error {
		defer os.Remove(path + lockSuffix)
		return lock.Close()
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the error says more
		}
	}()
	found := false
	if !restart {
		if found, err = f.readMark(); err != nil {
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

// readMark reads the mark of an interrupted export, if there is one. The mark must be of the same documents.
func (f *File) readMark() (found bool, err error) {
	text, err := os.ReadFile(f.path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read mark of an interrupted export: %w", err)
	}
	var old mark
	if err := json.Unmarshal(text, &old); err != nil {
		return false, usage.Flag("to", f.path, fmt.Sprintf("another file, or --restart: its mark %s cannot be read: %v",
			f.path+markSuffix, err))
	}
	for _, p := range old.Left {
		r, err := feed.ParseRange(p.Range)
		if err != nil {
			return false, fmt.Errorf("read mark %s: %w", f.path+markSuffix, err)
		}
		f.places = append(f.places, position{r, p.After})
	}
	wrong := ""
	switch {
	case old.Container != f.mark.Container:
		wrong = "that container"
	case old.Made != f.mark.Made:
		wrong = "that container, which has been made anew since, or is in another store or account"
	case old.Selection != f.mark.Selection:
		wrong = "the same selection, " + old.Selection
	}
	if wrong != "" {
		return false, usage.Flag("to", f.path, fmt.Sprintf("another file: an interrupted export of %s has left this one, "+
			"which goes on only with %s; --restart overwrites the file", old.Container, wrong))
	}
	f.mark, f.Before = old, old.Documents
	return true, nil
}

// cut cuts what the mark does not know. A file that is not as the mark says is refused.
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
	h := fnv.New64a()
	_, _ = h.Write(text) // a hash takes everything
	return h.Sum64(), nil
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
	text, err := json.Marshal(f.mark)
	if err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	if err := os.WriteFile(f.path+markSuffix+".new", text, 0o644); err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	if err := os.Rename(f.path+markSuffix+".new", f.path+markSuffix); err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	return nil
}

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

// advance notes that a part of one of the places is written up to a position. The part is a whole place, or the piece
// of a place after a split.
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
