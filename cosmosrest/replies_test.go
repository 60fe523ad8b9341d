package cosmosrest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The SDK for Python reads all partition key ranges anew after each answer of a Session
// account that does not name its range, also after an error.
func TestEachReplyOfAContainerNamesItsRange(t *testing.T) {
	w, cont := newContainer(t, Options{})
	cut, err := cont.Locate(t.Context(), `["p"]`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cont.SplitAt(t.Context(), "0", cut); err != nil { // the items are not in the first one
		t.Fatal(err)
	}
	w.item(t, "a", "")
	first, own := cont.PartitionAt("").ID, cont.PartitionAt(cut).ID
	for _, c := range []struct {
		method, path string
		headers      map[string]string
		body         string
		status       int
		want         string
	}{
		{"POST", docs, under("p"), `{"id":"b","pk":"p"}`, 201, own},
		{"POST", docs, under("p"), `{"id":"b","pk":"p"}`, 409, own},
		{"POST", docs, under("p"), `{"id":"c","pk":"other"}`, 400, own},
		{"POST", docs, under("p", "x-ms-documentdb-pre-trigger-include", "t"), `{"id":"d","pk":"p"}`, 400, own},
		{"GET", docs + "/a", under("p", "x-ms-session-token", own+":-1#99"), "", 404, own},
		{"PUT", docs + "/a", under("p"), `{"id":"a","pk":"p"}`, 200, own},
		{"PUT", docs + "/a", under("p", "If-Match", `"x"`), `{"id":"a","pk":"p"}`, 412, own},
		{"PATCH", docs + "/a", under("p"), `[{"op":"set","path":"/n","value":1}]`, 200, own},
		{"GET", docs + "/none", under("p"), "", 404, own},
		{"GET", docs + "/a", nil, "", 400, first},
		{"DELETE", docs + "/b", under("p"), "", 204, own},
		{"GET", docs, nil, "", 200, first},
		{"GET", docs, feedOf("x-ms-documentdb-partitionkeyrangeid", own), "", 200, own},
		{"GET", docs, feedOf("x-ms-documentdb-partitionkeyrangeid", own, "If-None-Match", `"99"`), "", 304, own},
		{"POST", docs, queryOf("p"), `{"query":"SELECT * FROM c"}`, 200, own},
		{"POST", docs, queryOf("p"), `{"query":"SELECT"}`, 400, first},
		{
			"POST", docs, under("p", "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "True"),
			`[{"operationType":"Read","id":"a"}]`, 200, own,
		},
		{
			"POST", docs, under("p", "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "True"),
			`[{"operationType":"Read","id":"none"}]`, 207, own,
		},
		{
			"POST", docs, under("p", "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "False"),
			`[{"operationType":"Read","id":"a"}]`, 200, own,
		},
		{"GET", "/dbs/db/colls/c", nil, "", 200, first},
		{"PUT", "/dbs/db/colls/c", nil, `{"id":"c","partitionKey":` + simpleKey + `}`, 200, first},
		{"POST", "/dbs/db/colls", nil, `{"id":"d","partitionKey":` + simpleKey + `}`, 201, "0"},
		{"GET", "/dbs/db", nil, "", 200, ""},
		{"GET", "/dbs/db/colls/none/docs/a", under("p"), "", 404, ""},
	} {
		a := w.do(t, c.method, c.path, c.headers, c.body).want(t, c.status)
		if got := a.header.Get("x-ms-documentdb-partitionkeyrangeid"); got != c.want {
			t.Errorf("%s %s %s: %d of range %q, want %q", c.method, c.path, c.body, c.status, got, c.want)
		}
	}
}

// queryOf are the headers of a query of one key.
func queryOf(key string) map[string]string {
	return under(key, "content-type", "application/query+json", "x-ms-documentdb-isquery", "True")
}

// Three recordings of the service create items so.
func TestAnItemAsJSONIsNoQuery(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
		h := under("p", "content-type", kind, "x-ms-documentdb-isquery", "true", "x-ms-documentdb-is-upsert", "true")
		w.do(t, "POST", docs, h, `{"id":"a","pk":"p","query":"SELECT * FROM c"}`)
		w.do(t, "GET", docs+"/a", under("p"), "").want(t, http.StatusOK)
		w.do(t, "DELETE", docs+"/a", under("p"), "").want(t, http.StatusNoContent)
	}
	w.do(t, "POST", docs, under("p", "x-ms-documentdb-isquery", "true"), `{"query":"SELECT * FROM c"}`).want(t,
		http.StatusOK)
}

func TestTheRootMayBeIncludedByItsOldPath(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for id, c := range map[string]struct {
		path   string
		status int
	}{"old": {"/", 201}, "new": {"/*", 201}, "other": {"/a/?", 400}} {
		w.do(t, "POST", "/dbs/db/colls", nil,
			`{"id":"`+id+`","partitionKey":`+simpleKey+`,"indexingPolicy":{"includedPaths":[{"path":"`+
				c.path+`"}]}}`).want(t, c.status)
	}
}

func TestAContainerSaysThatItSharesAThroughput(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(t, "POST", "/dbs", map[string]string{"x-ms-offer-throughput": "400"}, `{"id":"shared"}`).want(t, 201)
	w.do(t, "POST", "/dbs", nil, `{"id":"plain"}`).want(t, 201)
	for _, c := range []struct {
		db, ru, want string
	}{{"shared", "", "true"}, {"shared", "400", ""}, {"plain", "", ""}, {"plain", "400", ""}} {
		id, h := "c"+c.ru, map[string]string{}
		if c.ru != "" {
			h["x-ms-offer-throughput"] = c.ru
		}
		made := w.do(t, "POST", "/dbs/"+c.db+"/colls", h, `{"id":"`+id+`","partitionKey":`+simpleKey+`}`).want(t, 201)
		read := w.do(t, "GET", "/dbs/"+c.db+"/colls/"+id, nil, "").want(t, 200)
		for _, a := range []answer{made, read} {
			if got := a.header.Get("x-ms-share-throughput"); got != c.want {
				t.Errorf("%s/%s: x-ms-share-throughput is %q, want %q", c.db, id, got, c.want)
			}
		}
	}
}

func TestAContainerTellsItsQuotaWhenAsked(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	for asked, want := range map[string][3]string{
		"true":  {containerQuota, "functions=0;storedProcedures=0;triggers=0;documentsCount=1;", "100"},
		"false": {},
	} {
		h := w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"x-ms-documentdb-populatequotainfo": asked},
			"").want(t, 200).header
		got := [3]string{
			h.Get("x-ms-resource-quota"), h.Get("x-ms-resource-usage"),
			h.Get("x-ms-documentdb-collection-index-transformation-progress"),
		}
		if got != want {
			t.Errorf("asked %s: %q, want %q", asked, got, want)
		}
	}
}

func TestAReadTellsTheLSNOfItsItemAndHowLongItTook(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for _, id := range []string{"a", "b", "c"} {
		w.item(t, id, "")
	}
	h := w.do(t, "GET", docs+"/b", under("p"), "").want(t, 200).header
	if own, newest := h.Get("x-ms-item-lsn"), h.Get("lsn"); own != "2" || newest != "3" {
		t.Errorf("the item has LSN %q of %q, want 2 of 3", own, newest)
	}
	if took, err := strconv.ParseFloat(h.Get("x-ms-request-duration-ms"), 64); err != nil || took <= 0 {
		t.Errorf("the read took %v ms, %v: want a number above 0", took, err)
	}
}

func TestAQueryTellsWhatItTookAsTheServiceDoes(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	told := w.ask(t, across(), "SELECT * FROM c").want(t, 200).header.Get("x-ms-documentdb-query-metrics")
	took := map[string]float64{}
	for pair := range strings.SplitSeq(told, ";") {
		name, value, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Errorf("%s: %v", pair, err)
		}
		took[name] = n
	}
	for _, name := range recordedMetrics {
		if _, ok := took[name]; !ok {
			t.Errorf("there is no %s in %s", name, told)
		}
	}
	if load, total := took["documentLoadTimeInMs"], took["totalExecutionTimeInMs"]; load <= 0 || load > total {
		t.Errorf("the document was loaded in %v ms of %v, want a part of them", load, total)
	}
	if none := w.ask(t, across(),
		"SELECT * FROM c WHERE c.pk = 'none'").header.Get("x-ms-documentdb-query-metrics"); !strings.Contains(none,
		"documentLoadTimeInMs=0.00;") {
		t.Errorf("no document was loaded: %s", none)
	}
}

