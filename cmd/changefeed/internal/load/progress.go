package load

import (
	"fmt"
	"os"
	"sync"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// progress is how far a load has come.
type progress struct {
	size int64 // of the input; 0 if unknown

	mu                         sync.Mutex
	imported, rejected, offset int64
}

// newProgress returns the progress of a load that begins at a mark.
func newProgress(in *os.File, m *mark) *progress {
	p := &progress{imported: m.Imported, rejected: m.Rejected, offset: m.Place.Offset}
	if info, err := in.Stat(); err == nil && info.Mode().IsRegular() {
		p.size = info.Size()
	}
	return p
}

// set sets the progress.
func (p *progress) set(imported, rejected, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.imported, p.rejected, p.offset = imported, rejected, offset
}

// state returns the progress as a report shows it.
func (p *progress) state() report.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := report.State{Done: p.imported, Place: p.offset, Size: p.size}
	if p.rejected > 0 {
		s.Note = fmt.Sprintf("%s refused", terminal.Number(p.rejected))
	}
	return s
}
