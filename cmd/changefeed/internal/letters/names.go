package letters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A unit without letters may be a unit whose name is mistyped. The units that have letters in the same place are then
// what the user needs.

// UnitNames returns the names of all units that have letters in a place.
func UnitNames(ctx context.Context, o *place.Opener, at Place) ([]string, error) {
	if at.File != "" {
		return namesInFile(at.File)
	}
	c, err := o.Open(ctx, at.Address)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for page, err := range changefeed.Pull(ctx, c.Source, feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
		changefeed.PullOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("find units with letters: %w", err)
		}
		for _, change := range page.Changes {
			if name := rawjson.Text(rawjson.Lookup(change.Body, "letter", "processor")); name != "" {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// namesInFile returns the names of the units that have letters in a file. A damaged line has no name.
func namesInFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("find units with letters: %w", err)
	}
	defer f.Close()
	letters := map[[3]string]bool{} // by processor, key and id
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("find units with letters: %w", err)
		}
		text := func(member string) string { return rawjson.Text(rawjson.Lookup(line, member)) }
		name, key := text("processor"), string(rawjson.Lookup(line, "key"))
		delete(letters, [3]string{name, key, text("removed")})
		if id := text("id"); name != "" && id != "" {
			letters[[3]string{name, key, id}] = true
		}
		if err != nil {
			break
		}
	}
	names := map[string]bool{}
	for letter := range letters {
		names[letter[0]] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}
