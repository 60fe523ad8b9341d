package cosmosrest

import (
	"errors"
	"net/http"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// postDatabases creates a database, or queries them.
func (c *call) postDatabases() error {
	if isQuery(c) {
		return c.queryDatabases()
	}
	if err := c.allow(actionManage); err != nil {
		return err
	}
	p, err := c.properties()
	if err != nil {
		return err
	}
	id, err := p.id()
	if err != nil {
		return err
	}
	o, err := c.offered()
	if err != nil {
		return err
	}
	d, err := c.s.db.CreateDatabase(c.ctx, id, encode(meta{version: newVersion(), Offer: o}))
	if err != nil {
		return err
	}
	c.charge += chargeManage
	return c.replyDatabase(http.StatusCreated, d)
}

func (c *call) queryDatabases() error {
	if err := c.allow(actionReadMetadata); err != nil {
		return err
	}
	return c.query(c.databases())
}

func (c *call) listDatabases() error {
	if err := c.allow(actionReadMetadata); err != nil {
		return err
	}
	return c.list(c.databases())
}

func (c *call) databases() resources {
	all := resources{member: "Databases"}
	for _, d := range c.s.db.Databases() {
		_, body := databaseJSON(d)
		all.all = append(all.all, resource{d.ID, body})
	}
	return all
}

func (c *call) readDatabase() error {
	if err := c.allow(actionReadMetadata); err != nil {
		return err
	}
	d, err := c.database()
	if err != nil {
		return err
	}
	return c.replyDatabase(http.StatusOK, d)
}

func (c *call) deleteDatabase() error {
	if err := c.allow(actionManage); err != nil {
		return err
	}
	d, err := c.database()
	if err != nil {
		return err
	}
	v, _ := databaseJSON(d)
	if err := c.ifMatch(v.ETag); err != nil {
		return err
	}
	if err := c.s.db.DeleteDatabase(c.ctx, d.ID); err != nil {
		return err
	}
	c.charge += chargeManage
	return c.reply(http.StatusNoContent, nil)
}

// database is the one that the path names, by id or by resource id.
func (c *call) database() (docstore.Database, error) {
	d, err := c.s.db.Database(c.target.db)
	if err == nil || !errors.Is(err, changefeed.ErrNotFound) {
		return d, err
	}
	for _, d := range c.s.db.Databases() {
		if d.RID == c.target.db {
			return d, nil
		}
	}
	sub := subOwnerNotFound
	if c.target.kind == "dbs" {
		sub = 0
	}
	return d, newFault(http.StatusNotFound, sub, "NotFound", "Resource Not Found: there is no database %q", c.target.db)
}

func (c *call) replyDatabase(status int, d docstore.Database) error {
	v, body := databaseJSON(d)
	c.set(answerContentPath, d.RID)
	c.set(answerAltContentPath, "dbs/"+d.ID)
	return c.replyResource(status, v, body)
}

func databaseJSON(d docstore.Database) (version, []byte) {
	m := readMeta(d.Meta)
	v := m.at(d.ETag, d.Changed)
	p := properties{"_colls": encode("colls/"), "_users": encode("users/")}
	p.identify(d.ID, d.RID, "dbs/"+d.RID+"/", v)
	return v, encode(p)
}
