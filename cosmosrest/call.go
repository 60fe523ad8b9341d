package cosmosrest

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/query"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// call is a request with its content, its sender, its cost and its answer.
type call struct {
	s    *Server
	ctx  context.Context
	in   wire.Request
	who  auth.Principal
	work meter.Request
	out  wire.Answer
	op   *operation // nil until it is known

	known   bool // the sender was authenticated
	binary  bool // the client wants documents in binary JSON
	written bool // a write was committed, and the answer must be sent
}

// newCall begins a request.
func newCall(s *Server, w http.ResponseWriter, r *http.Request) *call {
	in := wire.NewRequest(w, r)
	c := &call{
		s: s, ctx: r.Context(), in: in, work: s.load.Request(r.Context()),
		out: wire.NewAnswer(w, in.Activity()),
	}
	c.out.Method, c.out.Version = r.Method, in.Header(wire.HeaderVersion)
	return c
}

// serveRequest parses the request, authenticates its sender, and calls its operation, in this order. So an unknown
// sender does not learn which resources exist.
func (c *call) serveRequest() error {
	_, host := c.in.Base()
	if err := c.s.hosts.refuse(host); err != nil {
		return err
	}
	if err := refusePreflight(&c.in); err != nil {
		return err
	}
	if err := c.in.Parse(); err != nil {
		return err
	}
	c.out.Kind = replyKindOf(&c.in)
	c.out.IsList = c.in.Target.Feed && (c.in.Method == http.MethodGet || c.in.IsQuery())
	var err error
	if c.in.Target.Kind == "addresses" {
		c.op = directRequest
		return c.op.run(c)
	}
	if c.who, err = c.s.authority.Authenticate(c.ctx, &c.in); err != nil {
		return err
	}
	c.known = true
	vouch(c.ctx)
	if err := c.checkHeaders(); err != nil {
		return err
	}
	if c.op, err = operationOf(&c.in); err != nil {
		return err
	}
	c.binary = c.in.Target.Kind == "docs" && c.in.WantsBinary()
	return c.op.run(c)
}

// replyKindOf returns the kind of the reply in the table of reply headers.
func replyKindOf(in *wire.Request) string {
	switch {
	case in.Target.Kind == "docs" && in.Method == http.MethodPost && in.Flag(wire.HeaderQueryPlan):
		return wire.PlanReply
	case in.Target.Kind == "docs" && in.Flag(wire.HeaderPending):
		return wire.OwnReply
	}
	return in.Target.Kind
}

// allowAction refuses an action on the target if the sender does not have the right.
func (c *call) allowAction(action string) error {
	if c.who.May(action, c.targetResource) {
		return nil
	}
	return c.who.Refusal(action, c.targetResource(), &c.in)
}

// targetResource returns the target by ids, even if the path has resource ids. targetResource finds the same resource
// as [call.targetContainer].
func (c *call) targetResource() auth.Resource {
	on := c.ownerResource()
	if c.who.HasToken() {
		c.describeTo(&on)
	}
	return on
}

// describeTo adds what only resource tokens need to know about a request.
func (c *call) describeTo(on *auth.Resource) {
	t := c.in.Target
	on.Kind, on.Plan = t.Kind, t.Kind == "docs" && c.in.Flag(wire.HeaderQueryPlan)
	if key, err := c.in.Key(); err == nil && key != "" {
		canonical, err := pkey.Canonical(string(key))
		if err == nil { // a key that cannot be read is refused by the operation
			on.Key = string(canonical)
		}
	}
	if t.Kind == "docs" && !t.Feed {
		on.Item = c.itemID(on)
	}
}

// itemID returns the id of the item in the path. If the path has resource ids, itemID looks for the item.
func (c *call) itemID(on *auth.Resource) string {
	t := c.in.Target
	cont := c.s.byRID(t.DB, t.Coll)
	if cont == nil || cont.ID() != on.Container || on.Key == "" {
		return t.ID
	}
	id, err := c.idOf(cont, feed.PartitionKey(on.Key), t.ID)
	if err != nil {
		return t.ID // the operation fails, too
	}
	return id
}

// ownerResource returns the container or the database of the target.
func (c *call) ownerResource() auth.Resource {
	t := c.in.Target
	if t.Coll != "" {
		if _, err := c.s.db.Container(t.DB + "/" + t.Coll); err == nil {
			return auth.Resource{Database: t.DB, Container: t.Coll}
		}
		if found := c.s.byRID(t.DB, t.Coll); found != nil {
			return auth.Resource{Database: found.Database(), Container: found.ID()}
		}
	}
	on := auth.Resource{Database: t.DB, Container: t.Coll, Account: t.Kind == ""}
	if _, err := c.s.db.Database(t.DB); err == nil {
		return on
	}
	for _, d := range c.s.db.Databases() {
		if d.RID == t.DB {
			on.Database = d.ID
			break
		}
	}
	return on
}

