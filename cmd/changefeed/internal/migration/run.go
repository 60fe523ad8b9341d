package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

// A Copy copies a container into another one, and follows it.
type Copy struct {
	Pair

	Name          string   // of the unit; empty means one made of the two containers
	Leases        string   // address of the lease container; empty means "leases" beside the target
	Create        []string // key paths of the target, if it is missing
	Letters       string   // address or file of the dead letters; empty if there are none
	Instance      string
	Expiration    time.Duration
	Steady        time.Duration // how long the lag must be 0
	UntilCaughtUp bool
	DryRun        bool

	Report *report.Report
	Log    *slog.Logger
	Say    func(text string)
	Exit   func()
}

const (
	maxItems       = 2000 // changes of a batch
	handlerTimeout = 30 * time.Minute
	maxAttempts    = 5 // before an item is parked; items that can never be copied are parked at once
	deletesSuffix  = "-deletes"
	leastExpire    = time.Second
)

// check refuses invalid values of flags.
func (c *Copy) check() error {
	switch {
	case c.Expiration < leastExpire:
		return usage.Flag("expiration", terminal.Exact(c.Expiration), "1s or more")
	case c.Steady < 0:
		return usage.Flag("steady", terminal.Exact(c.Steady), "0s or more")
	case c.Name != "" && !leasedoc.IsProcessor(c.Name):
		return usage.Flag("name", c.Name, `a name without / \ ? # and U+0000`)
	}
	for _, path := range c.Create {
		if !strings.HasPrefix(path, "/") {
			return usage.Flag("create", path, "a path such as /"+path)
		}
	}
	return c.Pair.check()
}

// Run copies until ctx ends or, with UntilCaughtUp, until the lag is and stays 0.
func (c *Copy) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	var creating func(context.Context, *containers, place.Address) (*place.Container, error)
	if c.DryRun && len(c.Create) > 0 {
		creating = func(context.Context, *containers, place.Address) (*place.Container, error) { return nil, nil }
	} else if len(c.Create) > 0 {
		creating = c.createTarget
	}
	opened, err := c.open(ctx, nil, creating)
	if err != nil {
		return advise(err)
	}
	defer func() { err = cmp.Or(err, opened.close()) }()
	if err := c.checkCreated(opened); err != nil {
		return err
	}
	if c.DryRun {
		return c.describe(ctx, opened)
	}
	m, err := c.mapper(opened)
	if err != nil {
		return err
	}
	c.warnAbout(opened)
	r := &running{Copy: c, opened: opened, copier: newCopier(opened, m, c.Writers)}
	if r.leases, err = c.leaseAddress(opened); err != nil {
		return err
	}
	if err := c.claimUnits(ctx, opened, r.leases); err != nil {
		return err
	}
	if opened.seesDeletes() {
		if r.documents, err = items.Open(ctx, opened.targets, opened.targetAt); err != nil {
			return err
		}
	}
	return r.run(ctx)
}

// advise says which flag makes a missing target.
func advise(err error) error {
	if errors.Is(err, place.ErrNoContainer) || errors.Is(err, place.ErrNoDatabase) || isMissingStore(err) {
		return fmt.Errorf("%w; --create PATH makes the target, such as --create /customer", err)
	}
	return err
}

// createTarget makes the target. It is like the source, except for its partition key.
func (c *Copy) createTarget(ctx context.Context, opened *containers, at place.Address) (*place.Container, error) {
	spec, err := opened.stores.Spec(ctx, opened.source.Container)
	if err != nil {
		return nil, err
	}
	parts, err := opened.source.Source.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	spec = docstore.ContainerSpec{
		Paths: c.Create, Ranges: len(parts), DefaultTTL: spec.DefaultTTL, Retention: spec.Retention,
	}
	return opened.targets.Make(ctx, at, place.Wanted{Spec: spec, Given: func(string) bool { return false }})
}

// checkCreated refuses a target that exists with another partition key than --create names.
func (c *Copy) checkCreated(opened *containers) error {
	if opened.target == nil || len(c.Create) == 0 {
		return nil
	}
	if has := opened.target.KeyPaths(); !slices.Equal(has, c.Create) {
		return usage.Flag("create", strings.Join(c.Create, ","),
			fmt.Sprintf("%s, with which the target exists, or another target", strings.Join(has, ",")))
	}
	return nil
}

// seesDeletes reports whether deletes and expiries are followed.
func (c *containers) seesDeletes() bool { return c.source.retention > 0 }

// warnAbout says what the copy cannot do.
func (c *Copy) warnAbout(opened *containers) {
	for _, text := range c.warnings(opened) {
		c.Report.Warn("%s", text)
	}
}

// warnings returns what the copy cannot do.
func (c *Copy) warnings(opened *containers) (all []string) {
	if !opened.seesDeletes() {
		text := "hard deletes and expiries are not seen, because the source does not retain all versions and deletes; " +
			"changefeed compare finds the items that are left over in the target"
		if c.DeletedWhen == "" {
			text += "; if your documents have a soft delete, say --deleted-when PROPERTY"
		}
		all = append(all, text)
	}
	switch t := opened.target; {
	case t == nil:
	case opened.source.ttl && !t.ttl:
		all = append(all, "items of the target will not expire: its time to live is off, and that of the source is on")
	case !opened.source.ttl && t.ttl:
		all = append(all, "items of the target can expire: its time to live is on, and that of the source is off")
	}
	return all
}

