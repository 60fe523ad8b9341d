package cosmosrest

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Users (user.go) and the permissions of a user (permission.go) are lists in the metadata of their database, so they
// are deleted together with the database. Both kinds are created, listed, read, replaced and deleted in the same way.

// element has the members that users and permissions have in common.
type element struct {
	version
	ID, RID string
}

func (e *element) common() *element { return e }

// elementOf is a pointer to a user or to a permission.
type elementOf[T any] interface {
	*T
	common() *element
}

// owner is the database of users, or the user of permissions.
type owner struct {
	name string // in messages
	rid  string
	self string // link by resource ids, with a slash at the end
	path string // link by ids
}

// elementKind is what differs between users and permissions.
type elementKind[T any, P elementOf[T]] struct {
	name   string // in messages
	kind   string // in paths
	member string // of a list
	unique string // what only one element of an owner has
	random int    // bytes of a resource id beyond the owner's
	read   string // the action that reads an element

	parse     func(*call) (T, error) // reads the body of a request
	check     func(*call) error      // checks the headers of a request
	targetID  func(*wire.Target) string
	listOf    func(*wire.Target, docstore.Database, *meta) (*[]T, owner, error)
	conflicts func(a, b P) bool // no owner has both
	rewrite   func(now, by P)   // changes an element to what the client sent
	describe  func(c *call, p properties, e P) error
}

// maxElements is how many users a database has, and how many permissions a user has. The service has higher limits;
// here all of them are a single record of the store.
const maxElements = 1000

// newChildRID returns the resource id of a user or permission: the owner's resource id and random bytes, of which the
// first and last show that the resource is neither a container nor an item.
func newChildRID(owner string, random int) string {
	rid, _ := base64.StdEncoding.DecodeString(strings.ReplaceAll(owner, "-", "/")) // cannot fail: it is ours
	own := make([]byte, random)
	_, _ = rand.Read(own) // never fails, as documented
	own[0] &= 0x7f
	own[random-1] = 0
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(append(rid, own...)), "/", "-")
}

// find returns the element of a list with an id or resource id.
func (k *elementKind[T, P]) find(list []T, in owner, id string) (P, error) {
	for i := range list {
		if e := P(&list[i]); e.common().ID == id || e.common().RID == id {
			return e, nil
		}
	}
	return nil, wire.NotFound(0, wire.NoResource+": %s has no %s %q", in.name, k.name, id)
}

// admit refuses an element that the owner cannot have beside the others.
func (k *elementKind[T, P]) admit(list []T, in owner, e P) error {
	for i := range list {
		if other := P(&list[i]); other.common().RID != e.common().RID && k.conflicts(other, e) {
			return fmt.Errorf("%s has a %s with this %s: %w", in.name, k.name, k.unique, feed.ErrConflict)
		}
	}
	return nil
}

// post creates an element, replaces it if the request is an upsert, or queries the elements of the owner.
func (k *elementKind[T, P]) post(c *call) error {
	if c.in.IsQuery() {
		return k.each(c, resources.queryPage)
	}
	return k.write(c, func(list *[]T, in owner, e P) (int, error) {
		now, err := k.find(*list, in, e.common().ID)
		if err == nil && c.in.Flag(wire.HeaderUpsert) {
			return http.StatusOK, k.change(*list, in, now, e)
		}
		if err := k.admit(*list, in, e); err != nil {
			return 0, err
		}
		if len(*list) >= maxElements {
			return 0, wire.BadRequest("%s has %d %s: want at most as many", in.name, maxElements, k.kind)
		}
		e.common().RID = newChildRID(in.rid, k.random)
		*list = append(*list, *e)
		return http.StatusCreated, nil
	})
}

// replace changes an element.
func (k *elementKind[T, P]) replace(c *call) error {
	return k.write(c, func(list *[]T, in owner, e P) (int, error) {
		now, err := k.findTarget(c, *list, in)
		if err != nil {
			return 0, err
		}
		return http.StatusOK, k.change(*list, in, now, e)
	})
}

// findTarget returns the element in the path, unless the client has another version.
func (k *elementKind[T, P]) findTarget(c *call, list []T, in owner) (P, error) {
	now, err := k.find(list, in, k.targetID(&c.in.Target))
	if err != nil {
		return nil, err
	}
	return now, c.in.RefuseOther(now.common().ETag)
}

// change changes an element to what the client sent, and sets by to the result.
func (k *elementKind[T, P]) change(list []T, in owner, now, by P) error {
	by.common().RID = now.common().RID
	if err := k.admit(list, in, by); err != nil {
		return err
	}
	k.rewrite(now, by)
	*by = *now
	return nil
}