// targetContainer returns the container in the path, which may be named by id or by resource id. targetContainer also
// sets the container as the owner in the answer.
func (c *call) targetContainer() (*docstore.Container, error) {
	t := c.in.Target
	found, err := c.s.db.Container(t.DB + "/" + t.Coll)
	if errors.Is(err, feed.ErrNotFound) {
		if found = c.s.byRID(t.DB, t.Coll); found == nil {
			return nil, c.missingContainer()
		}
		err = nil
	}
	if err != nil {
		return nil, err
	}
	// The client knows a deleted container of the same name. This container must not accept the continuations and
	// session tokens of the deleted container.
	if want := c.in.Header(wire.HeaderContainerRID); want != "" && want != found.RID() {
		return nil, wire.Errorf(http.StatusBadRequest, wire.SubWrongRID, wire.CodeBadRequest,
			"header %s is %.64q: want %s, the resource id of container %q. A container that the client knows was deleted, and "+
				"another one was created under its name: read the container again", strings.ToLower(wire.HeaderContainerRID),
			want, found.RID(), found.ID())
	}
	c.setOwner(found)
	if kind := c.in.Target.Kind; kind == "docs" || kind == "colls" {
		// A default, until the operation knows the partition of the request. After each answer without a range, the
		// SDK for Python forgets all ranges that it knows.
		c.out.Range = found.PartitionAt("").ID
	}
	if c.in.Target.Kind == "docs" {
		c.out.Set(wire.AnswerResourceQuota, itemQuota)
		c.out.SetDocuments(found.Count())
	}
	return found, nil
}

// setOwner sets the owner of the resource in the answer: the container of a resource in a container, or the database
// of a container. Clients put the owner's path before the resource's.
func (c *call) setOwner(cont *docstore.Container) {
	rid, path := cont.RID(), "dbs/"+cont.Database()
	if c.in.Target.Kind == "colls" {
		rid = strings.Split(cont.Self(), "/")[1]
	} else {
		path += "/colls/" + cont.ID()
	}
	// When a container changes, the service leaves out the owner's resource id.
	if c.in.Target.Kind != "colls" || c.in.Method == http.MethodGet {
		c.out.Set(wire.AnswerContentPath, rid)
	}
	c.out.Set(wire.AnswerAltContentPath, path)
}

// missingContainer returns the error for a missing container. Requests about resources in the container get the same
// error, because the service's gateway reads the container first. If the database is missing too, the sub-status says
// that the owner is missing.
func (c *call) missingContainer() error {
	t := c.in.Target
	if _, err := c.targetDatabase(); err != nil {
		return wire.NotFound(wire.SubOwnerNotFound, "Owner resource does not exist: there is no database %q", t.DB)
	}
	return wire.NotFound(0, wire.NoResource+": there is no container %q in database %q", t.Coll, t.DB)
}

// targetDatabase returns the database in the path, which may be named by id or by resource id.
func (c *call) targetDatabase() (docstore.Database, error) {
	t := c.in.Target
	d, err := c.s.db.Database(t.DB)
	if err == nil || !errors.Is(err, feed.ErrNotFound) {
		return d, err
	}
	for _, d := range c.s.db.Databases() {
		if d.RID == t.DB {
			return d, nil
		}
	}
	sub := wire.SubOwnerNotFound
	if t.Kind == "dbs" {
		sub = 0
	}
	return d, wire.NotFound(sub, wire.NoResource+": there is no database %q", t.DB)
}

// readSelection reads the headers that select the documents of a request.
func (c *call) readSelection(cont *docstore.Container) (sel query.Selection, err error) {
	sel.Range = feed.FullRange()
	if id := c.in.Header(wire.HeaderRangeID); id != "" {
		partition, err := c.findPartition(cont, id)
		if err != nil {
			return sel, err
		}
		sel.Range, sel.Named = partition.Range, true
	}
	if sel.Key, err = c.in.Key(); err != nil {
		return sel, err
	}
	if sel.Key != "" { // continuations contain a hash of the key, so the key needs a canonical text
		if sel.Key, err = pkey.Canonical(string(sel.Key)); err != nil {
			return sel, err
		}
	}
	narrowed, named, err := c.in.Narrow(sel.Range)
	sel.Range, sel.Named = narrowed, sel.Named || named
	return sel, err
}

