package changefeed_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A key that is set aside at a damaged token, or at one after the end of the feed, keeps its changes. An error names
// the lease, the key, the token and the way out, and this way works: a replay of the key delivers its changes, also
// from just before them.
func TestADamagedTokenOfAKeyIsLoud(t *testing.T) {
	for name, damage := range map[string]func(*notes.AsideKey){
		"no token":               func(k *notes.AsideKey) { k.From = "x" },
		"no token, and no LSN":   func(k *notes.AsideKey) { k.From, k.LSN = "x", 0 },
		"after the feed":         func(k *notes.AsideKey) { k.From = `"99999"` },
		"after it, and no LSN":   func(k *notes.AsideKey) { k.From, k.LSN = `"99999"`, 0 },
		"no token, LSN too high": func(k *notes.AsideKey) { k.From, k.LSN = "x", 99999 },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				o := w.setAside(fromStart)
				token, before := "", ""
				w.edit(func(l *feed.Record) {
					var a notes.Aside
					note := l.Properties[notes.AsideProperty]
					if err := json.Unmarshal([]byte(note), &a); err != nil || len(a.Keys) != 1 {
						t.Fatal(err, a)
					}
					before = a.Keys[0].From
					damage(&a.Keys[0])
					token = a.Keys[0].From
					l.Properties[notes.AsideProperty] = a.String()
				})
				h := &tally{}
				p := w.run("b", h, o)
				time.Sleep(5 * time.Minute)
				text := ""
				if all := p.errs.all(); len(all) > 0 {
					text = all[0].Error()
				}
				for _, want := range []string{
					"lease -FF", `["oslo"]`, token, notes.AsideProperty,
					`changefeed leases reset --key '["oslo"]' --to beginning`,
				} {
					if !strings.Contains(text, want) {
						t.Errorf("the error is %q, want %s", text, want)
					}
				}
				note := w.records(feed.KindLease)[0].Properties[notes.AsideProperty]
				if !strings.Contains(note, "oslo") {
					t.Errorf("the key is forgotten: %q", note)
				}
				unit := w.admin(admin.Options{})
				if _, err := unit.ResetKeyTo(t.Context(), feed.Key("oslo"), feed.At(before)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				p.stop(t)
				if got, want := h.ids(), []string{"bad", "next"}; !slices.Equal(got, want) {
					t.Errorf("handled %v after the replay, want %v", got, want)
				}
			})
		})
	}
}
