package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/usage"
)

// The letters of a unit in a container. A unit is its name and the container that it reads, and
// who looks at letters knows the name: so the units are found by their letters.

// letterPlace is where letters are read and removed: a file, or the boxes of a container.
type letterPlace interface {
	Letters(ctx context.Context, key changefeed.PartitionKey) iter.Seq2[changefeed.DeadLetter, error]
	Remove(ctx context.Context, key changefeed.PartitionKey, id string) error
}

// unitBoxes are the boxes of the units of a name.
type unitBoxes []*deadletters.ContainerBox

// Letters gives the letters of one box after those of another.
func (u unitBoxes) Letters(ctx context.Context, key changefeed.PartitionKey) iter.Seq2[changefeed.DeadLetter, error] {
	return func(yield func(changefeed.DeadLetter, error) bool) {
		for _, b := range u {
			for l, err := range b.Letters(ctx, key) {
				if !yield(l, err) || err != nil {
					return
				}
			}
		}
	}
}

// Remove removes a letter from the box that has it.
func (u unitBoxes) Remove(ctx context.Context, key changefeed.PartitionKey, id string) error {
	var failed error
	for _, b := range u {
		failed = errors.Join(failed, b.Remove(ctx, key, id))
	}
	return failed
}

// sources are what the units read, where that is known.
func (u unitBoxes) sources() (sources []string) {
	for _, b := range u {
		if b.Source() != "" {
			sources = append(sources, b.Source())
		}
	}
	return slices.Compact(sources) // a container that was made anew is there twice
}

// boxes opens the boxes of the units that are meant, and says where they are.
func (o *letterOptions) boxes(cmd *cobra.Command, where []string, f func(b letterPlace, from string) error) error {
	return o.with(cmd, where, func(c *place.Container) error {
		boxes, err := o.find(cmd.Context(), c)
		if err != nil {
			return err
		}
		from, err := o.from(c, boxes.sources())
		if err != nil {
			return err
		}
		return f(boxes, from)
	})
}

// from says where letters are, and of which units. Those of several are a mistake where one is changed.
func (o *letterOptions) from(c *place.Container, sources []string) (string, error) {
	reads := strings.Join(sources, " and of ")
	switch {
	case len(sources) < 2:
		return c.Address.Name(), nil
	case o.sole:
		return "", usage.Error{Err: fmt.Errorf("--name is %s: units of this name have letters of %s here: want --source with the address of one", o.name, reads)}
	}
	return c.Address.Name() + " of " + reads, nil
}

// find finds the boxes of the name, or of the unit that reads the container of --source. Letters of an older
// version, which do not have it, may be anyone's.
func (o *letterOptions) find(ctx context.Context, c *place.Container) (unitBoxes, error) {
	source := ""
	if o.source != "" {
		at, err := place.Parse("--source", o.source)
		if err != nil {
			return nil, usage.Error{Err: err}
		}
		source = at.Database + "/" + at.Container
	}
	boxes, err := deadletters.Boxes(ctx, c.Concrete(), o.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Address.Quote(), err)
	}
	return slices.DeleteFunc(boxes, func(b *deadletters.ContainerBox) bool {
		return source != "" && b.Source() != "" && b.Source() != source
	}), nil
}
