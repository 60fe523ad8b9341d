package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// A program may spell the key of a change in another way than the preview: Python and Go escape what JSON need not.
func TestTheKeyOfASkipIsSpeltInAnyWay(t *testing.T) {
	for key, spellings := range map[feed.PartitionKey][]string{
		`["Malmö"]`:  {`["Malmö"]`, `["Malm\u00f6"]`, ` [ "Malm\u00F6" ] `},
		`["<b>"]`:    {`["<b>"]`, `["\u003cb\u003e"]`},
		`["a",1,{}]`: {`["a", 1.0, {}]`, `["\u0061",1e0,{ }]`},
	} {
		all := []admin.FailedChange{{ID: "1", Key: key, LSN: 7}}
		for _, spelt := range spellings {
			if got := meant(all, []Failed{{ID: "1", Key: json.RawMessage(spelt), LSN: 7}}); len(got) != 1 {
				t.Errorf("%s does not mean %s", spelt, key)
			}
		}
		for _, other := range []Failed{
			{ID: "1", Key: json.RawMessage(`["other"]`), LSN: 7},
			{ID: "1", LSN: 7},
			{ID: "1", Key: json.RawMessage("7"), LSN: 7},
			{ID: "2", Key: json.RawMessage(key), LSN: 7},
			{ID: "1", Key: json.RawMessage(key), LSN: 8},
		} {
			if got := meant(all, []Failed{other}); len(got) != 0 {
				t.Errorf("%+v means %s", other, key)
			}
		}
	}
}

// A lease that was split since the preview of a command is a conflict, and no failure of the store.
func TestASplitSinceThePreviewIsAConflict(t *testing.T) {
	if got := codeOf(fmt.Errorf("lease -FF: %w", feed.ErrGone)); got != http.StatusConflict {
		t.Errorf("the status is %d, want 409", got)
	}
}
