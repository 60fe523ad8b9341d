package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
)

// An import of millions of documents must not start again after an interruption. The mark may be behind the last
// written document. All writes are upserts, so writing documents after the mark again does no harm.

// A mark records how far a load has come: every document before the mark was written or kept as a reject. Until the
// import is done, the mark is in the store's directory or, for an account, next to the input.
type mark struct {
	Version  int       `json:"version"`
	Input    string    `json:"input"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	// account and resource id of the container: a container that was created again is empty
	Container string `json:"container"`
	Place     point  `json:"place"`
	Imported  int64  `json:"imported"`
	Rejected  int64  `json:"rejected"`
	Rejects   int64  `json:"rejects_size"` // of the reject file

	path string // empty if the input cannot be read from the middle
}

// markVersion is the version of the form of a mark. A mark of another version counts as that of another load: the
// import starts again, which does no harm.
const markVersion = 1

const (
	marksFolder = "imports" // folder in a store
	markSuffix  = ".mark"   // next to the input
)

// openMark returns the mark of a load, and whether an interrupted load has left the mark there. An input that has
// changed since counts as another input.
func openMark(in *os.File, c *place.Container) (m *mark, found bool, err error) {
	info, err := in.Stat()
	if err != nil {
		return nil, false, fmt.Errorf("read input: %w", err)
	}
	m = &mark{Version: markVersion, Size: info.Size(), Modified: info.ModTime()}
	if !info.Mode().IsRegular() || in == os.Stdin {
		return m, false, nil
	}
	if m.Input, err = filepath.Abs(in.Name()); err != nil {
		return nil, false, fmt.Errorf("read input: %w", err)
	}
	m.setLocation(c)
	text, err := os.ReadFile(m.path)
	if errors.Is(err, os.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read mark of an earlier import: %w", err)
	}
	old := mark{path: m.path}
	if json.Unmarshal(text, &old) != nil || !old.isOfSameLoad(m) { // cut short by a power loss, or for other input
		return m, false, nil
	}
	return &old, true, nil
}

// setLocation sets the path of the mark, and its container. If no file can be created next to the input, an import into
// an account has no mark.
func (m *mark) setLocation(c *place.Container) {
	if c.Local != nil {
		h := fnv.New64a()
		fmt.Fprint(h, m.Input, "\x00", c.Local.Name())
		m.Container = c.Local.RID()
		m.path = filepath.Join(c.Address.Dir, marksFolder, fmt.Sprintf("%016x.json", h.Sum64()))
		return
	}
	m.Container, m.path = c.Account.Endpoint+" "+c.Remote.RID(), m.Input+markSuffix
	f, err := os.OpenFile(m.path+".new", os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		m.path = ""
		return
	}
	f.Close()
	_ = os.Remove(f.Name()) // created again later
}

// isOfSameLoad reports whether a mark belongs to the same load.
//
// The content of the input is not compared, because reading would take as long as importing. Instead, its size and
// the time of its last change are compared.
func (m *mark) isOfSameLoad(now *mark) bool {
	return m.Input == now.Input && m.Size == now.Size && m.Modified.Equal(now.Modified) &&
		m.Version == now.Version &&
		m.Container == now.Container && m.Place.Offset > 0 && m.Place.Offset <= m.Size
}

// reset moves a mark to the beginning.
func (m *mark) reset() {
	m.Place, m.Imported, m.Rejected, m.Rejects = point{}, 0, 0, 0
}

// save stores the mark, as a whole or not at all. save does not wait for the disk: if the mark is older, or was cut
// by a power loss, some documents are only written again.
func (m *mark) save() error {
	if m.path == "" || m.Place.Offset == 0 {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(m.path), 0o755); err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	if err := os.WriteFile(m.path+".new", text, 0o644); err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	if err := os.Rename(m.path+".new", m.path); err != nil {
		return fmt.Errorf("save mark: %w", err)
	}
	return nil
}

// remove removes the mark, so the next load starts at the beginning.
func (m *mark) remove() error {
	if m.path == "" {
		return nil
	}
	if err := os.Remove(m.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove mark: %w", err)
	}
	if folder := filepath.Dir(m.path); filepath.Base(folder) == marksFolder {
		_ = os.Remove(folder) // fails if other imports have marks there
	}
	return nil
}
