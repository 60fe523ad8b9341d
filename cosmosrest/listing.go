package cosmosrest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Lists of databases, containers, offers and partitions. They are paged and queried like items, although each list is
// short enough to be built at once.

// resources are the databases of an account, the containers of a database, the partitions
// of a container, or all offers.
type resources struct {
	member string // member of the answer that contains the resources
	rid    string // resource id of their owner
	all    []resource
}

// resource is an element of a list. Lists are sorted by id, and a page begins after an id, so no element is skipped
// if elements of the last page are deleted meanwhile.
type resource struct {
	id   string
	body []byte
}

// listPage answers a GET with a page of the resources.
func (from resources) listPage(c *call) error {
	return from.replyPage(c, func(r resource, emit func([]byte) error) error { return emit(r.body) })
}

// queryPage answers a POST with a page of a query's rows. If rows depend on several resources, or if the query limits
// its rows itself, there is only a single page.
func (from resources) queryPage(c *call) error {
	text, err := c.queryText()
	if err != nil {
		return err
	}
	b, err := text.Bind(&c.work)
	if err != nil {
		return err
	}
	b.Until(c.work.Limit())
	if _, limit := b.Limit(); b.Streams() && limit < 0 {
		return from.replyPage(c, func(r resource, emit func([]byte) error) error { return b.Rows(r.body, emit) })
	}
	// Lists are short, so no state is kept between pages: a query that must see all resources answers at once.
	run := b.NewRun()
	for _, r := range from.all {
		if err := run.Add(r.body); err != nil {
			return err
		}
	}
	found, err := run.Finish()
	if err != nil {
		return err
	}
	rows := make([]json.RawMessage, len(found))
	for i := range found {
		rows[i] = found[i].JSON
	}
	return from.replyRows(c, rows)
}

// replyPage sends the rows of resources, up to the number that the client accepts in a page. The rows of a resource
// stay together, because the continuation names a resource, not a row.
func (from resources) replyPage(c *call, rowsOf func(r resource, emit func([]byte) error) error) error {
	limit, err := c.in.MaxItems()
	if err != nil {
		return err
	}
	after, err := base64.URLEncoding.DecodeString(c.in.Header(wire.HeaderContinuation))
	if err != nil {
		return wire.BadRequest("Invalid Continuation Token. x-ms-continuation is %.100q: want one that this "+
			"server gave", c.in.Header(wire.HeaderContinuation))
	}
	last := string(after)
	var rows []json.RawMessage
	for _, r := range from.all {
		if r.id <= last {
			continue
		}
		// If the rows of a resource exceed the limit, there is another page, and these rows belong there.
		had := len(rows)
		if err := rowsOf(r, func(row []byte) error { rows = append(rows, bytes.Clone(row)); return nil }); err != nil {
			return err
		}
		if limit > 0 && had >= limit && len(rows) > had {
			rows = rows[:had]
			c.out.Set(wire.AnswerContinuation, base64.URLEncoding.EncodeToString([]byte(last)))
			break
		}
		last = r.id
	}
	return from.replyRows(c, rows)
}

// replyAll sends all resources at once.
func (from resources) replyAll(c *call) error {
	rows := make([]json.RawMessage, len(from.all))
	for i, r := range from.all {
		rows[i] = r.body
	}
	return from.replyRows(c, rows)
}

// replyRows sends rows.
func (from resources) replyRows(c *call, rows []json.RawMessage) error {
	var b bytes.Buffer
	b.WriteString(`{"_rid":"` + from.rid + `","` + from.member + `":[`)
	for i, row := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(row)
	}
	count := strconv.Itoa(len(rows))
	b.WriteString(`],"_count":` + count + `}`)
	c.out.Set(wire.AnswerItemCount, count)
	return c.sendReply(http.StatusOK, b.Bytes())
}
