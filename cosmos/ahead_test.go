package cosmos_test

import (
	"net/http"
	"testing"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestAPositionAheadOfTheServersFeedIsTold: that of the newest change of the container is none, also in a partition
// that has none so new, and nothing is said of a server that does not tell its LSN.
func TestAPositionAheadOfTheServersFeedIsTold(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	stored := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 4})
	for range 3 {
		if _, err := stored.Upsert(t.Context(), []byte(`{"id":"a","pk":"k"}`)); err != nil {
			t.Fatal(err)
		}
	}
	silent := tripper(func(r *http.Request) (*http.Response, error) {
		answer, err := s.transport.RoundTrip(r)
		if err == nil {
			answer.Header.Del("lsn")
		}
		return answer, err
	})
	for name, c := range map[string]struct {
		via   http.RoundTripper
		token string
		want  bool
	}{
		"at the end":      {nil, `"3"`, false},
		"ahead":           {nil, `"4"`, true},
		"in another form": {nil, `4`, true},
		"not told":        {silent, `"4"`, false},
	} {
		source := find(t, s.client(t, master, c.via), "items")
		parts, err := source.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			page, err := source.Read(t.Context(), p.Range, feed.At(c.token), feed.ReadOptions{})
			if err != nil || page.Ahead != c.want || c.want && page.Head != 3 {
				t.Errorf("%s: partition %s: ahead %t of %d, %v; want %t", name, p.ID, page.Ahead, page.Head, err,
					c.want)
			}
		}
		backlog, err := source.Pending(t.Context(), feed.FullRange(), feed.At(c.token), feed.ReadOptions{})
		if counted := c.want || c.via != nil; err != nil || backlog.Ahead != counted {
			t.Errorf("%s: a count is %+v, %v; want ahead %t", name, backlog, err, counted)
		}
	}
}
