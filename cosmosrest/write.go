package cosmosrest

import (
	"errors"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Writes of single items.

// createItem adds an item. With the header of an upsert, createItem adds or replaces the item.
func createItem(c *call) error {
	w := docstore.Write{Owned: true, Bare: c.in.Flag(wire.HeaderExcludeSystem)}
	w.Op = feed.WriteCreate
	action := auth.Create
	if c.in.Flag(wire.HeaderUpsert) {
		w.Op, action = feed.WriteUpsert, auth.Upsert
		// This is not IfMatch, because IfMatch requires that the item exists. This condition is evaluated only if the
		// item exists.
		w.If = unlessOther(c.in.Header(wire.HeaderIfMatch), c.in.Header(wire.HeaderIfNoneMatch))
	}
	if err := c.allowAction(action); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	if w.Body, w.Checked, err = c.readItemBody(); err != nil {
		return err
	}
	if firstByte(w.Body) == '[' {
		return wire.BadRequest("One of the specified inputs is invalid. The body is an array: want an item, or the " +
			"header x-ms-cosmos-is-batch-request: True for a batch")
	}
	key, err := c.in.Key()
	if err != nil {
		return err
	}
	// This check follows the parsing of the body, because on a lenient server the key comes from the body.
	if key == "" {
		if key, err = c.s.keyOf(&c.in, cont, w.Body); err != nil {
			return err
		}
	}
	p, err := c.findLogical(cont, key)
	if err != nil {
		return err
	}
	if err := p.refuseLongKey(c.s, w.Op); err != nil {
		return err
	}
	return c.writeItems(p, w)
}

// readItemBody reads the body of an item or of a patch, and writes its numbers as the service stores them. A lenient
// server stores what the client wrote.
func (c *call) readItemBody() (body []byte, checked bool, err error) {
	if body, checked, err = c.documentBody(wire.MaxItem); err != nil {
		return nil, false, err
	}
	body, err = c.s.storedForm(body)
	return body, checked, err
}

// storedForm returns an item as the service stores it. A lenient server stores what the client wrote, with an escape
// for each tab and line break that has none.
func (s *Server) storedForm(body []byte) ([]byte, error) {
	if s.o.Lenient {
		return wire.EscapeBreaks(body), nil
	}
	return wire.StoredForm(body)
}

// keyOf returns the partition key of a body that came without a partition key header.
func (s *Server) keyOf(in *wire.Request, cont *docstore.Container, body []byte) (feed.PartitionKey, error) {
	if !s.o.Lenient {
		return "", missingKey(in)
	}
	return cont.KeyOf(body)
}

// missingKey returns the 400 of a create without a key. As in the service, the type of the body decides whether a POST
// is a query, so the sender of a query with the type of an item gets this error, too.
func missingKey(in *wire.Request) *wire.Error {
	hint := ""
	if in.Flag(wire.HeaderIsQuery) {
		hint = "; for a query want the Content-Type application/query+json"
	}
	return wire.Errorf(http.StatusBadRequest, wire.SubKeyMismatch, wire.CodeBadRequest,
		wire.NoKey+" Want the header x-ms-documentdb-partitionkey%s", hint)
}

// unlessOther returns the condition of an upsert with If-Match or If-None-Match on an existing item, or nil. As in
// the service, such an upsert may still create the item.
func unlessOther(match, none string) docstore.Condition {
	if match == "" && none == "" {
		return nil
	}
	return func(body []byte) (bool, error) {
		etag := service.SystemText(body, "_etag")
		return (match == "" || wire.Matches(match, etag)) && (none == "" || !wire.Matches(none, etag)), nil
	}
}

// replaceItem replaces an item.
func replaceItem(c *call) error {
	if err := c.allowAction(auth.Replace); err != nil {
		return err
	}
	body, checked, err := c.readItemBody()
	if err != nil {
		return err
	}
	// The body is read before the item is looked up, because without the header the key may be in the body.
	p, err := c.findItem(body)
	if err != nil {
		return err
	}
	w := docstore.Write{
		Write: feed.Write{Op: feed.WriteReplace, ID: p.id, Body: body, IfMatch: c.in.IfMatch()},
		Owned: true, Checked: checked, Bare: c.in.Flag(wire.HeaderExcludeSystem),
	}
	if old, renames := splitRename(&w); renames {
		if err := allowRename(c, string(rawjson.Unquote(rawjson.Lookup(body, "id")))); err != nil {
			return err
		}
		return c.writeItems(p.logical, old, w)
	}
	return c.writeItems(p.logical, w)
}

// splitRename returns whether a replace has a body with another id, which renames the item. In the feed, a rename is a
// delete and a create: w becomes the create, and old is the delete.
func splitRename(w *docstore.Write) (old docstore.Write, renames bool) {
	if w.Op != feed.WriteReplace {
		return old, false
	}
	if id := rawjson.Unquote(rawjson.Lookup(w.Body, "id")); len(id) == 0 || string(id) == w.ID {
		return old, false
	}
	old = docstore.Write{Write: feed.Write{Op: feed.WriteDelete, ID: w.ID, IfMatch: w.IfMatch}}
	w.Op, w.ID, w.IfMatch = feed.WriteCreate, "", ""
	return old, true
}

// allowRename refuses a rename if the sender has a resource token that does not allow the item with the new id.
func allowRename(c *call, to string) error {
	on := func() auth.Resource {
		on := c.targetResource()
		on.Item = to
		return on
	}
	if c.who.May(auth.Replace, on) {
		return nil
	}
	return c.who.Refusal(auth.Replace, on(), &c.in)
}

// writeItems carries out writes as a single transaction and answers with the last. A refused write is charged too,
// and its answer has the session token, because the client may have to read the state that refused the write.
func (c *call) writeItems(p logical, writes ...docstore.Write) error {
	if err := c.withoutTriggers(); err != nil {
		return err
	}
	done, err := p.Commit(c.ctx, writes)
	c.chargeRequest(p.cont, done.Partition.ID, done.Charge)
	c.out.SetSession(done.Partition.ID, done.Newest)
	if err != nil {
		if refused, ok := errors.AsType[*feed.WriteError](err); ok {
			return refused.Err
		}
		return err
	}
	c.written = true
	w, r := &writes[len(writes)-1], &done.Results[len(writes)-1]
	c.out.SetLSN(r.LSN) // the write's own LSN; the session token may have a later LSN
	if w.Op == feed.WriteDelete {
		return c.sendReply(http.StatusNoContent, nil)
	}
	c.out.Set(wire.AnswerETag, r.ETag)
	status := statusOf(w.Op, *r)
	if len(writes) > 1 { // a rename
		status = http.StatusOK
	}
	if c.in.Minimal() {
		return c.sendReply(status, nil)
	}
	return c.sendDocuments(status, r.Body)
}

// withoutTriggers refuses a write that names triggers, because this server cannot run them, and leaving them out
// silently would break the program's rules.
func (c *call) withoutTriggers() error {
	for _, name := range []string{wire.HeaderPreTrigger, wire.HeaderPostTrigger} {
		if trigger := c.in.Header(name); trigger != "" && !c.s.o.Lenient {
			return wire.BadRequest("header %s names the trigger %q: this server has none", strings.ToLower(name),
				trigger)
		}
	}
	return nil
}

// statusOf returns the status of a write that was carried out.
func statusOf(op feed.WriteOp, r feed.Result) int {
	switch {
	case op == feed.WriteDelete:
		return http.StatusNoContent
	case r.Created && op != feed.WriteReplace: // a replace that renames creates an item, too
		return http.StatusCreated
	}
	return http.StatusOK
}
