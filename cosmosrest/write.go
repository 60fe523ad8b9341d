package cosmosrest

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

const headerUpsert = "X-Ms-Documentdb-Is-Upsert"

// createItem adds an item, or with the header for it adds or replaces one.
func (c *call) createItem() error {
	w, action := changefeed.Write{Op: changefeed.WriteCreate}, actionCreate
	if c.flag(headerUpsert) {
		w, action = changefeed.Write{Op: changefeed.WriteUpsert}, actionUpsert
	}
	if err := c.allow(action); err != nil {
		return err
	}
	cont, err := c.container()
	if err != nil {
		return err
	}
	if w.Body, err = c.body(maxItem); err != nil {
		return err
	}
	key, err := c.partitionKey()
	if err != nil {
		return err
	}
	if key == "" {
		if key, err = c.keyOf(cont, w.Body); err != nil {
			return err
		}
	}
	p, err := c.spot(cont, key)
	if err != nil {
		return err
	}
	if w.Op == changefeed.WriteCreate {
		return c.write(p, w, nil)
	}
	return c.write(p, w, unlessOther(c.header("If-Match"), c.header("If-None-Match")))
}

// keyOf is the partition key of a body that came without a header for it.
func (c *call) keyOf(cont *docstore.Container, body []byte) (changefeed.PartitionKey, error) {
	if !c.s.o.Lenient {
		return "", newFault(http.StatusBadRequest, subKeyMismatch, "BadRequest",
			"PartitionKey extracted from document doesn't match the one specified in the header: want the header x-ms-documentdb-partitionkey")
	}
	return cont.KeyOf(body)
}

// unlessOther is what an upsert with If-Match or If-None-Match wants of an item that is
// there; nil for nothing. For the service, it may create the item all the same.
func unlessOther(match, none string) docstore.Condition {
	if match == "" && none == "" {
		return nil
	}
	return func(body []byte) (bool, error) {
		etag := strings.ReplaceAll(systemProperty(body, "_etag"), `\"`, `"`)
		return (match == "" || matches(match, etag)) && (none == "" || !matches(none, etag)), nil
	}
}

func (c *call) replaceItem() error {
	if err := c.allow(actionReplace); err != nil {
		return err
	}
	body, err := c.body(maxItem)
	if err != nil {
		return err
	}
	p, id, err := c.item(body)
	if err != nil {
		return err
	}
	w := changefeed.Write{Op: changefeed.WriteReplace, ID: id, Body: body, IfMatch: quoted(c.header("If-Match"))}
	return c.write(p, w, nil)
}

// write carries out a write and answers it.
func (c *call) write(p spot, w changefeed.Write, cond docstore.Condition) error {
	if err := c.withoutTriggers(); err != nil {
		return err
	}
	var conds map[int]docstore.Condition
	if cond != nil {
		conds = map[int]docstore.Condition{0: cond}
	}
	results, err := p.cont.CommitIf(c.ctx, p.key, []changefeed.Write{w}, conds)
	if err != nil {
		c.done(p, minCharge)
		if refused, ok := errors.AsType[*changefeed.WriteError](err); ok {
			return refused.Err
		}
		return err
	}
	r := results[0]
	c.written = true
	c.done(p, chargeOf(w.Op, len(r.Body)))
	c.wrote(r)
	if w.Op == changefeed.WriteDelete {
		return c.reply(http.StatusNoContent, nil)
	}
	c.set(answerETag, r.ETag)
	if c.minimal() {
		return c.reply(statusOf(w.Op, r), nil)
	}
	return c.reply(statusOf(w.Op, r), r.Body)
}

// wrote gives the answer the LSN of its own write. The session token may tell of later ones.
func (c *call) wrote(r changefeed.Result) { c.set(answerLSN, strconv.FormatInt(r.LSN, 10)) }

// withoutTriggers refuses a write that wants triggers to run, which would not.
func (c *call) withoutTriggers() error {
	for _, name := range []string{"X-Ms-Documentdb-Pre-Trigger-Include", "X-Ms-Documentdb-Post-Trigger-Include"} {
		if trigger := c.header(name); trigger != "" && !c.s.o.Lenient {
			return badRequest("header %s names the trigger %q: this server has none", strings.ToLower(name), trigger)
		}
	}
	return nil
}

// minimal tells a client that does not want back what it wrote.
func (c *call) minimal() bool { return strings.Contains(c.header("Prefer"), "return=minimal") }

// statusOf is the status of a write that was done.
func statusOf(op changefeed.WriteOp, r changefeed.Result) int {
	switch {
	case op == changefeed.WriteDelete:
		return http.StatusNoContent
	case r.Created:
		return http.StatusCreated
	}
	return http.StatusOK
}

// chargeOf is what an operation costs that leaves, or reads, a document of this size.
func chargeOf(op changefeed.WriteOp, size int) float64 {
	switch op {
	case changefeed.WriteRead:
		return chargeRead(size)
	case changefeed.WritePatch:
		return chargePatch(size)
	}
	return chargeWrite(size)
}
