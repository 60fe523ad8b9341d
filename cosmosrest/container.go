package cosmosrest

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Containers are created, listed, read, changed and deleted here. Some of their properties affect the store
// (policy.go). All properties are stored as the client wrote them, and returned unchanged.

// postContainers creates a container, or queries the containers of a database.
func postContainers(c *call) error {
	if c.in.IsQuery() {
		c.out.SetQueriedContainers()
		return eachContainer(c, resources.queryPage)
	}
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	p, err := readProperties(&c.in)
	if err != nil {
		return err
	}
	spec, err := p.checkSpec(c.s.o.Lenient)
	if err != nil {
		return err
	}
	if !c.s.o.Lenient {
		if err := p.checkNew(spec); err != nil {
			return err
		}
	}
	if len(spec.Paths) > 1 && !wire.HasMultiHash(c.out.Version) {
		return wire.BadRequest("The 'kind' value 'MultiHash' specified in the partition key definition is invalid. "+
			"Please choose 'Hash' partition type. The request has x-ms-version: %s, and hierarchical keys need a later "+
			"version", c.out.Version)
	}
	o, err := offered(c)
	if err != nil {
		return err
	}
	spec.Database, spec.Ranges = d.ID, o.ranges()
	if o == nil && offeredIn(d.Meta) == 0 {
		o = impliedOffer(c)
	}
	spec.Meta = wire.Encode(meta{version: newVersion(), Body: p.without(systemMembers...), Offer: o})
	made, err := c.s.db.CreateContainer(c.ctx, spec)
	if err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	return replyContainer(c, http.StatusCreated, made, nil)
}

// listContainers lists the containers of a database.
func listContainers(c *call) error { return eachContainer(c, resources.listPage) }

// eachContainer collects the containers of a database and calls answer with them.
func eachContainer(c *call, answer func(resources, *call) error) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	all := resources{member: "DocumentCollections", rid: d.RID}
	for _, cont := range c.s.db.Containers() {
		if cont.Database() == d.ID {
			_, body := containerJSON(cont, c.out.Version)
			all.all = append(all.all, resource{cont.ID(), body})
		}
	}
	c.out.Set(wire.AnswerContentPath, d.RID)
	c.out.Set(wire.AnswerAltContentPath, "dbs/"+d.ID)
	c.setQuota("collections", maxContainers, len(all.all))
	slices.SortFunc(all.all, func(a, b resource) int { return cmp.Compare(a.id, b.id) })
	return answer(all, c)
}

// readContainer answers with a container. On request, the answer contains the number of documents.
func readContainer(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	var all []rangeStatistics
	if c.in.Flag(wire.HeaderStatistics) {
		if all, err = readStatistics(c, cont); err != nil {
			return err
		}
	}
	if c.in.Flag(wire.HeaderQuotaInfo) {
		setUsage(c, cont, all)
	}
	return replyContainer(c, http.StatusOK, cont, all)
}

// replaceContainer changes the policies of a container. Properties that decide where documents are stored cannot be
// changed.
func replaceContainer(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	p, err := readProperties(&c.in)
	if err != nil {
		return err
	}
	// Clients that made the container without a partition key replace it without one.
	if isKeyless(cont) && p["partitionKey"] == nil {
		if said := readMeta(cont.Spec().Meta).Body["partitionKey"]; said != nil {
			p["partitionKey"] = said
		}
	}
	next, err := p.checkSpec(c.s.o.Lenient)
	if err != nil {
		return err
	}
	// The condition is checked within the store's update, so of two clients with the same ETag, the second is
	// refused.
	cont, err = c.s.db.UpdateContainer(c.ctx, cont.Name(), func(spec *docstore.ContainerSpec) error {
		m := readMeta(spec.Meta)
		if err := c.in.RefuseOther(m.at(cont.Version()).ETag); err != nil {
			return err
		}
		if err := unchanged(*spec, next, p); err != nil {
			return err
		}
		if err := p.keepsVectors(m.Body); err != nil && !c.s.o.Lenient {
			return err
		}
		m.version, m.Body = newVersion(), p.without(systemMembers...)
		spec.DefaultTTL, spec.Retention, spec.Meta = next.DefaultTTL, next.Retention, wire.Encode(m)
		return nil
	})
	if err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	return replyContainer(c, http.StatusOK, cont, nil)
}

// deleteContainer deletes a container with its documents.
func deleteContainer(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	v, _ := containerJSON(cont, c.out.Version)
	if err := c.in.RefuseOther(v.ETag); err != nil {
		return err
	}
	if err := c.s.db.DeleteContainer(c.ctx, cont.Name()); err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	c.out.Range = "" // the reply is of the master partition
	c.setQuota("collections", maxContainers, c.s.containersOf(cont.Database()))
	return c.sendReply(http.StatusNoContent, nil)
}

// containerQuota contains the service's limits of a container. Sizes are in KB, and -1 means no limit.
const containerQuota = "functions=25;storedProcedures=100;triggers=25;documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;"

// replyContainer answers with a container, and with its statistics if there are any.
func replyContainer(c *call, status int, cont *docstore.Container, all []rangeStatistics) error {
	part := cont.PartitionAt("")
	c.out.SetSession(part.ID, cont.Newest(part.Range.Min))
	if c.in.Method != http.MethodPut { // as in the service
		c.out.SetItemLSN(0) // the definition is older than every document
		if c.s.sharesThroughput(cont) {
			c.out.Set(wire.AnswerShared, "true")
		}
	}
	v, body := containerJSON(cont, c.out.Version)
	if all != nil {
		body = append(append(body[:len(body)-len("}")], `,"statistics":`...), append(wire.Encode(all), '}')...)
	}
	c.setOwner(cont)
	return c.replyResource(status, v, body)
}

// containersOf returns the number of containers in a database.
func (s *Server) containersOf(database string) (n int) {
	for _, cont := range s.db.Containers() {
		if cont.Database() == database {
			n++
		}
	}
	return n
}

// itemQuota contains the service's limits of a container, as replies about items have them.
const itemQuota = "documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;"

// sharesThroughput reports whether a container shares the throughput of its database: the database has an offer, and
// the container has none.
func (s *Server) sharesThroughput(cont *docstore.Container) bool {
	d, err := s.db.Database(cont.Database())
	return err == nil && offeredIn(d.Meta) > 0 && offeredIn(cont.Spec().Meta) == 0
}

// systemMembers are the members of a container that the server creates. If a client sends them back, they are
// ignored.
var systemMembers = []string{"_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"}

// containerJSON returns a container as clients of a version of the protocol see it: with the properties that the client
// sent or, if a program created the container without the server, with those of its specification.
func containerJSON(cont *docstore.Container, protocol string) (version, []byte) {
	spec := cont.Spec()
	m := readMeta(spec.Meta)
	p := describe(spec, m.Body, protocol)
	for _, name := range []string{"docs", "sprocs", "triggers", "udfs", "conflicts"} {
		p["_"+name] = wire.Encode(name + "/")
	}
	v := m.at(cont.Version())
	p.setIdentity(cont.ID(), cont.RID(), cont.Self(), v)
	return v, wire.Encode(p)
}