// recordedMetrics are the names in a recording of 2017.
var recordedMetrics = []string{
	"totalExecutionTimeInMs", "queryCompileTimeInMs", "queryLogicalPlanBuildTimeInMs", "queryPhysicalPlanBuildTimeInMs",
	"queryOptimizationTimeInMs",
	"VMExecutionTimeInMs", "indexLookupTimeInMs", "documentLoadTimeInMs", "systemFunctionExecuteTimeInMs",
	"userFunctionExecuteTimeInMs",
	"retrievedDocumentCount", "retrievedDocumentSize", "outputDocumentCount", "writeOutputTimeInMs",
	"indexUtilizationRatio",
}

// More rows than documents are no better use of an index than all.
func TestTheUseOfAnIndexIsAllAtMost(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", `,"xs":[1,2,3]`)
	for query, want := range map[string]string{
		"SELECT x FROM c JOIN x IN c.xs": "1.00", "SELECT x FROM c JOIN x IN c.none": "0.00",
	} {
		metrics := w.ask(t, across(), query).want(t, http.StatusOK).header.Get("x-ms-documentdb-query-metrics")
		if !strings.HasSuffix(metrics, ";indexUtilizationRatio="+want) {
			t.Errorf("%s: %s, want a ratio of %s", query, metrics, want)
		}
	}
}

