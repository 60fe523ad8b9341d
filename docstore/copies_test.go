package docstore_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A caller that writes into what it was given must not change the store for all others.
func TestWhatTheStoreReturnsIsTheCallers(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	if _, err := db.CreateDatabase(t.Context(), "d", json.RawMessage(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	ttl := 60
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID: "c", Database: "d", Paths: []string{"/pk"}, UniqueKeys: [][]string{{"/u"}}, DefaultTTL: &ttl,
		Meta: json.RawMessage(`{"b":1}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Split(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	for name, give := range map[string]func() any{
		"Spec":        func() any { return c.Spec() },
		"KeyPaths":    func() any { return c.KeyPaths() },
		"Partitions":  func() any { parts, err := c.Partitions(t.Context()); noError(t, err); return parts },
		"PartitionAt": func() any { return c.PartitionAt("") },
		"Partition": func() any {
			p, err := c.LogicalPartition(feed.Key("k"))
			noError(t, err)
			part, _ := p.Partition()
			return part
		},
		"Commit": func() any {
			p, err := c.LogicalPartition(feed.Key("k"))
			noError(t, err)
			done,
				err := p.Commit(t.Context(),
				[]docstore.Write{{Write: feed.Write{Op: feed.WriteUpsert, Body: []byte(`{"id":"1","pk":"k"}`)}}})
			noError(t, err)
			return done.Partition
		},
		"Item":      func() any { it, err := c.Item(t.Context(), feed.Key("k"), "1"); noError(t, err); return it.Body },
		"Database":  func() any { d, err := db.Database("d"); noError(t, err); return d },
		"Databases": func() any { return db.Databases() },
		"UpdateDatabase": func() any {
			d, err := db.UpdateDatabase(t.Context(), "d", func(meta json.RawMessage) (json.RawMessage, error) {
				return meta, nil
			})
			noError(t, err)
			d.ETag = "" // and the time
			return d.Meta
		},
		"what UpdateDatabase shows": func() (meta any) {
			_, err := db.UpdateDatabase(t.Context(), "d", func(now json.RawMessage) (json.RawMessage, error) {
				meta = now
				return nil, errUnwanted
			})
			if err == nil {
				t.Error("a change that fails was made")
			}
			return meta
		},
	} {
		if name == "Item" {
			_, err := c.Upsert(t.Context(), []byte(`{"id":"1","pk":"k"}`))
			noError(t, err)
		}
		given := give()
		want, err := json.Marshal(given)
		noError(t, err)
		if overwrite(reflect.ValueOf(given)) == 0 {
			t.Errorf("%s: there was nothing to write into", name)
		}
		if now, err := json.Marshal(give()); err != nil || string(now) != string(want) {
			t.Errorf("%s: after its result was written into, it gives %s, %v; want %s", name, now, err, want)
		}
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// overwrite changes all that is reached from v through slices and pointers, and counts it.
func overwrite(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return overwrite(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			n += overwrite(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				n += overwrite(v.Field(i))
			}
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString("overwritten")
			n++
		}
	case reflect.Uint8:
		if v.CanSet() {
			v.SetUint(' ')
			n++
		}
	case reflect.Int, reflect.Int64:
		if v.CanSet() {
			v.SetInt(7)
			n++
		}
	}
	return n
}
