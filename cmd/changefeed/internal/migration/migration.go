// Package migration copies a container into another container while both are in use, and compares the two.
//
// # How a copy stays right
//
// A change is only a hint that an item of the source has changed. For such an item the copier
//
//  1. reads the item's places in the target, with their etags,
//  2. then reads the item in the source, as it is now,
//  3. writes the version of the source, under the etags of step 1. If a place has changed since, the copy begins again.
//
// The target was read before the source, so the written version is never older than the replaced version. So a change
// may come again, come late, or come to two instances at once, and no newer version is overwritten. Nothing is added to
// the documents of the target for that. New items take a short way: the document of the change is created, which fails
// if the target has the item already. If deletes are followed too, the copier then looks whether the source still has
// this version.
//
// # The two units
//
// The unit of a copy reads the latest versions, from the beginning. If the source retains all versions and deletes, a
// second unit follows the deletes, and the items whose place in the target has moved. It begins before the first unit
// reads anything, so it sees every delete of an item that was copied.
package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A Pair names the two containers, and how an item of the source becomes documents of the target.
type Pair struct {
	Source, Target               string // addresses
	SourceAccount, TargetAccount place.Settings
	DeletedWhen                  string   // property of a soft delete; empty if there is none
	TTL                          string   // remaining or exact
	Transform                    []string // program and arguments; empty if documents stay as they are
	Writers                      int      // requests at the same time
}

// The values of Pair.TTL.
const (
	Remaining = "remaining"
	Exact     = "exact"
)

const maxWriters = 4096

// check refuses invalid values of flags.
func (p *Pair) check() error {
	if p.Writers < 1 || p.Writers > maxWriters {
		return usage.Flag("writers", strconv.Itoa(p.Writers), fmt.Sprintf("1 to %d", maxWriters))
	}
	return nil
}

// containers are the two containers of a pair, open.
type containers struct {
	stores         *place.Opener // owns the stores; opens the source
	targets        *place.Opener
	source, target *side
	targetAt       place.Address
	isPlanned      bool // the target does not exist yet
}

// open opens both containers. If the target is missing, make makes it; nil refuses that.
func (p *Pair) open(ctx context.Context, retries *place.Patience,
	make func(ctx context.Context, c *containers, at place.Address) (*place.Container, error),
) (_ *containers, err error) {
	from, err := p.SourceAccount.Parse("SOURCE", p.Source)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	to, err := p.TargetAccount.Parse("TARGET", p.Target)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	c := &containers{stores: place.NewOpener(p.SourceAccount), targetAt: to}
	c.targets = c.stores.Sharing(p.TargetAccount)
	c.stores.Retries, c.targets.Retries = retries, retries
	defer func() {
		if err != nil {
			_ = c.close()
		}
	}()
	opened, err := c.stores.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	if c.source, err = newSide(ctx, c.stores, opened); err != nil {
		return nil, err
	}
	opened, err = c.targets.Open(ctx, to)
	isMissing := errors.Is(err, place.ErrNoContainer) || errors.Is(err, place.ErrNoDatabase) ||
		errors.Is(err, docstore.ErrNotStore) || isMissingStore(err)
	if isMissing && make != nil {
		opened, err = make(ctx, c, to)
	}
	if err != nil || opened == nil {
		return c, err
	}
	if c.target, err = newSide(ctx, c.targets, opened); err != nil {
		return nil, err
	}
	return c, c.checkApart()
}

// isMissingStore reports whether the error is that of a directory without a store.
func isMissingStore(err error) bool {
	_, missing := errors.AsType[usage.Missing](err)
	return missing
}

// close closes what was opened.
func (c *containers) close() error { return errors.Join(c.targets.Close(), c.stores.Close()) }

// checkApart refuses a target that is the source.
func (c *containers) checkApart() error {
	s, t := c.source.Concrete(), c.target.Concrete()
	isOne := s == t
	if c.source.Remote != nil && c.target.Remote != nil {
		from, to := c.source.Account.Endpoint, c.target.Account.Endpoint
		isOne = s.RID() == t.RID() && s.Database() == t.Database() && s.ID() == t.ID() && sameServer(from, to)
	}
	if isOne {
		return usage.Error{Err: fmt.Errorf("TARGET is %s: it is the source itself: want another container", c.targetAt)}
	}
	return nil
}

// sameServer reports whether two endpoints may be of the same server: this machine has several names.
func sameServer(one, other string) bool {
	if place.IsLoopback(one) && place.IsLoopback(other) {
		return portOf(one) == portOf(other)
	}
	return strings.EqualFold(strings.TrimRight(one, "/"), strings.TrimRight(other, "/"))
}

// portOf returns the text after the last colon.
func portOf(endpoint string) string {
	endpoint = strings.TrimRight(endpoint, "/")
	return endpoint[strings.LastIndexByte(endpoint, ':')+1:]
}

// mapper returns the mapping of the pair.
func (p *Pair) mapper(c *containers) (*mapper, error) {
	m := &mapper{paths: c.target.paths, remaining: p.TTL != Exact && c.source.ttl}
	if p.DeletedWhen != "" {
		m.deleted = strings.Split(strings.Trim(p.DeletedWhen, "/"), "/")
		if slices.Contains(m.deleted, "") {
			return nil, usage.Flag("deleted-when", p.DeletedWhen, "the name of a property, such as deleted")
		}
	}
	if len(p.Transform) > 0 {
		t, err := newTransform(p.Transform)
		if err != nil {
			return nil, err
		}
		m.transform = t
	}
	return m, nil
}

// nameOf names an item for people.
func nameOf(key feed.PartitionKey, id string) string {
	return fmt.Sprintf("item %q of partition key %s", terminal.OneLine(id), terminal.OneLine(string(key)))
}

// now is the time to which lives are compared.
func now() time.Time { return time.Now() }