// leaseAddress returns the address of the lease container. The records of a unit are of the same kind of place as the
// source: a store, or an account.
func (c *Copy) leaseAddress(opened *containers) (at place.Address, err error) {
	isOneKind := (opened.source.Local == nil) == (opened.target.Local == nil)
	switch {
	case c.Leases != "":
		at, err = c.TargetAccount.Parse("--leases", c.Leases)
		if err != nil {
			return at, usage.Error{Err: err}
		}
	case isOneKind:
		at = opened.targetAt.Beside(unit.DefaultContainer)
	default:
		at = opened.source.Address.Beside(unit.DefaultContainer)
	}
	for _, s := range []*side{opened.source, opened.target} {
		if c.TargetAccount.Same(at) == c.TargetAccount.Same(s.Address) {
			return at, usage.Flag("leases", at.String(), "a container of its own")
		}
	}
	return at, nil
}

// unitName returns the name of the unit.
func (c *Copy) unitName(opened *containers) string {
	from, to := opened.source.Address, opened.targetAt
	return cmp.Or(c.Name, strings.Join([]string{"copy", from.Database, from.Container, "to", to.Database, to.Container},
		"."))
}

// running is a copy that runs.
type running struct {
	*Copy
	*copier

	opened *containers
	leases place.Address
	done   atomic.Int64 // changes that were handled by this process

	mu     sync.Mutex
	failed error
	end    context.CancelFunc
}

// fail ends the copy with an error.
func (r *running) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
	r.end()
}

// run runs the units, and shows how far they are.
func (r *running) run(ctx context.Context) error {
	ctx, r.end = context.WithCancel(ctx)
	defer r.end()
	var work sync.WaitGroup
	names := r.unitNames(r.opened)
	if len(names) > 1 && !r.begin(ctx, &work, names[1], true) {
		work.Wait()
		return r.failed
	}
	isCaughtUp := false
	if r.begin(ctx, &work, names[0], false) {
		isCaughtUp = r.watch(ctx, names)
	}
	r.end()
	work.Wait()
	switch {
	case r.failed != nil:
		return r.failed
	case r.UntilCaughtUp && !isCaughtUp:
		return errors.New("interrupted before the copy has caught up; the same command goes on")
	}
	return r.Report.Object(r.result(), r.writeResult)
}

// begin starts a unit, and returns true as soon as its leases exist.
func (r *running) begin(ctx context.Context, work *sync.WaitGroup, name string, isFollowing bool) bool {
	ready, over := make(chan struct{}), make(chan struct{})
	i, err := r.newInstance(name, isFollowing, sync.OnceFunc(func() { close(ready) }))
	if err != nil {
		r.fail(err)
		return false
	}
	h := &handler{
		copier: r.copier, isFollowing: isFollowing, checksAfter: r.opened.seesDeletes(), parks: r.Letters != "",
		fail: r.fail, warn: func(text string) { r.Report.Warn("%s", text) }, done: &r.done,
	}
	work.Go(func() {
		defer close(over)
		if err := i.Run(ctx, func(*place.Container) (instance.Handler, error) {
			return instance.Counted(h), nil
		}); err != nil {
			r.fail(err)
		}
		r.end()
	})
	select {
	case <-ready:
		return true
	case <-over:
		return false
	}
}

// newInstance returns an instance of one of the units.
func (r *running) newInstance(name string, isFollowing bool, ready func()) (*instance.Instance, error) {
	s := instance.Settings{
		Name: name, Source: r.Source, Leases: r.leases.String(), LeaseAccount: &r.TargetAccount, Create: true,
		Letters: r.Letters, Account: r.SourceAccount, Log: r.Log, Say: r.Say, Exit: r.Exit, Stores: r.opened.stores,
	}
	s.Options = changefeed.Options{
		Instance: r.Instance, MaxItems: maxItems, HandlerTimeout: handlerTimeout, Expiration: r.Expiration,
		Renew: min(17*time.Second, r.Expiration/4), Acquire: min(13*time.Second, r.Expiration/5), Poll: time.Second,
		Drain: 10 * time.Second, Variant: r.variant(),
		Hooks: changefeed.Hooks{Ready: func(context.Context) { ready() }, Error: r.endIfTooOld},
	}
	if s.Options.Start = feed.FromBeginning(); isFollowing {
		s.Options.Mode, s.Options.Start = feed.AllVersionsAndDeletes, feed.FromNow()
	}
	if r.Letters != "" {
		s.Options.OnFailure.MaxAttempts = maxAttempts
		if isFollowing && !place.IsAddress(r.Letters) {
			s.Letters += deletesSuffix // a file belongs to a single unit
		}
	}
	return instance.New(s)
}

// variant names what the copy does to documents: instances that differ say so.
func (r *running) variant() string {
	text := "copy ttl=" + r.TTL
	if r.DeletedWhen != "" {
		text += " deleted-when=" + r.DeletedWhen
	}
	if len(r.Transform) > 0 {
		text += " -- " + strings.Join(r.Transform, " ")
	}
	return terminal.Clip(text, 200)
}

// endIfTooOld ends the copy if deletes were missed.
func (r *running) endIfTooOld(_ context.Context, err *feed.Error) {
	if errors.Is(err, feed.ErrTooOld) {
		r.fail(fmt.Errorf("the copy has not run for longer than the source retains deletes, so deletes were missed: %w; "+
			"delete the leases of unit %s%s, start again, and let changefeed compare find what is left over", err,
			r.unitName(r.opened), deletesSuffix))
	}
}