// write carries out a write of the element in the body. put returns the status of the answer.
func (k *elementKind[T, P]) write(c *call, put func(list *[]T, in owner, e P) (int, error)) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	made, err := k.parse(c)
	if err != nil {
		return err
	}
	if err := k.check(c); err != nil {
		return err
	}
	P(&made).common().version = newVersion()
	status := 0
	err = k.update(c, func(list *[]T, in owner) (err error) {
		status, err = put(list, in, &made)
		return err
	})
	if err != nil {
		return err
	}
	return k.reply(c, status, &made)
}

// update changes the list of the owner in the path. If change fails, nothing is changed.
func (k *elementKind[T, P]) update(c *call, change func(list *[]T, in owner) error) error {
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	_, err = c.s.db.UpdateDatabase(c.ctx, d.ID, func(raw json.RawMessage) (json.RawMessage, error) {
		m := readMeta(raw)
		m.version = m.at(d.ETag, d.Changed) // the version of the database stays the same
		list, in, err := k.listOf(&c.in.Target, d, &m)
		if err != nil {
			return nil, err
		}
		if err := change(list, in); err != nil {
			return nil, err
		}
		return wire.Encode(m), nil
	})
	c.out.Charge += service.ManageCharge
	return err
}

// remove deletes an element. As in the service, resource tokens count until their time is over.
func (k *elementKind[T, P]) remove(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	err := k.update(c, func(list *[]T, in owner) error {
		gone, err := k.findTarget(c, *list, in)
		if err != nil {
			return err
		}
		rid := gone.common().RID
		*list = slices.DeleteFunc(*list, func(e T) bool { return P(&e).common().RID == rid })
		return nil
	})
	if err != nil {
		return err
	}
	if _, _, err := k.targetList(c); err != nil {
		return err
	}
	return c.sendReply(http.StatusNoContent, nil)
}

// targetList returns the list of the owner in the path, and sets the owner in the answer.
func (k *elementKind[T, P]) targetList(c *call) ([]T, owner, error) {
	d, err := c.targetDatabase()
	if err != nil {
		return nil, owner{}, err
	}
	m := readMeta(d.Meta)
	list, in, err := k.listOf(&c.in.Target, d, &m)
	if err != nil {
		return nil, in, err
	}
	c.out.Set(wire.AnswerContentPath, in.rid)
	c.out.Set(wire.AnswerAltContentPath, in.path)
	c.setQuota(k.kind, maxElements, len(*list))
	return *list, in, nil
}

// list lists the elements of the owner.
func (k *elementKind[T, P]) list(c *call) error { return k.each(c, resources.listPage) }

// each collects the elements of the owner and calls answer with them.
func (k *elementKind[T, P]) each(c *call, answer func(resources, *call) error) error {
	if err := c.allowAction(k.read); err != nil {
		return err
	}
	if err := k.check(c); err != nil {
		return err
	}
	list, in, err := k.targetList(c)
	if err != nil {
		return err
	}
	all := resources{member: k.member, rid: in.rid}
	for i := range list {
		body, err := k.json(c, in, &list[i])
		if err != nil {
			return err
		}
		all.all = append(all.all, resource{P(&list[i]).common().ID, body})
	}
	slices.SortFunc(all.all, func(a, b resource) int { return cmp.Compare(a.id, b.id) })
	return answer(all, c)
}

// readOne answers with an element.
func (k *elementKind[T, P]) readOne(c *call) error {
	if err := c.allowAction(k.read); err != nil {
		return err
	}
	list, in, err := k.targetList(c)
	if err != nil {
		return err
	}
	e, err := k.find(list, in, k.targetID(&c.in.Target))
	if err != nil {
		return err
	}
	c.out.SetItemLSN(e.common().Changed) // as the LSN of the master partition begins with a time
	return k.send(c, http.StatusOK, in, e)
}

// reply answers with an element that was written.
func (k *elementKind[T, P]) reply(c *call, status int, e P) error {
	_, in, err := k.targetList(c)
	if err != nil {
		return err
	}
	return k.send(c, status, in, e)
}

// send answers with an element.
func (k *elementKind[T, P]) send(c *call, status int, in owner, e P) error {
	body, err := k.json(c, in, e)
	if err != nil {
		return err
	}
	return c.replyResource(status, e.common().version, body)
}

// json returns an element as clients see it.
func (k *elementKind[T, P]) json(c *call, in owner, e P) ([]byte, error) {
	p := properties{}
	if err := k.describe(c, p, e); err != nil {
		return nil, err
	}
	one := e.common()
	p.setIdentity(one.ID, one.RID, in.self+k.kind+"/"+one.RID+"/", one.version)
	return wire.Encode(p), nil
}

// requests are the operations of the kind.
func (k *elementKind[T, P]) requests() requests {
	return requests{post: k.post, list: k.list, read: k.readOne, replace: k.replace, remove: k.remove}
}
