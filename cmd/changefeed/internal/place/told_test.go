package place

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

// A host opens an account once for the check and once for each unit. Each lease container without a time to live is
// named once.
func TestAHostSaysOnceWhatAContainerLacks(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	for id, path := range map[string]string{"orders": "/city", "leases": "/id", "others": "/id"} {
		spec := docstore.ContainerSpec{ID: id, Paths: []string{path}}
		if _, err := server.DB.CreateContainer(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	stores := NewOpener(Settings{})
	defer stores.Close()
	for _, unit := range []struct{ name, leases string }{
		{"mailer", "leases"}, {"mailer", "leases"}, {"audit", "leases"}, {"stock", "others"},
	} {
		o := stores.Sharing(Settings{Key: server.Key})
		o.Log = slog.New(slog.NewTextHandler(&log, nil)).With("unit", unit.name)
		var opened []*Container
		for _, id := range []string{"orders", unit.leases} {
			at, err := o.Parse("--source", server.URL+"/default/"+id)
			if err != nil {
				t.Fatal(err)
			}
			c, err := o.Open(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			opened = append(opened, c)
		}
		_, err := cosmos.OpenLeases(t.Context(), opened[1].Remote, unit.name, opened[0].Remote, cosmos.LeaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const said = "no time to live"
	if n := strings.Count(log.String(), said); n != 2 || !strings.Contains(log.String(), "unit=stock") {
		t.Errorf("%d warnings, want one for each lease container:\n%s", n, &log)
	}
}
