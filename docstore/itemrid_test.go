package docstore

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
)

// ridOf is the number in the resource id that a body says, once as _rid and once in _self.
func ridOf(t *testing.T, body []byte) uint64 {
	t.Helper()
	var said struct {
		RID  string `json:"_rid"`
		Self string `json:"_self"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		t.Fatal(err)
	}
	rid, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(said.RID, "-", "/"))
	if err != nil || len(rid) != 16 || !strings.HasSuffix(said.Self, "/docs/"+said.RID+"/") {
		t.Fatalf("%s: %v: want a resource id of 16 bytes, and a link that ends with it", body, err)
	}
	return binary.LittleEndian.Uint64(rid[8:])
}

func TestResourceIDsGrowAndStayWithTheirItem(t *testing.T) {
	db, err := Open("", Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "c", Paths: []string{"/pk"}})
	if err != nil {
		t.Fatal(err)
	}
	write := func(op feed.WriteOp, body string, patch ...feed.PatchOp) uint64 {
		t.Helper()
		w := feed.Write{Op: op, Body: []byte(body)}
		if op == feed.WritePatch {
			w = feed.Write{Op: op, ID: body, Patch: patch}
		}
		results, err := c.Commit(t.Context(), `["p"]`, []feed.Write{w})
		if err != nil {
			t.Fatal(err)
		}
		return ridOf(t, results[0].Body)
	}
	z := write(feed.WriteCreate, `{"id":"z","pk":"p","x":"_rid"}`)
	a := write(feed.WriteUpsert, `{"id":"a","pk":"p"}`)
	if z >= a {
		t.Errorf("resource ids of two items are %d and %d, want them to grow", z, a)
	}
	if got := write(feed.WriteReplace, `{"id":"z","pk":"p","n":1}`); got != z {
		t.Errorf("replaced, item z has %d, want %d", got, z)
	}
	if got := write(feed.WritePatch, "z", feed.PatchOp{Op: "set", Path: "/n", Value: []byte("2")}); got != z {
		t.Errorf("patched, item z has %d, want %d", got, z)
	}
	if _, err := c.Commit(t.Context(), `["p"]`, []feed.Write{{Op: feed.WriteDelete, ID: "z"}}); err != nil {
		t.Fatal(err)
	}
	if got := write(feed.WriteCreate, `{"id":"z","pk":"p"}`); got <= a {
		t.Errorf("made anew, item z has %d, want more than %d", got, a)
	}
}

// Items of a store that an older version wrote keep the resource ids that they had.
func TestSlotsOfOlderVersionsHaveNoBirth(t *testing.T) {
	own := slot{addr: addr{1, 2, 3}, time: 4, ttl: 5, size: 6, etag: "e", uniq: []string{"u"}, born: 700}
	b := own.encode()
	got, err := decodeSlot(b)
	if err != nil || got.born != 700 {
		t.Errorf("slot is %+v, %v, want %+v", got, err, own)
	}
	if got, err = decodeSlot(b[:len(b)-2]); err != nil || got.born != 0 || got.etag != "e" || len(got.uniq) != 1 {
		t.Errorf("older slot is %+v, %v, want %+v without birth", got, err, own)
	}
}
