package cosmosrest_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/cosmosrest/internal/netbatch"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// netClient is a client of one container that sends batches as the .NET SDK does: the same
// bytes, the same headers, the same conclusions from an answer.
type netClient struct {
	server *cosmostest.Server
	cont   *docstore.Container
	ranges []netRange // as the client knows them
	gone   int        // answers that made it read them again
}

type netRange struct{ ID, MinInclusive, MaxExclusive string }

// newNetClient is a client of a new container of a new server.
func newNetClient(t *testing.T) *netClient {
	t.Helper()
	server := cosmostest.NewTestServer(t)
	if _, err := server.DB.CreateDatabase(t.Context(), "db", nil); err != nil {
		t.Fatal(err)
	}
	cont, err := server.DB.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "db", ID: "contacts",
		Paths: []string{"/partitionKey"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &netClient{server: server, cont: cont}
}

// send sends a request to the container, signed as the SDK signs.
func (n *netClient) send(t *testing.T, method, kind string, headers map[string]string, body []byte) (*http.Response,
	[]byte,
) {
	t.Helper()
	const link = "dbs/db/colls/contacts"
	r, err := http.NewRequestWithContext(t.Context(), method, n.server.URL+"/"+link+"/"+kind, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	secret, err := base64.StdEncoding.DecodeString(n.server.Key)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(method), kind, link, strings.ToLower(date))
	r.Header.Set("Authorization",
		url.QueryEscape("type=master&ver=1.0&sig="+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
	for name, value := range map[string]string{
		"x-ms-date": date, "x-ms-version": "2020-07-15", "Accept": "application/json", "x-ms-noretry-449": "True",
		"x-ms-cosmos-sdk-supportedcapabilities": "9", "Cache-Control": "no-cache",
	} {
		r.Header.Set(name, value)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	a, err := n.server.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	answer, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, answer
}

// results are those of an answer. The SDK takes another number of them than it has sent
// operations, and a 200 with a failure in it, for a defect of the server.
func results(t *testing.T, a *http.Response, answer []byte, want int) []netbatch.Result {
	t.Helper()
	all, err := netbatch.Results(answer)
	if err != nil || len(all) != want {
		t.Fatalf("status %d: %d results, %v, want %d: %q", a.StatusCode, len(all), err, want, answer)
	}
	failed := slices.ContainsFunc(all, func(r netbatch.Result) bool { return r.Status >= 300 })
	if failed != (a.StatusCode == http.StatusMultiStatus) {
		t.Fatalf("status %d of %+v", a.StatusCode, all)
	}
	return all
}

// execute sends a transactional batch, and returns the status that the SDK shows for it:
// that of the operation which failed.
func (n *netClient) execute(t *testing.T, key string, ops ...netbatch.Operation) (int, []netbatch.Result) {
	t.Helper()
	a, answer := n.send(t, http.MethodPost, "docs", map[string]string{
		"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True", "x-ms-cosmos-batch-ordered": "True",
		"x-ms-documentdb-partitionkey": string(feed.Key(key)),
	}, netbatch.Request(ops...))
	all := results(t, a, answer, len(ops))
	for _, r := range all {
		if r.Status >= http.StatusBadRequest && r.Status != http.StatusFailedDependency {
			return int(r.Status), all
		}
	}
	return a.StatusCode, all
}

// object is the contact of a unit of work, and event what has happened to it: the two
// documents of an outbox.
func object(version int) netbatch.Operation {
	return netbatch.Operation{ResourceType: new(int32(2)), Body: fmt.Appendf(nil,
		`{"id":"c1","partitionKey":"k1","type":"contact","data":{"name":{"firstName":"Ada","lastName":"v%d"}},"ttl":-1}`, version)}
}

func event(id, action string) netbatch.Operation {
	return netbatch.Operation{ResourceType: new(int32(2)), Body: fmt.Appendf(nil,
		`{"id":%q,"partitionKey":"k1","type":"domainEvent","data":{"action":%q,"id":"c1"},"ttl":120}`, id, action)}
}

// The outbox of a .NET program: an object and its event in one batch, created, and replaced
// under the ETag of what was read.
func TestOutboxOfDotNet(t *testing.T) {
	n := newNetClient(t)
	status, created := n.execute(t, "k1", object(1), event("e1", "ContactCreatedEvent"))
	if status != http.StatusOK || created[0].Status != http.StatusCreated || created[1].Status != http.StatusCreated {
		t.Fatalf("status %d: %+v", status, created)
	}
	replace := object(2)
	replace.Type, replace.ID, replace.IfMatch = 5, new("c1"), created[0].ETag
	status, replaced := n.execute(t, "k1", replace, event("e2", "ContactNameUpdatedEvent"))
	if status != http.StatusOK || replaced[0].Status != http.StatusOK || *replaced[0].ETag == *created[0].ETag {
		t.Fatalf("status %d: %+v", status, replaced)
	}
	var shown struct {
		ETag string `json:"_etag"`
		Data struct{ Name struct{ LastName string } }
	}
	if err := json.Unmarshal(replaced[0].Body, &shown); err != nil || shown.ETag != *replaced[0].ETag ||
		shown.Data.Name.LastName != "v2" {
		t.Errorf("the answer to the replace is %s, %v", replaced[0].Body, err)
	}

	// Somebody with the old version is refused, and so is the event of what did not happen.
	status, refused := n.execute(t, "k1", event("e3", "ContactNameUpdatedEvent"), replace)
	if status != http.StatusPreconditionFailed || refused[0].Status != http.StatusFailedDependency ||
		refused[1].Status != http.StatusPreconditionFailed {
		t.Errorf("status %d: %+v", status, refused)
	}
	if status, refused = n.execute(t, "k1", object(1),
		event("e4", "ContactCreatedEvent")); status != http.StatusConflict {
		t.Errorf("status %d: %+v", status, refused)
	}

	type seen struct {
		id  string
		lsn int64
	}
	var got []seen
	page, err := n.cont.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
		feed.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range page.Changes {
		got = append(got, seen{c.ID, c.LSN})
	}
	if want := []seen{{"e1", 1}, {"c1", 2}, {"e2", 2}}; !slices.Equal(got, want) {
		t.Errorf("the feed has %v, want %v: each batch under one LSN, and nothing of those refused", got, want)
	}
}

// read reads the ranges, as the SDK does when one is gone.
func (n *netClient) read(t *testing.T) {
	t.Helper()
	a, answer := n.send(t, http.MethodGet, "pkranges", nil, nil)
	var list struct{ PartitionKeyRanges []netRange }
	if err := json.Unmarshal(answer, &list); err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", a.StatusCode, err)
	}
	n.ranges = list.PartitionKeyRanges
}

// group sorts operations by the ranges that the client knows.
func (n *netClient) group(t *testing.T, ops []netbatch.Operation) map[string][]netbatch.Operation {
	t.Helper()
	groups := map[string][]netbatch.Operation{}
	for _, op := range ops {
		p, err := n.cont.LogicalPartition(feed.PartitionKey(*op.PartitionKey))
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(n.ranges, func(r netRange) bool {
			return r.MinInclusive <= p.Range().Min && p.Range().Min < r.MaxExclusive
		})
		groups[n.ranges[at].ID] = append(groups[n.ranges[at].ID], op)
	}
	return groups
}

// bulk sends operations of many keys, a batch for each range, and those whose range is gone
// again.
func (n *netClient) bulk(t *testing.T, ops ...netbatch.Operation) (statuses []int32) {
	t.Helper()
	for id, group := range n.group(t, ops) {
		a, answer := n.send(t, http.MethodPost, "docs", map[string]string{
			"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "False",
			"x-ms-cosmos-batch-continue-on-error": "True",
			"x-ms-documentdb-partitionkeyrangeid": id,
		}, netbatch.Request(group...))
		if a.StatusCode == http.StatusGone && a.Header.Get("x-ms-substatus") == "1002" {
			n.gone++
			n.read(t)
			statuses = append(statuses, n.bulk(t, group...)...)
			continue
		}
		for _, r := range results(t, a, answer, len(group)) {
			statuses = append(statuses, r.Status)
		}
	}
	return statuses
}

// A bulk whose range is split between two of its batches writes each item once.
func TestBulkOfDotNetThroughASplit(t *testing.T) {
	n := newNetClient(t)
	n.read(t)
	for round := range 3 {
		if round == 1 {
			if _, err := n.cont.Split(t.Context(), "0"); err != nil {
				t.Fatal(err)
			}
		}
		var ops []netbatch.Operation
		for i := range 20 {
			key := fmt.Sprintf("k%d-%d", round, i)
			ops = append(ops, netbatch.Operation{
				ResourceType: new(int32(2)), PartitionKey: new(string(feed.Key(key))),
				Body: fmt.Appendf(nil, `{"id":"1","partitionKey":%q}`, key), Minimal: true,
			})
		}
		statuses := n.bulk(t, ops...)
		if len(statuses) != 20 || slices.ContainsFunc(statuses, func(s int32) bool { return s != http.StatusCreated }) {
			t.Errorf("round %d: statuses %v, want 20 of 201", round, statuses)
		}
	}
	if n.cont.Count() != 60 || n.gone != 1 || len(n.ranges) != 2 {
		t.Errorf("%d items, %d answers that the range is gone, %d ranges: want 60, 1, 2", n.cont.Count(), n.gone,
			len(n.ranges))
	}
}
