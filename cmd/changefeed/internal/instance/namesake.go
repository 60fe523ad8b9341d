package instance

import (
	"context"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/spelling"
)

// namesakeTime bounds the search for units with a similar name, because the new unit waits for the end.
const namesakeTime = 10 * time.Second

// namesakeHooks warn of a new unit whose name is like that of another unit on the same container. A mistyped name makes
// a unit that handles everything a second time, and nothing fails.
func (i *Instance) namesakeHooks(leases, monitored *place.Container) changefeed.Hooks {
	return changefeed.Hooks{Begun: func(ctx context.Context, _ feed.NewUnit) {
		ctx, cancel := context.WithTimeout(ctx, namesakeTime)
		defer cancel()
		names, err := unit.Names(ctx, leases, monitored)
		if err != nil {
			i.Log.Info("whether another unit has a similar name is not known", "err", err)
		}
		for _, name := range names {
			if spelling.IsAlike(name, i.Name) {
				i.Log.Warn("the unit is new, and another unit on the same container has a similar name: each of the two "+
					"handles every change; if --name is mistyped, end this instance, and delete the leases of the new unit",
					"other", name)
			}
		}
	}}
}
