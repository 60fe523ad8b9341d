package cosmosrest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// envelope is a change of the feed of all versions and deletes, as clients read it.
type envelope struct {
	Current  map[string]any  `json:"current"`
	Previous map[string]any  `json:"previous"`
	Metadata json.RawMessage `json:"metadata"`
}

// versionsOf is the headers of a read of all versions and deletes behind an ETag.
func versionsOf(etag string) map[string]string {
	return map[string]string{
		"a-im": "Full-Fidelity Feed", "x-ms-cosmos-changefeed-wire-format-version": wire.WireFormat,
		"if-none-match": etag,
	}
}

// versions are those behind an ETag.
func (w *world) versions(t *testing.T, etag string) []envelope {
	t.Helper()
	var feed struct{ Documents []envelope }
	w.do(t, "GET", docs, versionsOf(etag), "").want(t, 200).into(t, &feed)
	return feed.Documents
}

// newVersions is a server with container c of database db, which keeps versions for
// some minutes.
func newVersions(t *testing.T, key, retention string) (*world, *docstore.Container) {
	t.Helper()
	w := newWorld(t, Options{})
	return w,
		w.create(t, "db",
			`{"id":"c","partitionKey":`+key+`,"defaultTtl":-1,"changeFeedPolicy":{"retentionDuration":`+retention+`}}`,
			nil)
}

const simpleKey = `{"paths":["/pk"],"kind":"Hash","version":2}`

func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newVersions(t, simpleKey, "10")
		start := time.Now().Unix()
		now := w.do(t, "GET", docs, versionsOf("*"), "").want(t, 304).header.Get("etag")
		w.item(t, "a", `,"v":1`)
		time.Sleep(time.Second)
		w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p","v":2}`).want(t, 200)
		time.Sleep(time.Second)
		w.do(t, "DELETE", docs+"/a", under("p"), "").want(t, 204)
		w.item(t, "b", `,"ttl":1`)
		time.Sleep(5 * time.Second)
		second := func(n int64) string { return strconv.FormatInt(start+n, 10) }
		got := w.versions(t, now)
		want := []struct {
			current, previous any // the member v, and whether there is one
			id                any // of the current item
			metadata          string
		}{
			{1.0, nil, "a", `{"lsn":1,"crts":` + second(0) + `,"operationType":"create","previousImageLSN":0}`},
			{2.0, nil, "a", `{"lsn":2,"crts":` + second(1) + `,"operationType":"replace","previousImageLSN":1}`},
			{nil, 2.0, nil, `{"lsn":3,"crts":` + second(2) +
				`,"operationType":"delete","previousImageLSN":2,"timeToLiveExpired":false,"id":"a","partitionKey":{"pk":"p"}}`},
			{nil, nil, "b", `{"lsn":4,"crts":` + second(2) + `,"operationType":"create","previousImageLSN":0}`},
			{nil, nil, nil, `{"lsn":5,"crts":` + second(3) +
				`,"operationType":"delete","previousImageLSN":4,"timeToLiveExpired":true,"id":"b","partitionKey":{"pk":"p"}}`},
		}
		if len(got) != len(want) {
			t.Fatalf("feed has %d versions, want %d: %v", len(got), len(want), got)
		}
		for i, v := range got {
			if v.Current == nil {
				t.Errorf("version %d has no current item, want {} at least", i)
			}
			if w := want[i]; v.Current["v"] != w.current || v.Previous["v"] != w.previous || v.Current["id"] != w.id ||
				string(v.Metadata) != w.metadata {
				t.Errorf("version %d is %v after %v with %s, want %+v", i, v.Current, v.Previous, v.Metadata, w)
			}
		}
		if p := got[4].Previous; p != nil {
			t.Errorf("the expiry shows the item before it, %v: no account does", p)
		}
		if latest, _ := w.walk(t, feedOf()); latest != "" {
			t.Errorf("the latest versions have %q, but all are gone", latest)
		}
	})
}

