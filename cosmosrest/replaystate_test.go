package cosmosrest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The state that a recorded request needs: databases, containers and documents that were there before.

// arrange creates what the path of an exchange names, and what the reply lists.
func (r *replayer) arrange(e *exchange) {
	if e.isHosted() {
		r.arrangeHosted(e)
		return
	}
	parts := strings.Split(strings.Trim(e.Path, "/"), "/")
	if parts[0] == "offers" {
		r.needOffers(e)
		return
	}
	creates := e.Method == http.MethodPost && e.Status == http.StatusCreated
	if len(parts) < 2 && parts[0] != "dbs" {
		return
	}
	if len(parts) >= 2 {
		r.needDatabase(parts[1])
	}
	var listed struct{ Databases, DocumentCollections, Documents []properties }
	_ = json.Unmarshal([]byte(e.ResponseBody), &listed)
	for _, d := range listed.Databases {
		id, _ := d.id()
		r.needDatabase(id)
	}
	for _, c := range listed.DocumentCollections {
		id, _ := c.id()
		r.needContainer(parts[1], id, c.without(systemMembers...), e)
	}
	if len(parts) >= 3 && parts[2] == "users" {
		r.arrangeUsers(e, parts)
		return
	}
	if len(parts) >= 4 {
		r.needContainer(parts[1], parts[3], nil, e)
	}
	if len(parts) >= 5 && parts[4] == "docs" && !creates {
		r.needDocuments(parts[1], parts[3])
	}
}

// spelled returns the request of a recording that only describes its request.
func (e *exchange) spelled() (body string, headers map[string]string) {
	switch e.RequestBody {
	case "(a document, without a partition key header)":
		return `{"id":"1"}`, nil
	case "(a document whose key is not that of the header)":
		return `{"id":"1"}`, map[string]string{"x-ms-documentdb-partitionkey": `["2"]`}
	case "(a query that needs merging)":
		return `{"query":"SELECT VALUE COUNT(1) FROM c"}`,
			map[string]string{"x-ms-documentdb-query-enablecrosspartition": "True"}
	}
	begin, number, isCut := strings.Cut(e.RequestBody, "… (")
	if !isCut {
		return e.RequestBody, nil
	}
	var ops []string
	for i := range atoi(strings.TrimSuffix(number, " operations)")) {
		ops = append(ops, fmt.Sprintf(`{"operationType":"Create","resourceBody":{"id":"x%d","pk":"p1"}}`, i))
	}
	body = "[" + strings.Join(ops, ",") + "]"
	if !strings.HasPrefix(body, begin) {
		return "", nil // the test fails
	}
	return body, nil
}

// atoi returns a number, or 0.
func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// arrangeUsers creates the users and permissions that a request names, and those that a reply lists.
func (r *replayer) arrangeUsers(e *exchange, parts []string) {
	at := "/" + strings.Join(parts[:3], "/")
	var listed struct{ Users, Permissions []properties }
	_ = json.Unmarshal([]byte(e.ResponseBody), &listed)
	for _, u := range listed.Users {
		id, _ := u.id()
		r.needElement(at, id, properties{})
	}
	if len(parts) >= 4 {
		r.needElement(at, parts[3], properties{})
	}
	if len(parts) < 5 {
		return
	}
	at = "/" + strings.Join(parts[:5], "/")
	for _, text := range []string{e.RequestBody, e.ResponseBody} {
		var p properties
		_ = json.Unmarshal([]byte(text), &p)
		r.needResource(p)
	}
	for _, p := range listed.Permissions {
		id, _ := p.id()
		r.needResource(p)
		r.needElement(at, id, p.without("_rid", "_self", "_etag", "_ts", "_token"))
	}
	if len(parts) == 6 {
		r.needContainer(parts[1], "volcano1", nil, e)
		r.needElement(at, parts[5], properties{
			"permissionMode": json.RawMessage(`"Read"`),
			"resource":       json.RawMessage(fmt.Sprintf("%q", "dbs/"+parts[1]+"/colls/volcano1")),
		})
	}
}

// recordedOffer is an offer in a reply.
type recordedOffer struct {
	ID, Resource, OfferVersion string
	Content                    struct{ OfferThroughput int }
}

