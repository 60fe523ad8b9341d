package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/usage"
)

// remotely imports into a container of an account.
func (o *importOptions) remotely(cmd *cobra.Command, in *os.File) (err error) {
	opener := place.NewOpener(o.account)
	opener.Retries = o.retries
	defer func() { err = cmp.Or(err, opener.Close()) }()
	c, err := o.remoteTarget(cmd, opener)
	if err != nil {
		return err
	}
	return o.into(cmd, in, c)
}

// remoteTarget is the container of an account to import into, made if there is none.
func (o *importOptions) remoteTarget(cmd *cobra.Command, opener *place.Opener) (*place.Container, error) {
	ctx := cmd.Context()
	a, err := opener.Account(ctx, o.to)
	if err != nil {
		return nil, err
	}
	cut := cmd.Flags().Changed("ranges")
	switch {
	case cut && o.ranges < 1:
		return nil, usage.Flag("ranges", strconv.Itoa(o.ranges), "1 or more")
	case cut && !a.CutsPartitions(ctx):
		return nil, usage.Error{Err: fmt.Errorf("--ranges is %d: an account chooses its partitions itself: want it for a new container of a store or of changefeed serve", o.ranges)}
	}
	spec, err := a.Spec(ctx, o.to)
	isNew := err != nil
	switch {
	case err == nil:
		err = o.agrees(cmd, spec)
	case !errors.Is(err, changefeed.ErrNotFound):
	case len(o.pk) == 0:
		err = o.keyless()
	default:
		spec = docstore.ContainerSpec{Paths: o.pk, DefaultTTL: o.ttl.seconds, Retention: o.retention}
		err = a.Create(ctx, o.to, spec)
	}
	if err != nil {
		return nil, err
	}
	c, err := opener.Open(ctx, o.to)
	if err != nil {
		return nil, err
	}
	c.Paths = spec.Paths
	if cut {
		err = o.cut(ctx, c, isNew)
	}
	return c, err
}

// cut gives a new container the partitions that were asked for. An existing one must have
// them.
func (o *importOptions) cut(ctx context.Context, c *place.Container, isNew bool) error {
	parts, err := c.Source.Partitions(ctx)
	if err != nil {
		return err
	}
	if !isNew && len(parts) != o.ranges {
		return usage.Flag("ranges", strconv.Itoa(o.ranges), fmt.Sprintf("%d, which container %q has, or another container", len(parts), o.to.Name()))
	}
	for i := 1; isNew && i < o.ranges; i++ {
		at := changefeed.FullRange().Cut(o.ranges)[i].Min
		if parts, err = c.Split(ctx, parts[len(parts)-1].ID, at); err != nil {
			return err
		}
	}
	return nil
}
