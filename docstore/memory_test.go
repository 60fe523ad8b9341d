package docstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A caller whose context has ended goes on and uses its memory again, while its write waits for
// the committer.
func TestAWriteUsesNoMemoryOfACallerWhoHasGone(t *testing.T) {
	for name, write := range map[string]func(buffer json.RawMessage) feed.Write{
		"upsert": func(b json.RawMessage) feed.Write { return feed.Write{Op: feed.WriteUpsert, Body: b} },
		"create": func(b json.RawMessage) feed.Write { return feed.Write{Op: feed.WriteCreate, Body: b} },
		"replace": func(b json.RawMessage) feed.Write {
			return feed.Write{Op: feed.WriteReplace, Body: b}
		},
		"patch": func(b json.RawMessage) feed.Write {
			value := b[slices.Index(b, '7') : slices.Index(b, '7')+1]
			return feed.Write{
				Op: feed.WritePatch, ID: "a",
				Patch: []feed.PatchOp{{Op: "set", Path: "/v", Value: value}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, db *docstore.DB, c *docstore.Container) {
				if name != "create" {
					upsert(t, c, "a", "p", 1)
				}
				release := db.Hold()
				ctx, cancel := context.WithCancel(t.Context())
				buffer := json.RawMessage(`{"id":"a","pk":"p","v":7}`)
				var writing sync.WaitGroup
				writing.Go(func() {
					writes := []feed.Write{write(buffer)}
					if _, err := c.Commit(ctx, feed.Key("p"), writes); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					for i := range writes[0].Patch {
						writes[0].Patch[i] = feed.PatchOp{}
					}
				})
				synctest.Wait() // it is in the queue
				cancel()
				writing.Wait()
				for i := range buffer {
					buffer[i] = '9'
				}
				release()
				synctest.Wait()
				if item, err := c.Item(t.Context(), feed.Key("p"), "a"); err != nil || valueOf(t, item.Body) != 7 {
					t.Errorf("the item is %s, %v, want 7", item.Body, err)
				}
			})
		})
	}
}

// What describes containers and databases is the store's own.
func TestASpecificationUsesNoMemoryOfItsCaller(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	meta := json.RawMessage(`{"m":1}`)
	spec := docstore.ContainerSpec{
		ID: "c", Paths: []string{"/pk"}, UniqueKeys: [][]string{{"/u"}}, DefaultTTL: new(60), Meta: meta,
	}
	c, err := db.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	other, err := db.CreateDatabase(t.Context(), "other", meta)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func() {
		copy(meta, `{"x":2}`)
		spec.Paths[0], spec.UniqueKeys[0][0], *spec.DefaultTTL = "/xx", "/x", 1
	}
	check := func(when string) {
		t.Helper()
		s := c.Spec()
		if s.Paths[0] != "/pk" || s.UniqueKeys[0][0] != "/u" || *s.DefaultTTL != 60 || string(s.Meta) != `{"m":1}` {
			t.Errorf("%s the specification is %+v, meta %s, default %d", when, s, s.Meta, *s.DefaultTTL)
		}
		if d, err := db.Database(other.ID); err != nil || string(d.Meta) != `{"m":1}` {
			t.Errorf("%s the database has %s, %v", when, d.Meta, err)
		}
	}
	spoil()
	check("after its creation")
	refusal := errors.New("no")
	_, err = db.UpdateContainer(t.Context(), "c", func(s *docstore.ContainerSpec) error {
		*s.DefaultTTL, s.Meta[2], s.Paths[0] = 1, 'y', "/y"
		return refusal
	})
	if !errors.Is(err, refusal) {
		t.Fatal(err)
	}
	check("after a change that was refused")
	copy(meta, `{"m":1}`)
	_, err = db.UpdateContainer(t.Context(), "c", func(s *docstore.ContainerSpec) error {
		s.Meta, s.DefaultTTL = meta, new(60)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	spoil()
	check("after a change")
}
