package items

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// openAt returns an opener and the address of a container at a place.
func openAt(t *testing.T, settings place.Settings, text string) (*place.Opener, place.Address) {
	t.Helper()
	at, err := place.Parse("ADDRESS", text)
	if err != nil {
		t.Fatal(err)
	}
	o := place.NewOpener(settings)
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o, at
}

// The offer has the least throughput too, a tenth of what the account may charge for.
func TestTheThroughputOfAutoscaleIsItsMaximum(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	o, at := openAt(t, place.Settings{Key: server.Key}, server.URL+"/shop/orders")
	a, err := o.Account(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []place.Request{
		{Resource: []string{"dbs"}, Body: []byte(`{"id":"shop"}`)},
		{
			Resource: []string{"dbs", "shop", "colls"},
			Header:   map[string]string{"X-Ms-Cosmos-Offer-Autopilot-Settings": `{"maxThroughput":4000}`},
			Body:     []byte(`{"id":"orders","partitionKey":{"paths":["/city"],"kind":"Hash"}}`),
		},
	} {
		q.Method = http.MethodPost
		if _, err := a.Send(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	all, err := List(t.Context(), o, at)
	if err != nil || len(all) != 1 || all[0].Throughput == nil || *all[0].Throughput != 4000 {
		t.Errorf("got %+v, %v, want one container with 4000 RU/s", all, err)
	}
}

// The last page has one of the documents.
func TestABillHasTheChargesOfAllPages(t *testing.T) {
	o, at := openAt(t, place.Settings{}, "docstore:"+t.TempDir()+"#orders")
	_, _, err := o.MakeNew(t.Context(), at, place.Wanted{
		Spec: docstore.ContainerSpec{Paths: []string{"/id"}, Ranges: 1}, Given: func(string) bool { return true },
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	target, err := Open(t.Context(), o, at)
	if err != nil {
		t.Fatal(err)
	}
	const document = `{"id":"%d","text":"%s"}`
	for i := range 5 {
		if _, err := target.Put(t.Context(), fmt.Appendf(nil, document, i, strings.Repeat("x", 1<<20)),
			Write{}); err != nil {
			t.Fatal(err)
		}
	}
	bill := func(key feed.PartitionKey) Bill {
		t.Helper()
		b, err := target.Run(t.Context(), Query{Text: "SELECT * FROM c", Key: key},
			func(json.RawMessage) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one, all := bill(feed.Key("4")), bill("")
	if one.Rows != 1 || all.Rows != 5 || all.Pages < 2 || one.Charge <= 0 || all.Charge < 4*one.Charge {
		t.Errorf("one document costs %+v, and 5 cost %+v, want at least 4 times as much", one, all)
	}
}