// Whether an image is shown is the account's. That of an item which expired never is.
func TestWhichPreviousImagesAreShown(t *testing.T) {
	for shows, want := range map[Images]struct{ replace, remove bool }{
		ImagesOfDeletes: {false, true}, ImagesOfAll: {true, true}, NoImages: {false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{PreviousImages: shows})
			w.create(t, "db",
				`{"id":"c","partitionKey":`+simpleKey+`,"defaultTtl":-1,"changeFeedPolicy":{"retentionDuration":10}}`,
				nil)
			w.item(t, "a", `,"v":1`)
			w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p","v":2}`).want(t, 200)
			w.do(t, "DELETE", docs+"/a", under("p"), "").want(t, 204)
			w.item(t, "b", `,"ttl":1`)
			time.Sleep(5 * time.Second)
			got := w.versions(t, `"0"`)
			if len(got) != 5 {
				t.Fatalf("%d versions, want 5: %v", len(got), got)
			}
			if (got[1].Previous != nil) != want.replace || want.replace && got[1].Previous["v"] != 1.0 {
				t.Errorf("images %v: the replace has the image %v", shows, got[1].Previous)
			}
			if (got[2].Previous != nil) != want.remove || want.remove && got[2].Previous["v"] != 2.0 {
				t.Errorf("images %v: the delete has the image %v", shows, got[2].Previous)
			}
			if got[4].Previous != nil {
				t.Errorf("images %v: the expiry has the image %v", shows, got[4].Previous)
			}
		})
	}
}

// The samples of the .NET and Java SDKs make containers without a policy, for accounts
// that have the mode by continuous backup.
func TestAPlainContainerKeepsVersionsByTheAccountsRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.create(t, "db", `{"id":"c","partitionKey":`+simpleKey+`}`, nil)
		message := w.do(t, "GET", docs, versionsOf("*"), "").refused(t, http.StatusBadRequest, "0", "BadRequest")
		if !strings.Contains(message, "--retention") {
			t.Errorf("refused with %q, want a message that names --retention", message)
		}
		if err := w.db.SetRetention(t.Context(), DefaultRetention); err != nil {
			t.Fatal(err)
		}
		now := w.do(t, "GET", docs, versionsOf("*"), "").want(t, 304).header.Get("etag")
		w.item(t, "a", `,"v":1`)
		w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p","v":2}`).want(t, 200)
		w.do(t, "DELETE", docs+"/a", under("p"), "").want(t, 204)
		if got := w.versions(t, now); len(got) != 3 || got[2].Previous["v"] != 2.0 {
			t.Errorf("versions are %v, want three", got)
		}
		if p := w.do(t, "GET", "/dbs/db/colls/c", nil, "").want(t, 200).object(t); p["changeFeedPolicy"] != nil {
			t.Errorf("the container has the policy %v, which nobody gave it", p["changeFeedPolicy"])
		}
		time.Sleep(DefaultRetention + 5*time.Minute)
		w.do(t, "GET", docs, versionsOf(now), "").refused(t, http.StatusBadRequest, "0", "BadRequest")
	})
}

func TestVersionsNameTheKeyByItsPaths(t *testing.T) {
	w, _ := newVersions(t, `{"paths":["/pk","/a/b","/n"],"kind":"MultiHash","version":2}`, "10")
	key := map[string]string{"x-ms-documentdb-partitionkey": `["p",{},5]`}
	w.do(t, "POST", docs, key, `{"id":"a","pk":"p","n":5}`).want(t, 201)
	w.do(t, "DELETE", docs+"/a", key, "").want(t, 204)
	got := w.versions(t, `"1"`)
	if len(got) != 1 || !strings.HasSuffix(string(got[0].Metadata), `"partitionKey":{"pk":"p","n":5}}`) {
		t.Errorf("the delete is %s", got)
	}
}

func TestVersionsOlderThanTheRetentionAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newVersions(t, simpleKey, "1")
		w.item(t, "a", "")
		w.do(t, "DELETE", docs+"/a", under("p"), "").want(t, 204)
		w.do(t, "GET", docs, versionsOf(`"0"`), "").want(t, 200)
		time.Sleep(5 * time.Minute)
		w.do(t, "GET", docs, versionsOf(`"0"`), "").refused(t, http.StatusBadRequest, "0", "BadRequest")
		w.do(t, "GET", docs, versionsOf(`"2"`), "").want(t, 304)
	})
}
