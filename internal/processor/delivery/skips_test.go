package delivery

import (
	"testing"

	"github.com/millrace/changefeed/internal/notes"
)

// An engine with one batch at a time skips what the lease names, though the lease does not say any more that it was
// tried: the last owner had read only a part of what had failed.
func TestASkippedChangeIsSkippedInAPlainEngine(t *testing.T) {
	w := newTrial(t, Rules{Concurrency: 1, ID: func(c *Change) string { return letterName(c.LSN, c.Place) }})
	w.Restore(Notes{Skips: []notes.Skip{{Key: "a", LSN: 2, ID: letterName(2, 0)}}}, w.now)
	w.page("a", "a", "a")
	b := w.wants(Call, 1, 3)
	w.succeeds(b)
	if n := w.Notes(); len(n.Skips) != 0 || w.Position() != Position(int64(3)) {
		t.Errorf("at %v the lease names %+v, want nothing at 3", w.Position(), n.Skips)
	}
}
