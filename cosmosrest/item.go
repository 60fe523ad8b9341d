package cosmosrest

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

const maxItem = 2 << 20 // bytes of an item

// spot is the logical partition that a request is about, and where it is.
type spot struct {
	cont *docstore.Container
	key  changefeed.PartitionKey
	epk  string
	part changefeed.Partition
}

// spot finds a key, and refuses when the budget of its partition is used up.
func (c *call) spot(cont *docstore.Container, key changefeed.PartitionKey) (spot, error) {
	r, err := cont.Locate(key)
	if err != nil {
		return spot{}, err
	}
	p := spot{cont: cont, key: key, epk: r.Min, part: cont.PartitionAt(r.Min)}
	return p, c.admit(cont, p.part.ID)
}

// done accounts for what was done at a spot, whether it was refused or not.
func (c *call) done(p spot, ru float64) {
	c.spend(p.cont, p.part.ID, ru)
	c.session(p.part.ID, p.cont.Newest(p.epk))
}

// item finds the item that the path names. To a lenient server, the new body may tell the
// partition key, if there is one.
func (c *call) item(body []byte) (p spot, id string, err error) {
	cont, err := c.container()
	if err != nil {
		return spot{}, "", err
	}
	if err := c.gatewayTakes(c.target.id); err != nil {
		return spot{}, "", err
	}
	key, err := c.partitionKey()
	if err != nil {
		return spot{}, "", err
	}
	if key == "" && body != nil && c.s.o.Lenient {
		if key, err = cont.KeyOf(body); err != nil {
			return spot{}, "", err
		}
	}
	if key == "" {
		return spot{}, "", badRequest("PartitionKey value must be supplied for this operation: want the header x-ms-documentdb-partitionkey")
	}
	if p, err = c.spot(cont, key); err != nil {
		return spot{}, "", err
	}
	id = c.target.id
	if c.target.coll == cont.RID() {
		id, err = c.idOf(p, c.target.id)
	}
	return p, id, err
}

// gatewayTakes refuses the ids that the service's routing gateway cannot carry in a path,
// though it lets items with such ids be created.
func (c *call) gatewayTakes(id string) error {
	switch {
	case c.s.o.Dedicated || c.s.o.Lenient:
	case strings.ContainsAny(id, "\r\t\n"):
		return badRequest("item id %q has a tab or line break: the gateway cannot find such items", id)
	case strings.ContainsAny(id, `%/\#`) || strings.HasSuffix(id, " "):
		return newFault(http.StatusUnauthorized, 0, "Unauthorized",
			`item id %q ends in a blank or has one of %% / \ #: the gateway computes another signature for such items`, id)
	}
	return nil
}

// idOf is the id of the item with a resource id; the resource id if there is none.
func (c *call) idOf(p spot, rid string) (string, error) {
	for it, err := range p.cont.Logical(c.ctx, p.key, 0) {
		if err != nil {
			return "", err
		}
		if err := c.meter.Work(docWork + len(it.Body)); err != nil {
			return "", err
		}
		if systemProperty(it.Body, "_rid") == rid {
			return it.ID, nil
		}
	}
	return rid, nil
}

// systemProperty is the text of one of the strings that the store writes at the end of
// each body, as it is in JSON.
func systemProperty(body []byte, name string) string {
	label := `"` + name + `":"`
	at := bytes.LastIndex(body, []byte(label))
	if at < 0 {
		return ""
	}
	value := body[at+len(label):]
	end := bytes.Index(value, []byte(`","_`)) // another system property follows
	return string(value[:max(end, 0)])
}

func (c *call) readItem() error {
	if err := c.allow(actionReadItem); err != nil {
		return err
	}
	p, id, err := c.item(nil)
	if err != nil {
		return err
	}
	if err := c.consistent(p.part, p.cont.Newest(p.epk)); err != nil {
		return err
	}
	it, err := p.cont.Item(c.ctx, p.key, id)
	size, none := len(it.Body), c.header("If-None-Match")
	same := err == nil && none != "" && matches(none, it.ETag)
	if same {
		size = 0
	}
	c.done(p, chargeRead(size))
	if err != nil {
		return err
	}
	c.set(answerETag, it.ETag)
	if same {
		return c.reply(http.StatusNotModified, nil)
	}
	if match := c.header("If-Match"); match != "" && !matches(match, it.ETag) {
		return newFault(http.StatusPreconditionFailed, 0, "PreconditionFailed", "item %q has the ETag %s: want %s", it.ID, it.ETag, match)
	}
	return c.reply(http.StatusOK, it.Body)
}

// matches tells whether a condition names an ETag, with or without its quotes.
func matches(condition, etag string) bool {
	return condition == "*" || condition == etag || quoted(condition) == etag
}

// quoted is an ETag with its quotes, which some clients lose.
func quoted(etag string) string {
	if etag == "" || etag == "*" || etag[0] == '"' {
		return etag
	}
	return `"` + etag + `"`
}

func (c *call) deleteItem() error {
	if err := c.allow(actionDelete); err != nil {
		return err
	}
	p, id, err := c.item(nil)
	if err != nil {
		return err
	}
	w := changefeed.Write{Op: changefeed.WriteDelete, ID: id, IfMatch: quoted(c.header("If-Match"))}
	return c.write(p, w, nil)
}
