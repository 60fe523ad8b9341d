package changefeed_test

import (
	"strconv"
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A key that is set aside has changes before the position of its lease and after it. The lag counts each once.
func TestTheLagCountsTheChangesOfAKeySetAsideOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		first := w.put("oslo", "1", 1)
		w.put("oslo", "2", 1)
		lsn := w.put("bergen", "3", 1)
		w.put("oslo", "4", 1)
		p := w.partitions()[0]
		at := strconv.Quote(strconv.FormatInt(lsn, 10))
		aside := notes.Aside{
			At: at, Partition: notes.Name(p.Range.Min, p.Range.Max,
				[]notes.Partition{{ID: p.ID, Min: p.Range.Min, Max: p.Range.Max}}),
			Keys: []notes.AsideKey{{
				Key: string(feed.Key("oslo")), From: strconv.Quote(strconv.FormatInt(first-1, 10)),
				LSN: first, Passed: true,
			}},
		}
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: p.Range.String(), Range: p.Range,
			Position:   feed.Position{Token: at, Start: feed.FromBeginning()},
			Properties: map[string]string{notes.AsideProperty: aside.String()},
		}); err != nil {
			t.Fatal(err)
		}
		if l := w.lag(); l.Pending != 3 || l.SetAside != 1 || !l.Exact || l.Err != nil {
			t.Errorf("lag %+v, want 3 pending of which 2 are set aside", l)
		}
	})
}
