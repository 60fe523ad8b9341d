package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The target of a unit
//
// The leases of a unit say what is copied already, so they are true of a single target. If they served for another one,
// or for one that was dropped and made anew, the copy would go on where it was, and what was copied before would be
// missing. So the record of the unit's creation names the target.

// targetProperty is the name of the property of the unit's record. Its value is the target's resource id, which is
// another one when the container is made anew.
const targetProperty = "changefeed.copyTarget"

// claimUnits claims the units that exist.
func (c *Copy) claimUnits(ctx context.Context, opened *containers, at place.Address) error {
	leases, err := opened.stores.Sharing(c.TargetAccount).Open(ctx, at)
	switch {
	case errors.Is(err, place.ErrNoContainer), errors.Is(err, place.ErrNoDatabase), errors.Is(err, feed.ErrNotFound),
		isMissingStore(err):
		return nil
	case err != nil:
		return err
	}
	for _, name := range c.unitNames(opened) {
		store, err := unit.OpenStore(ctx, leases, name, opened.source.Container)
		if err != nil {
			return err
		}
		if err := c.claim(ctx, store, opened, name, at); err != nil {
			return err
		}
	}
	return nil
}

// claim notes the target in the record of a unit, if the unit exists, and refuses a unit of another target.
func (c *Copy) claim(ctx context.Context, store feed.LeaseStore, opened *containers, name string,
	at place.Address,
) error {
	target := "none" // of a dry run
	if !opened.isPlanned {
		target = opened.target.Concrete().RID()
	}
	commands := unit.Commands{Leases: at.String(), Name: name, Source: opened.source.Address.String()}
	for {
		records, _, err := store.List(ctx)
		if err != nil {
			return fmt.Errorf("look for the target of unit %q: %w", name, err)
		}
		i := slices.IndexFunc(records, func(r feed.Record) bool { return r.Kind == feed.KindInfo })
		if i < 0 {
			return nil
		}
		info := records[i]
		switch had := info.Properties[targetProperty]; {
		case had == target:
			return nil
		case had != "":
			return usage.Error{Err: fmt.Errorf("TARGET is %s: unit %q has copied into another container, or this one was "+
				"made anew since, and what was copied before would be missing: take another --name, or first delete the "+
				"leases of the unit: %s", opened.targetAt, name,
				commands.Complete("changefeed leases delete"))}
		case c.DryRun:
			return nil
		}
		info.Properties = maps.Clone(info.Properties)
		if info.Properties == nil {
			info.Properties = map[string]string{}
		}
		info.Properties[targetProperty] = target
		_, err = store.Update(ctx, info)
		if err == nil || !errors.Is(err, feed.ErrConflict) && !errors.Is(err, feed.ErrNotFound) {
			return err
		}
	}
}

// unitNames returns the names of the units: the second one follows the deletes.
func (c *Copy) unitNames(opened *containers) []string {
	names := []string{c.unitName(opened)}
	if opened.seesDeletes() {
		names = append(names, names[0]+deletesSuffix)
	}
	return names
}
