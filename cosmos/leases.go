package cosmos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The lease store on an account. All decisions about leases are in the root package and in internal/cosmosdb/leasedoc.
// So four requests remain here: a query lists the records, and each write is conditional on an ETag.

// The partition key paths that a lease container may have.
const (
	leaseKeyPath = "/id"
	leaseAltPath = "/partitionKey"
)

// LeaseOptions are the optional settings of [OpenLeases]. The zero value works.
type LeaseOptions struct {
	// FollowEvery is how often the lease container's change feed is read if the server cannot hold reads; at least 1 s,
	// 0 is 5 s. FollowEvery bounds how late this instance notices a hand-over of leases, and each read costs a request.
	FollowEvery time.Duration

	// Unnamed allows an empty processor name, which the functions of Azure Functions have unless they set a
	// leaseContainerPrefix.
	Unnamed bool
}

const (
	minFollow     = time.Second
	defaultFollow = 5 * time.Second
)

// Leases are the records of one deployment unit in a lease container, as documents of the .NET processor. Leases
// implement [feed.LeaseStore] and [feed.Follower].
//
// The store's time is the Date of its answers, which has whole seconds and is never ahead; if a record is newer, the
// time is the record's. So an instance may consider a lease up to a second too young, and never too old: an instance
// takes a lease late rather than early.
//
// All requests go to the write region, whatever regions you prefer. If the account has several write regions, all
// instances use the first, because in two regions two conditional writes of the same lease could both succeed.
type Leases struct {
	c     *Container
	unit  leasedoc.Unit
	path  string
	every time.Duration
	hold  time.Duration // how long the server holds a read; 0 is never

	prefix *leasedoc.UnitPrefix

	mu      sync.Mutex
	strange []feed.Record // leases of the unit under other prefixes, found at the start
	newest  time.Time     // the latest time of a record
	polled  time.Time     // when the feed was last read, by our clock
}

// OpenLeases opens the lease store of a processor name for a monitored container. The lease container must have the
// partition key /id or /partitionKey and should have a time to live: [Client.CreateLeaseContainer] makes such a
// container. OpenLeases searches once for leases of the unit under other names.
func OpenLeases(ctx context.Context, leases *Container, processor string, monitored *Container,
	o LeaseOptions,
) (*Leases, error) {
	if !leasedoc.IsProcessor(processor) && (processor != "" || !o.Unnamed) {
		return nil, badRequest(`processor name is %q: want one that tells this deployment unit from others, `+
			`without / \ ? # and U+0000`, processor)
	}
	path := ""
	if len(leases.paths) == 1 {
		path = leases.paths[0].String()
	}
	if path != leaseKeyPath && path != leaseAltPath {
		return nil, badRequest("partition key of lease container %s is %v: want %s or %s", leases.name(), leases.paths,
			leaseKeyPath, leaseAltPath)
	}
	if o.FollowEvery == 0 {
		o.FollowEvery = defaultFollow
	}
	if o.FollowEvery < minFollow {
		return nil, badRequest("FollowEvery is %v: want %v or more, or 0 for %v", o.FollowEvery, minFollow,
			defaultFollow)
	}
	database, err := databaseRID(monitored.rid)
	if err != nil {
		return nil, err
	}
	known, _ := leases.client.regions.currentAccount()
	if !leases.expires {
		leases.nameLasting(ctx)
	}
	// A copy, because the caller's container may go on to read from the nearest region.
	own := *leases
	own.hub = true
	s := &Leases{c: &own, path: path, every: o.FollowEvery, hold: known.hold, unit: leasedoc.Unit{
		Processor: processor, Host: monitored.client.endpoint.Hostname(),
		DatabaseRID: database, ContainerRID: monitored.rid, Database: monitored.database, Container: monitored.id,
	}}
	s.prefix = leasedoc.NewUnitPrefix(s.unit)
	if err := s.findOtherNames(ctx); err != nil {
		return nil, fmt.Errorf("open leases: %w", err)
	}
	return s, nil
}

