package unit

import (
	"strings"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// A command in an advice gets the places and the name that it needs in a shell, and nothing else changes.
func TestACommandInAnAdviceIsCompleted(t *testing.T) {
	const shop = "http://127.0.0.1:8081/shop/"
	served := Commands{Leases: shop + "leases", Name: "mailer", Letters: shop + "dead"}
	stored := Commands{Leases: "docstore:my data#leases", Name: "web $1", Source: "docstore:my data#orders"}
	elsewhere := Commands{Leases: "cosmos:shop/positions", Name: "mailer", Letters: "cosmos:shop/letters"}
	for _, c := range []struct {
		commands     Commands
		advice, want string
	}{
		{
			served, "changefeed leases resume ends that",
			"changefeed leases resume http://127.0.0.1:8081/shop/leases --name mailer ends that",
		},
		{served, "see changefeed leases: x", "see changefeed leases http://127.0.0.1:8081/shop/leases: x"},
		{
			served, "changefeed dlq release --key KEY frees",
			`changefeed dlq release http://127.0.0.1:8081/shop/dead --name mailer --key '["oslo"]' frees`,
		},
		{
			stored, "see changefeed dlq retry --all or changefeed leases gc.",
			"see changefeed dlq retry ADDRESS_OF_LETTERS --name 'web $1' --source 'docstore:my data#orders' " +
				"--leases 'docstore:my data#leases' --all or changefeed leases gc 'docstore:my data#leases' " +
				"--name 'web $1' --source 'docstore:my data#orders'",
		},
		{elsewhere, "changefeed dlq list", "changefeed dlq list cosmos:shop/letters --name mailer"},
		{
			elsewhere, "changefeed dlq retry --all",
			"changefeed dlq retry cosmos:shop/letters --name mailer --leases cosmos:shop/positions --all",
		},
		{served, "changefeed run wants --from", "changefeed run wants --from"},
		{Commands{}, "changefeed leases resume", "changefeed leases resume"},
	} {
		if got := c.commands.Complete(c.advice, `["oslo"]`, `["rome"]`); got != c.want {
			t.Errorf("%s: got %s, want %s", c.advice, got, c.want)
		}
	}
}

// A note in a table may be broken or cut, so the commands that notes name follow the table, each once and whole.
func TestATableEndsWithTheCommandsOfItsNotes(t *testing.T) {
	l := &admin.Listing{}
	for _, r := range feed.FullRange().Cut(2) {
		l.Leases = append(l.Leases, admin.Lease{
			Record: feed.Record{Kind: feed.KindLease, ID: "m.." + r.String(), Token: r.String(), Range: r},
			State:  admin.StatePaused, Lag: &changefeed.Lag{Exact: true},
			Notes: []string{"paused since 12:00:00: changefeed leases resume ends that"},
		})
	}
	u := Of("mailer", "orders", l)
	u.Commands = Commands{Leases: "docstore:d#leases", Name: "mailer"}
	const command = "changefeed leases resume docstore:d#leases --name mailer"
	var text strings.Builder
	err := WriteTables(&text, "leases", []Unit{*u}, terminal.Terminal{Width: func() int { return 40 }})
	if err != nil || !strings.HasSuffix(text.String(), "\n  "+command+"\n") ||
		strings.Count(text.String(), command) != 1 {
		t.Errorf("%v, the table is\n%s\nwant the command once, at its end", err, &text)
	}
}
