package cosmosrest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

const smallContainer = `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`

var queryHeaders = map[string]string{"Content-Type": "application/query+json"}

// theOffer is the only offer that a query finds.
func (w *world) theOffer(t *testing.T, where string) map[string]any {
	t.Helper()
	body := string(wire.Encode(map[string]string{"query": "SELECT * FROM root WHERE " + where}))
	found := w.do(t, "POST", "/offers", queryHeaders, body).list(t, "Offers")
	if len(found) != 1 {
		t.Fatalf("%d offers where %s, want one", len(found), where)
	}
	return found[0]
}

func TestOfferOfAContainer(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
	before := w.do(t, "GET", "/dbs/db/colls/c", nil, "")
	o := w.theOffer(t, "root.offerResourceId = '"+cont.RID()+"'")
	id, _ := o["id"].(string)
	self := "offers/" + id + "/"
	if len(id) != 4 || o["_rid"] != id || o["_self"] != self || o["resource"] != cont.Self() ||
		o["offerVersion"] != "V2" {
		t.Errorf("offer %s", wire.Encode(o))
	}
	if same := w.theOffer(t, `root.resource = "`+cont.Self()+`"`); same["id"] != id {
		t.Errorf("by its resource: %s", wire.Encode(same))
	}
	read := w.do(t, "GET", "/"+self, nil, "").want(t, http.StatusOK)
	if pending, least := read.header.Get("x-ms-offer-replace-pending"),
		read.header.Get("x-ms-cosmos-min-throughput"); pending != "false" || least != "400" {
		t.Errorf("replace pending %q, minimum %q", pending, least)
	}
	etag := read.header.Get("etag")
	w.do(t, "GET", "/"+self, map[string]string{"If-None-Match": etag}, "").want(t, http.StatusNotModified)
	more := strings.Replace(string(read.body), `"offerThroughput":400`, `"offerThroughput":500`, 1)
	next := w.do(t, "PUT", "/"+self, map[string]string{"If-Match": etag}, more).want(t, http.StatusOK)
	content, _ := next.object(t)["content"].(map[string]any)
	if content["offerThroughput"] != 500.0 || next.header.Get("etag") == etag {
		t.Errorf("replaced: %s", next.body)
	}
	w.do(t, "PUT", "/"+self, map[string]string{"If-Match": etag}, more).refused(t, http.StatusPreconditionFailed, "0",
		"PreconditionFailed")
	if again := w.do(t, "GET", "/"+self, nil, ""); string(again.body) != string(next.body) {
		t.Errorf("read %s, want %s", again.body, next.body)
	}
	if after := w.do(t, "GET", "/dbs/db/colls/c", nil, ""); string(after.body) != string(before.body) {
		t.Errorf("the container became %s, was %s", after.body, before.body)
	}
	// A replaced container keeps its offer, one that is deleted takes it along.
	w.do(t, "PUT", "/dbs/db/colls/c", nil, smallContainer).want(t, http.StatusOK)
	if kept := w.theOffer(t, "true"); kept["_etag"] != next.header.Get("etag") {
		t.Errorf("the offer became %s", wire.Encode(kept))
	}
	w.do(t, "DELETE", "/dbs/db/colls/c", nil, "").want(t, http.StatusNoContent)
	w.do(t, "GET", "/"+self, nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "PUT", "/"+self, nil, more).refused(t, http.StatusNotFound, "0", "NotFound")
}

func TestOfferOfADatabase(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(t, "POST", "/dbs", map[string]string{"x-ms-offer-throughput": "400"}, `{"id":"a"}`).want(t, http.StatusCreated)
	rid, _ := w.do(t, "GET", "/dbs/a", nil, "").object(t)["_rid"].(string)
	w.do(t, "POST", "/dbs", nil, `{"id":"b"}`).want(t, http.StatusCreated)
	o := w.theOffer(t, "root.offerResourceId = '"+rid+"'")
	if o["resource"] != "dbs/"+rid+"/" {
		t.Errorf("offer %s", wire.Encode(o))
	}
	w.do(t, "PUT", "/"+o["_self"].(string), nil, `{"content":{"offerThroughput":1000}}`).want(t, http.StatusOK)
	if o = w.theOffer(t, "root.content.offerThroughput = 1000"); o["offerResourceId"] != rid {
		t.Errorf("offer %s", wire.Encode(o))
	}
	if listed := w.do(t, "GET", "/offers", nil, "").list(t, "Offers"); len(listed) != 1 {
		t.Errorf("listed %v", listed)
	}
}

func TestOfferThatScalesByItself(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", smallContainer,
		map[string]string{"x-ms-cosmos-offer-autopilot-settings": `{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}`})
	o := w.theOffer(t, "true")
	want := `{"offerAutopilotSettings":{"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}},"maxThroughput":4000},"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxConsumedStorageEverInKB":0,"maxThroughputEverProvisioned":4000},"offerThroughput":400}`
	if got := string(wire.Encode(o["content"])); got != want {
		t.Errorf("content %s, want %s", got, want)
	}
	self := "/" + o["_self"].(string)
	if least := w.do(t, "GET", self, nil, "").header.Get("x-ms-cosmos-min-throughput"); least != "1000" {
		t.Errorf("minimum %s", least)
	}
	w.do(t, "PUT", self, nil, `{"content":{"offerAutopilotSettings":{"maxThroughput":10000}}}`).want(t, http.StatusOK)
	message := w.do(t, "PUT", self, nil, `{"content":{"offerThroughput":400}}`).refused(t, http.StatusBadRequest, "0",
		"BadRequest")
	if !strings.Contains(message, "x-ms-cosmos-migrate-offer-to-manual-throughput") {
		t.Errorf("message %q", message)
	}
	w.do(t, "PUT", self, map[string]string{"x-ms-cosmos-migrate-offer-to-manual-throughput": "true"},
		`{"content":{"offerThroughput":400}}`).want(t, http.StatusOK)
	content, _ := w.theOffer(t, "true")["content"].(map[string]any)
	if content["offerThroughput"] != 400.0 || content["offerAutopilotSettings"] != nil {
		t.Errorf("content %s", wire.Encode(content))
	}
}

