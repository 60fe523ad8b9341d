package deadletters_test

import (
	"path/filepath"
	"testing"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// container makes a container for letters in a store in memory.
func container(t *testing.T, spec docstore.ContainerSpec) *docstore.Container {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	spec.ID = "letters"
	c, err := db.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// monitored is a container that a unit reads.
type monitored struct{ id, rid string }

func (m monitored) Database() string { return "shop" }
func (m monitored) ID() string       { return m.id }
func (m monitored) RID() string      { return m.rid }

var orders = monitored{"orders", "RID="}

// opening opens the box of a processor in a container.
func opening(t *testing.T, in deadletters.Store, processor string) func() feed.LetterBox {
	return func() feed.LetterBox {
		b, err := deadletters.Container(in, processor, orders)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func TestTheSuiteHoldsForAContainer(t *testing.T) {
	for name, spec := range map[string]docstore.ContainerSpec{
		"partitions": {Ranges: 4}, "expiry and hash version 1": {DefaultTTL: new(1), HashVersion: 1},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Paths = []string{deadletters.KeyPath}
			changefeedtest.TestDeadLetters(t, func(t *testing.T) func() feed.LetterBox {
				return opening(t, container(t, spec), "mailer")
			})
		})
	}
}

func TestTheSuiteHoldsForAContainerOverHTTP(t *testing.T) {
	changefeedtest.TestDeadLetters(t, func(t *testing.T) func() feed.LetterBox {
		server := cosmostest.NewTestServer(t)
		if _, err := server.DB.CreateContainer(t.Context(),
			docstore.ContainerSpec{ID: "letters", Paths: []string{deadletters.KeyPath}, Ranges: 3}); err != nil {
			t.Fatal(err)
		}
		client, err := cosmos.Open(t.Context(), server.URL, cosmos.Key(server.Key), cosmos.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		c, err := client.Container(t.Context(), docstore.DefaultDatabase, "letters")
		if err != nil {
			t.Fatal(err)
		}
		return opening(t, c, "a processor/with#odd?name. %")
	})
}

func TestTheSuiteHoldsForAFile(t *testing.T) {
	changefeedtest.TestDeadLetters(t, func(t *testing.T) func() feed.LetterBox {
		path := filepath.Join(t.TempDir(), "letters.ndjson")
		return func() feed.LetterBox { return openFile(t, path) }
	})
}

// openFile opens the box of mailer, which is closed at the end of the test if it was not before.
func openFile(t *testing.T, path string) *deadletters.FileBox {
	t.Helper()
	b, err := deadletters.File(path, "mailer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A caller may spell a key otherwise than changes do.
func TestLettersAreFoundByAnySpellingOfTheirKey(t *testing.T) {
	for name, open := range map[string]func() feed.LetterBox{
		"container": opening(t, container(t, docstore.ContainerSpec{Paths: []string{deadletters.KeyPath}}), "mailer"),
		"file":      func() feed.LetterBox { return openFile(t, filepath.Join(t.TempDir(), "letters.ndjson")) },
	} {
		box := open()
		key := feed.Key("Oslo", 5)
		for _, spelled := range []feed.PartitionKey{key, `["Osl\u006f",5.0]`, ` [ "Oslo", 5e0 ] `} {
			change := feed.Change{ID: "1", PartitionKey: key, LSN: 7, Body: []byte(`{"id":"1"}`)}
			if err := box.Put(t.Context(), feed.DeadLetter{
				ID: "7.0", Change: change,
				Disposition: feed.DispositionFailed,
			}); err != nil {
				t.Fatal(err)
			}
			found := func() (n int) {
				for _, err := range box.Letters(t.Context(), spelled) {
					if err != nil {
						t.Error(err)
					}
					n++
				}
				return n
			}
			if n := found(); n != 1 {
				t.Errorf("%s: %d letters of %s, want 1", name, n, spelled)
			}
			if err := box.Remove(t.Context(), spelled, "7.0"); err != nil || found() != 0 {
				t.Errorf("%s: the letter of %s is there after Remove: %v", name, spelled, err)
			}
		}
	}
}