// nameLasting warns once of a lease container without a time to live: a unit is opened more than once.
func (c *Container) nameLasting(ctx context.Context) {
	if _, said := c.client.lasting.LoadOrStore(c.name(), true); said {
		return
	}
	c.client.log.WarnContext(ctx,
		"lease container has no time to live, so records of instances that ended stay until somebody deletes "+
			"them: set its default to -1",
		"container", c.name())
}

// readRecord reads a document, and remembers the latest time.
func (s *Leases) readRecord(body []byte) feed.Record {
	record := leasedoc.Unmarshal(s.Prefix(), body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if record.Updated.After(s.newest) {
		s.newest = record.Updated
	}
	return record
}

// now returns the store's time as of an answer. If a server sends no Date, now returns our own time.
func (s *Leases) now(h http.Header) time.Time {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		date = time.Now().UTC()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest.After(date) {
		return s.newest
	}
	return date
}

// maxListPages ends a listing whose continuations never end.
const maxListPages = 10_000

// List implements [feed.LeaseStore].
func (s *Leases) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if s.prefix.MayChange() {
		if err := s.findOtherNames(ctx); err != nil {
			return nil, time.Time{}, fmt.Errorf("list leases: %w", err)
		}
	}
	var records []feed.Record
	now, err := s.queryPrefixes(ctx, []string{s.Prefix()}, func(it item) {
		if s.isOwn(rawjson.Text(it.id)) {
			records = append(records, s.readRecord(it.body))
		}
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("list leases: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(records, s.strange...), now, nil
}

// queryPrefixes visits the documents whose ids begin with one of the prefixes and a dot, and returns the store's time.
func (s *Leases) queryPrefixes(ctx context.Context, prefixes []string, visit func(item)) (time.Time, error) {
	var begins []string
	var parameters []map[string]string
	for i, prefix := range prefixes {
		name := fmt.Sprintf("@prefix%d", i)
		begins = append(begins, fmt.Sprintf("STARTSWITH(c.id, %s)", name))
		parameters = append(parameters, map[string]string{"name": name, "value": prefix + "."})
	}
	query, err := json.Marshal(map[string]any{
		"query": "SELECT * FROM c WHERE " + strings.Join(begins, " OR "), "parameters": parameters,
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("write query: %w", err)
	}
	r := request{method: http.MethodPost, at: s.c.docs, body: query, action: actionQuery, header: fields{
		{headerContentType, queryType},
		{headerIsQuery, "True"},
		{headerQuery, "True"},
		{headerCrossPartition, "True"},
		{headerMaxItems, "-1"},
	}}
	for range maxListPages {
		a, err := s.c.do(ctx, r)
		if err != nil {
			return time.Time{}, err
		}
		err = eachDocument(a.body, func(each *rawjson.Scanner) {
			if it, ok := s.c.scanItem(a.body, each); ok {
				visit(it)
			}
		})
		if err != nil {
			return time.Time{}, err
		}
		next := a.header.Get(headerContinuation)
		if next == "" {
			return s.now(a.header), nil
		}
		r.header.set(headerContinuation, next)
	}
	return time.Time{}, fmt.Errorf("more than %d pages", maxListPages)
}

// isOwn reports whether a document belongs to the unit.
func (s *Leases) isOwn(id string) bool {
	_, _, ok := leasedoc.KindOf(s.Prefix(), id)
	return ok
}

// Create implements [feed.LeaseStore].
func (s *Leases) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	record.ID, record.ETag = leasedoc.ID(s.prefix.Keep(), record.Kind, record.Token), ""
	return s.writeRecord(ctx, "create", feed.WriteCreate, record)
}

// Update implements [feed.LeaseStore].
func (s *Leases) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	record.ID, record.ETag = leasedoc.ID(s.Prefix(), record.Kind, record.Token), exact(record.ETag)
	return s.writeRecord(ctx, "update", feed.WriteReplace, record)
}

// exact returns an ETag that matches at most one version. An empty ETag would send no condition, and "*" matches any
// version: a lease must never be written in this way.
func exact(etag string) string {
	if etag == "" || etag == "*" {
		return `"no version"`
	}
	return etag
}

// writeRecord stores a record and reads the stored record from the answer. If the answer has no ETag, writeRecord
// returns an error, because the next write would have no condition.
func (s *Leases) writeRecord(ctx context.Context, verb string, op feed.WriteOp, record feed.Record) (feed.Record,
	error,
) {
	charge := 0.0
	doc, err := leasedoc.Marshal(s.Prefix(), s.path, record)
	if err == nil {
		doc, charge, err = s.putRecord(ctx, feed.Write{Op: op, ID: record.ID, Body: doc, IfMatch: record.ETag},
			s.keyOf(record.ID, doc))
	}
	if err != nil {
		return record, fmt.Errorf("%s lease %s: %w", verb, record.Token, err)
	}
	stored := s.readRecord(doc)
	if stored.ETag == "" {
		return record, fmt.Errorf("%s lease %s: the answer is no document: %.100q", verb, record.Token, doc)
	}
	stored.Charge = charge
	return stored, nil
}

// Delete implements [feed.LeaseStore].
func (s *Leases) Delete(ctx context.Context, record feed.Record) error {
	if record.ID == "" {
		record.ID = leasedoc.ID(s.Prefix(), record.Kind, record.Token)
	}
	w := feed.Write{Op: feed.WriteDelete, ID: record.ID, IfMatch: exact(record.ETag)}
	if _, _, err := s.putRecord(ctx, w, s.keyOf(record.ID, record.Raw)); err != nil {
		return fmt.Errorf("delete lease %s: %w", record.Token, err)
	}
	return nil
}

// keyOf returns the partition key of a document: its id, or the key in the document.
func (s *Leases) keyOf(id string, doc []byte) feed.PartitionKey {
	if s.path == leaseKeyPath || len(doc) == 0 {
		return feed.Key(id)
	}
	return pkey.Loose(s.c.paths, [][]byte{rawjson.Lookup(doc, s.c.paths[0]...)})
}

// putRecord sends a write and returns the stored document, and the request units.
//
// The path of the request names the document. If the service's gateway would misread the id in a path, the write is
// sent as a batch, which names the document in its body.
func (s *Leases) putRecord(ctx context.Context, w feed.Write, key feed.PartitionKey) (doc []byte, charge float64,
	err error,
) {
	r := request{body: w.Body, writes: true, header: fields{
		{headerContentType, jsonType},
		{headerKey, s.c.keyHeader(string(key))},
	}}
	switch w.Op {
	case feed.WriteCreate:
		r.method, r.at, r.action = http.MethodPost, s.c.docs, actionCreate
	case feed.WriteReplace:
		r.method, r.at, r.action = http.MethodPut, s.c.resourceAt("docs", w.ID), actionReplace
	default:
		r.method, r.at, r.action = http.MethodDelete, s.c.resourceAt("docs", w.ID), actionDelete
	}
	if w.Op != feed.WriteCreate && !fitsPath(w.ID) {
		results, err := s.c.commitBatch(ctx, key, []feed.Write{w})
		if err != nil {
			return nil, 0, err
		}
		return results[0].Body, results[0].Charge, nil
	}
	if w.IfMatch != "" {
		r.header.set(headerIfMatch, w.IfMatch)
	}
	if !isHeader(w.IfMatch) {
		return nil, 0, badRequest("ETag is %.60q: want one that the service gave", w.IfMatch)
	}
	a, err := s.c.do(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	return a.body, a.charge(), nil
}

// fitsPath reports whether the service's gateway reads an id in a path as we wrote it. If the id has any of these
// characters, the gateway computes another signature, and refuses the request.
func fitsPath(id string) bool {
	return !strings.ContainsAny(id, "%/\\#?\r\n\t") && !strings.HasSuffix(id, " ")
}
