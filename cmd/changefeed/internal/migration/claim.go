package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The target of a unit
//
// The leases of a unit record which items are copied already, so they are true of a single target. With another target,
// or a target that was dropped and made anew, the copy would go on at the old position, and the items copied before
// would be missing. So the record of the unit's creation names the target. It also has what the copy does to documents,
// because another transform would leave what was copied before as the first one has made it.

const (
	// targetProperty is the name of the property of the unit's record. The value is the target's resource id, which
	// changes when the container is made anew.
	targetProperty = "changefeed.copyTarget"

	// shapeProperty is the name of the property with the shape.
	shapeProperty = "changefeed.copyShape"
)

// shape is how a copy changes documents. A program is known by its command, because the file may be at another place,
// or another build, on each machine.
type shape struct {
	TTL         string   `json:"ttl"`
	DeletedWhen string   `json:"deletedWhen,omitempty"`
	Transform   []string `json:"transform,omitempty"`
}

// shapeOf returns how the copy of a pair changes documents.
func shapeOf(p *Pair) shape { return shape{p.TTL, p.DeletedWhen, p.Transform} }

// differsFrom returns the flag that differs from an earlier shape, with the new and the old value; field is empty if
// none does.
func (s shape) differsFrom(had shape) (field, is, was string) {
	switch {
	case s.TTL != had.TTL:
		return "--ttl", s.TTL, "--ttl " + had.TTL
	case s.DeletedWhen != had.DeletedWhen && had.DeletedWhen == "":
		return "--deleted-when", s.DeletedWhen, "no --deleted-when"
	case s.DeletedWhen != had.DeletedWhen:
		return "--deleted-when", cmp.Or(s.DeletedWhen, `""`), "--deleted-when " + had.DeletedWhen
	case slices.Equal(s.Transform, had.Transform):
		return "", "", ""
	}
	is, was = "missing", "no COMMAND"
	if len(s.Transform) > 0 {
		is = strings.Join(s.Transform, " ")
	}
	if len(had.Transform) > 0 {
		was = "-- " + strings.Join(had.Transform, " ")
	}
	return "COMMAND", is, was
}

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

// claim notes the target and the shape in the record of a unit, if the unit exists, and refuses a unit of another
// target or shape.
func (c *Copy) claim(ctx context.Context, store feed.LeaseStore, opened *containers, name string,
	at place.Address,
) error {
	target := "none" // of a dry run
	if !opened.isPlanned {
		target = opened.target.Concrete().RID()
	}
	commands := unit.Commands{Leases: at.String(), Name: name, Source: opened.source.Address.String()}
	mine, err := json.Marshal(shapeOf(&c.Pair))
	if err != nil {
		return fmt.Errorf("note the shape of unit %q: %w", name, err)
	}
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
		had, hadShape := info.Properties[targetProperty], info.Properties[shapeProperty]
		switch {
		case had != "" && had != target:
			return usage.Error{Err: fmt.Errorf("TARGET is %s: unit %q has copied into another container, or this one was "+
				"made anew since, and what was copied before would be missing: take another --name, or first delete the "+
				"leases of the unit: %s", opened.targetAt, name,
				commands.Complete("changefeed leases delete"))}
		case hadShape != "" && hadShape != string(mine):
			if err := refuse(shapeOf(&c.Pair), hadShape, name, commands); err != nil {
				return err
			}
		}
		if c.DryRun || had != "" && hadShape != "" {
			return nil
		}
		info.Properties = maps.Clone(info.Properties)
		if info.Properties == nil {
			info.Properties = map[string]string{}
		}
		info.Properties[targetProperty], info.Properties[shapeProperty] = target, string(mine)
		_, err = store.Update(ctx, info)
		if err == nil || !errors.Is(err, feed.ErrConflict) && !errors.Is(err, feed.ErrNotFound) {
			return err
		}
	}
}

// refuse refuses a unit that has copied documents in another shape.
func refuse(s shape, text, name string, commands unit.Commands) error {
	var had shape
	if err := json.Unmarshal([]byte(text), &had); err != nil {
		return fmt.Errorf("read what unit %q does to documents: %q: %w", name, text, err)
	}
	field, is, was := s.differsFrom(had)
	if field == "" {
		return nil
	}
	return usage.Error{Err: fmt.Errorf("%s is %s: unit %q has copied with %s, and what was copied before would stay as it "+
		"is: want the same as before, or another --name, which copies everything again, or first delete the leases of "+
		"the unit: %s", field, terminal.OneLine(is), name, terminal.OneLine(was),
		commands.Complete("changefeed leases delete"))}
}

// unitNames returns the names of the units: the second unit follows the deletes.
func (c *Copy) unitNames(opened *containers) []string {
	names := []string{c.unitName(opened)}
	if opened.seesDeletes() {
		names = append(names, names[0]+deletesSuffix)
	}
	return names
}