// findPartition returns the partition with a range id. Some SDKs write the container's resource id and a comma before
// the range id.
func (c *call) findPartition(cont *docstore.Container, id string) (feed.Partition, error) {
	if rid, bare, ok := strings.Cut(id, ","); ok {
		if rid != cont.RID() {
			return feed.Partition{},
				wire.BadRequest("x-ms-documentdb-partitionkeyrangeid is %q: want the resource id %s before the comma",
					id, cont.RID())
		}
		id = bare
	}
	parts, err := cont.Partitions(c.ctx)
	if err != nil {
		return feed.Partition{}, err
	}
	for _, partition := range parts {
		if partition.ID == id {
			return partition, nil
		}
	}
	return feed.Partition{},
		wire.Gone("PartitionKeyRange with id '%s' in collection '%s' doesn't exist: it is gone, read the ranges again",
			wire.Clip(id), cont.ID())
}

// admitRequest refuses a request if the partition has used up its budget.
func (c *call) admitRequest(cont *docstore.Container, partition string) error {
	return c.s.budgets.Admit(c.ctx, cont, partition)
}

// chargeRequest charges a request that was admitted.
func (c *call) chargeRequest(cont *docstore.Container, partition string, ru float64) {
	c.out.Charge += ru
	c.s.budgets.Spend(cont, partition, ru)
}

// waitContext returns the context of a request that waits for a change; most is the longest wait.
func (c *call) waitContext(most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.ctx, most)
	if c.s.o.Ending == nil {
		return ctx, cancel
	}
	// On shutdown, waiting requests return at once; other requests finish.
	stop := context.AfterFunc(c.s.o.Ending, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// sendReply sends an answer. A nil body is empty. If too many bytes are being sent, a large answer is refused, and
// the client tries again. An answer to a write is never refused.
func (c *call) sendReply(status int, body []byte) error {
	c.work.Rest()
	sent, err := c.s.load.Send(len(body), c.written)
	if err != nil {
		return err
	}
	defer sent()
	c.locate(status)
	c.out.Charge = max(c.out.Charge, c.work.Charge(0, 0))
	if err := c.out.Send(status, body); err != nil {
		c.s.log.Debug("client has gone", "activity", c.out.Activity, "err", err)
	}
	return nil
}

// locate sets the address of the resource, and the LSN of the master partition if the reply is of this partition.
func (c *call) locate(status int) {
	if status >= http.StatusBadRequest {
		return
	}
	if c.in.Method != http.MethodPost {
		c.out.Set(wire.AnswerLocation, c.in.Address())
	}
	switch c.in.Target.Kind {
	case "dbs", "colls", "offers", "users", "permissions":
		if c.in.Method != http.MethodGet && !c.out.IsList {
			c.s.changes.Add(1)
		}
		if c.out.Range == "" {
			c.out.SetMaster(c.s.changes.Load())
		}
	}
}

// sendError sends the answer for an error, unless an answer has been sent already.
func (c *call) sendError(err error) {
	if c.out.Status != 0 {
		return
	}
	e := c.errorOf(err)
	c.logFailure(e, err)
	drop := func() {}
	last := !c.known || !c.in.SkipShort() // the sender is unknown, or the rest of a body is still to come
	if last {
		drop = c.in.Outlive()
	}
	if !c.known {
		dismiss(c.ctx)
	}
	c.out.SetError(e, last)
	_ = c.sendReply(e.Status, e.Body(c.out.Activity)) // cannot fail: the body of an error is small
	drop()
}

// errorOf returns the answer for an error, depending on the resource of the request.
func (c *call) errorOf(err error) *wire.Error {
	switch c.in.Target.Kind {
	case "docs":
		return itemError(err)
	case "dbs", "colls", "users", "permissions":
		return resourceError(err)
	}
	return errorOf(err)
}

// recoverPanic turns a panic, which is a defect of the server, into a 500 without details.
func (c *call) recoverPanic() {
	p := recover()
	if p == nil {
		return
	}
	// A handler panics with this value to cut its connection, so the panic must reach net/http.
	if p == http.ErrAbortHandler {
		panic(p)
	}
	c.s.log.Error("request panicked", "method", c.in.Method, "path", c.in.Path(), "panic", p, "stack",
		string(debug.Stack()))
	c.sendError(errors.New("the server made a mistake: its log says which"))
}
