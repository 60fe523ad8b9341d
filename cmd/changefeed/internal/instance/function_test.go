package instance

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
	"github.com/millrace/changefeed/internal/notes"
)

// The start of function.json is for new leases. A unit of Azure has no recorded start, and its leases may have no
// position.
func TestTheStartOfAFunctionIsForNewLeases(t *testing.T) {
	made := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	azure := []feed.Record{{Kind: feed.KindLease}, {Kind: feed.KindInfo, Updated: made}}
	ours := []feed.Record{{
		Kind: feed.KindInfo, Updated: made, Properties: map[string]string{notes.OptionProperty: "now"},
	}}
	since := feed.FromTime(made.Add(-time.Hour))
	for _, tt := range []struct {
		name    string
		start   feed.Start
		mode    feed.Mode
		records []feed.Record
		want    feed.Start
	}{
		{"new", feed.FromNow(), feed.LatestVersion, nil, feed.FromNow()},
		{"new, since a time", since, feed.LatestVersion, nil, since},
		{"of Azure", feed.FromNow(), feed.LatestVersion, azure, feed.FromTime(made.Add(-time.Second))},
		{"of Azure, from the beginning", feed.FromBeginning(), feed.LatestVersion, azure, feed.FromBeginning()},
		{"ours", feed.FromNow(), feed.LatestVersion, ours, feed.Start{}},
		{"ours, with another start", since, feed.LatestVersion, ours, feed.Start{}},
		{"all versions", feed.FromNow(), feed.AllVersionsAndDeletes, nil, feed.FromNow()},
		{"all versions of Azure", feed.FromNow(), feed.AllVersionsAndDeletes, azure, feed.Start{}},
	} {
		if got := startOfFunction(changefeed.Options{Start: tt.start, Mode: tt.mode}, tt.records); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Only a function may have no name, and its errors speak of function.json.
func TestOnlyAFunctionMayHaveNoName(t *testing.T) {
	l := &place.Login{Endpoint: "https://acct.documents.azure.com:443/", Key: "c2VjcmV0"}
	f := &Function{
		Name: "Seen", Source: l.Address("source", "shop", "orders"), Leases: l.Address("leases", "shop", "leases"),
	}
	i, err := New(Settings{Function: f, Log: slog.New(slog.DiscardHandler)})
	if err != nil || i.boxName() != "/Seen" || i.leases.String() != "https://acct.documents.azure.com:443/shop/leases" {
		t.Errorf("got %+v, %v", i, err)
	}
	if unit.OfLetters(i.boxName()) != unit.Unnamed || leasedoc.IsProcessor(i.boxName()) {
		t.Errorf("letters have the name %q: want one of the unit without a name, and of no other", i.boxName())
	}
	i, err = New(Settings{Name: "copies", Function: f, Log: slog.New(slog.DiscardHandler)})
	if err != nil || i.boxName() != "copies" || unit.OfLetters("copies") != "copies" {
		t.Errorf("got %+v, %v", i, err)
	}
	for err, want := range map[error]string{
		feed.ErrModeChanged:  "changeFeedMode differs from that of the leases in https://acct",
		feed.ErrForeignLease: "to begin anew, set another leaseContainerPrefix",
		feed.ErrThrottled:    "run: ",
	} {
		got := f.explainRefusal(fmt.Errorf("run: %w", err))
		if !errors.Is(got, err) || !strings.Contains(got.Error(), want) || strings.Contains(got.Error(), "--name") {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}