// needOffers creates containers with the offers of a reply, unless the scenario knows them. Offers of the first
// version, which had no throughput, do not exist here.
func (r *replayer) needOffers(e *exchange) {
	var one recordedOffer
	var listed struct{ Offers []recordedOffer }
	_ = json.Unmarshal([]byte(e.ResponseBody), &one)
	_ = json.Unmarshal([]byte(e.ResponseBody), &listed)
	for _, o := range append(listed.Offers, one) {
		was := strings.Split(o.Resource, "/")
		if o.OfferVersion != "V2" || r.isKnown(o.ID) || len(was) < 4 {
			continue
		}
		db, id := r.nameOf(was[3], o.ID)
		cont := r.create(r.t, db, named(id), map[string]string{
			"x-ms-offer-throughput": strconv.Itoa(o.Content.OfferThroughput),
		})
		is := strings.Split(cont.Self(), "/")
		r.ours[was[1]], r.ours[was[3]] = is[1], is[3]
		r.ours[o.ID], _ = r.theOffer(r.t, "root.offerResourceId = '"+cont.RID()+"'")["id"].(string)
	}
}

// nameOf returns the names of the database and the container of a recorded resource id; other is the name of a
// container that the scenario does not name.
func (r *replayer) nameOf(rid, other string) (db, id string) {
	for _, e := range r.scenario {
		var cont struct {
			ID  string
			RID string `json:"_rid"`
		}
		_ = json.Unmarshal([]byte(e.ResponseBody), &cont)
		if cont.RID == rid {
			return strings.Split(e.Path, "/")[2], cont.ID
		}
	}
	return "offered", other
}

// needResource creates the container of a permission, unless the scenario knows it by its resource id.
func (r *replayer) needResource(p properties) {
	var link string
	_ = json.Unmarshal(p["resource"], &link)
	if parts := strings.Split(strings.Trim(link, "/"), "/"); len(parts) == 4 {
		r.needContainer(parts[1], parts[3], nil, &exchange{})
	}
}

// needElement creates a user or a permission, unless it exists.
func (r *replayer) needElement(at, id string, p properties) {
	at = r.translate(at)
	if r.do(r.t, "GET", at+"/"+id, nil, "").status == http.StatusOK {
		return
	}
	p["id"] = json.RawMessage(fmt.Sprintf("%q", id))
	body, _ := json.Marshal(p)
	r.do(r.t, "POST", at, nil, r.translate(string(body))).want(r.t, http.StatusCreated)
}

// needDatabase creates a database, unless it exists.
func (r *replayer) needDatabase(id string) {
	if _, err := r.db.Database(id); err == nil || r.isKnown(id) {
		return
	}
	var headers map[string]string
	for _, e := range r.scenario {
		if e.ResponseHeaders["x-ms-share-throughput"] == "true" {
			headers = map[string]string{"x-ms-offer-throughput": "400"}
		}
	}
	r.do(r.t, "POST", "/dbs", headers, fmt.Sprintf(`{"id":%q}`, id)).want(r.t, http.StatusCreated)
}

// isKnown reports whether a name is the resource id of something that the scenario has created.
func (r *replayer) isKnown(id string) bool { return r.ours[id] != "" }

// needContainer creates a container, unless it exists.
func (r *replayer) needContainer(db, id string, body properties, e *exchange) {
	if _, err := r.db.Container(db + "/" + id); err == nil || r.isKnown(id) {
		return
	}
	if body == nil {
		body = properties{"id": json.RawMessage(fmt.Sprintf("%q", id))}
	}
	if body["partitionKey"] == nil {
		body["partitionKey"] = json.RawMessage(fmt.Sprintf(`{"paths":[%q],"kind":"Hash"}`, r.keyPath(e)))
	}
	text, _ := json.Marshal(body)
	// Some recordings are older than a rule for new containers.
	old := serveStore(r.t, r.db, Options{Lenient: true})
	old.do(r.t, "POST", "/dbs/"+r.translate(db)+"/colls", nil, string(text)).want(r.t, http.StatusCreated)
}

