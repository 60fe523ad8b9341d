package cosmosrest

import (
	"net/http"
	"strconv"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Databases are named sets of containers, which may share a throughput.

// postDatabases creates a database, or queries them.
func postDatabases(c *call) error {
	if c.in.IsQuery() {
		return queryDatabases(c)
	}
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	p, err := readProperties(&c.in)
	if err != nil {
		return err
	}
	id, err := p.id()
	if err != nil {
		return err
	}
	o, err := offered(c)
	if err != nil {
		return err
	}
	d, err := c.s.db.CreateDatabase(c.ctx, id, wire.Encode(meta{version: newVersion(), Offer: o}))
	if err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	return replyDatabase(c, http.StatusCreated, d)
}

// queryDatabases queries the databases of the account.
func queryDatabases(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	all := c.s.databases()
	c.setQuota("databases", maxDatabases, len(all.all))
	return all.queryPage(c)
}

// listDatabases lists the databases of the account.
func listDatabases(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	all := c.s.databases()
	c.setQuota("databases", maxDatabases, len(all.all))
	return all.listPage(c)
}

// databases returns all databases as clients see them.
func (s *Server) databases() resources {
	all := resources{member: "Databases"}
	for _, d := range s.db.Databases() {
		_, body := databaseJSON(d)
		all.all = append(all.all, resource{d.ID, body})
	}
	return all
}

// readDatabase answers with a database.
func readDatabase(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	return replyDatabase(c, http.StatusOK, d)
}

// deleteDatabase deletes a database with its containers.
func deleteDatabase(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	v, _ := databaseJSON(d)
	if err := c.in.RefuseOther(v.ETag); err != nil {
		return err
	}
	if err := c.s.db.DeleteDatabase(c.ctx, d.ID); err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	c.setQuota("databases", maxDatabases, len(c.s.db.Databases()))
	return c.sendReply(http.StatusNoContent, nil)
}

// replyDatabase answers with a database.
func replyDatabase(c *call, status int, d docstore.Database) error {
	v, body := databaseJSON(d)
	c.setQuota("databases", maxDatabases, len(c.s.db.Databases()))
	if c.in.Method == http.MethodGet {
		c.out.SetItemLSN(v.Changed) // as the LSN of the master partition begins with a time
	}
	return c.replyResource(status, v, body)
}

// The service's limits, for clients that read them; this server has no such limits.
const (
	maxDatabases  = 1000 // per account
	maxContainers = 5000 // per database
)

// setQuota reports the allowed number and the present number of resources of a kind.
func (c *call) setQuota(kind string, most, now int) {
	c.out.Set(wire.AnswerResourceQuota, kind+"="+strconv.Itoa(most)+";")
	c.out.Set(wire.AnswerResourceUsage, kind+"="+strconv.Itoa(now)+";")
}

// databaseJSON returns a database as clients see it.
func databaseJSON(d docstore.Database) (version, []byte) {
	m := readMeta(d.Meta)
	v := m.at(d.ETag, d.Changed)
	p := properties{"_colls": wire.Encode("colls/"), "_users": wire.Encode("users/")}
	p.setIdentity(d.ID, d.RID, "dbs/"+d.RID+"/", v)
	return v, wire.Encode(p)
}
