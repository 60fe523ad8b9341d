// Package lookup finds the names that a word of a command line can have: containers, partitions, units and dead
// letters. Shells offer these names, and errors list them. Nobody waits for them for longer than [Limit], and errors of
// the search are not shown, because a name that nobody knows is no mistake of the user.
package lookup

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
)

// Limit is how long a search may take.
const Limit = time.Second

// Most is how many letters are found, because nobody reads more.
const Most = 200

// search calls find with an opener. After Limit the names are not wanted any more, and the process ends without them.
func search(ctx context.Context, s place.Settings,
	find func(ctx context.Context, o *place.Opener) ([]string, error),
) []string {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	answer := make(chan []string, 1)
	var searching sync.WaitGroup
	searching.Go(func() {
		o := place.NewOpener(s)
		names, _ := find(ctx, o) // what was found before an error is right
		_ = o.Close()
		answer <- names
	})
	select {
	case names := <-answer:
		return names
	case <-ctx.Done():
		return nil
	}
}

// Containers returns the names of the containers of a store or an account.
func Containers(ctx context.Context, s place.Settings, at place.Address) []string {
	return search(ctx, s, func(ctx context.Context, o *place.Opener) ([]string, error) { return o.Names(ctx, at) })
}

// Partitions returns the ids of the physical partitions of a container, each with a tab and its range.
func Partitions(ctx context.Context, s place.Settings, at place.Address) []string {
	return search(ctx, s, func(ctx context.Context, o *place.Opener) (ids []string, err error) {
		container, err := o.Open(ctx, at)
		if err != nil {
			return nil, err
		}
		parts, err := container.Source.Partitions(ctx)
		for _, p := range parts {
			ids = append(ids, p.ID+"\t"+p.Range.String())
		}
		return ids, err
	})
}

// Units returns the names of the deployment units of a lease container.
func Units(ctx context.Context, s place.Settings, leases place.Address) []string {
	return search(ctx, s, func(ctx context.Context, o *place.Opener) (names []string, err error) {
		units, err := unit.Survey(ctx, o, leases)
		for _, u := range units {
			if u.Processor != "" && !slices.Contains(names, u.Processor) {
				names = append(names, u.Processor)
			}
		}
		return names, err
	})
}

// UnitsWithLetters returns the names of the deployment units that have dead letters in a place.
func UnitsWithLetters(ctx context.Context, s place.Settings, at letters.Place) []string {
	return search(ctx, s, func(ctx context.Context, o *place.Opener) ([]string, error) {
		return letters.UnitNames(ctx, o, at)
	})
}

// Letters returns the ids of the dead letters of a unit, each with a tab and its partition key.
func Letters(ctx context.Context, s place.Settings, at letters.Place, unitName string) []string {
	return search(ctx, s, func(ctx context.Context, o *place.Opener) (ids []string, err error) {
		_, all, err := letters.Query{Name: unitName}.Read(ctx, o, at)
		if err != nil {
			return nil, err
		}
		for letter, err := range all {
			if err != nil || len(ids) == Most {
				return ids, err
			}
			ids = append(ids, letter.ID+"\t"+string(letter.Change.PartitionKey))
		}
		return ids, nil
	})
}

// Stores returns the directories whose path begins with a text. A directory with a store ends with #, which the name of
// a container follows, and any other with a slash.
func Stores(text string) (all []string) {
	parent, _ := filepath.Split(text)
	entries, err := os.ReadDir(filepath.Clean(parent))
	if err != nil {
		return nil // there are none
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		end := "/"
		if _, err := os.Stat(filepath.Join(parent, e.Name(), "LOCK")); err == nil {
			end = "#"
		}
		all = append(all, parent+e.Name()+end)
	}
	return all
}