// keyPath returns the path at which a document has the value of the partition key header.
func (r *replayer) keyPath(e *exchange) string {
	var key []any
	_ = json.Unmarshal([]byte(e.RequestHeaders["x-ms-documentdb-partitionkey"]), &key)
	for _, body := range []string{e.RequestBody, e.ResponseBody} {
		var doc map[string]any
		if json.Unmarshal([]byte(body), &doc) != nil || len(key) == 0 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(doc)) {
			if doc[name] == key[0] && !strings.HasPrefix(name, "_") {
				return "/" + name
			}
		}
	}
	return "/id"
}

// needDocuments creates the documents of all replies of the scenario, if the scenario creates none itself.
func (r *replayer) needDocuments(db, coll string) {
	cont, err := r.db.Container(r.translate(db) + "/" + r.translate(coll))
	if err != nil || cont.Count() > 0 {
		return
	}
	for _, e := range r.scenario {
		if e.Method == http.MethodPost && e.Status == http.StatusCreated && strings.HasSuffix(e.Path, "/docs") {
			return
		}
	}
	for _, e := range r.scenario {
		var page struct{ Documents []json.RawMessage }
		_ = json.Unmarshal([]byte(e.ResponseBody), &page)
		_, id, isOne := strings.Cut(e.Path, "/docs/")
		switch {
		case isOne && e.Method == http.MethodDelete:
			page.Documents = append(page.Documents, json.RawMessage(fmt.Sprintf(`{"id":%q}`, id)))
		case isOne && id != "", e.Method == http.MethodPost && e.Status == http.StatusOK:
			page.Documents = append(page.Documents, json.RawMessage(e.ResponseBody))
		}
		for _, doc := range page.Documents {
			var p properties
			if json.Unmarshal(doc, &p) != nil {
				continue
			}
			body, _ := json.Marshal(p.without("_rid", "_self", "_etag", "_attachments", "_ts"))
			key, err := cont.KeyOf(body)
			if err != nil {
				continue
			}
			r.do(r.t, "POST", "/dbs/"+r.translate(db)+"/colls/"+r.translate(coll)+"/docs",
				map[string]string{
					"x-ms-documentdb-partitionkey": string(key), "x-ms-documentdb-is-upsert": "true",
				}, string(body))
		}
	}
}

// playThrottled sends a request to a server with a small budget until the budget is used up.
func (r *replayer) playThrottled(e *exchange) answer {
	w := newWorld(r.t, Options{Throughput: 10})
	parts := strings.Split(e.Path, "/")
	w.create(r.t, parts[2], `{"id":"`+parts[4]+`","partitionKey":`+simpleKey+`}`, nil)
	for range 1000 {
		if a := w.do(r.t, e.Method, e.Path, e.RequestHeaders, e.RequestBody); a.status != http.StatusOK {
			return a
		}
	}
	r.t.Fatal("the budget is not used up after 1,000 requests")
	return answer{}
}

// arrangeHosted creates the database of the transcription, and the documents whose creation was not recorded.
func (r *replayer) arrangeHosted(e *exchange) {
	if _, err := r.db.Database("dbimp_it"); err != nil {
		r.do(r.t, "POST", "/dbs", map[string]string{"x-ms-offer-throughput": "100000"}, `{"id":"dbimp_it"}`).
			want(r.t, http.StatusCreated)
	}
	if e.Path == "/dbs/dbimp_it/colls/uk/docs" && e.Method == http.MethodGet { // its time to live was over
		r.do(r.t, "DELETE", e.Path+"/3", under("p"), "").want(r.t, http.StatusNoContent)
	}
	cont, err := r.db.Container("dbimp_it/bulk")
	if err != nil || cont.Count() > 0 {
		return
	}
	for n := 0; n < 2500; n += 100 {
		key := fmt.Sprintf("p%d", n/500)
		var ops []string
		for i := n; i < n+100; i++ {
			ops = append(ops, fmt.Sprintf(
				`{"operationType":"Create","resourceBody":{"id":"i%d","pk":%q,"n":%d,"grp":"g%d"}}`, i, key, i, i%3))
		}
		r.do(r.t, "POST", "/dbs/dbimp_it/colls/bulk/docs", under(key, "x-ms-cosmos-is-batch-request", "True",
			"x-ms-cosmos-batch-atomic", "True"), "["+strings.Join(ops, ",")+"]").want(r.t, http.StatusOK)
	}
}
