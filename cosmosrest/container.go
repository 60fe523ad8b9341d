package cosmosrest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/millrace/changefeed/docstore"
)

// postContainers creates a container, or queries those of a database.
func (c *call) postContainers() error {
	if isQuery(c) {
		return c.eachContainer((*call).query)
	}
	if err := c.allow(actionManage); err != nil {
		return err
	}
	d, err := c.database()
	if err != nil {
		return err
	}
	p, err := c.properties()
	if err != nil {
		return err
	}
	spec, err := c.specOf(p)
	if err != nil {
		return err
	}
	o, err := c.offered()
	if err != nil {
		return err
	}
	spec.Database, spec.Ranges = d.ID, o.ranges()
	spec.Meta = encode(meta{version: newVersion(), Body: p.without(systemMembers...), Offer: o})
	made, err := c.s.db.CreateContainer(c.ctx, spec)
	if err != nil {
		return err
	}
	c.charge += chargeManage
	return c.replyContainer(http.StatusCreated, made)
}

func (c *call) listContainers() error { return c.eachContainer((*call).list) }

// eachContainer answers with the containers of a database.
func (c *call) eachContainer(answer func(*call, resources) error) error {
	if err := c.allow(actionReadMetadata); err != nil {
		return err
	}
	d, err := c.database()
	if err != nil {
		return err
	}
	all := resources{member: "DocumentCollections", rid: d.RID}
	for _, cont := range c.s.db.Containers() {
		if cont.Database() == d.ID {
			_, body := containerJSON(cont)
			all.all = append(all.all, resource{cont.ID(), body})
		}
	}
	slices.SortFunc(all.all, func(a, b resource) int { return cmp.Compare(a.id, b.id) })
	return answer(c, all)
}

func (c *call) readContainer() error {
	if err := c.allow(actionReadMetadata); err != nil {
		return err
	}
	cont, err := c.container()
	if err != nil {
		return err
	}
	if c.flag("X-Ms-Documentdb-Populatequotainfo") {
		c.set("x-ms-resource-usage", "documentsCount="+strconv.FormatInt(cont.Count(), 10)+";")
	}
	return c.replyContainer(http.StatusOK, cont)
}

// replaceContainer changes the policies of a container. What decides where documents are
// cannot be changed.
func (c *call) replaceContainer() error {
	if err := c.allow(actionManage); err != nil {
		return err
	}
	cont, err := c.container()
	if err != nil {
		return err
	}
	p, err := c.properties()
	if err != nil {
		return err
	}
	next, err := c.specOf(p)
	if err != nil {
		return err
	}
	cont, err = c.s.db.UpdateContainer(c.ctx, cont.Name(), func(spec *docstore.ContainerSpec) error {
		m := readMeta(spec.Meta)
		if err := c.ifMatch(m.at(cont.ETag(), cont.Changed()).ETag); err != nil {
			return err
		}
		if err := unchanged(*spec, next, p); err != nil {
			return err
		}
		m.version, m.Body = newVersion(), p.without(systemMembers...)
		spec.DefaultTTL, spec.Retention, spec.Meta = next.DefaultTTL, next.Retention, encode(m)
		return nil
	})
	if err != nil {
		return err
	}
	c.charge += chargeManage
	return c.replyContainer(http.StatusOK, cont)
}

func (c *call) deleteContainer() error {
	if err := c.allow(actionManage); err != nil {
		return err
	}
	cont, err := c.container()
	if err != nil {
		return err
	}
	v, _ := containerJSON(cont)
	if err := c.ifMatch(v.ETag); err != nil {
		return err
	}
	if err := c.s.db.DeleteContainer(c.ctx, cont.Name()); err != nil {
		return err
	}
	c.charge += chargeManage
	return c.reply(http.StatusNoContent, nil)
}

func (c *call) replyContainer(status int, cont *docstore.Container) error {
	v, body := containerJSON(cont)
	c.setOwner(cont)
	return c.replyResource(status, v, body)
}

// systemMembers of a container are made by the server.
var systemMembers = []string{"_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"}

// containerJSON is a container as clients see it: what they said of it, or what its
// specification says when it was made without the server.
func containerJSON(cont *docstore.Container) (version, []byte) {
	spec := cont.Spec()
	m := readMeta(spec.Meta)
	p := describe(spec, m.Body)
	for _, name := range []string{"docs", "sprocs", "triggers", "udfs", "conflicts"} {
		p["_"+name] = encode(name + "/")
	}
	v := m.at(cont.ETag(), cont.Changed())
	p.identify(cont.ID(), cont.RID(), cont.Self(), v)
	return v, encode(p)
}
