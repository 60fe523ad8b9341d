package docstore_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var errUnwanted = errors.New("unwanted")

func TestUpdateContainer(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID: "c", Paths: []string{"/pk"},
		Meta: json.RawMessage(`1`),
	})
	if err != nil {
		t.Fatal(err)
	}
	etag := etagOf(c)
	updated, err := db.UpdateContainer(t.Context(), "c", func(s *docstore.ContainerSpec) error {
		s.Retention, s.Meta = time.Hour, append(s.Meta, '0')
		s.Paths = []string{"/other"} // has no effect
		return nil
	})
	if s := c.Spec(); err != nil || updated != c || s.Retention != time.Hour || string(s.Meta) != "10" ||
		s.Paths[0] != "/pk" || etagOf(c) == etag {
		t.Fatalf("updated to %+v, %v", s, err)
	}
	etag = etagOf(c)
	for what, change := range map[string]func(*docstore.ContainerSpec) error{
		"a change that fails":       func(s *docstore.ContainerSpec) error { s.Meta = nil; return errUnwanted },
		"a change to what is wrong": func(s *docstore.ContainerSpec) error { s.Retention = -1; return nil },
	} {
		_, err := db.UpdateContainer(t.Context(), "c", change)
		if !errors.Is(err, errUnwanted) && !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%s: %v", what, err)
		}
		if s := c.Spec(); string(s.Meta) != "10" || s.Retention != time.Hour || etagOf(c) != etag {
			t.Errorf("%s left %+v", what, s)
		}
	}
	if _, err := db.UpdateContainer(t.Context(), "none", func(*docstore.ContainerSpec) error {
		return nil
	}); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("updated a container that is not there: %v", err)
	}
}

func TestUpdateDatabase(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	made := database(t, db, "shop", `1`)
	next, err := db.UpdateDatabase(t.Context(), "shop", func(meta json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(string(meta) + "0"), nil
	})
	if err != nil || string(next.Meta) != "10" || next.ETag == made.ETag {
		t.Fatalf("updated to %+v, %v", next, err)
	}
	if _, err := db.UpdateDatabase(t.Context(), "shop", func(json.RawMessage) (json.RawMessage, error) {
		return nil, errUnwanted
	}); !errors.Is(err, errUnwanted) {
		t.Errorf("a change that fails: %v", err)
	}
	if now, err := db.Database("shop"); err != nil || string(now.Meta) != "10" || now.ETag != next.ETag {
		t.Errorf("a change that fails left %+v, %v", now, err)
	}
}

// Updates at once do not overwrite each other.
func TestUpdatesDoNotGetLost(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	database(t, db, "shop", `0`)
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID: "c", Database: "shop", Paths: []string{"/pk"},
		Meta: json.RawMessage(`0`),
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func(meta json.RawMessage) json.RawMessage {
		n, _ := strconv.Atoi(string(meta)) // 0 shows up below
		return json.RawMessage(strconv.Itoa(n + 1))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err1 := db.UpdateContainer(t.Context(), "shop/c", func(s *docstore.ContainerSpec) error {
				s.Meta = next(s.Meta)
				return nil
			})
			_, err2 := db.UpdateDatabase(t.Context(), "shop", func(meta json.RawMessage) (json.RawMessage, error) {
				return next(meta), nil
			})
			if err := errors.Join(err1, err2); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	d, err := db.Database("shop")
	if err != nil || string(d.Meta) != "8" || string(c.Spec().Meta) != "8" {
		t.Errorf("after 8 updates: %s and %s, %v", d.Meta, c.Spec().Meta, err)
	}
}

// etagOf is the ETag of a container's specification.
func etagOf(c *docstore.Container) string {
	etag, _ := c.Version()
	return etag
}
