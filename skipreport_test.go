package changefeed_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/notes"
)

// The owner that obeys a skip says which changes are skipped, who has asked and why, in a hook and in a line of the
// log. A skip that is refused is not reported.
func TestASkipIsReported(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var told []feed.Skip
		var text bytes.Buffer
		hooks := changefeed.JoinHooks(changefeed.LogHooks(slog.New(slog.NewTextHandler(&text, nil))), changefeed.Hooks{
			Skipped: func(_ context.Context, s feed.Skip) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, s)
			},
		})
		lsn := w.put("oslo", "bad", 1)
		h := newBad()
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Hooks: hooks})
		time.Sleep(time.Minute)
		f := w.onlyBad()
		if _, err := w.skip(f); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		again := notes.Control{
			Action: notes.SkipChanges, Max: "FF", Changes: []notes.Skip{{Key: `["oslo"]`, LSN: lsn}},
		}
		if got, err := inquiry.Ask(ctx, w.leases, again, ""); err != nil || got.Result != notes.Failed {
			t.Errorf("the owner answers a second skip with %+v, %v: the test shows nothing", got, err)
		}
		time.Sleep(time.Minute)
		p.stop(t)
		if len(told) != 1 || told[0].Lease != f.Lease.Token || told[0].By != "ada" || told[0].Reason != "INC-1" ||
			len(told[0].Changes) != 1 ||
			told[0].Changes[0] != (feed.SkippedChange{ID: "bad", Key: feed.Key("oslo"), LSN: lsn}) {
			t.Errorf("reported %+v, want the change with LSN %d of oslo once", told, lsn)
		}
		lines := strings.Count(text.String(), "an operator has changes skipped")
		for _, want := range []string{"level=WARN", "bad of key", "oslo", "by=ada", "reason=INC-1"} {
			if !strings.Contains(text.String(), want) || lines != 1 {
				t.Errorf("%d lines, want one with %s: %s", lines, want, text.String())
			}
		}
	})
}
