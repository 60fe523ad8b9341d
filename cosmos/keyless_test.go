package cosmos_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
)

// Accounts still have containers that were made without a partition key. Newer versions of the protocol name a path of
// the system for them, older ones name none. The service wants an empty list as the key of documents without one.
func TestAContainerWithoutAPartitionKeyCanBeUsed(t *testing.T) {
	for _, key := range []string{
		``, `,"partitionKey":{"paths":["/_partitionKey"],"kind":"Hash","version":1,"systemKey":true}`,
	} {
		a := &account{trouble: func(r *http.Request, _ int) (*http.Response, error) {
			if r.Method == http.MethodPost {
				return nil, nil
			}
			return say(200, `{"_rid":"AAAAAAAAAAA=","Documents":[{"id":"old","_etag":"\"e\"","_ts":1,"_lsn":7},`+
				`{"id":"new","_partitionKey":"k","_etag":"\"f\"","_ts":1,"_lsn":8}],"_count":2}`, "etag", `"8"`), nil
		}}
		client, err := cosmos.Open(t.Context(), "https://g.example", cosmos.Key("a2V5"), cosmos.Options{
			Transport: transporter(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/items") {
					return say(200, `{"_rid":"AAAAAAAAAAA="`+key+`}`), nil
				}
				return a.Do(r)
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Container(t.Context(), "db", "items")
		if err != nil {
			t.Fatalf("properties with %q: %v", key, err)
		}
		start := feed.Position{Start: feed.FromBeginning()}
		page, err := c.Read(t.Context(), feed.FullRange(), start, feed.ReadOptions{})
		if err != nil || len(page.Changes) != 2 || page.Changes[0].PartitionKey != "[{}]" ||
			page.Changes[1].PartitionKey != `["k"]` {
			t.Errorf("the feed has %+v, %v: want the keys [{}] and [\"k\"]", page.Changes, err)
		}
		if _, err := c.Commit(t.Context(), "[{}]", []feed.Write{
			{Op: feed.WriteUpsert, Body: []byte(`{"id":"old"}`)},
		}); err != nil {
			t.Errorf("commit: %v", err)
		}
		if got := a.log[len(a.log)-1].Header.Get("x-ms-documentdb-partitionkey"); got != "[]" {
			t.Errorf("the commit names the key %s, want []", got)
		}
	}
}
