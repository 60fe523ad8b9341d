package items

import (
	"errors"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// A parameter without a value would be undefined, and the query would find nothing.
func TestAParameterWithoutAValueIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT * FROM c WHERE c.city = @city":                            "",
		"SELECT * FROM c WHERE c.mail = 'ada@home' AND c.x = \"b\\\"@c\"": "",
		"SELECT * FROM c WHERE c.city = @City":                            "@City has no value: want -p City=VALUE",
		"SELECT * FROM c WHERE c.a='x' AND c.city=@city2":                 "@city2 has no value: want -p city2=VALUE",
	} {
		q := Query{Text: text, Parameters: []Parameter{{Name: "@city"}}}
		err := q.checkParameters()
		if _, wrong := errors.AsType[usage.Error](err); wrong != (want != "") || wrong && err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
