package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Making the store and the container of an import. After a wrong flag there must be neither a store nor a container,
// because the user who corrects the flag would then get the wrong one. So everything is compared or tried before the
// first creation.

// Wanted describes a container, which Make creates if the container is missing.
type Wanted struct {
	Spec docstore.ContainerSpec // Paths, Ranges, DefaultTTL and Retention of a new container

	Throughput int // of a new container, in request units a second; 0 leaves the choice to the account

	// Given reports whether the user gave a part of Spec, by the name of the flag: pk, ranges, ttl or retention. An
	// existing container must match that part, because Make does not change it.
	Given func(flag string) bool
}

// Make opens a container. If the container is missing, Make creates it, together with the store or database.
func (o *Opener) Make(ctx context.Context, a Address, w Wanted) (*Container, error) {
	if err := checkNewName(a); err != nil {
		return nil, err
	}
	if a.Dir == "" {
		return o.makeRemote(ctx, a, w)
	}
	db, err := o.makeStore(ctx, a, w)
	if err != nil {
		return nil, err
	}
	c, err := w.makeIn(ctx, a, db)
	if err != nil {
		return nil, err
	}
	return Stored(c, a), nil
}

const maxName = 255 // characters of the name of a database or a container

// checkNewName refuses a name that the service refuses for a new database or container.
func checkNewName(a Address) error {
	for _, n := range []struct{ of, name string }{{"database", a.Database}, {"container", a.Container}} {
		if utf8.RuneCountInString(n.name) > maxName || strings.ContainsAny(n.name, `/\?#`) ||
			strings.ContainsFunc(n.name, unicode.IsControl) || strings.TrimRight(n.name, " ") != n.name {
			return usage.Error{Err: fmt.Errorf("%s: the %s is %q: want a name of at most %d characters, without / \\ ? # and "+
				"control characters, and without a blank at its end", terminal.OneLine(a.Quote()), n.of, n.name, maxName)}
		}
	}
	return nil
}

// makeStore opens a store. If the store is missing, makeStore first creates the container in memory, so that an invalid
// container leaves no store behind.
func (o *Opener) makeStore(ctx context.Context, a Address, w Wanted) (*docstore.DB, error) {
	db, err := o.openStore(a, docstore.Options{MustExist: true})
	if errors.Is(err, docstore.ErrNotStore) {
		if err = w.rehearse(ctx, a); err == nil {
			db, err = o.openStore(a, docstore.Options{})
		}
	}
	if errors.Is(err, docstore.ErrNotStore) {
		err = fmt.Errorf("%s: %w", a.quoteStore(), err)
	}
	return db, err
}

// rehearse makes the container in memory, because a wrong definition must leave neither a store nor a database behind.
func (w Wanted) rehearse(ctx context.Context, a Address) (err error) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	_, err = w.makeIn(ctx, a, db)
	return err
}

// makeIn returns the container in a store, and creates a missing container.
func (w Wanted) makeIn(ctx context.Context, a Address, db *docstore.DB) (*docstore.Container, error) {
	c, err := db.Container(a.Name())
	if err == nil {
		return c, w.checkAgreement(a, c.Spec())
	}
	if !errors.Is(err, feed.ErrNotFound) {
		return nil, err
	}
	if len(w.Spec.Paths) == 0 {
		return nil, keyless(a)
	}
	// Every store has the default database.
	if a.Database != docstore.DefaultDatabase {
		if _, err := db.CreateDatabase(ctx, a.Database, nil); err != nil && !errors.Is(err, feed.ErrConflict) {
			return nil, err
		}
	}
	spec := w.Spec
	spec.Database, spec.ID = a.Database, a.Container
	c, err = db.CreateContainer(ctx, spec)
	if errors.Is(err, feed.ErrBadRequest) {
		err = usage.Error{Err: err}
	}
	return c, err
}

// keyless returns the error for a new container without a partition key: no default would be right, and the key cannot
// be changed later.
func keyless(a Address) error {
	return usage.Error{Err: fmt.Errorf("--pk is missing: container %q is new, so its partition key path is needed, "+
		"as in --pk /city", a.Name())}
}

