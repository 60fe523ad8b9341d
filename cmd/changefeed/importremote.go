package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/usage"
)

// remotely imports into a container of an account.
func (o *importOptions) remotely(cmd *cobra.Command, in *os.File) (err error) {
	opener := newOpener(o.account)
	opener.retries = o.retries
	defer closing(opener, &err)
	c, err := o.remoteTarget(cmd, opener)
	if err != nil {
		return err
	}
	return o.into(cmd, in, c)
}

// remoteTarget is the container of an account to import into, made if there is none.
func (o *importOptions) remoteTarget(cmd *cobra.Command, opener *opener) (*container, error) {
	ctx := cmd.Context()
	a, err := opener.account(ctx, o.to)
	if err != nil {
		return nil, err
	}
	cut := cmd.Flags().Changed("ranges")
	switch {
	case cut && o.ranges < 1:
		return nil, usage.Flag("ranges", strconv.Itoa(o.ranges), "1 or more")
	case cut && !a.cuts(ctx):
		return nil, usage.Error{Err: fmt.Errorf("--ranges is %d: an account chooses its partitions itself: want it for a new container of a store or of changefeed serve", o.ranges)}
	}
	spec, err := a.spec(ctx, o.to)
	isNew := err != nil
	switch {
	case err == nil:
		err = o.agrees(cmd, spec)
	case !errors.Is(err, changefeed.ErrNotFound):
	case len(o.pk) == 0:
		err = o.keyless()
	default:
		spec = docstore.ContainerSpec{Paths: o.pk, DefaultTTL: o.ttl.seconds, Retention: o.retention}
		err = a.create(ctx, o.to, spec)
	}
	if err != nil {
		return nil, err
	}
	c, err := opener.open(ctx, o.to)
	if err != nil {
		return nil, err
	}
	c.paths = spec.Paths
	if cut {
		err = o.cut(ctx, c, isNew)
	}
	return c, err
}

// cuts tells whether the account cuts partitions on demand, as changefeed serve does. It
// says in its description what it can do beyond the service.
func (a *account) cuts(ctx context.Context) bool {
	var described struct{ Changefeed *struct{} }
	return a.call(ctx, http.MethodGet, nil, "", nil, &described) == nil && described.Changefeed != nil
}

// cut gives a new container the partitions that were asked for. An existing one must have
// them.
func (o *importOptions) cut(ctx context.Context, c *container, isNew bool) error {
	parts, err := c.source.Partitions(ctx)
	if err != nil {
		return err
	}
	if !isNew && len(parts) != o.ranges {
		return usage.Flag("ranges", strconv.Itoa(o.ranges), fmt.Sprintf("%d, which container %q has, or another container", len(parts), o.to.name()))
	}
	for i := 1; isNew && i < o.ranges; i++ {
		at := changefeed.FullRange().Cut(o.ranges)[i].Min
		if parts, err = c.change(ctx, change{Operation: "split", ID: parts[len(parts)-1].ID, At: at}); err != nil {
			return err
		}
	}
	return nil
}

// properties are those of a container, as far as an import sets them.
type properties struct {
	ID           string       `json:"id"`
	PartitionKey keyOfAccount `json:"partitionKey"`
	DefaultTTL   *int         `json:"defaultTtl,omitempty"`
	Policy       *feedPolicy  `json:"changeFeedPolicy,omitempty"`
}

type keyOfAccount struct {
	Paths   []string `json:"paths"`
	Kind    string   `json:"kind"`
	Version int      `json:"version"`
}

type feedPolicy struct {
	Minutes int `json:"retentionDuration"`
}

// spec is what a container is like.
func (a *account) spec(ctx context.Context, at address) (s docstore.ContainerSpec, err error) {
	var p properties
	if err := a.call(ctx, http.MethodGet, []string{"dbs", at.database, "colls", at.container}, "", nil, &p); err != nil {
		return s, fmt.Errorf("read container: %w", err)
	}
	s = docstore.ContainerSpec{Paths: p.PartitionKey.Paths, DefaultTTL: p.DefaultTTL}
	if p.Policy != nil {
		s.Retention = time.Duration(p.Policy.Minutes) * time.Minute
	}
	return s, nil
}

// create makes a container, and the database that it is to be in.
func (a *account) create(ctx context.Context, at address, s docstore.ContainerSpec) error {
	var made struct{}
	err := a.call(ctx, http.MethodPost, nil, "dbs", map[string]string{"id": at.database}, &made)
	if err != nil && !errors.Is(err, changefeed.ErrConflict) {
		return fmt.Errorf("create database: %w", err)
	}
	p := properties{ID: at.container, PartitionKey: keyOfAccount{s.Paths, "Hash", 2}, DefaultTTL: s.DefaultTTL}
	if len(s.Paths) > 1 {
		p.PartitionKey.Kind = "MultiHash"
	}
	if s.Retention > 0 {
		p.Policy = &feedPolicy{int(s.Retention / time.Minute)}
	}
	err = a.call(ctx, http.MethodPost, []string{"dbs", at.database}, "colls", p, &made)
	if err != nil && !errors.Is(err, changefeed.ErrConflict) {
		return fmt.Errorf("create container: %w", err)
	}
	return nil
}
