package instance

import (
	"context"

	"github.com/millrace/changefeed/cmd/changefeed/internal/explorer"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
)

// explore shows the store or the account of the monitored container on the dashboard until hide is called. It has an
// opener of its own, because an opener is for one goroutine.
func (i *Instance) explore(ctx context.Context, opener *place.Opener, monitored *place.Container) (hide func() error,
	err error,
) {
	if i.UI == nil {
		return func() error { return nil }, nil
	}
	name, err := opener.Where(ctx, monitored.Address)
	if err != nil {
		return nil, err
	}
	settings := i.Account
	settings.Say = nil // which account it is has been said
	own := opener.Sharing(settings)
	own.Log = i.Log
	away := i.UI.Explore(explorer.Place{Name: name, Opener: own, Whole: monitored.Address})
	return func() error {
		away()
		return own.Close()
	}, nil
}
