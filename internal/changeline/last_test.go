package changeline

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// filled returns a container with two partitions and some documents, d0 the oldest.
func filled(t *testing.T, documents int) *docstore.Container {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/id"}, Ranges: 2})
	if err != nil {
		t.Fatal(err)
	}
	upsert(t, c, 0, documents)
	return c
}

// upsert writes the documents from to to.
func upsert(t *testing.T, c *docstore.Container, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"d%d"}`, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheLastChangesAreWrittenInTheirOrder(t *testing.T) {
	c := filled(t, 9)
	const all = "d0 d1 d2 d3 d4 d5 d6 d7 d8"
	for n, want := range map[int]string{1: "d8", 3: "d6 d7 d8", 9: all, 50: all} {
		var out bytes.Buffer
		err := Form{}.FollowLast(t.Context(), &out, c, feed.FullRange(), n, changefeed.PullOptions{})
		if got := idsOf(out.String()); err != nil || got != want {
			t.Errorf("the last %d: got %s, %v, want %s", n, got, err, want)
		}
	}
}

// idsOf returns the ids of documents on lines.
func idsOf(lines string) string {
	var ids []string
	for line := range strings.Lines(lines) {
		_, id, _ := strings.Cut(line, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

// untilWritten is an output that calls next after some lines, and then the next after one more.
type untilWritten struct {
	bytes.Buffer
	next []func()
	at   int
}

// Write implements [io.Writer].
func (w *untilWritten) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if len(w.next) > 0 && bytes.Count(w.Bytes(), []byte("\n")) >= w.at {
		next := w.next[0]
		w.next, w.at = w.next[1:], w.at+1
		next()
	}
	return n, err
}

// TestAFeedIsFollowedAfterItsLastChanges in each range from where it was read to, also with a key.
func TestAFeedIsFollowedAfterItsLastChanges(t *testing.T) {
	for _, key := range []feed.PartitionKey{"", feed.Key("d7")} {
		c := filled(t, 8)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		out := untilWritten{at: 1, next: []func(){func() { upsert(t, c, 7, 8) }, end}}
		o := changefeed.PullOptions{ReadOptions: feed.ReadOptions{Key: key}, Follow: true}
		err := Form{}.FollowLast(ctx, &out, c, feed.FullRange(), 1, o)
		if got := idsOf(out.String()); err != nil || got != "d7 d7" {
			t.Errorf("key %q: got %s, %v, want the last change and the next", key, got, err)
		}
	}
}
