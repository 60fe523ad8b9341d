package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// A unit is identified by its name and the container that it reads. An operator knows only the name, so units are
// found by their letters.

// box is the place where letters are read and removed: a file, or the boxes of a container.
type box interface {
	Letters(ctx context.Context, key feed.PartitionKey) Seq
	Remove(ctx context.Context, key feed.PartitionKey, id string) error
}

// boxes are the boxes of the units with a name, in the same container.
type boxes []*deadletters.ContainerBox

// Letters yields the letters of all boxes, box by box.
func (all boxes) Letters(ctx context.Context, key feed.PartitionKey) Seq {
	return func(yield func(feed.DeadLetter, error) bool) {
		for _, b := range all {
			for l, err := range b.Letters(ctx, key) {
				if !yield(l, err) || err != nil {
					return
				}
			}
		}
	}
}

// Remove removes a letter from every box.
func (all boxes) Remove(ctx context.Context, key feed.PartitionKey, id string) error {
	var failed error
	for _, b := range all {
		failed = errors.Join(failed, b.Remove(ctx, key, id))
	}
	return failed
}

// knownSources returns the containers that the units read, if known.
func (all boxes) knownSources() (sources []string) {
	for _, b := range all {
		if b.Source() != "" {
			sources = append(sources, b.Source())
		}
	}
	return slices.Compact(sources) // a container that was created again occurs twice
}

// openBoxes opens the boxes of the selected units, and returns where they are.
func (q Query) openBoxes(ctx context.Context, o *place.Opener, at place.Address) (all boxes, from string, err error) {
	c, err := o.Open(ctx, at)
	if err != nil {
		return nil, "", err
	}
	if all, err = q.findBoxes(ctx, o, c); err != nil {
		return nil, "", err
	}
	from, err = q.describePlace(c, all.knownSources())
	return all, from, err
}

// describePlace returns where the letters are, and to which units they belong.
func (q Query) describePlace(c *place.Container, sources []string) (string, error) {
	reads := strings.Join(sources, " and of ")
	switch {
	case len(sources) < 2:
		return c.Address.Name(), nil
	case q.Sole:
		return "",
			usage.Error{Err: fmt.Errorf("--name is %s: units of this name have letters of %s here: want --source "+
				"with the address of one", q.Name, reads)}
	}
	return c.Address.Name() + " of " + reads, nil
}

// findBoxes returns the boxes of the unit name. With --source, these are only the boxes of the unit that reads this
// container. Letters of an older version have no source, so they are always included.
func (q Query) findBoxes(ctx context.Context, o *place.Opener, c *place.Container) (boxes, error) {
	source := ""
	if q.Source != "" {
		at, err := o.Parse("--source", q.Source)
		if err != nil {
			return nil, usage.Error{Err: err}
		}
		source = at.Database + "/" + at.Container
	}
	all, err := deadletters.Boxes(ctx, c.Concrete(), q.Name)
	if err != nil {
		err = fmt.Errorf("%s: %w", c.Address.Quote(), err)
		if errors.Is(err, feed.ErrBadRequest) { // a container that cannot have letters
			err = usage.Error{Err: err}
		}
		return nil, err
	}
	return slices.DeleteFunc(all, func(b *deadletters.ContainerBox) bool {
		return source != "" && b.Source() != "" && b.Source() != source
	}), nil
}