func TestOfferRefusals(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
	const manual, auto = "x-ms-offer-throughput", "x-ms-cosmos-offer-autopilot-settings"
	for _, test := range []struct {
		headers map[string]string
		want    string
	}{
		{map[string]string{manual: "x"}, "want a number"},
		{map[string]string{manual: "300"}, "offerThroughput is 300"},
		{map[string]string{manual: "450"}, "offerThroughput is 450"},
		{map[string]string{manual: "-400"}, "offerThroughput is -400"},
		{map[string]string{manual: "1000100"}, "offerThroughput is 1000100"},
		{map[string]string{manual: "400", auto: `{"maxThroughput":4000}`}, "want one of them"},
		{map[string]string{auto: `{"maxThroughput":400}`}, "maxThroughput is 400"},
		{map[string]string{auto: `{"maxThroughput":1500}`}, "maxThroughput is 1500"},
		{map[string]string{auto: `{}`}, "maxThroughput is 0"},
		{map[string]string{auto: `4000`}, "autopilot settings are"},
	} {
		for path, body := range map[string]string{
			"/dbs":          `{"id":"new"}`,
			"/dbs/db/colls": strings.Replace(smallContainer, `"c"`, `"new"`, 1),
		} {
			message := w.do(t, "POST", path, test.headers, body).refused(t, http.StatusBadRequest, "0", "BadRequest")
			if !strings.Contains(message, test.want) {
				t.Errorf("%v: message %q, want %q in it", test.headers, message, test.want)
			}
		}
	}
	self := "/" + w.theOffer(t, "true")["_self"].(string)
	for _, body := range []string{
		``, `{}`, `{"content":5}`, `{"content":{}}`, `{"content":{"offerThroughput":"400"}}`,
		`{"content":{"offerThroughput":450}}`,
	} {
		w.do(t, "PUT", self, nil, body).refused(t, http.StatusBadRequest, "0", "BadRequest")
	}
	w.do(t, "POST", "/offers", nil, `{"id":"x"}`).refused(t, http.StatusMethodNotAllowed, "0", "MethodNotAllowed")
	w.do(t, "POST", "/offers", queryHeaders, `{"query":"SELECT"}`).refused(t, http.StatusBadRequest, "0", "BadRequest")
	if content, _ := w.theOffer(t, "true")["content"].(map[string]any); content["offerThroughput"] != 400.0 {
		t.Errorf("refused changes have left %s", wire.Encode(content))
	}
}

func TestThroughputDecidesTheNumberOfRanges(t *testing.T) {
	for _, test := range []struct {
		header, value string
		want          int
	}{
		{"x-ms-offer-throughput", "", 1},
		{"x-ms-offer-throughput", "400", 1},
		{"x-ms-offer-throughput", "10000", 1},
		{"x-ms-offer-throughput", "10100", 2},
		{"x-ms-offer-throughput", "30000", 3},
		{"x-ms-cosmos-offer-autopilot-settings", `{"maxThroughput":20000}`, 2},
	} {
		cont := newWorld(t, Options{}).create(t, "db", smallContainer, map[string]string{test.header: test.value})
		parts, err := cont.Partitions(t.Context())
		if err != nil || len(parts) != test.want {
			t.Errorf("%s %s: %d ranges, %v, want %d", test.header, test.value, len(parts), err, test.want)
		}
	}
}

// Eight of the .NET SDK's tests read the throughput of a container that was made without one.
func TestAContainerWithoutAThroughputHasAnOfferToRead(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", smallContainer, nil)
	o := w.theOffer(t, "root.offerResourceId = '"+cont.RID()+"'")
	if content, _ := o["content"].(map[string]any); content["offerThroughput"] != 400.0 {
		t.Errorf("content %s", wire.Encode(content))
	}
	for i := range 200 { // 1,000 request units and more
		w.do(t, "POST", docs, under("p"), `{"id":"`+strconv.Itoa(i)+`","pk":"p"}`).want(t, http.StatusCreated)
	}
	self := "/" + o["_self"].(string)
	w.do(t, "PUT", self, nil, `{"offerResourceId":"other","content":{"offerThroughput":500}}`).refused(t,
		http.StatusBadRequest, "0", "BadRequest")
	w.do(t, "PUT", self, nil, `{"offerResourceId":"`+cont.RID()+`","content":{"offerThroughput":500}}`).want(t,
		http.StatusOK)
	if got := offeredIn(cont.Spec().Meta); got != 500 {
		t.Errorf("the container has %d RU/s, want 500", got)
	}
	w.do(t, "POST", "/dbs", map[string]string{"x-ms-offer-throughput": "400"}, `{"id":"shared"}`).want(t,
		http.StatusCreated)
	shared := w.create(t, "shared", smallContainer, nil)
	body := string(wire.Encode(map[string]string{"query": "SELECT * FROM root WHERE root.offerResourceId = '" +
		shared.RID() + "'"}))
	if found := w.do(t, "POST", "/offers", queryHeaders, body).list(t, "Offers"); len(found) != 0 {
		t.Errorf("a container of a database with a throughput has %v", found)
	}
}