func TestIndexMetricsComeInTheVersionThatIsAskedFor(t *testing.T) {
	w, _ := newContainer(t, Options{})
	const none = `"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[]}`
	first := func(used string) string {
		return base64.StdEncoding.EncodeToString([]byte(`{"UtilizedSingleIndexes":[` + used + `],` + none))
	}
	ofKey := first(`{"FilterExpression":"","IndexSpec":"/pk/?","FilterPreciseSet":true,"IndexPreciseSet":true,` +
		`"IndexImpactScore":"High"}`)
	if got := w.ask(t, across("x-ms-cosmos-populateindexmetrics", "True", "x-ms-documentdb-partitionkey", `["p"]`),
		"SELECT * FROM c").want(t, 200).header.Get("x-ms-cosmos-index-utilization"); got != ofKey {
		t.Errorf("of a key: %q, want %q", got, ofKey)
	}
	for name, want := range map[string]string{
		"x-ms-cosmos-populateindexmetrics":    first(""),
		"x-ms-cosmos-populateindexmetrics-V2": indexUseOf("", ""),
		"x-ms-other":                          "",
	} {
		if got := w.ask(t, across(name, "True"), "SELECT * FROM c").want(t,
			200).header.Get("x-ms-cosmos-index-utilization"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The service counts in its index.
func TestAQueryThatOnlyCountsReadsNoDocuments(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	w.item(t, "b", "")
	headers := across("x-ms-documentdb-partitionkey", `["p"]`)
	for text, read := range map[string]int{
		"SELECT VALUE COUNT(1) FROM c": 0, "SELECT COUNT(1) AS n FROM c": 0, "SELECT VALUE COUNT(c.id) FROM c": 2,
		"SELECT VALUE COUNT(1) FROM c WHERE c.id = 'a'": 1, "SELECT VALUE MAX(1) FROM c": 2, "SELECT VALUE 1 FROM c": 2,
	} {
		if got := w.ask(t, headers, text).read(t); got != read {
			t.Errorf("%s reads %d documents, want %d", text, got, read)
		}
	}
}

// A processor asks a container without a policy for all versions where the account says that there are any.
func TestTheAccountTellsWhetherItKeepsVersions(t *testing.T) {
	w := newWorld(t, Options{})
	for retention, want := range map[time.Duration]bool{0: false, time.Minute: true} {
		if err := w.db.SetRetention(t.Context(), retention); err != nil {
			t.Fatal(err)
		}
		var account struct{ Changefeed struct{ KeepsVersions bool } }
		if w.do(t, "GET", "/", nil, "").want(t, http.StatusOK).into(t,
			&account); account.Changefeed.KeepsVersions != want {
			t.Errorf("retention %v: keepsVersions is %v", retention, !want)
		}
	}
}

// Clients send session tokens to an account of Session only, and the suite of the Go SDK is
// for an emulator that was started with Strong.
func TestTheAccountTellsItsConsistency(t *testing.T) {
	for given, want := range map[string]string{"": "Session", "Strong": "Strong", "Eventual": "Eventual"} {
		w := newWorld(t, Options{Consistency: given})
		var account struct {
			UserConsistencyPolicy struct{ DefaultConsistencyLevel string }
		}
		w.do(t, "GET", "/", nil, "").want(t, 200).into(t, &account)
		if got := account.UserConsistencyPolicy.DefaultConsistencyLevel; got != want {
			t.Errorf("consistency %q: the account tells %q, want %q", given, got, want)
		}
	}
	if _, err := New(nil, Options{Consistency: "Weak"}); err == nil {
		t.Error("the consistency Weak was accepted")
	}
}

// Clients unpack a message as JSON within JSON, whatever of a request it repeats.
func TestMessagesAreJSONWithinJSON(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", smallContainer, nil)
	for _, name := range []string{"\x01", "\x7f", "\U0010ffff", strings.Repeat("é", 5000), "x" +
		strings.Repeat("é", 5000)} {
		unpack(t, name, w.do(t, "GET", "/dbs/"+url.PathEscape(name), nil, "").refused(t, http.StatusNotFound, "0",
			"NotFound"))
		query := `{"query":"SELECT * FROM c","parameters":[{"name":` + string(wire.Encode("@"+name+"!")) + `}]}`
		unpack(t, name, w.do(t, "POST", docs, across(), query).refused(t, http.StatusBadRequest, "0", "BadRequest"))
	}
}

// unpack reads a message as clients do.
func unpack(t *testing.T, name, message string) {
	t.Helper()
	frame, _, _ := strings.Cut(strings.TrimPrefix(message, "Message: "), "\r\nActivityId: ")
	var unpacked struct{ Errors []string }
	if err := json.Unmarshal([]byte(frame), &unpacked); err != nil || len(unpacked.Errors) != 1 {
		t.Errorf("%.10q: the message is %.200s: %v", name, frame, err)
	} else if strings.ContainsRune(unpacked.Errors[0], utf8.RuneError) {
		t.Errorf("%.10q: the message is cut within a character", name)
	}
}