// checkAgreement refuses parts of Spec that an existing container does not match.
func (w Wanted) checkAgreement(a Address, has docstore.ContainerSpec) error {
	for _, f := range []struct{ name, want, has string }{
		{"pk", strings.Join(w.Spec.Paths, ","), strings.Join(has.Paths, ",")},
		// the ranges of an account are compared later
		{"ranges", strconv.Itoa(w.Spec.Ranges), strconv.Itoa(cmp.Or(has.Ranges, w.Spec.Ranges))},
		{"ttl", lifetime(w.Spec.DefaultTTL), lifetime(has.DefaultTTL)},
		{"retention", terminal.Exact(w.Spec.Retention), terminal.Exact(has.Retention)},
	} {
		if w.Given(f.name) && f.want != f.has {
			return usage.Flag(f.name, f.want, fmt.Sprintf("%s, which container %q was made with, or another container",
				f.has, a.Name()))
		}
	}
	return nil
}

// lifetime returns a time to live in the form of --ttl.
func lifetime(ttl *int) string {
	if ttl == nil {
		return "off"
	}
	if *ttl < 0 {
		return strconv.Itoa(*ttl)
	}
	return terminal.Exact(time.Duration(*ttl) * time.Second)
}

// makeRemote opens a container of an account, and creates a missing container.
func (o *Opener) makeRemote(ctx context.Context, at Address, w Wanted) (*Container, error) {
	a, err := o.Account(ctx, at)
	if err != nil {
		return nil, err
	}
	// Check the flag before looking for the container: Azure is refused whether the container exists or not.
	cut := w.Given("ranges")
	switch {
	case cut && w.Spec.Ranges < 1:
		return nil, usage.Flag("ranges", strconv.Itoa(w.Spec.Ranges), "1 or more")
	case w.Spec.Retention > 0 && w.Spec.Retention < time.Minute:
		return nil, usage.Flag("retention", terminal.Exact(w.Spec.Retention),
			"1m or more: an account counts whole minutes")
	case w.Spec.Retention%time.Minute != 0:
		return nil, usage.Flag("retention", terminal.Exact(w.Spec.Retention),
			"whole minutes, such as 90m: an account counts them")
	case cut && !a.cutsPartitions(ctx):
		return nil,
			usage.Error{Err: fmt.Errorf("--ranges is %d: an account chooses its partitions itself: want it for a new "+
				"container of a store or of changefeed serve", w.Spec.Ranges)}
	}
	spec, err := a.spec(ctx, at)
	isNew := err != nil
	switch {
	case err == nil:
		err = w.checkAgreement(at, spec)
	case !errors.Is(err, feed.ErrNotFound):
	case len(w.Spec.Paths) == 0:
		err = keyless(at)
	default:
		spec = w.Spec
		if err = w.rehearse(ctx, at); err == nil {
			err = a.create(ctx, at, spec, w.Throughput)
		}
	}
	if err != nil {
		return nil, err
	}
	c, err := o.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	c.Paths = spec.Paths
	if cut {
		err = w.cutPartitions(ctx, c, isNew)
	}
	return c, err
}

// cutPartitions splits the partition of a new container into the requested number. An existing container must already
// have this number.
func (w Wanted) cutPartitions(ctx context.Context, c *Container, isNew bool) error {
	parts, err := c.Source.Partitions(ctx)
	if err != nil {
		return err
	}
	if !isNew && len(parts) != w.Spec.Ranges {
		return usage.Flag("ranges", strconv.Itoa(w.Spec.Ranges),
			fmt.Sprintf("%d, which container %q has, or another container", len(parts), c.Address.Name()))
	}
	// From left to right: the last partition always contains the remaining edges.
	for i := 1; isNew && i < w.Spec.Ranges; i++ {
		at := feed.FullRange().Cut(w.Spec.Ranges)[i].Min
		if parts, err = c.splitPartition(ctx, parts[len(parts)-1].ID, at); err != nil {
			return err
		}
	}
	return nil
}
